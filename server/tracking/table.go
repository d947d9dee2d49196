// Package tracking remembers which clients of one node may have which keys in a cache of their own, and
// tells the clients when a key changes: CLIENT TRACKING.
//
// The package promises:
//   - a client that has read a key at some index of the log is told of the first change behind that index,
//     whichever node answered the read, if [Client.Read] was called before the read went out;
//   - what a client is told leaves behind the replies of the commands under way ([Client.Begin] to
//     [Client.Settle]), also to another connection: a client never stores a reply behind the message that
//     makes the reply stale;
//   - when the table or a queue is full, a client is told of more keys than have changed, never of fewer;
//   - the node's log is never held up: [Table.Events] looks up and queues.
//
// A [Table] is fed by the state machine's events, on the goroutine that applies entries. Messages are taken
// to the clients by a goroutine that runs while there are messages. A [Client] belongs to one connection.
//
// Locks: Table.mu guards the table and the queue, Client.mu what is held back. Neither is held while the
// other is taken, nor while a [Target] is called.
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

// Table has what the clients of a node track. Create it with [New].
type Table struct {
	limits Limits
	listen func(on bool)

	mu      sync.Mutex
	keys    map[string]clientSet // by key; the database does not count, as in Redis
	items   int                  // sum of the lengths of keys' sets
	bytes   int
	clients map[*Client]struct{} // that track
	// prefixes are the prefixes of BCAST, and lengths how many prefixes there are of each length.
	prefixes map[string]clientSet
	lengths  map[int]int
	// batches are the batches under way of clients that need to know the number.
	batches map[uint64]*Client
	order   []uint64 // the numbers in batches, oldest first, with numbers that have gone

	queue queue
}

type clientSet map[*Client]struct{}

// Limits bound a table. Beyond them keys are forgotten, and the clients told as if the keys had changed.
type Limits struct {
	// Keys is tracking-table-max-keys; 0: no limit but Bytes.
	Keys int
	// Bytes bounds the memory of the table, and of the messages that wait.
	Bytes int
}

// DefaultLimits are Redis's number of keys, and 128 MiB.
func DefaultLimits() Limits { return Limits{Keys: 1_000_000, Bytes: 128 << 20} }

const (
	// keyBytes is the cost of a tracked key beside its bytes, itemBytes of each client that tracks the
	// key.
	keyBytes  = 128
	itemBytes = 32
	// maxBatches bounds the batches whose number is remembered.
	maxBatches = 1 << 16
)

// New is an empty table.
func New(l Limits) *Table {
	t := &Table{
		limits: l, listen: func(bool) {}, keys: make(map[string]clientSet), clients: make(map[*Client]struct{}),
		prefixes: make(map[string]clientSet), lengths: make(map[int]int), batches: make(map[uint64]*Client),
	}
	t.queue.idle.L = &t.mu
	return t
}

// OnInterest has listen called when the first client begins to track and when the last ends. It must be
// called before there are clients.
func (t *Table) OnInterest(listen func(on bool)) { t.listen = listen }

// Events takes the events of an entry. It is called for one entry after the other.
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

// InvalidateAll tells all clients that nothing in their caches is good any more: the node has skipped
// entries, or does not know whether others are written.
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

// empty forgets all keys. A map that was large would stay large. The caller holds t.mu.
func (t *Table) empty() {
	t.keys = make(map[string]clientSet)
	t.items, t.bytes = 0, 0
}

// remember notes that the client may have the key. The caller holds t.mu.
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

// forget takes the key out of the table, and tells the clients that may have the key. The client that made
// the change is not told if it wants so. Then the key stays noted for that client, whose batch may have
// read the key behind the change. The caller holds t.mu.
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

// MaxKeys is the bound of keys.
func (t *Table) MaxKeys() int { return t.limits.Keys }

// Stats are the numbers of INFO.
type Stats struct{ Clients, Keys, Items, Prefixes int }

// Stats counts what is tracked.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Stats{Clients: len(t.clients), Keys: len(t.keys), Items: t.items, Prefixes: len(t.prefixes)}
}

// Wants reports whether this node must run the batch although nobody waits for the reply: a script in it
// may read keys that the client tracks.
func (t *Table) Wants(number uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.batches[number] != nil
}

// change is a key that changed, and the client that did it, if the client is this node's.
type change struct {
	key string
	by  *Client
}

// broadcast queues the changes of an entry for the clients of BCAST: one message for each prefix with a
// changed key, the keys in order. The caller holds t.mu.
func (t *Table) broadcast(changed []change) {
	byPrefix := make(map[string]map[string]*Client) // the keys, and who changed each last
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
		own := make(map[*Client]int) // how many of the keys a client of NOLOOP changed
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
