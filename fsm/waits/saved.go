package waits

import (
	"errors"
)

// Scan calls f with each waiter, in the order of their names, until f returns false.
func (t *Table) Scan(f func(w *Waiter) bool) { t.names.Scan(f) }

// ScanReady calls f with each entry of the queue of ready keys, in their order, until f returns false.
func (t *Table) ScanReady(f func(r Ready) bool) {
	t.queue.Scan(func(_ uint64, r Ready) bool { return f(r) })
}

// ReadyLen counts the entries of the queue of ready keys.
func (t *Table) ReadyLen() int { return t.queue.Len() }

// NodeEnds returns the marks of waits that have ended with their nodes. The caller must not change the list.
func (t *Table) NodeEnds() NodeEnds { return t.ended }

// Orders returns the last order that was issued.
func (t *Table) Orders() uint64 { return t.orders }

var (
	errWaiter  = errors.New("a waiter is damaged")
	errOrder   = errors.New("waiters are out of order")
	errReady   = errors.New("a ready key is damaged")
	errNodeEnd = errors.New("the end of a node is damaged")
)

// Restorer builds a table from the values of a snapshot. Its methods return an error for values that no table can have.
type Restorer struct {
	table  *Table
	orders map[uint64]struct{}
	last   Name
}

// NewRestorer returns a restorer. orders is the last order that the table has issued.
func NewRestorer(orders uint64) *Restorer {
	t := New()
	t.orders = orders
	return &Restorer{table: t, orders: make(map[uint64]struct{})}
}

// Add adds a waiter. The waiters must come in the order of their names.
func (r *Restorer) Add(w *Waiter) error {
	_, taken := r.orders[w.Order]
	switch {
	case w.Order == 0, w.Order > r.table.orders, taken, w.DeadlineMillis < 0,
		w.KeyFrom < 1, w.KeyCount < 1, w.KeyCount > len(w.Words)-w.KeyFrom, w.Ticket == ^uint64(0):
		return errWaiter
	case len(r.orders) > 0 && w.Compare(r.last) <= 0:
		return errOrder
	}
	r.orders[w.Order] = struct{}{}
	r.last = w.Name
	r.table.Add(w)
	return nil
}

// Ready adds an entry at the end of the queue of ready keys.
func (r *Restorer) Ready(ready Ready) error {
	_, known := r.table.known.Get(ready)
	coming := !ready.Whole && ready.From == 0
	switch {
	case coming && known, ready.Whole && ready.From != 0, ready.From != 0 && r.table.HasReady():
		return errReady
	case coming:
		r.table.known.Set(ready)
	}
	r.table.enqueue(ready)
	return nil
}

// NodeEnd adds a name to [Table.NodeEnds]. The names must come in the order of their nodes.
func (r *Restorer) NodeEnd(before Name) error {
	if n := len(r.table.ended); n > 0 && r.table.ended[n-1].Origin.Node >= before.Origin.Node {
		return errNodeEnd
	}
	r.table.ended = append(r.table.ended, before)
	return nil
}

// Table returns the table.
func (r *Restorer) Table() *Table { return r.table }
