package locks

import (
	"cmp"
	"iter"
	"slices"

	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// queues has the queues of all locks, with indexes of their waiters.
type queues struct {
	queueEntries     *btree.BTreeG[queueEntry] // by lock, rank and order
	waitersByOwner   *btree.BTreeG[waiterKey]  // by lock and owner
	waitEnds         *btree.BTreeG[waiterKey]  // by the lock of the first key, deadline and order
	waitersByName    *btree.BTreeG[*waiter]    // without absent waiters
	waitersBySession *btree.BTreeG[*waiter]    // by session and order

	waiterCount  int
	waitingBytes int64        // counted memory of all waiters
	counts       waits.Counts // waiters by account
	nodeEnds     waits.NodeEnds
}

func newQueues(compared *int) queues {
	return queues{
		queueEntries:     newTree(entryBefore, compared),
		waitersByOwner:   newTree(waiterOwnerBefore, compared),
		waitEnds:         newTree(waitEndBefore, compared),
		waitersByName:    newTree(nameBefore, compared),
		waitersBySession: newTree(waiterBySessionBefore, compared),
	}
}

// rank is one of the five parts of a queue. The whole queue is the merge of its parts by the order of their waiters.
type rank uint8

const (
	awakeShared  rank = iota // shared requests that this lock has blocked last
	awakeOther               // exclusive requests and requests for permits that this lock has blocked last
	asleepShared             // shared requests that another lock has blocked last
	asleepOther              // exclusive requests and requests for permits that another lock has blocked last
	absent                   // requests whose wait has ended by time, and whose grace has not
	rankCount
)

// queueEntry is the entry of a waiter in the queue of one lock.
type queueEntry struct {
	lock         uint64
	rankAndOrder uint64
	waiter       *waiter
}

const (
	orderBits = 60
	// noOrder is larger than the orders of all waiters.
	noOrder = 1<<orderBits - 1
)

// noEntry stands for the first entry of an empty rank.
var noEntry = queueEntry{rankAndOrder: noOrder}

func entryAt(l *lock, r rank, order uint64) queueEntry {
	return queueEntry{lock: l.id(), rankAndOrder: uint64(r)<<orderBits | order}
}

func (p queueEntry) order() uint64 { return p.rankAndOrder & (1<<orderBits - 1) }

func entryBefore(a, b queueEntry) bool {
	if a.lock != b.lock {
		return a.lock < b.lock
	}
	return a.rankAndOrder < b.rankAndOrder
}

// waiterKey is the key of a waiter in waitersByOwner and waitEnds.
type waiterKey struct {
	lock   uint64
	waiter *waiter
}

func waiterOwnerBefore(a, b waiterKey) bool {
	if a.lock != b.lock {
		return a.lock < b.lock
	}
	return a.waiter.owner < b.waiter.owner
}

func waitEndBefore(a, b waiterKey) bool {
	switch {
	case a.lock != b.lock:
		return a.lock < b.lock
	case a.waiter.deadline != b.waiter.deadline:
		return a.waiter.deadline < b.waiter.deadline
	}
	return a.waiter.order < b.waiter.order
}

func nameBefore(a, b *waiter) bool { return a.name().Compare(b.name()) < 0 }

func waiterBySessionBefore(a, b *waiter) bool {
	return cmp.Or(cmp.Compare(a.session, b.session), cmp.Compare(a.order, b.order)) < 0
}

// changeEntry adds a waiter's entry to the queue of its i-th key if n is 1, and removes the entry if n is -1. The lock
// must have an extension.
func (q *queues) changeEntry(l *lock, w *waiter, i int, n int32) {
	m, p := l.ext, entryAt(l, w.rankAt(i), w.order)
	p.waiter = w
	m.ranks[w.rankAt(i)] += n
	setOrDelete(q.queueEntries, p, n)
	setOrDelete(q.waitersByOwner, waiterKey{l.id(), w}, n)
	if i == 0 && w.deadline != noDeadline {
		setOrDelete(q.waitEnds, waiterKey{l.id(), w}, n)
	}
	if w.session != 0 {
		m.sessionWaits += n
	}
	if len(w.keys()) > 1 {
		m.multiKeyWaits += n
	}
}

// changeIndexes adds a waiter to waitersByName, waitersBySession and the counts if n is 1, and removes it if n is -1.
func (q *queues) changeIndexes(w *waiter, n int32) {
	if !w.absent {
		setOrDelete(q.waitersByName, w, n)
	}
	if w.session != 0 {
		setOrDelete(q.waitersBySession, w, n)
	}
	q.waiterCount += int(n)
	q.counts.Add(int(w.account), int(n))
	q.waitingBytes += int64(n) * w.bytes()
}

// setOrDelete adds an item to a tree if n is 1, and removes it if n is -1.
func setOrDelete[T any](tree *btree.BTreeG[T], item T, n int32) {
	if n > 0 {
		tree.Set(item)
	} else {
		tree.Delete(item)
	}
}

// waiterOf returns the owner's waiter in the queue of the lock, or nil. It uses the caller's probe for the search.
func (q *queues) waiterOf(probe *waiter, l *lock, owner string) *waiter {
	if l.waiters() == 0 {
		return nil
	}
	probe.owner = owner
	k, _ := q.waitersByOwner.Get(waiterKey{l.id(), probe})
	probe.owner = ""
	return k.waiter
}

// firstEntry returns the first entry of a rank, or noEntry if the rank is empty.
func (q *queues) firstEntry(l *lock, r rank) queueEntry {
	if l.ext == nil || l.ext.ranks[r] == 0 {
		return noEntry
	}
	return q.entryFrom(l, r, 0)
}

// entryFrom returns the first entry with at least the given order in a rank, or noEntry if there is none.
func (q *queues) entryFrom(l *lock, r rank, order uint64) queueEntry {
	e, ok := seek(q.queueEntries, entryAt(l, r, order))
	if !ok || e.lock != l.id() || rank(e.rankAndOrder>>orderBits) != r {
		return noEntry
	}
	return e
}

// firstWaitEnd returns the waiter of the lock whose wait or grace ends first, or nil. A waiter for several locks counts
// only at the lock of its first key, so that its wait ends once.
func (q *queues) firstWaitEnd(l *lock) *waiter {
	if l.waiters() == 0 {
		return nil
	}
	k, ok := seek(q.waitEnds, waiterKey{l.id(), waitEndProbe})
	if !ok || k.lock != l.id() {
		return nil
	}
	return k.waiter
}

// waitEndProbe sorts before all waiters of a lock in waitEnds.
var waitEndProbe = &waiter{deadline: minInstant}

// isBlockedByQueue reports whether a waiter of the lock with a lower order blocks a request. Absent waiters block
// nobody, and shared waiters that are asleep do not block shared requests.
func (q *queues) isBlockedByQueue(l *lock, r *Request, order uint64) bool {
	isBlockedBy := func(r rank) bool { return q.firstEntry(l, r).order() < order }
	return isBlockedBy(awakeOther) || isBlockedBy(asleepOther) || isBlockedBy(awakeShared) ||
		r.Mode != Shared && isBlockedBy(asleepShared)
}

// nextInLine returns the waiter to which the lock can be granted next, or nil. That waiter is awake at the lock, and
// neither the holds nor the earlier waiters of the lock block it. Other locks of its request may still block it.
func (q *queues) nextInLine(l *lock) *waiter {
	m := l.ext
	if m == nil || m.delayEnd != 0 || m.ranks[awakeShared]+m.ranks[awakeOther] == 0 {
		return nil
	}
	if first := l.anyHold(); first != nil && first.mode == Exclusive {
		return nil
	}
	for r := awakeShared; r <= awakeOther; r++ {
		if w := q.firstEntry(l, r).waiter; w != nil {
			request := w.request()
			if !q.isBlockedByQueue(l, &request, w.order) && isCompatible(l, &request) {
				return w
			}
		}
	}
	return nil
}

// waitersAt yields the waiters of the lock in the order of its queue.
func (q *queues) waitersAt(l *lock) iter.Seq[*waiter] {
	return func(yield func(w *waiter) bool) {
		var heads [rankCount]queueEntry // the next entry of each rank
		for r := range rankCount {
			heads[r] = q.firstEntry(l, r)
		}
		for {
			first := awakeShared
			for r := range rankCount {
				if heads[r].order() < heads[first].order() {
					first = r
				}
			}
			head := heads[first]
			if head == noEntry || !yield(head.waiter) {
				return
			}
			heads[first] = q.entryFrom(l, first, head.order()+1)
		}
	}
}

// waiterNamed returns the waiter with a name, or nil. Absent waiters have no name.
func (q *queues) waiterNamed(n waits.Name) *waiter {
	w, _ := q.waitersByName.Get(nameProbe(n))
	return w
}

func nameProbe(n waits.Name) *waiter { return &waiter{origin: &n.Origin, ticket: n.Ticket} }

// firstWaiterOf returns the waiter with the lowest name among those of a node, or nil.
func (q *queues) firstWaiterOf(node string) *waiter {
	w, ok := seek(q.waitersByName, nameProbe(waits.Name{Origin: protocol.Incarnation{Node: node}}))
	if !ok || w.origin.Node != node {
		return nil
	}
	return w
}

// hasNodeEnded reports whether an entry of nodeEnds covers the wait. An absent waiter has no client at a node.
func (q *queues) hasNodeEnded(w *waiter) bool { return !w.absent && q.nodeEnds.Has(w.name()) }

// IsWaiting reports whether the wait with a name exists and has not ended.
func (q *queues) IsWaiting(name waits.Name) bool {
	w := q.waiterNamed(name)
	return w != nil && !q.hasNodeEnded(w)
}

// QueuesOf counts the queues in which the waiter with a name has an entry.
func (q *queues) QueuesOf(name waits.Name) int {
	if w := q.waiterNamed(name); w != nil {
		return len(w.keys())
	}
	return 0
}

// WaitingIncarnations returns the incarnations of nodes that have waiting clients, by node and epoch.
func (q *queues) WaitingIncarnations() (incarnations []protocol.Incarnation) {
	next := waits.Name{}
	for {
		w, ok := seek(q.waitersByName, nameProbe(next))
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

// WaitersOf counts the waiters of an account, including absent waiters.
func (q *queues) WaitersOf(account int) int { return q.counts.Of(account) }

// LastAccount returns the highest account number of all waiters that the queues have had, or 0.
func (q *queues) LastAccount() int { return max(0, len(q.counts)-1) }

func (q *queues) copy() queues {
	c := *q
	c.queueEntries, c.waitEnds = q.queueEntries.IsoCopy(), q.waitEnds.IsoCopy()
	c.waitersByOwner, c.waitersByName = q.waitersByOwner.IsoCopy(), q.waitersByName.IsoCopy()
	c.waitersBySession = q.waitersBySession.IsoCopy()
	c.counts, c.nodeEnds = slices.Clone(q.counts), slices.Clone(q.nodeEnds)
	return c
}
