package fsm

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
)

// The section of the requests that wait for keys:
//
//	uvarint   the last order that was issued
//	uvarint   number of waiters, each, ordered by node, epoch and ticket:
//	            bytes node, uvarint epoch, ticket, order, database, kind, deadline,
//	            index of the first key, number of keys, number of words, bytes word*,
//	            uvarint account, or 0
//	uvarint   number of ready keys, each, in the order of their turns:
//	            uvarint database, bytes key, uvarint 1 if all later keys of the database are ready,
//	            uvarint minimal order of the waiters to try
//	uvarint   number of nodes whose waits have ended, each, ordered by node:
//	            bytes node, uvarint epoch, ticket

func (w *snapshotWriter) waits(t *waits.Table) {
	w.uint(t.Orders())
	w.uint(uint64(t.Len()))
	t.Scan(func(each *waits.Waiter) bool {
		w.waiterName(each.Name)
		w.uint(each.Order)
		w.uint(uint64(each.DB))
		w.uint(uint64(each.Kind))
		w.uint(uint64(each.DeadlineMillis))
		w.uint(uint64(each.KeyFrom))
		w.uint(uint64(each.KeyCount))
		w.uint(uint64(len(each.Words)))
		for _, word := range each.Words {
			w.string(word)
		}
		w.uint(uint64(each.Account))
		return w.err == nil
	})
	w.uint(uint64(t.ReadyLen()))
	t.ScanReady(func(ready waits.Ready) bool {
		w.uint(uint64(ready.DB))
		w.string(ready.Key)
		whole := uint64(0)
		if ready.Whole {
			whole = 1
		}
		w.uint(whole)
		w.uint(ready.From)
		return w.err == nil
	})
	dropped := t.NodeEnds()
	w.uint(uint64(len(dropped)))
	for _, name := range dropped {
		w.waiterName(name)
	}
}

func (w *snapshotWriter) waiterName(n waits.Name) {
	w.string(n.Origin.Node)
	w.uint(n.Origin.Epoch)
	w.uint(n.Ticket)
}

func (r *snapshotReader) waits(st *state) {
	restorer := waits.NewRestorer(r.uint("orders"))
	for n := r.uint("waiters"); n > 0 && r.err == nil; n-- {
		w := r.waiter(st)
		if r.err == nil && restorer.Add(w) != nil {
			r.fail("waiter")
		}
	}
	for n := r.uint("ready keys"); n > 0 && r.err == nil; n-- {
		ready := waits.Ready{DB: r.databaseNumber(), Key: r.string("ready key")}
		whole := r.uint("ready key")
		ready.Whole, ready.From = whole == 1, r.uint("ready key")
		if r.err == nil && (whole > 1 || restorer.Ready(ready) != nil) {
			r.fail("ready key")
		}
	}
	for n := r.uint("dropped waiters"); n > 0 && r.err == nil; n-- {
		if name := r.waiterName(st); r.err == nil && restorer.NodeEnd(name) != nil {
			r.fail("dropped waiters")
		}
	}
	st.Waits = restorer.Table()
}

func (r *snapshotReader) waiterName(st *state) (n waits.Name) {
	n.Origin.Node = st.sessions.nameOf(r.string("node of a waiter"))
	n.Origin.Epoch, n.Ticket = r.uint("epoch of a waiter"), r.uint("ticket")
	return n
}

func (r *snapshotReader) databaseNumber() int {
	n := r.uint("database")
	if n >= uint64(len(state{}.Databases)) {
		r.fail("database")
		return 0
	}
	return int(n)
}

func (r *snapshotReader) waiter(st *state) *waits.Waiter {
	w := &waits.Waiter{Name: r.waiterName(st), Order: r.uint("order"), DB: r.databaseNumber()}
	kind, deadline := r.uint("kind"), r.uint("deadline")
	from, count := r.uint("first key"), r.uint("number of keys")
	words := r.uint("words")
	if kind > uint64(keyspace.KindSortedSet) || deadline > 1<<63-1 || from > words || count > words {
		r.fail("waiter")
	}
	w.Kind, w.DeadlineMillis = keyspace.Kind(kind), int64(deadline)
	w.KeyFrom, w.KeyCount = int(from), int(count)
	for ; words > 0 && r.err == nil; words-- {
		w.Words = append(w.Words, r.string("word of a waiter"))
	}
	w.Account = r.account(st, 0)
	w.Own()
	return w
}
