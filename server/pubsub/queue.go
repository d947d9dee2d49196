package pubsub

import (
	"sync"

	"github.com/holdfast/holdfast/fsm/event"
)

// queueBytes bounds the messages in the queue.
const queueBytes = 64 << 20

// itemBytes is the memory of a queued message beyond its bytes.
const itemBytes = 64

// item is a queued message, or marks a gap.
type item struct {
	number           uint64
	channel, payload string
	sharded, gap     bool
}

func (i *item) bytes() int { return len(i.channel) + len(i.payload) + itemBytes }

// queue has the messages for the hub's goroutine.
type queue struct {
	mu      sync.Mutex
	items   []item
	bytes   int
	number  uint64 // of the newest message
	running bool   // the goroutine is running
	// taken is the number of the newest message that has left the queue, and delivered that of the newest that was posted
	// to its subscribers. settled is signalled when delivered grows.
	taken, delivered uint64
	settled          sync.Cond
}

// Events queues the messages of an entry. Its calls must not overlap.
func (h *Hub) Events(events []event.Event) {
	if h.subscriptions.Load() == 0 {
		return
	}
	q := &h.queue
	q.mu.Lock()
	for i := range events {
		events[i].Messages(func(channel, payload string) {
			// One string has both, so that neither keeps the entry in memory.
			both := channel + payload
			q.add(item{channel: both[:len(channel)], payload: both[len(channel):], sharded: events[i].Sharded})
		})
	}
	q.mu.Unlock()
	h.start()
}

// Publish queues a message that is in no entry.
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

// add numbers a message and queues it. If the queue is full, a gap replaces it. The caller holds q.mu.
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

// newest returns the number of the newest message.
func (q *queue) newest() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.number
}

// take removes items from the queue, only a few so that a gap is noticed soon. left is the number of remaining bytes.
// If there are no items, the goroutine ends.
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

// takeItems bounds the items of one take.
const takeItems = 64
