// Package tracking records the keys that clients of one node may have in a cache of their own, and sends the clients
// invalidations when keys change: CLIENT TRACKING.
//
// The package promises:
//   - a client that has read a key at some index of the log gets an invalidation for the first change after that index,
//     whichever node has executed the read, if [Client.Read] was called before the read was sent;
//   - an invalidation follows the replies of the running commands ([Client.Begin] to [Client.Settle]), even on another
//     connection: no client stores a reply after the message that invalidates it;
//   - if the table or a queue is full, a client gets too many invalidations, never too few;
//   - the node's log never waits: [Table.Events] looks up keys and queues messages.
//
// The goroutine that applies entries passes their events to the [Table]. Another goroutine sends messages, and runs
// while there are any. A [Client] belongs to one connection.
//
// Locks: Table.mu guards the table and the queue, Client.mu the messages that are held back. Neither is held while the
// other is taken, or while a [Target] is called.
//
// DESIGN.md has the argument why no change is missed.
package tracking

import (
	"maps"
	"slices"
	"sync"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/rights"
)

// Table records what the clients of a node track. Create it with [New].
type Table struct {
	limits Limits
	listen func(on bool)

	mu      sync.Mutex
	keys    map[string]clientSet // by key; as in Redis, without the database
	items   int                  // sum of the lengths of keys' sets
	bytes   int
	clients map[*Client]struct{} // the clients that track
	// prefixes has the prefixes of BCAST, and lengths the number of prefixes of each length.
	prefixes map[string]clientSet
	lengths  map[int]int
	// batches has the running batches of clients whose batches are recorded by number.
	batches map[uint64]*Client
	order   []uint64 // the numbers in batches, oldest first, and numbers that were removed

	queue queue
}

type clientSet map[*Client]struct{}

// Limits bounds a table. If it is full, it drops keys, and sends their invalidations.
type Limits struct {
	// Keys is tracking-table-max-keys. 0 leaves only the limit Bytes.
	Keys int
	// Bytes bounds the memory of the table and of its queue.
	Bytes int
}

// DefaultLimits returns Redis's number of keys, and 128 MiB.
func DefaultLimits() Limits { return Limits{Keys: 1_000_000, Bytes: 128 << 20} }

const (
	// keyBytes is the memory of a tracked key beyond its bytes, and itemBytes that of each client that tracks the key.
	keyBytes  = 128
	itemBytes = 32
	// maxBatches bounds the recorded batches.
	maxBatches = 1 << 16
)

// New returns an empty table.
func New(l Limits) *Table {
	t := &Table{
		limits: l, listen: func(bool) {}, keys: make(map[string]clientSet), clients: make(map[*Client]struct{}),
		prefixes: make(map[string]clientSet), lengths: make(map[int]int), batches: make(map[uint64]*Client),
	}
	t.queue.idle.L = &t.mu
	return t
}

// OnInterest registers listen, which is called when a first client begins tracking and when none tracks any more. It
// must be called before there are clients.
func (t *Table) OnInterest(listen func(on bool)) { t.listen = listen }

// Events handles the events of an entry. Its calls must not overlap.
func (t *Table) Events(events []event.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.clients) == 0 {
		clear(t.batches)
		t.order = nil
		return
	}
	var changed []change
	for i := range events {
		switch e := &events[i]; e.Kind {
		case event.Changed:
			by := t.batches[e.Seq]
			t.forget(e.Key, by)
			if len(t.prefixes) > 0 {
				changed = append(changed, change{e.Key, by})
			}
		case event.Flushed, event.Swapped:
			changed = nil
			t.invalidateAll()
		case event.Read:
			if c := t.batches[e.Seq]; c != nil {
				t.remember(e.Key, c)
			}
		case event.Ran:
			delete(t.batches, e.Seq)
		}
	}
	t.broadcast(changed)
	t.start()
}

// InvalidateAll invalidates all keys of all clients: the node has skipped entries, or may not get the latest ones.
func (t *Table) InvalidateAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.invalidateAll()
	t.start()
}

func (t *Table) invalidateAll() {
	for c := range t.clients {
		t.add(message{to: c, news: everything})
	}
	t.empty()
}

