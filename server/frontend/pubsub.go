package frontend

import (
	"fmt"
	"slices"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/acl"
	"github.com/holdfast/holdfast/server/pubsub"
	"github.com/holdfast/holdfast/server/replica"
)

// subscriptions has the subscriptions of a client.
type subscriptions struct {
	client *pubsub.Client // nil until the first subscription
	counts [3]int         // by pubsub.Kind
	bytes  int            // the memory of the subscriptions
}

// hub returns the hub of the client's port. That for Sentinel's clients has only messages about the leader, which do
// not come from the state machine.
func (c *conn) hub() *pubsub.Hub {
	if c.sentinel() {
		return c.srv.sentinelHub
	}
	return c.srv.cfg.Hub
}

// subscriptionBytes is the memory of a subscription beyond its name: entries of two maps and a list, and a topic.
const subscriptionBytes = 300

func pubsubHandlers() map[string]handler {
	return map[string]handler{
		"subscribe":            {run: subscribe(pubsub.Channel, "subscribe"), barrier: true, queued: true},
		"psubscribe":           {run: subscribe(pubsub.Pattern, "psubscribe"), barrier: true, queued: true},
		"ssubscribe":           {run: subscribe(pubsub.Shard, "ssubscribe"), barrier: true, queued: true},
		"unsubscribe":          {run: unsubscribe(pubsub.Channel, "unsubscribe"), barrier: true, queued: true},
		"punsubscribe":         {run: unsubscribe(pubsub.Pattern, "punsubscribe"), barrier: true, queued: true},
		"sunsubscribe":         {run: unsubscribe(pubsub.Shard, "sunsubscribe"), barrier: true, queued: true},
		"pubsub|channels":      {reply: pubsubActive(pubsub.Channel), barrier: true},
		"pubsub|shardchannels": {reply: pubsubActive(pubsub.Shard), barrier: true},
		"pubsub|numsub":        {reply: pubsubCounts(pubsub.Channel), barrier: true},
		"pubsub|shardnumsub":   {reply: pubsubCounts(pubsub.Shard), barrier: true},
		"pubsub|numpat":        {reply: pubsubPatterns, barrier: true},
	}
}

// count returns the number in the replies to the commands of a kind: channels and patterns are counted together, and
// shard channels alone.
func (s *subscriptions) count(kind pubsub.Kind) int64 {
	if kind == pubsub.Shard {
		return int64(s.counts[pubsub.Shard])
	}
	return int64(s.counts[pubsub.Channel] + s.counts[pubsub.Pattern])
}

func (s *subscriptions) total() int {
	return s.counts[pubsub.Channel] + s.counts[pubsub.Pattern] + s.counts[pubsub.Shard]
}

// subscribe returns the handler that subscribes to each name, and replies with a message for each.
func subscribe(kind pubsub.Kind, verb string) func(*conn, *request) {
	return func(c *conn, req *request) {
		refusal := c.refuseSubscriptions(kind, req.args[1:])
		if refusal == nil && !c.sentinel() {
			refusal = c.srv.catchUp(c.ctx)
		}
		if refusal == nil {
			refusal = refusalOf(c.hub().Acquire(c.ctx))
		}
		if refusal != nil {
			c.push(refusal.Value())
			return
		}
		s := &c.subs
		if s.client == nil {
			s.client = c.hub().Client(c)
		}
		c.awaitDelivery()
		before := s.bytes
		c.outbox.setSubscriber(true)
		pushes := make([]protocol.Value, 0, len(req.args)-1)
		for _, w := range req.args[1:] {
			name := string(w)
			if s.client.Subscribe(kind, name) {
				s.counts[kind]++
				s.bytes += len(name) + subscriptionBytes
			}
			pushes = append(pushes, protocol.Push(protocol.Bulk(verb), protocol.Bulk(name), protocol.Integer(s.count(kind))))
		}
		c.accountQueue(before, s.bytes)
		if !s.client.Check() {
			return
		}
		for _, p := range pushes {
			c.push(p)
		}
	}
}

