// Package waits keeps the requests that wait for keys, with their order and their deadlines. The table of waiters is
// part of the replicated state, so a wait survives a failover.
//
// It promises:
//   - The queue of a key and a kind of value has its waiters in the order of their arrival.
//   - To add, find or remove a waiter takes O(log n) for each of its keys. A copy of the table takes constant time.
//   - The waits of a node end at once, in constant time. [Table.Sweep] removes the waiters, one in each call.
//   - Tables that received the same calls are equal.
//
// The package does not know when a request can be served. The owner of the table calls [Table.Wake] with each key that
// has a new value. It then takes the ready keys from [Table.Ready], and tries to serve their waiters.
//
// Words: a *waiter* is a request that waits. Its *ticket* is the number that the node of its client has given to it; no
// other request of the same incarnation of the node has this number. A key is *ready* from the time at which it may
// serve waiters until all its waiters have been tried.
//
// Start reading here, then ready.go and node_ends.go. saved.go has what a snapshot needs.
package waits

import (
	"slices"

	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// Table has all waiters. The trees are copied on write, so a copy of the table takes constant time.
//
// Invariant: each waiter in names has a place in places for each of its keys. If it has a deadline, it is in deadlines,
// too. The trees have no other items.
type Table struct {
	places    *btree.BTreeG[place]
	deadlines *btree.BTreeG[*Waiter]
	names     *btree.BTreeG[*Waiter]
	orders    uint64 // the last order that was issued
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
	waiter *Waiter // nil in the key of a search
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

// Copy returns an independent copy, in constant time.
func (t *Table) Copy() *Table {
	c := *t
	c.places, c.deadlines, c.names = t.places.IsoCopy(), t.deadlines.IsoCopy(), t.names.IsoCopy()
	c.readiness, c.ended = t.readiness.copy(), slices.Clone(t.ended)
	c.counts = slices.Clone(t.counts)
	return &c
}

// Add adds a waiter, and keeps it. If the waiter has no order, Add issues one, so that the waiter is behind all others.
// If the name is taken, Add changes nothing and returns false.
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

// Remove removes a waiter.
//
// Requires: the waiter is in the table.
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

// Find returns the waiter with a name, or nil if there is none, or if its wait has ended with its node.
func (t *Table) Find(n Name) *Waiter {
	w, ok := t.names.Get(&Waiter{Name: n})
	if !ok || t.ended.Has(w.Name) {
		return nil
	}
	return w
}

// Next returns the first waiter in the queue of a key and a kind whose order is at least from, or nil.
func (t *Table) Next(db int, key string, kind keyspace.Kind, from uint64) *Waiter {
	p, ok := t.seek(place{db, key, kind, from, nil})
	if !ok || p.db != db || p.key != key || p.kind != kind {
		return nil
	}
	return p.waiter
}

// Any reports whether any waiter waits for a key, for a value of any kind.
func (t *Table) Any(db int, key string) bool {
	if t.places.Len() == 0 {
		return false
	}
	p, ok := t.seek(place{db, key, 0, 0, nil})
	return ok && p.db == db && p.key == key
}

// seek returns the first place that is not before p. ok reports whether there is one.
func (t *Table) seek(p place) (found place, ok bool) {
	t.places.Ascend(p, func(q place) bool {
		found, ok = q, true
		return false
	})
	return found, ok
}

// First returns the waiter with the earliest deadline, or nil if no waiter has a deadline.
func (t *Table) First() *Waiter {
	w, _ := t.deadlines.Min()
	return w
}

// Len counts the waiters in the table, including those whose waits have ended with their nodes.
func (t *Table) Len() int { return t.names.Len() }

// Count counts the waiters of an account, including those whose waits have ended with their nodes.
func (t *Table) Count(account int) int { return t.counts.Of(account) }

// Bytes returns the estimated memory of all waiters.
func (t *Table) Bytes() int64 { return t.bytes }

// Incarnations returns the incarnations whose clients wait, ordered by node and epoch.
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

// Counts has a number for each account, by account: of its waiters, for example. Account 0 is no account, and is not
// counted. The slice ends behind the highest account that has had a number.
type Counts []int

// Add adds n to the number of an account.
func (c *Counts) Add(account, n int) {
	if account == 0 {
		return
	}
	if account >= len(*c) {
		*c = append(*c, make([]int, account+1-len(*c))...)
	}
	(*c)[account] += n
}

// Of returns the number of an account.
func (c Counts) Of(account int) int {
	if account >= len(c) {
		return 0
	}
	return c[account]
}

// Equal reports whether each account has the same number in c and in d.
func (c Counts) Equal(d Counts) bool {
	for account := range max(len(c), len(d)) {
		if c.Of(account) != d.Of(account) {
			return false
		}
	}
	return true
}