// empty drops all keys. It replaces the map, since a large map never shrinks. The caller holds t.mu.
func (t *Table) empty() {
	t.keys = make(map[string]clientSet)
	t.items, t.bytes = 0, 0
}

// remember records that the client may cache the key. The caller holds t.mu.
func (t *Table) remember(key string, c *Client) {
	if _, tracks := t.clients[c]; !tracks || c.options.Broadcast {
		return
	}
	set := t.keys[key]
	if set == nil {
		set = make(clientSet, 1)
		key = string(append([]byte(nil), key...)) // shares no memory with an entry
		t.keys[key] = set
		t.bytes += len(key) + keyBytes
	}
	if _, known := set[c]; !known {
		set[c] = struct{}{}
		t.items++
		t.bytes += itemBytes
	}
	for t.limits.Keys > 0 && len(t.keys) > t.limits.Keys || t.bytes > t.limits.Bytes {
		for key := range t.keys { // any
			t.forget(key, nil)
			break
		}
	}
}

// forget removes a changed key, and invalidates it at its clients. With NOLOOP the client that made the change gets no
// message. The key then stays recorded for it, since its batch may have read the key after the change. The caller holds
// t.mu.
func (t *Table) forget(key string, by *Client) {
	set, tracked := t.keys[key]
	if !tracked {
		return
	}
	delete(t.keys, key)
	t.items -= len(set)
	t.bytes -= len(key) + keyBytes + len(set)*itemBytes
	told := newNews([]string{key})
	for c := range set {
		if _, tracks := t.clients[c]; tracks && !c.options.Broadcast && !(c == by && c.options.NoLoop) {
			t.add(message{to: c, news: told})
		}
	}
	if by != nil && by.options.NoLoop {
		if _, had := set[by]; had {
			t.remember(key, by)
		}
	}
}

// MaxKeys returns the limit of keys.
func (t *Table) MaxKeys() int { return t.limits.Keys }

// Stats has the numbers of INFO.
type Stats struct{ Clients, Keys, Items, Prefixes int }

// Stats returns the present numbers.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Stats{Clients: len(t.clients), Keys: len(t.keys), Items: t.items, Prefixes: len(t.prefixes)}
}

// Wants reports whether this node must run the reads of a batch even if no client waits for the reply, since its
// scripts may read keys that the client tracks.
func (t *Table) Wants(number uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.batches[number] != nil
}

// change is a changed key, with the client of this node that changed it, or nil.
type change struct {
	key string
	by  *Client
}

// broadcast queues the changes of an entry for the clients of BCAST: one message, with the keys in order, for each
// prefix of a changed key. The caller holds t.mu.
func (t *Table) broadcast(changed []change) {
	byPrefix := make(map[string]map[string]*Client) // the keys of each prefix, and the clients that changed them last
	for _, ch := range changed {
		for length := range t.lengths {
			if length > len(ch.key) || t.prefixes[ch.key[:length]] == nil {
				continue
			}
			keys := byPrefix[ch.key[:length]]
			if keys == nil {
				keys = make(map[string]*Client)
				byPrefix[ch.key[:length]] = keys
			}
			keys[ch.key] = ch.by
		}
	}
	for _, prefix := range slices.Sorted(maps.Keys(byPrefix)) {
		keys := byPrefix[prefix]
		all := make([]string, 0, len(keys))
		for key := range keys {
			all = append(all, key)
		}
		slices.Sort(all)
		own := make(map[*Client]int) // the number of keys that a client of NOLOOP has changed
		for _, by := range keys {
			if by != nil && by.options.NoLoop {
				own[by]++
			}
		}
		shared := map[*rights.Rights]*news{nil: newNews(all)}
		for c := range t.prefixes[prefix] {
			told := shared[c.rights]
			if told == nil {
				told = &news{keys: all, bytes: shared[nil].bytes, rights: c.rights}
				shared[c.rights] = told
			}
			switch n := own[c]; n {
			case 0:
				t.add(message{to: c, news: told})
			case len(all):
			default:
				t.add(message{to: c, news: &news{keys: all, bytes: told.bytes, changed: keys, but: c, rights: c.rights}})
			}
		}
	}
}
