package pubsub

import (
	"sync"

	"github.com/holdfast/holdfast/fsm/event"
)

// queueBytes bounds the messages that wait for the hub's goroutine.
const queueBytes = 64 << 20

// itemBytes is the cost of a queued message beside its bytes.
const itemBytes = 64

// item is a message that waits, or the mark that messages are missing.
type item struct {
	number           uint64
	channel, payload string
	sharded, gap     bool
}

func (i *item) bytes() int { return len(i.channel) + len(i.payload) + itemBytes }

// queue is what waits for the hub's goroutine.
type queue struct {
	mu      sync.Mutex
	items   []item
	bytes   int
	number  uint64 // of the newest message
	running bool   // the goroutine runs
	// taken is the number of the newest message that was taken out, delivered of the newest that was
	// posted to its subscribers. settled is signalled when delivered grows.
	taken, delivered uint64
	settled          sync.Cond
}

// Events queues the messages of an entry. It is called for one entry after the other.
func (h *Hub) Events(events []event.Event) {
	if h.subscriptions.Load() == 0 {
		return
	}
	q := &h.queue
	q.mu.Lock()
	for i := range events {
		events[i].Messages(func(channel, payload string) {
			// One string holds both, and does not keep the entry in memory.
			both := channel + payload
			q.add(item{channel: both[:len(channel)], payload: both[len(channel):], sharded: events[i].Sharded})
		})
	}
	q.mu.Unlock()
	h.start()
}

// Publish queues a message that no entry holds.
func (h *Hub) Publish(channel, payload string) {
	h.Events([]event.Event{{Kind: event.Published, Name: channel, Payload: payload}})
}

// Gap closes the connections of all subscribers, since the node has skipped entries of the log.
func (h *Hub) Gap() {
	h.queue.mu.Lock()
	h.queue.lose()
	h.queue.mu.Unlock()
	h.start()
}

// add numbers a message and appends it. A message beyond the bound replaces the queue by a gap. The caller
// holds q.mu.
func (q *queue) add(i item) {
	q.number++
	i.number = q.number
	if q.bytes += i.bytes(); q.bytes > queueBytes {
		q.lose()
		return
	}
	q.items = append(q.items, i)
}

// lose replaces the queue by a gap. The caller holds q.mu.
func (q *queue) lose() {
	q.number++
	q.items = append(q.items[:0:0], item{number: q.number, gap: true})
	q.bytes = itemBytes
}

// newest is the number of the newest message.
func (q *queue) newest() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.number
}

// take takes out what waits, at most a few items so that a gap is noticed soon, and says how many bytes are
// left. Without items the goroutine ends.
func (q *queue) take() (items []item, left int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.delivered = q.taken
	q.settled.Broadcast()
	n := min(len(q.items), takeItems)
	items, q.items = q.items[:n:n], q.items[n:]
	for i := range items {
		q.bytes -= items[i].bytes()
		q.taken = items[i].number
	}
	if n == 0 {
		q.items, q.bytes, q.running = nil, 0, false
	}
	return items, q.bytes
}

// Settle waits until the messages that were queued before have been posted to their subscribers.
func (h *Hub) Settle() {
	q := &h.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	for until := q.number; q.running && q.delivered < until; {
		q.settled.Wait()
	}
}

// takeItems is how many messages are taken out of the queue at once.
const takeItems = 64