// refuseSubscriptions returns why the client must not subscribe to the names, or nil.
func (c *conn) refuseSubscriptions(kind pubsub.Kind, names [][]byte) *protocol.Error {
	l, more := &c.srv.cfg.Limits, 0
	for _, name := range names {
		if len(name) > l.MaxKeyBytes {
			return protocol.NewError(fmt.Sprintf("channel exceeds maximum allowed size (%d bytes)", l.MaxKeyBytes))
		}
		more += len(name) + subscriptionBytes
	}
	switch {
	case kind == pubsub.Shard && c.executing:
		return protocol.NewError("SSUBSCRIBE isn't allowed for a DENY BLOCKING client")
	case c.subs.bytes+more > l.MaxSubscriptionBytes:
		return protocol.NewError(fmt.Sprintf("subscriptions exceed maximum allowed size (%d bytes)", l.MaxSubscriptionBytes))
	}
	return nil
}

// unsubscribe returns the handler that ends the subscriptions to the names, or to all names, and replies with a message
// for each. Pending messages of these names are written first.
func unsubscribe(kind pubsub.Kind, verb string) func(*conn, *request) {
	return func(c *conn, req *request) {
		s := &c.subs
		names := make([]string, 0, len(req.args))
		for _, w := range req.args[1:] {
			names = append(names, string(w))
		}
		if len(names) == 0 && s.client != nil {
			names = s.client.Names(kind)
		}
		if len(names) == 0 {
			c.push(protocol.Push(protocol.Bulk(verb), protocol.Null, protocol.Integer(s.count(kind))))
			return
		}
		c.awaitDelivery()
		counts := make([]int64, len(names))
		for i, name := range names {
			if s.client != nil && s.client.Unsubscribe(kind, name) {
				s.counts[kind]--
				s.bytes -= len(name) + subscriptionBytes
			}
			counts[i] = s.count(kind)
		}
		c.deliverFirst()
		for i, name := range names {
			c.push(protocol.Push(protocol.Bulk(verb), protocol.Bulk(name), protocol.Integer(counts[i])))
		}
		c.outbox.setSubscriber(s.total() > 0)
	}
}

// awaitDelivery waits until the subscribers of this node have received what this connection has published, so that the
// commands of a connection take effect in their order.
func (c *conn) awaitDelivery() {
	if c.lastPublish > 0 {
		c.srv.backend.AwaitApplied(c.ctx, c.lastPublish)
		c.lastPublish = 0
	}
	c.hub().Settle()
}

// deliverFirst writes the messages before what follows. The reply to EXEC has no place for messages.
func (c *conn) deliverFirst() {
	if !c.executing {
		c.write()
		c.deliver()
	}
}

// unsubscribeAll ends all subscriptions.
func (c *conn) unsubscribeAll() {
	if c.subs.client != nil {
		c.subs.client.Leave()
	}
	c.subs = subscriptions{}
	c.outbox.setSubscriber(false)
}

// push replies with a message or an error; a command may need several. CLIENT REPLY does not mute messages.
func (c *conn) push(v protocol.Value) {
	c.srv.count(nil, v)
	if !v.IsError() || !c.replyMode.muted() {
		c.encode(v, c.resp)
	}
}

// restricted reports whether the client may send only the commands of a subscriber. In RESP2 it could not tell another
// reply from a message.
func (c *conn) restricted() bool { return c.resp < protocol.RESP3 && c.outbox.subscribed() }

// forSubscribers reports whether a restricted client may send the command.
func forSubscribers(command *protocol.Command) bool {
	switch command.Name {
	case "ping", "subscribe", "ssubscribe", "psubscribe", "unsubscribe", "sunsubscribe", "punsubscribe", "quit", "reset":
		return true
	}
	return false
}

func errRestricted(command *protocol.Command) *protocol.Error {
	return protocol.NewError("Can't execute '" + command.Name +
		"': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context")
}

// maxQuestionBytes bounds the channels in a PUBSUB NUMSUB.
const maxQuestionBytes = 1 << 20

