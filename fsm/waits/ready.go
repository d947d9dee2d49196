package waits

import (
	"cmp"
	"strings"

	"github.com/tidwall/btree"
)

// Ready is a key whose waiters are to be tried, or a whole database.
type Ready struct {
	DB int
	// Key is the key. With Whole it is where to begin: all keys from Key on are ready.
	Key   string
	Whole bool
	// From is the least order of the waiters to be tried.
	From uint64
}

// readiness is the keys that are ready, in the order in which they became so. What one entry has no room
// to serve stays for the next, so readiness is part of the state.
//
// Invariant: known has the keys of the queue whose turn has not begun (From is 0).
type readiness struct {
	queue *btree.Map[uint64, Ready] // by turn
	known *btree.BTreeG[Ready]
	turn  uint64 // the last turn; 0 while no key is ready
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

// Wake notes that a key may serve waiters. A key without waiters is not noted, and a key whose turn
// is to come keeps the turn.
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

// WakeAll notes that every key of a database may serve waiters.
func (t *Table) WakeAll(db int) {
	if t.places.Len() > 0 {
		t.enqueue(Ready{DB: db, Whole: true})
	}
}

func (r *readiness) enqueue(ready Ready) {
	r.turn++
	r.queue.Set(r.turn, ready)
}

// HasReady reports whether some key is ready.
func (r *readiness) HasReady() bool { return r.turn != 0 }

// Ready returns the key whose turn it is. ok: there is one.
func (r *readiness) Ready() (first Ready, ok bool) {
	_, first, ok = r.queue.Min()
	return first, ok
}

// Tried notes that the first ready key has tried its waiters before the order from. Once a turn has begun the key can
// become ready again. Requires: the first that is ready is a key, and from is not 0.
func (r *readiness) Tried(from uint64) {
	turn, first, _ := r.queue.Min()
	r.begun(first)
	first.From = from
	r.queue.Set(turn, first)
}

// begun notes that the turn of a key begins, if the turn has not begun before.
func (r *readiness) begun(first Ready) {
	if first.From == 0 && !first.Whole {
		r.known.Delete(first)
	}
}

// Served ends the turn of the first ready key.
func (r *readiness) Served() {
	_, first, ok := r.queue.PopMin()
	if ok {
		r.begun(first)
	}
	if r.queue.Len() == 0 {
		r.turn = 0
	}
}

// Spread takes the next key with waiters out of a whole database that is ready, and makes that key ready,
// behind the others. Requires: the first that is ready is a whole database.
func (t *Table) Spread() {
	turn, first, _ := t.queue.Min()
	p, ok := t.seek(place{first.DB, first.Key, 0, 0, nil})
	if !ok || p.db != first.DB {
		t.Served()
		return
	}
	first.Key = p.key + "\x00" // the next key that there can be
	t.queue.Set(turn, first)
	t.Wake(p.db, p.key)
}
