package locks

import (
	"cmp"
	"iter"
	"slices"

	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// queues has the queues of all locks, and their waiters by name and by session.
type queues struct {
	places   *btree.BTreeG[place]    // by lock, rank and order
	byOwner  *btree.BTreeG[queueKey] // by lock and owner
	waitEnds *btree.BTreeG[queueKey] // by lock of the first key, deadline and order
	names    *btree.BTreeG[*waiter]  // by name, without absent ones
	waitsOf  *btree.BTreeG[*waiter]  // by session and order

	waiterCount  int
	waitingBytes int64
	counts       waits.Counts // by account
	nodeEnds     waits.NodeEnds
}

func newQueues(compared *int) queues {
	return queues{
		places:   newTree(placeBefore, compared),
		byOwner:  newTree(queueOwnerBefore, compared),
		waitEnds: newTree(waitEndBefore, compared),
		names:    newTree(nameBefore, compared),
		waitsOf:  newTree(waitOfBefore, compared),
	}
}

// rank is a part of a queue. Each part is ordered by the orders of its waiters, and merged by those orders the parts
// are the queue.
type rank uint8

const (
	awakeShared  rank = iota // shared requests that this lock blocked last
	awakeOther               // other requests that this lock blocked last
	asleepShared             // shared requests that another lock blocked last
	asleepOther
	absent // owners that may come back
	rankCount
)

// place is the entry of a waiter in the queue of a lock.
type place struct {
	lock   uint64
	at     uint64 // rank and order
	waiter *waiter
}

const orderBits = 60

// noOrder is larger than every order.
const noOrder = 1<<orderBits - 1

func placeAt(l *lock, r rank, order uint64) place {
	return place{lock: l.id(), at: uint64(r)<<orderBits | order}
}

func (p place) order() uint64 { return p.at & (1<<orderBits - 1) }

func placeBefore(a, b place) bool {
	if a.lock != b.lock {
		return a.lock < b.lock
	}
	return a.at < b.at
}

// queueKey is the key of a waiter in byOwner and waitEnds.
type queueKey struct {
	lock   uint64
	waiter *waiter
}

func queueOwnerBefore(a, b queueKey) bool {
	if a.lock != b.lock {
		return a.lock < b.lock
	}
	return a.waiter.owner < b.waiter.owner
}

func waitEndBefore(a, b queueKey) bool {
	switch {
	case a.lock != b.lock:
		return a.lock < b.lock
	case a.waiter.deadline != b.waiter.deadline:
		return a.waiter.deadline < b.waiter.deadline
	}
	return a.waiter.order < b.waiter.order
}

func nameBefore(a, b *waiter) bool { return a.name().Compare(b.name()) < 0 }

func waitOfBefore(a, b *waiter) bool {
	return cmp.Or(cmp.Compare(a.session, b.session), cmp.Compare(a.order, b.order)) < 0
}

// changePlace adds a waiter to the queue of its i-th key if n is 1, and removes it if n is -1. Requires: the lock has
// an extension.
func (q *queues) changePlace(l *lock, w *waiter, i int, n int32) {
	m, p := l.ext, placeAt(l, w.rankAt(i), w.order)
	p.waiter = w
	m.ranks[w.rankAt(i)] += n
	change(q.places, p, n)
	change(q.byOwner, queueKey{l.id(), w}, n)
	if i == 0 && w.deadline != never {
		change(q.waitEnds, queueKey{l.id(), w}, n)
	}
	if w.session != 0 {
		m.sessionWaits += n
	}
	if len(w.keys()) > 1 {
		m.many += n
	}
}

// changeIndexes adds a waiter to the trees by name and by session, and to the counts, if n is 1, and removes it if n is
// -1.
func (q *queues) changeIndexes(w *waiter, n int32) {
	if !w.absent {
		change(q.names, w, n)
	}
	if w.session != 0 {
		change(q.waitsOf, w, n)
	}
	q.waiterCount += int(n)
	q.counts.Add(int(w.account), int(n))
	q.waitingBytes += int64(n) * w.bytes()
}

// change adds an item to a tree if n is 1, and removes it if n is -1.
func change[T any](tree *btree.BTreeG[T], item T, n int32) {
	if n > 0 {
		tree.Set(item)
	} else {
		tree.Delete(item)
	}
}

// waiterOf returns the owner's waiter in a queue, or nil. probe is memory of the caller.
func (q *queues) waiterOf(probe *waiter, l *lock, owner string) *waiter {
	if l.waiters() == 0 {
		return nil
	}
	probe.owner = owner
	k, _ := q.byOwner.Get(queueKey{l.id(), probe})
	probe.owner = ""
	return k.waiter
}

// first returns the order of the first place of a rank, or noOrder.
func (q *queues) first(l *lock, r rank) uint64 {
	p, ok := q.firstPlace(l, r)
	if !ok {
		return noOrder
	}
	return p.order()
}

func (q *queues) firstPlace(l *lock, r rank) (place, bool) {
	if l.ext == nil || l.ext.ranks[r] == 0 {
		return place{}, false
	}
	return seek(q.places, placeAt(l, r, 0))
}

// firstWaitEnd returns the waiter whose wait ends first, or nil. A waiter counts at the lock of its first key only.
func (q *queues) firstWaitEnd(l *lock) *waiter {
	if l.waiters() == 0 {
		return nil
	}
	k, ok := seek(q.waitEnds, queueKey{l.id(), firstWaiter})
	if !ok || k.lock != l.id() {
		return nil
	}
	return k.waiter
}

// firstWaiter sorts before every waiter of a queue.
var firstWaiter = &waiter{deadline: past}

// isFree reports whether no waiter before an order prevents the grant of a request.
func (q *queues) isFree(l *lock, r *Request, order uint64) bool {
	if l.ext == nil {
		return true
	}
	if order > q.first(l, awakeOther) || order > q.first(l, asleepOther) || order > q.first(l, awakeShared) {
		return false
	}
	return r.Mode == Shared || order <= q.first(l, asleepShared)
}

// nextInLine returns the waiter of a lock that is granted next: no waiter before it prevents the grant, the holds are
// compatible, and no other lock is known to block it. Nil: there is none.
func (q *queues) nextInLine(l *lock) *waiter {
	m := l.ext
	if m == nil || m.delay != 0 || m.ranks[awakeShared]+m.ranks[awakeOther] == 0 {
		return nil
	}
	if first := l.anyHold(); first != nil && first.mode == Exclusive {
		return nil
	}
	for r := awakeShared; r <= awakeOther; r++ {
		if p, ok := q.firstPlace(l, r); ok {
			asked := p.waiter.request()
			if q.isFree(l, &asked, p.order()) && isCompatible(l, &asked) {
				return p.waiter
			}
		}
	}
	return nil
}

// waitersAt yields the waiters of a queue in their order.
func (q *queues) waitersAt(l *lock) iter.Seq[*waiter] {
	return func(yield func(w *waiter) bool) {
		var heads [rankCount]place
		var left [rankCount]bool
		for r := range rankCount {
			heads[r], left[r] = q.firstPlace(l, r)
		}
		for {
			least := rankCount
			for r := range rankCount {
				if left[r] && (least == rankCount || heads[r].order() < heads[least].order()) {
					least = r
				}
			}
			if least == rankCount || !yield(heads[least].waiter) {
				return
			}
			next, ok := seek(q.places, placeAt(l, least, heads[least].order()+1))
			heads[least], left[least] = next, ok && next.lock == l.id() && rank(next.at>>orderBits) == least
		}
	}
}

// named returns the waiter with a name, or nil.
func (q *queues) named(n waits.Name) *waiter {
	w, _ := q.names.Get(nameProbe(n))
	return w
}

func nameProbe(n waits.Name) *waiter { return &waiter{origin: &n.Origin, ticket: n.Ticket} }

// firstOf returns the waiter of a node with the lowest name, or nil.
func (q *queues) firstOf(node string) *waiter {
	w, ok := seek(q.names, nameProbe(waits.Name{Origin: protocol.Incarnation{Node: node}}))
	if !ok || w.origin.Node != node {
		return nil
	}
	return w
}

// hasNodeEnded reports whether the wait of a waiter ended with its node. An absent waiter has no client there.
func (q *queues) hasNodeEnded(w *waiter) bool { return !w.absent && q.nodeEnds.Has(w.name()) }

// IsWaiting reports whether a client waits under a name.
func (q *queues) IsWaiting(name waits.Name) bool {
	w := q.named(name)
	return w != nil && !q.hasNodeEnded(w)
}

// QueuesOf counts the queues that have the waiter with a name.
func (q *queues) QueuesOf(name waits.Name) int {
	if w := q.named(name); w != nil {
		return len(w.keys())
	}
	return 0
}

// WaitingIncarnations returns the incarnations of nodes whose clients wait, ordered by node and epoch.
func (q *queues) WaitingIncarnations() (incarnations []protocol.Incarnation) {
	next := waits.Name{}
	for {
		w, ok := seek(q.names, nameProbe(next))
		if !ok {
			return incarnations
		}
		next = w.name()
		if q.hasNodeEnded(w) {
			next.Ticket++
			continue
		}
		incarnations = append(incarnations, next.Origin)
		next.Ticket = ^uint64(0)
	}
}

// WaitersOf counts the waiters of an account, absent ones included.
func (q *queues) WaitersOf(account int) int { return q.counts.Of(account) }

// LastAccount returns the largest account that has had a waiter.
func (q *queues) LastAccount() int { return max(0, len(q.counts)-1) }

func (q *queues) copy() queues {
	c := *q
	c.places, c.byOwner, c.waitEnds = q.places.IsoCopy(), q.byOwner.IsoCopy(), q.waitEnds.IsoCopy()
	c.names, c.waitsOf = q.names.IsoCopy(), q.waitsOf.IsoCopy()
	c.counts, c.nodeEnds = slices.Clone(q.counts), slices.Clone(q.nodeEnds)
	return c
}
