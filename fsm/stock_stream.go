package fsm

import (
	"math"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// versionOfMarks is the first version of the snapshot with marks of stock locks, and with the incarnations that they
// name.
const versionOfMarks = 5

func (w *snapshotWriter) incarnations(ls *incarnations) {
	if w.stream < versionOfMarks {
		return
	}
	w.uint(ls.given)
	w.uint(uint64(len(ls.known)))
	for _, l := range ls.known {
		w.uint(l.number)
		w.string(l.origin.Node)
		w.uint(l.origin.Epoch)
	}
}

func (r *snapshotReader) incarnations(st *state) {
	ls := &st.incarnations
	ls.given = r.uint("incarnations")
	last := uint64(0)
	for n := r.uint("incarnations"); n > 0 && r.err == nil; n-- {
		l := incarnation{number: r.uint("incarnation"), origin: protocol.Origin{
			Node:  r.string("node"),
			Epoch: r.uint("epoch"),
		}}
		if l.number <= last || l.number > ls.given || len(ls.known) == maxIncarnations {
			r.fail("incarnations")
			return
		}
		last = l.number
		ls.known = append(ls.known, l)
	}
}

// mark writes what follows an item.
func (w *snapshotWriter) mark(it *keyspace.Item) {
	if w.stream < versionOfMarks {
		return
	}
	m, ok := it.Mark()
	account := it.Account()
	follows := uint64(0)
	if ok {
		follows |= followsMark
	}
	if account != 0 {
		follows |= followsAccount
	}
	if w.uint(follows); ok {
		w.stockMark(&m)
	}
	if account != 0 {
		w.uint(uint64(account))
	}
}

// What follows an item.
const (
	followsMark = 1 << iota
	followsAccount
)

func (w *snapshotWriter) stockMark(m *keyspace.Mark) {
	w.int(m.SinceMillis)
	w.uint(uint64(m.LeaseMillis))
	w.uint(m.Incarnation)
	w.uint(m.Conn)
	w.uint(m.Renewals)
}

// mark reads what follows an item.
func (r *snapshotReader) mark(st *state, it *keyspace.Item) {
	if r.stream < versionOfMarks {
		return
	}
	follows := r.uint("mark")
	if follows > followsMark|followsAccount {
		r.fail("mark")
	}
	if follows&followsMark != 0 {
		r.stockMark(st, it)
	}
	if follows&followsAccount != 0 {
		it.SetAccount(r.account(st, 1))
	}
}

func (r *snapshotReader) stockMark(st *state, it *keyspace.Item) {
	m := keyspace.Mark{SinceMillis: r.int("since")}
	lease := r.uint("lease")
	m.LeaseMillis = int64(lease)
	m.Incarnation, m.Conn, m.Renewals = r.uint("incarnation"), r.uint("connection"), r.uint("renewals")
	if lease > math.MaxInt64 || m.Incarnation > st.incarnations.given || it.IsLock() ||
		it.Encoding() != keyspace.EncodingAuto {
		r.fail("mark")
	}
	if r.err == nil {
		*it = it.WithMark(m)
	}
}
