package locks

import (
	"cmp"
	"strings"

	"github.com/holdfast/holdfast/fsm/waits"
)

// waiter is a request in line. It stands in the queues of all its keys, with one order. Invariant: never
// changed once in a table.
type waiter struct {
	Request
	order    uint64
	since    int64
	deadline int64 // the last instant of the wait, or of the grace; never: no end
	// blocked is the index of the key that blocked the request last. In the other queues it sleeps: only a
	// change at that key can help it.
	blocked uint8
	// absent: the wait has ended by time, and the place is kept until deadline.
	absent bool
}

func (w *waiter) name() waits.Name { return waits.Name{Origin: w.Client.Origin, Ticket: w.Ticket} }

// rank is the part of a queue that a place is in. Each part is in order; together they are the queue.
type rank uint8

const (
	awakeShared  rank = iota // shared requests that nothing but this lock blocks
	awakeOther               // the other requests of that kind
	asleepShared             // shared requests that another lock blocks
	asleepOther
	absent // places that are kept for who comes back
	rankCount
)

// rankAt is the waiter's rank in the queue of its key with that index.
func (w *waiter) rankAt(i int) rank {
	switch {
	case w.absent:
		return absent
	case w.Mode == Shared && i == int(w.blocked):
		return awakeShared
	case w.Mode == Shared:
		return asleepShared
	case i == int(w.blocked):
		return awakeOther
	default:
		return asleepOther
	}
}

// place is a waiter's place in the queue of a lock.
type place struct {
	lock   uint64
	at     uint64 // rank and order
	waiter *waiter
}

const orderBits = 60

func placeAt(l *lock, r rank, order uint64) place {
	return place{lock: l.id(), at: uint64(r)<<orderBits | order}
}

func (p place) order() uint64 { return p.at & (1<<orderBits - 1) }

func placeBefore(a, b place) bool {
	return cmp.Or(cmp.Compare(a.lock, b.lock), cmp.Compare(a.at, b.at)) < 0
}

// stand is a waiter of a lock.
type stand struct {
	lock   uint64
	waiter *waiter
}

func waitingBefore(a, b stand) bool {
	return cmp.Or(cmp.Compare(a.lock, b.lock), strings.Compare(a.waiter.Owner, b.waiter.Owner)) < 0
}

func waitEndBefore(a, b stand) bool {
	return cmp.Or(cmp.Compare(a.lock, b.lock), cmp.Compare(a.waiter.deadline, b.waiter.deadline),
		cmp.Compare(a.waiter.order, b.waiter.order)) < 0
}

func compareNames(a, b waits.Name) int {
	return cmp.Or(strings.Compare(a.Origin.Node, b.Origin.Node), cmp.Compare(a.Origin.Epoch, b.Origin.Epoch),
		cmp.Compare(a.Ticket, b.Ticket))
}

func nameBefore(a, b *waiter) bool { return compareNames(a.name(), b.name()) < 0 }

func waitBySessionBefore(a, b *waiter) bool {
	return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.order, b.order)) < 0
}

// first is the order of the first place of a rank, or beyond every order.
func (t *Table) first(l *lock, r rank) uint64 {
	p, ok := t.firstPlace(l, r)
	if !ok {
		return noOrder
	}
	return p.order()
}

// noOrder is behind every order.
const noOrder = 1<<orderBits - 1

func (t *Table) firstPlace(l *lock, r rank) (place, bool) {
	if l.more == nil || l.more.ranks[r] == 0 {
		return place{}, false
	}
	return seek(t.places, placeAt(l, r, 0))
}

// firstWaitEnd is the waiter whose wait ends first, of those whose first key this is.
func (t *Table) firstWaitEnd(l *lock) *waiter {
	s, ok := seek(t.waitEnds, stand{l.id(), firstWaiter})
	if !ok || s.lock != l.id() {
		return nil
	}
	return s.waiter
}

