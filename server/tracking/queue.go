package tracking

import (
	"slices"
	"sync"

	"github.com/holdfast/holdfast/fsm/rights"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
)

// message is an invalidation for a client.
type message struct {
	to   *Client
	news *news
}

// news has keys that clients must drop.
type news struct {
	keys  []string // empty means all keys
	bytes int
	// changed has the client that changed each key. The keys that the client but changed are left out. They are looked up
	// when the message is made, since that takes time in proportion to the keys for each such client.
	changed map[string]*Client
	but     *Client
	// rights leaves out the keys that must not be read. It may be nil.
	rights *rights.Rights
	once   sync.Once
	m      *push.Message
}

// everything invalidates all keys.
var everything = newNews(nil)

// messageBytes is the memory of a message beyond its keys.
const messageBytes = 128

func newNews(keys []string) *news {
	n := &news{keys: keys, bytes: messageBytes}
	for _, key := range keys {
		n.bytes += len(key)
	}
	return n
}

// Channel is the channel that a client of RESP2 subscribes to.
const Channel = "__redis__:invalidate"

// maxCheckSteps bounds the comparisons of a message's keys with a user's rules. Beyond it the client drops all keys.
const maxCheckSteps = 1 << 26

// leftOut returns the function that reports whether a key is left out.
func (n *news) leftOut(b *rights.Budget) func(key string) bool {
	return func(key string) bool {
		return n.but != nil && n.changed[key] == n.but || n.rights != nil && !n.rights.MayRead(key, b) && b.Steps >= 0
	}
}

// tell sends the news, unless all keys are left out.
func (n *news) tell(to Target) {
	if m := n.message(); m != nil {
		to.Invalidate(m)
	}
}

// message encodes the news, once for all clients.
func (n *news) message() *push.Message {
	n.once.Do(func() {
		keys := protocol.Null
		if len(n.keys) > 0 {
			told, b := n.keys, rights.Budget{Steps: maxCheckSteps}
			if n.but != nil || n.rights != nil {
				told = slices.DeleteFunc(slices.Clone(told), n.leftOut(&b))
			}
			switch {
			case b.Steps < 0: // all keys
			case len(told) == 0:
				return
			default:
				keys = protocol.Strings(told...)
			}
		}
		n.m = push.NewPair(protocol.Push(protocol.Bulk("invalidate"), keys),
			protocol.Array(protocol.Bulk("message"), protocol.Bulk(Channel), keys))
	})
	return n.m
}

// queue has the messages for the table's goroutine. Table.mu guards it.
type queue struct {
	messages []message
	bytes    int
	running  bool
	// idle is signalled when the goroutine ends.
	idle sync.Cond
}

// add queues a message. Beyond the bound, one message to each client, which drops the whole cache, replaces the queue.
// The caller holds t.mu.
func (t *Table) add(m message) {
	q := &t.queue
	if q.bytes += m.news.bytes; q.bytes <= t.limits.Bytes {
		q.messages = append(q.messages, m)
		return
	}
	q.messages, q.bytes = nil, 0
	for c := range t.clients {
		q.messages = append(q.messages, message{to: c, news: everything})
	}
}

// start starts the goroutine that sends the messages, if it is not running. The caller holds t.mu.
func (t *Table) start() {
	if q := &t.queue; !q.running && len(q.messages) > 0 {
		q.running = true
		go t.run()
	}
}

// Settle waits until the messages of all earlier calls have been sent.
func (t *Table) Settle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.queue.running {
		t.queue.idle.Wait()
	}
}

// run sends messages until the queue is empty.
func (t *Table) run() {
	for {
		t.mu.Lock()
		messages := t.queue.messages
		t.queue.messages, t.queue.bytes = nil, 0
		if len(messages) == 0 {
			t.queue.running = false
			t.queue.idle.Broadcast()
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		for i := range messages {
			messages[i].to.post(messages[i].news)
		}
	}
}