// askNodes has every node answer a question about its subscriptions. For a client of Sentinel it is about those of that
// port.
func (c *conn) askNodes(question []byte) (answers []protocol.Value, refusal *protocol.Error) {
	switch {
	case c.sentinel():
		return []protocol.Value{c.hub().Answer(string(question))}, nil
	case len(question) > maxQuestionBytes:
		return nil, protocol.NewError(fmt.Sprintf("channels exceed maximum allowed size (%d bytes)", maxQuestionBytes))
	}
	batch := replica.Batch{Body: question, Count: 1, Census: true}
	if err := c.srv.backend.Execute(&batch); err != nil {
		return nil, refusalOf(err)
	}
	if row := batch.Replies[0]; row.IsError() {
		return batch.Replies, nil
	}
	return batch.Replies[0].Elems, nil
}

// namesOf returns the names of a kind that have subscribers on any node.
func (c *conn) namesOf(kind pubsub.Kind, pattern string) ([]string, *protocol.Value) {
	answers, refusal := c.askNodes(pubsub.Names(kind, pattern))
	if refusal != nil {
		v := refusal.Value()
		return nil, &v
	}
	return pubsub.Union(answers)
}

// pubsubActive returns the handler that lists the channels of all nodes.
func pubsubActive(kind pubsub.Kind) func(*conn, [][]byte) protocol.Value {
	return func(c *conn, args [][]byte) protocol.Value {
		pattern := "*"
		switch len(args) {
		case 2:
		case 3:
			pattern = string(args[2])
		default:
			return protocol.Err("unknown subcommand or wrong number of arguments for '" + string(args[1]) +
				"'. Try PUBSUB HELP.")
		}
		names, failed := c.namesOf(kind, pattern)
		if failed != nil {
			return *failed
		}
		return protocol.Strings(c.visible(names)...)
	}
}

// visible returns the channels without those whose names reveal keys, unless the user may read the key or subscribe to
// the channel.
func (c *conn) visible(names []string) []string {
	if c.rights == nil {
		return names
	}
	b := acl.NewBudget()
	return slices.DeleteFunc(names, func(channel string) bool {
		key, ok := event.KeyOf(channel)
		return ok && !c.rights.MayRead(key, b) && !c.rights.MayHear(channel, b)
	})
}

// pubsubPatterns counts the different patterns of all nodes.
func pubsubPatterns(c *conn, _ [][]byte) protocol.Value {
	names, failed := c.namesOf(pubsub.Pattern, "*")
	if failed != nil {
		return *failed
	}
	return protocol.Integer(int64(len(names)))
}

// pubsubCounts returns the handler that counts the subscribers of channels on all nodes.
func pubsubCounts(kind pubsub.Kind) func(*conn, [][]byte) protocol.Value {
	return func(c *conn, args [][]byte) protocol.Value {
		channels := args[2:]
		if len(channels) == 0 {
			return protocol.Array()
		}
		answers, refusal := c.askNodes(pubsub.Counts(kind, channels))
		if refusal != nil {
			return refusal.Value()
		}
		counts, failed := pubsub.Sum(answers, len(channels))
		if failed != nil {
			return *failed
		}
		var pairs []protocol.Value
		for i, channel := range channels {
			pairs = append(pairs, protocol.Bulk(string(channel)), protocol.Integer(counts[i]))
		}
		return protocol.Array(pairs...)
	}
}

// published is a running PUBLISH or SPUBLISH, whose reply this node computes.
type published struct {
	channel string
	sharded bool
}

// publishes reports whether the command is PUBLISH or SPUBLISH.
func (r *row) publishes() bool { return r.Name == "publish" || r.Name == "spublish" }

func newPublished(req *request) *published {
	return &published{channel: string(req.args[1]), sharded: req.Name == "spublish"}
}

// answer returns the reply: the number of clients of this node that get the message. A node knows only its own clients.
func (p *published) answer(s *Server, v protocol.Value) protocol.Value {
	if v.Kind != protocol.KindInteger {
		return v
	}
	return protocol.Integer(int64(s.cfg.Hub.Receivers(p.channel, p.sharded)))
}

// listenTo sets whether the state machine emits events that clients of this node need.
func (s *Server) listenTo(i event.Interest, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on {
		s.interest |= i
	} else {
		s.interest &^= i
	}
	s.backend.Listen(s.interest)
}
