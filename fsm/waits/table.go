// Package waits keeps the requests that wait for keys: who waits, for what, in which order, and until
// when. Waits are part of the replicated state, so they outlive the node that leads.
//
// It promises:
//   - the waiters of a key and a kind of value stand in the order in which they came;
//   - to add, find or remove a waiter takes O(log n) for each of the waiter's keys, to copy all waiters
//     constant time;
//   - waiters that leave together (a node that died) leave in pieces of bounded work, and count as gone
//     at once;
//   - tables that saw the same calls are alike.
//
// The package does not know what a waiter waits for, nor when that has come: the owner calls Wake with
// every key that may serve a waiter, takes the keys by [Table.Ready], and tries the waiters.
//
// Words: a *waiter* is a request that waits; the node that took the request names the waiter by a
// *ticket*, which no other request of this incarnation of the node has. A key is *ready* when its waiters are to
// be tried.
//
// Read ready.go and node_ends.go next. saved.go is what a snapshot needs.
package waits

import (
	"slices"

	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// Table is all waiters. The trees are copied on write, so a copy of the table takes constant time.
//
// Invariant: a waiter stands in names, with each of its keys in places, and in deadlines if it has one; or
// nowhere.
type Table struct {
	places    *btree.BTreeG[place]
	deadlines *btree.BTreeG[*Waiter]
	names     *btree.BTreeG[*Waiter]
	orders    uint64 // given out
	bytes     int64
	counts    Counts
	readiness
	ended NodeEnds
}

// place is a waiter's place in the queue of a key.
type place struct {
	db     int
	key    string
	kind   keyspace.Kind
	order  uint64
	waiter *Waiter // nil in a place that is looked for
}

func placeBefore(a, b place) bool {
	switch {
	case a.db != b.db:
		return a.db < b.db
	case a.key != b.key:
		return a.key < b.key
	case a.kind != b.kind:
		return a.kind < b.kind
	}
	return a.order < b.order
}

// New returns a table without waiters.
func New() *Table {
	options := btree.Options{NoLocks: true}
	return &Table{
		places: btree.NewBTreeGOptions(placeBefore, options),
		deadlines: btree.NewBTreeGOptions(func(a, b *Waiter) bool {
			if a.DeadlineMillis != b.DeadlineMillis {
				return a.DeadlineMillis < b.DeadlineMillis
			}
			return a.Order < b.Order
		}, options),
		names:     btree.NewBTreeGOptions(func(a, b *Waiter) bool { return a.Compare(b.Name) < 0 }, options),
		readiness: newReadiness(),
	}
}

// Copy returns a table that changes of the original do not change, nor the reverse.
func (t *Table) Copy() *Table {
	c := *t
	c.places, c.deadlines, c.names = t.places.IsoCopy(), t.deadlines.IsoCopy(), t.names.IsoCopy()
	c.readiness, c.ended = t.readiness.copy(), slices.Clone(t.ended)
	c.counts = slices.Clone(t.counts)
	return &c
}

// Add adds a waiter behind all others, or at the place of its order if that is set. It returns false, and
// does nothing, if the name is taken.
func (t *Table) Add(w *Waiter) bool {
	if _, taken := t.names.Get(w); taken {
		return false
	}
	if w.Order == 0 {
		t.orders++
		w.Order = t.orders
	}
	t.names.Set(w)
	for _, key := range w.Keys() {
		t.places.Set(place{w.DB, key, w.Kind, w.Order, w})
	}
	if w.DeadlineMillis != Never {
		t.deadlines.Set(w)
	}
	t.bytes += w.Bytes()
	t.counts.Add(w.Account, 1)
	return true
}

// Remove takes a waiter of the table out.
func (t *Table) Remove(w *Waiter) {
	t.names.Delete(w)
	for _, key := range w.Keys() {
		t.places.Delete(place{w.DB, key, w.Kind, w.Order, nil})
	}
	if w.DeadlineMillis != Never {
		t.deadlines.Delete(w)
	}
	t.bytes -= w.Bytes()
	t.counts.Add(w.Account, -1)
}

// Find returns the waiter of a name, nil if there is none.
func (t *Table) Find(n Name) *Waiter {
	w, ok := t.names.Get(&Waiter{Name: n})
	if !ok || t.ended.Has(w.Name) {
		return nil
	}
	return w
}

// Next returns the first waiter of a key and a kind whose order is at least from, nil if there is none.
func (t *Table) Next(db int, key string, kind keyspace.Kind, from uint64) *Waiter {
	p, ok := t.seek(place{db, key, kind, from, nil})
	if !ok || p.db != db || p.key != key || p.kind != kind {
		return nil
	}
	return p.waiter
}

// Any reports whether some waiter waits for the key, for whatever kind of value.
func (t *Table) Any(db int, key string) bool {
	if t.places.Len() == 0 {
		return false
	}
	p, ok := t.seek(place{db, key, 0, 0, nil})
	return ok && p.db == db && p.key == key
}

// seek is the first place at or behind p.
func (t *Table) seek(p place) (found place, ok bool) {
	t.places.Ascend(p, func(q place) bool {
		found, ok = q, true
		return false
	})
	return found, ok
}

// First returns the waiter whose deadline is the earliest, nil if no waiter has a deadline.
func (t *Table) First() *Waiter {
	w, _ := t.deadlines.Min()
	return w
}

// Len counts the waiters, including those of ended nodes that are not removed.
func (t *Table) Len() int { return t.names.Len() }

// Count counts the waiters of an account, including those of ended nodes that are not removed.
func (t *Table) Count(account int) int { return t.counts.Of(account) }

// Bytes returns the counted memory of all waiters.
func (t *Table) Bytes() int64 { return t.bytes }

// Incarnations returns the incarnations of nodes from which requests wait.
func (t *Table) Incarnations() (incarnations []protocol.Incarnation) {
	next := Name{}
	for more := true; more; {
		more = false
		t.names.Ascend(&Waiter{Name: next}, func(w *Waiter) bool {
			more = true
			if !t.ended.Has(w.Name) {
				incarnations = append(incarnations, w.Origin)
				next = Name{Origin: w.Origin, Ticket: ^uint64(0)}
			} else {
				next = Name{Origin: w.Origin, Ticket: w.Ticket + 1}
			}
			return false
		})
	}
	return incarnations
}

// Counts are numbers of waiters by account. There is nothing at 0, and nothing before the first waiter of an account.
type Counts []int

// Add adds n waiters to an account.
func (c *Counts) Add(account, n int) {
	if account == 0 {
		return
	}
	if account >= len(*c) {
		*c = append(*c, make([]int, account+1-len(*c))...)
	}
	(*c)[account] += n
}

// Of is the number of waiters of an account.
func (c Counts) Of(account int) int {
	if account >= len(c) {
		return 0
	}
	return c[account]
}

// Equal reports whether all accounts have as many waiters in d.
func (c Counts) Equal(d Counts) bool {
	for account := range max(len(c), len(d)) {
		if c.Of(account) != d.Of(account) {
			return false
		}
	}
	return true
}
