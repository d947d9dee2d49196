package waits

import (
	"cmp"
	"strings"

	"github.com/tidwall/btree"
)

// Ready is an entry in the queue of ready keys: one key, or all keys of a database from a key on.
type Ready struct {
	DB    int
	Key   string
	Whole bool // all keys of the database from Key on are ready
	// From is the least order of the waiters that the owner of the table has not tried yet. It is 0 before the turn of the
	// key begins.
	From uint64
}

// readiness has the queue of ready keys, in the order in which they became ready. It is part of the state, since a key
// stays ready if a log entry has no room to try all its waiters.
//
// Invariant: known has the single keys in the queue whose turn has not begun (From is 0).
type readiness struct {
	queue *btree.Map[uint64, Ready] // by turn
	known *btree.BTreeG[Ready]
	turn  uint64 // the last turn that was issued, or 0 while no key is ready
}

func newReadiness() readiness {
	return readiness{
		queue: btree.NewMap[uint64, Ready](0),
		known: btree.NewBTreeGOptions(func(a, b Ready) bool {
			return cmp.Or(cmp.Compare(a.DB, b.DB), strings.Compare(a.Key, b.Key)) < 0
		}, btree.Options{NoLocks: true}),
	}
}

func (r *readiness) copy() readiness {
	return readiness{queue: r.queue.IsoCopy(), known: r.known.IsoCopy(), turn: r.turn}
}

// Wake makes a key ready, unless the key has no waiters. A key that is ready already keeps its turn, if the turn has
// not begun.
func (t *Table) Wake(db int, key string) {
	if !t.Any(db, key) {
		return
	}
	r := Ready{DB: db, Key: key}
	if _, known := t.known.Get(r); known {
		return
	}
	r.Key = strings.Clone(key)
	t.known.Set(r)
	t.enqueue(r)
}

// WakeAll makes all keys of a database ready.
func (t *Table) WakeAll(db int) {
	if t.places.Len() > 0 {
		t.enqueue(Ready{DB: db, Whole: true})
	}
}

func (r *readiness) enqueue(ready Ready) {
	r.turn++
	r.queue.Set(r.turn, ready)
}

// HasReady reports whether any key is ready.
func (r *readiness) HasReady() bool { return r.turn != 0 }

// Ready returns the first entry of the queue of ready keys. ok reports whether there is one.
func (r *readiness) Ready() (first Ready, ok bool) {
	_, first, ok = r.queue.Min()
	return first, ok
}

// Tried records that the waiters of the first ready key whose orders are below from have been tried. The turn of the
// key has then begun, so Wake can make the key ready again.
//
// Requires: the first entry of the queue is a single key, and from is not 0.
func (r *readiness) Tried(from uint64) {
	turn, first, _ := r.queue.Min()
	r.begun(first)
	first.From = from
	r.queue.Set(turn, first)
}

// begun removes a key from known if its turn begins now.
func (r *readiness) begun(first Ready) {
	if first.From == 0 && !first.Whole {
		r.known.Delete(first)
	}
}

// Served removes the first entry from the queue of ready keys.
func (r *readiness) Served() {
	_, first, ok := r.queue.PopMin()
	if ok {
		r.begun(first)
	}
	if r.queue.Len() == 0 {
		r.turn = 0
	}
}

// Spread makes one key of a database ready: the first key with waiters from Ready.Key on. The first entry of the queue
// then begins behind that key. If there is no such key, Spread removes the first entry.
//
// Requires: the first entry of the queue is a whole database.
func (t *Table) Spread() {
	turn, first, _ := t.queue.Min()
	p, ok := t.seek(place{first.DB, first.Key, 0, 0, nil})
	if !ok || p.db != first.DB {
		t.Served()
		return
	}
	first.Key = p.key + "\x00" // the least key that is greater than p.key
	t.queue.Set(turn, first)
	t.Wake(p.db, p.key)
}
