// Package pubsub has the subscriptions of one node's clients, and delivers messages to the clients.
//
// The package promises:
//   - a client gets the messages of its channels and patterns in the order of the log, each as often as from Redis;
//   - a subscription begins when [Client.Subscribe] returns: the client gets all messages of the entries that the node
//     applies later, and none of earlier entries;
//   - after [Client.Unsubscribe] has returned, no message of that name is posted;
//   - if a message cannot be delivered, the client's connection is closed: no client has an unnoticed gap;
//   - on a partitioned node all subscriptions end before the lease ends by which other nodes count them;
//   - the node's log never waits: [Hub.Events] appends to a bounded queue.
//
// The goroutine that applies entries passes their events to the [Hub]. Another goroutine delivers messages, and runs
// while there are any. Timers renew the lease while there are subscriptions. A [Client] belongs to one connection.
//
// Locks: Hub.mu guards the subscriptions, queue.mu the queue. Hub.mu may be held while queue.mu is taken, never the
// reverse. Hub.listing is taken before Hub.mu. lease.turn is taken before lease.mu, which is a leaf. Subscribers are
// called with Hub.mu held for reading, so they must not call the hub.
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
	// subscriptions counts all subscriptions. If there are none, no message is queued.
	subscriptions atomic.Int64

	mu       sync.RWMutex
	topics   [kinds]topics
	patterns patterns
	clients  map[*Client]struct{} // the clients with subscriptions

	queue queue
	lease lease
	// listing has only one list of names made at a time. A list of a million takes 16 MB, and is charged to its client
	// only when it is complete.
	listing sync.Mutex
}

// Subscriber is the connection of a client. Any goroutine calls its methods, which must not block.
type Subscriber interface {
	// Post sends a message.
	Post(m *push.Message)
	// Cut closes the connection, since the client would miss a message.
	Cut(why string)
}

// New returns a hub without clients.
func New(logger *slog.Logger) *Hub {
	h := &Hub{logger: logger, listen: func(bool) {}, clients: make(map[*Client]struct{})}
	h.queue.settled.L = &h.queue.mu
	h.lease.turn = make(chan struct{}, 1)
	for kind := range h.topics {
		h.topics[kind] = make(topics)
	}
	return h
}

// OnInterest registers listen, which is called at the first subscription and when there is none any more. It must be
// called before there are clients.
func (h *Hub) OnInterest(listen func(on bool)) { h.listen = listen }

// Client is the client of one connection. One goroutine calls its methods.
type Client struct {
	hub *Hub
	to  Subscriber
	// names has the client's subscriptions, with their indexes among the topic's subscribers. total is their number.
	// Hub.mu guards both.
	names [kinds]map[string]int
	total int
	// since is the number of the newest message at the client's first subscription.
	since uint64
	// steps is the work of the client's patterns for the message with the number counted. Both belong to the hub's
	// goroutine.
	counted uint64
	steps   int64
}

// Client returns a client without subscriptions.
func (h *Hub) Client(to Subscriber) *Client { return &Client{hub: h, to: to} }

// Subscribe subscribes to a name, and reports whether the subscription is new.
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
		c.names[kind] = nil // a large map never shrinks, so empty maps are replaced here and below
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

// leaveAtOnce bounds the subscriptions that Leave ends before other callers may use the hub.
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

// Names returns the names of the client's subscriptions of a kind, in order.
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

// Count returns the number of the client's subscriptions of a kind.
func (c *Client) Count(kind Kind) int {
	c.hub.mu.RLock()
	defer c.hub.mu.RUnlock()
	return len(c.names[kind])
}

// Topics returns the number of names of a kind that have subscribers.
func (h *Hub) Topics(kind Kind) int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.topics[kind])
}

// Clients returns the number of clients with subscriptions.
func (h *Hub) Clients() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.clients)
}

// Subscribers returns the number of subscribers of a name, without those of patterns.
func (h *Hub) Subscribers(kind Kind, name string) int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if t := h.topics[kind][name]; t != nil {
		return len(t.subs)
	}
	return 0
}

// Active returns the names of a kind that have subscribers and match a pattern, in order. ok is false if the match
// takes too long.
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

// listSteps bounds the steps of Active, to about a second.
const listSteps = 1 << 28

// Receivers returns how often clients of this node get a message to the channel, for the reply to PUBLISH.
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