// line puts a waiter into all queues. Requires: the locks are there.
func (t *Table) line(w *waiter) {
	for i, key := range w.Keys {
		l := t.take(w.DB, key)
		m := t.extensionOf(l)
		r := w.rankAt(i)
		m.ranks[r]++
		p := placeAt(l, r, w.order)
		p.waiter = w
		t.places.Set(p)
		t.waiting.Set(stand{l.id(), w})
		if i == 0 && w.deadline != never {
			t.waitEnds.Set(stand{l.id(), w})
		}
		if w.Session != 0 {
			m.sessionWaits++
		}
		if len(w.Keys) > 1 {
			m.many++
		}
	}
	if !w.absent {
		t.names.Set(w)
	}
	if w.Session != 0 {
		t.waitsBySession.Set(w)
		t.ownSession(w.Session).waiters++
	}
	t.payPlaces(w)
	t.waiterCount++
	t.counts.Add(int(w.Account), 1)
	t.waitingBytes += w.bytes()
	t.bytes += w.bytes()
}

// unline takes a waiter out of all queues.
func (t *Table) unline(w *waiter) {
	for i, key := range w.Keys {
		l := t.take(w.DB, key)
		m := l.more
		r := w.rankAt(i)
		m.ranks[r]--
		t.places.Delete(placeAt(l, r, w.order))
		t.waiting.Delete(stand{l.id(), w})
		if i == 0 && w.deadline != never {
			t.waitEnds.Delete(stand{l.id(), w})
		}
		if w.Session != 0 {
			m.sessionWaits--
		}
		if len(w.Keys) > 1 {
			m.many--
		}
	}
	if !w.absent {
		t.names.Delete(w)
	}
	if w.Session != 0 {
		t.waitsBySession.Delete(w)
		t.ownSession(w.Session).waiters--
	}
	t.payPlaces(w)
	t.waiterCount--
	t.counts.Add(int(w.Account), -1)
	t.waitingBytes -= w.bytes()
	t.bytes -= w.bytes()
}

// relined puts a changed copy of a waiter in its place.
func (t *Table) relined(old, w *waiter) {
	t.unline(old)
	t.line(w)
}

// wakeAll notes that others in the queues of a waiter may be granted.
func (t *Table) wakeAll(w *waiter) {
	for _, key := range w.Keys {
		t.wake(t.take(w.DB, key))
	}
}

// dismiss ends a wait without a grant. err is what the client is told; none is told of an absent one.
func (t *Table) dismiss(w *waiter, err error) {
	t.unline(w)
	t.wakeAll(w)
	t.tellEnd(w, 0, err)
	t.tellLeft(w, departureOf(err))
}

func departureOf(err error) Departure {
	switch err {
	case nil:
		return Cancelled
	case ErrNoSession:
		return WithSession
	case ErrUnblocked:
		return Unblocked
	case ErrDropped:
		return Disconnected
	}
	return Refused
}

// tellLeft tells who listens that a waiter is in its queues no more.
func (t *Table) tellLeft(w *waiter, how Departure) {
	waited := t.now - w.since
	if w.absent { // the wait was over before, and the place kept
		how, waited = OutOfTime, max(0, w.deadline-w.GraceMillis-w.since)
	}
	for _, key := range w.Keys {
		l := t.find(w.DB, key)
		t.tell(Effect{
			Kind: Left, How: how, DB: w.DB, Key: l.key, Owner: w.Owner, Session: w.Session, Client: w.Client,
			Waiters: l.waiters(), WaitedMillis: waited,
		})
		waited = 0
	}
}

// tellEnd tells the client of a waiter that the wait is over.
func (t *Table) tellEnd(w *waiter, fence uint64, err error) {
	if !w.absent {
		t.tell(t.endOfWait(w, fence, err))
	}
}

func (t *Table) endOfWait(w *waiter, fence uint64, err error) Effect {
	return Effect{
		Kind: Told, DB: w.DB, Key: w.Keys[0], Owner: w.Owner, Fence: fence, Session: w.Session, Notify: w.Notify,
		Client: w.Client, Name: w.name(), Err: err, WaitedMillis: t.now - w.since,
	}
}
