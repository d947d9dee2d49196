// Package pubsub has the subscriptions of one node's clients, and takes messages to the clients.
//
// The package promises:
//   - a client hears the messages of its channels and patterns in the order of the log, each message as
//     often as Redis would send it;
//   - a subscription begins with the return of [Client.Subscribe]: of the entries that the node applies from
//     then on no message is missed, and of the entries before none is heard;
//   - after [Client.Unsubscribe] has returned nothing of that name is posted;
//   - a message that cannot be heard closes the connection of the client that misses it: a client is never
//     left with a gap;
//   - on a node that loses the cluster all subscriptions end, no later than the lease does by which others count them;
//   - the node's log is never held up: [Hub.Events] appends to a bounded queue.
//
// A [Hub] is fed by the state machine's events, on the goroutine that applies entries. Messages are taken to
// subscribers by a goroutine that runs while there are messages. Timers renew the
// lease while there are subscriptions. A [Client] belongs to one connection.
//
// Locks: Hub.mu guards the subscriptions, queue.mu the queue. Hub.mu may be held while taking queue.mu, never
// the reverse. Hub.listing is taken before Hub.mu. lease.turn is taken before lease.mu, which is a leaf.
// Subscribers are called with Hub.mu held for reading, so they must not call the hub.
package pubsub

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
)

// Hub has the subscriptions of a node's clients. Create it with [New].
type Hub struct {
	logger *slog.Logger
	listen func(on bool)
	// subscriptions is the number of all subscriptions. Nothing is queued while there are none.
	subscriptions atomic.Int64

	mu       sync.RWMutex
	topics   [kinds]topics
	patterns patterns
	clients  map[*Client]struct{} // that have subscriptions

	queue queue
	lease lease
	// listing: lists of names are made one at a time. A list of a million takes 16 MB, and its client is
	// charged when the list is there.
	listing sync.Mutex
}

// Subscriber is the connection of a client. Both methods are called by any goroutine, and must not block.
type Subscriber interface {
	// Post sends a message.
	Post(m *push.Message)
	// Cut closes the connection, since the client would miss a message.
	Cut(why string)
}

// New is a hub without clients.
func New(logger *slog.Logger) *Hub {
	h := &Hub{logger: logger, listen: func(bool) {}, clients: make(map[*Client]struct{})}
	h.queue.settled.L = &h.queue.mu
	h.lease.turn = make(chan struct{}, 1)
	for kind := range h.topics {
		h.topics[kind] = make(topics)
	}
	return h
}

// OnInterest has listen called when the first subscription comes and when the last goes. It must be called
// before there are clients.
func (h *Hub) OnInterest(listen func(on bool)) { h.listen = listen }

// Client is the client of one connection. Its methods are called by one goroutine.
type Client struct {
	hub *Hub
	to  Subscriber
	// names are the client's subscriptions, with the place among the topic's subscribers, and total is
	// their number. Both are guarded by Hub.mu.
	names [kinds]map[string]int
	total int
	// since is the number of the newest message at the first subscription.
	since uint64
	// steps is what matching the message counted cost with the client's patterns. Both belong to the
	// hub's goroutine.
	counted uint64
	steps   int64
}

// Client is a client without subscriptions.
func (h *Hub) Client(to Subscriber) *Client { return &Client{hub: h, to: to} }

// Subscribe subscribes to a name, and reports whether the client was no subscriber before.
func (c *Client) Subscribe(kind Kind, name string) bool {
	h := c.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, subscribed := c.names[kind][name]; subscribed {
		return false
	}
	if c.names[kind] == nil {
		c.names[kind] = make(map[string]int)
	}
	if h.subscriptions.Add(1) == 1 {
		h.listen(true)
	}
	since := h.queue.newest()
	if c.total++; c.total == 1 {
		h.clients[c] = struct{}{}
		c.since = since
	}
	if t := h.topics[kind].add(c, kind, name, since); kind == Pattern && len(t.subs) == 1 {
		h.patterns.add(t)
	}
	return true
}

