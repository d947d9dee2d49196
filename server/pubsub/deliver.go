package pubsub

import (
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
)

const (
	// messageSteps bounds the steps to match one message with one client's patterns, to some ten milliseconds. A client
	// whose patterns take more is disconnected.
	messageSteps = 4 << 20
	// patternSteps is the work of a pattern beyond the bytes that are compared.
	patternSteps = 8
	// crowdedBytes is a quarter of the queue. If it is exceeded, the client with the most expensive patterns is
	// disconnected.
	crowdedBytes = queueBytes / 4
	// costlySteps is the work of patterns that no client is disconnected for.
	costlySteps = 1 << 14
)

const (
	whyGap     = "messages were skipped"
	whyPattern = "the patterns take too long to match"
)

// start starts the goroutine that delivers messages, if it is not running.
func (h *Hub) start() {
	q := &h.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.running && len(q.items) > 0 {
		q.running = true
		go h.run()
	}
}

// run delivers messages until the queue is empty.
func (h *Hub) run() {
	for {
		items, left := h.queue.take()
		if len(items) == 0 {
			return
		}
		for i := range items {
			if items[i].gap {
				h.cutAll(whyGap, func(c *Client) bool { return c.since < items[i].number })
			} else {
				h.deliver(&items[i], left)
			}
		}
	}
}

// deliver sends a message to its subscribers. left is the number of bytes in the queue.
func (h *Hub) deliver(i *item, left int) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if i.sharded {
		h.post(Shard, h.topics[Shard][i.channel], i)
		return
	}
	h.post(Channel, h.topics[Channel][i.channel], i)
	var costliest *Client
	h.patterns.each(i.channel, func(t *topic) bool {
		// The first subscriber is charged for the pattern.
		payer := t.subs[0].client
		if payer.counted != i.number {
			payer.counted, payer.steps = i.number, 0
		}
		steps := max(messageSteps-payer.steps, 0)
		matches := protocol.MatchSteps(t.name, i.channel, false, &steps)
		payer.steps = messageSteps - steps + patternSteps
		switch {
		case steps < 0:
			for _, s := range t.subs {
				s.client.to.Cut(whyPattern)
			}
		case matches:
			h.post(Pattern, t, i)
		}
		if costliest == nil || payer.steps > costliest.steps {
			costliest = payer
		}
		return true
	})
	if left > crowdedBytes && costliest != nil && costliest.steps > costlySteps {
		costliest.to.Cut(whyPattern)
	}
}

// post sends a message to the subscribers of a topic. The caller holds h.mu.
func (h *Hub) post(kind Kind, t *topic, i *item) {
	if t == nil {
		return
	}
	var m *push.Message
	for _, s := range t.subs {
		if s.since >= i.number {
			continue
		}
		if m == nil {
			m = kind.message(t.name, i.channel, i.payload)
		}
		s.client.to.Post(m)
	}
}

// cutAll closes the connections of the clients for which which returns true.
func (h *Hub) cutAll(why string, which func(*Client) bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if len(h.clients) > 0 {
		h.logger.Warn("closing all subscribers: "+why, "clients", len(h.clients))
	}
	for c := range h.clients {
		if which(c) {
			c.to.Cut(why)
		}
	}
}
