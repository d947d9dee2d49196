package fsm

import (
	"math"
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// A stock lock is a key that a client takes as a lock with commands of Redis. The item of the key has a mark: see
// [keyspace.Mark]. server/LOCKS.md lists the commands that make marks.

// NewMark returns a mark for an item that the client of the current request stores.
func (c *call) NewMark(deadlineMillis int64) keyspace.Mark {
	m := keyspace.Mark{SinceMillis: c.NowMillis, LeaseMillis: c.LeaseUntil(deadlineMillis)}
	if c.conn != 0 {
		m.Incarnation, m.Conn = c.st.incarnations.number(c.origin, c.st.sessions), c.conn
	}
	return m
}

// incarnation is a numbered incarnation of a node.
type incarnation struct {
	number uint64
	origin protocol.Incarnation
}

// incarnations issues numbers to the incarnations whose clients made marks. A mark has a number, since it is too small
// for the name of a node. The number of an old mark may be unknown.
type incarnations struct {
	issued uint64        // the last number that was issued
	known  []incarnation // by number
}

// maxIncarnations limits the known incarnations. Beyond it, the oldest incarnation that has a successor is removed, or
// the oldest of all if none has one.
const maxIncarnations = 64

// number returns the number of an incarnation, and issues one if the incarnation has none.
func (is *incarnations) number(o protocol.Incarnation, ss sessions) uint64 {
	for i := len(is.known) - 1; i >= 0; i-- {
		if l := &is.known[i]; l.origin.Epoch == o.Epoch && l.origin.Node == o.Node {
			return l.number
		}
	}
	if len(is.known) >= maxIncarnations {
		former := slices.IndexFunc(is.known, func(l incarnation) bool {
			i, known := ss.find(l.origin.Node)
			return !known || ss[i].epoch > l.origin.Epoch
		})
		is.known = slices.Delete(slices.Clone(is.known), max(0, former), max(0, former)+1)
	}
	is.issued++
	is.known = append(slices.Clip(is.known), incarnation{is.issued, protocol.Incarnation{
		Node:  ss.nameOf(o.Node),
		Epoch: o.Epoch,
	}})
	return is.issued
}

// origin returns the incarnation with a number. known reports whether the number is known.
func (is *incarnations) origin(number uint64) (o protocol.Incarnation, known bool) {
	for i := len(is.known) - 1; i >= 0 && is.known[i].number >= number; i-- {
		if is.known[i].number == number {
			return is.known[i].origin, true
		}
	}
	return o, false
}

// copy returns an independent copy, since number never changes the elements of known.
func (is *incarnations) copy() incarnations { return *is }

func (w *snapshotWriter) incarnations(is *incarnations) {
	w.uint(is.issued)
	w.uint(uint64(len(is.known)))
	for _, l := range is.known {
		w.uint(l.number)
		w.string(l.origin.Node)
		w.uint(l.origin.Epoch)
	}
}

func (r *snapshotReader) incarnations(st *state) {
	is := &st.incarnations
	is.issued = r.uint("incarnations")
	last := uint64(0)
	for n := r.uint("incarnations"); n > 0 && r.err == nil; n-- {
		l := incarnation{number: r.uint("incarnation"), origin: protocol.Incarnation{
			Node:  r.string("node"),
			Epoch: r.uint("epoch"),
		}}
		if l.number <= last || l.number > is.issued || len(is.known) == maxIncarnations {
			r.fail("incarnations")
			return
		}
		last = l.number
		is.known = append(is.known, l)
	}
}

// mark writes the mark and the account of an item, if the item has them.
func (w *snapshotWriter) mark(it *keyspace.Item) {
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

// The flags of an item in a snapshot for a mark and an account that follow the item.
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

// mark reads the mark and the account of an item, if they follow the item.
func (r *snapshotReader) mark(st *state, it *keyspace.Item) {
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
	if lease > math.MaxInt64 || m.Incarnation > st.incarnations.issued || it.IsLock() ||
		it.Encoding() != keyspace.EncodingAuto {
		r.fail("mark")
	}
	if r.err == nil {
		*it = it.WithMark(m)
	}
}