// Unsubscribe ends the subscription to a name, and reports whether there was one.
func (c *Client) Unsubscribe(kind Kind, name string) bool {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	return c.unsubscribe(kind, name)
}

// unsubscribe is Unsubscribe for a caller that holds Hub.mu.
func (c *Client) unsubscribe(kind Kind, name string) bool {
	h := c.hub
	if _, subscribed := c.names[kind][name]; !subscribed {
		return false
	}
	if empty := h.topics[kind].remove(c, kind, name); empty != nil && kind == Pattern {
		h.patterns.remove(empty)
	}
	if len(h.topics[kind]) == 0 {
		h.topics[kind] = make(topics)
	}
	if len(c.names[kind]) == 0 {
		c.names[kind] = nil // a map that was large stays large, so empty ones here and below are replaced
	}
	if c.total--; c.total == 0 {
		if delete(h.clients, c); len(h.clients) == 0 {
			h.clients = make(map[*Client]struct{})
		}
	}
	if h.subscriptions.Add(-1) == 0 {
		h.listen(false)
	}
	return true
}

// leaveAtOnce is how many subscriptions Leave ends before others may use the hub.
const leaveAtOnce = 1024

// Leave ends all subscriptions.
func (c *Client) Leave() {
	for kind := range kinds {
		for names := c.Names(kind); len(names) > 0; {
			n := min(len(names), leaveAtOnce)
			c.hub.mu.Lock()
			for _, name := range names[:n] {
				c.unsubscribe(kind, name)
			}
			c.hub.mu.Unlock()
			names = names[n:]
		}
	}
}

// Names are the names of the client's subscriptions, in order.
func (c *Client) Names(kind Kind) []string {
	c.hub.mu.RLock()
	names := make([]string, 0, len(c.names[kind]))
	for name := range c.names[kind] {
		names = append(names, name)
	}
	c.hub.mu.RUnlock()
	slices.Sort(names)
	return names
}

// Count is the number of the client's subscriptions of a kind.
func (c *Client) Count(kind Kind) int {
	c.hub.mu.RLock()
	defer c.hub.mu.RUnlock()
	return len(c.names[kind])
}

// Topics is the number of names of a kind that have subscribers.
func (h *Hub) Topics(kind Kind) int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.topics[kind])
}

// Clients is the number of clients with subscriptions.
func (h *Hub) Clients() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.clients)
}

// Subscribers is the number of subscribers of a name, without patterns.
func (h *Hub) Subscribers(kind Kind, name string) int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if t := h.topics[kind][name]; t != nil {
		return len(t.subs)
	}
	return 0
}

// Active are the names of a kind that have subscribers and match a pattern, in order. ok is false if that
// takes too long to find out.
func (h *Hub) Active(kind Kind, pattern string) (names []string, ok bool) {
	h.listing.Lock()
	defer h.listing.Unlock()
	h.mu.RLock()
	all := make([]string, 0, len(h.topics[kind]))
	for name := range h.topics[kind] {
		all = append(all, name)
	}
	h.mu.RUnlock()
	steps := int64(listSteps)
	names = all[:0]
	for _, name := range all {
		if protocol.MatchSteps(pattern, name, false, &steps) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, steps >= 0
}

// listSteps bounds the work of Active, to a second or so.
const listSteps = 1 << 28

// Receivers is how many times a message to the channel is heard by clients of this node, as PUBLISH answers.
func (h *Hub) Receivers(channel string, sharded bool) int {
	if h.subscriptions.Load() == 0 {
		return 0
	}
	if sharded {
		return h.Subscribers(Shard, channel)
	}
	n := h.Subscribers(Channel, channel)
	h.mu.RLock()
	defer h.mu.RUnlock()
	steps := int64(messageSteps)
	h.patterns.each(channel, func(t *topic) bool {
		if protocol.MatchSteps(t.name, channel, false, &steps) {
			n += len(t.subs)
		}
		return steps >= 0
	})
	return n
}
