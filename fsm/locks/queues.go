package locks

import (
	"cmp"
	"iter"
	"slices"

	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// queues has the queues of all locks, and indexes of the waiters.
type queues struct {
	queueEntries     *btree.BTreeG[queueEntry] // by lock, rank and order of the waiter
	waitersByOwner   *btree.BTreeG[waiterKey]  // by lock and owner
	waitEnds         *btree.BTreeG[waiterKey]  // waiters with a deadline, by the lock of the first key, deadline and order
	waitersByName    *btree.BTreeG[*waiter]    // by name, without absent waiters
	waitersBySession *btree.BTreeG[*waiter]    // waiters with a session, by session and order

	waiterCount  int
	waitingBytes int64          // the estimated memory of all waiters
	counts       waits.Counts   // the number of waiters of each account
	nodeEnds     waits.NodeEnds // a name for each node whose waits with lower names have ended and are not all removed
}

func newQueues() queues {
	return queues{
		queueEntries:     newTree(entryBefore),
		waitersByOwner:   newTree(waiterOwnerBefore),
		waitEnds:         newTree(waitEndBefore),
		waitersByName:    newTree(nameBefore),
		waitersBySession: newTree(waiterBySessionBefore),
	}
}

// rank is one of the five parts of a queue. The entries of each rank are sorted by order. The whole queue is the merge
// of the five ranks by order. The package documentation explains awake, asleep and absent.
type rank uint8

const (
	awakeShared  rank = iota // shared requests that are awake in this queue
	awakeOther               // exclusive requests and requests for permits that are awake in this queue
	asleepShared             // shared requests that are asleep in this queue
	asleepOther              // exclusive requests and requests for permits that are asleep in this queue
	absent                   // requests of all modes that are absent
	rankCount
)

// queueEntry is the entry of a waiter in the queue of one lock.
type queueEntry struct {
	lockAndRank uint64 // the id of the lock, with the rank in the bits of the flags
	waiter      *waiter
}

// noOrder is larger than the orders of all waiters.
const noOrder = 1<<60 - 1

func entryAt(l *lock, r rank, w *waiter) queueEntry { return queueEntry{l.id() | uint64(r), w} }

func entryBefore(a, b queueEntry) bool {
	if a.lockAndRank != b.lockAndRank {
		return a.lockAndRank < b.lockAndRank
	}
	return a.waiter.order < b.waiter.order
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
	return cmp.Or(cmp.Compare(a.session(), b.session()), cmp.Compare(a.order, b.order)) < 0
}

// changeEntry adds the entry of a waiter to the queue of lock l if n is 1, and removes the entry if n is -1. l is the
// lock of the waiter's i-th key.
//
// Requires: l has an extension.
func (q *queues) changeEntry(l *lock, w *waiter, i int, n int32) {
	m, r := l.ext, w.rankAt(i)
	m.ranks[r] += n
	setOrDelete(q.queueEntries, entryAt(l, r, w), n)
	setOrDelete(q.waitersByOwner, waiterKey{l.id(), w}, n)
	if i == 0 && w.deadline != noDeadline {
		setOrDelete(q.waitEnds, waiterKey{l.id(), w}, n)
	}
	if w.term < 0 {
		m.sessionWaits += n
	}
}

// changeIndexes adds a waiter to the indexes by name and by session, and to the totals of all waiters, if n is 1. It
// removes the waiter from them if n is -1.
func (q *queues) changeIndexes(w *waiter, n int32) {
	if !w.absent {
		setOrDelete(q.waitersByName, w, n)
	}
	if w.term < 0 {
		setOrDelete(q.waitersBySession, w, n)
	}
	q.waiterCount += int(n)
	q.counts.Add(int(w.account), int(n))
	q.waitingBytes += int64(n) * w.bytes()
}

// setOrDelete adds an item to a tree if n is 1, and removes the item if n is -1.
func setOrDelete[T any](tree *btree.BTreeG[T], item T, n int32) {
	if n > 0 {
		tree.Set(item)
	} else {
		tree.Delete(item)
	}
}

// waiterOf returns the owner's waiter in the queue of the lock, or nil. It uses probe as memory for the key of the
// search.
func (q *queues) waiterOf(probe *waiter, l *lock, owner string) *waiter {
	if l.waiters() == 0 {
		return nil
	}
	probe.owner = owner
	k, _ := q.waitersByOwner.Get(waiterKey{l.id(), probe})
	probe.owner = ""
	return k.waiter
}

// firstOf returns the waiter with the lowest order in one rank of the lock's queue, or nil if the rank is empty.
func (q *queues) firstOf(l *lock, r rank) *waiter {
	if l.ext == nil || l.ext.ranks[r] == 0 {
		return nil
	}
	return q.firstFrom(l, r, orderProbe)
}

// orderProbe is the argument of a search in queueEntries. It sorts before all waiters of the same lock and rank.
var orderProbe = &waiter{}

// firstFrom searches one rank of the lock's queue for waiters that have the order of probe or a higher one. It returns
// the first of them, or nil if there is none.
func (q *queues) firstFrom(l *lock, r rank, probe *waiter) *waiter {
	e, _ := seek(q.queueEntries, entryAt(l, r, probe))
	if e.lockAndRank != l.id()|uint64(r) { // also if there is no entry, since no lock has the id 0
		return nil
	}
	return e.waiter
}

// firstWaitEnd returns the waiter with the earliest deadline in the queue of the lock, or nil if no waiter has a
// deadline. It ignores a waiter whose first key is the key of another lock. Thus a wait for several locks ends only
// once.
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

// waitEndProbe is the argument of a search in waitEnds. It sorts before all waiters of the same lock.
var waitEndProbe = &waiter{deadline: minInstant}

// isBlockedByQueue reports whether a waiter in the queue of the lock blocks a request. The parameter order is the order
// of the request. Each waiter with a lower order blocks the request, with two exceptions: absent waiters block no
// request, and shared waiters that are asleep block no shared request.
func (q *queues) isBlockedByQueue(l *lock, r *Request, order uint64) bool {
	isBlockedBy := func(r rank) bool {
		first := q.firstOf(l, r)
		return first != nil && first.order < order
	}
	return isBlockedBy(awakeOther) || isBlockedBy(asleepOther) || isBlockedBy(awakeShared) ||
		r.Mode != Shared && isBlockedBy(asleepShared)
}

// nextInLine returns the waiter to which the lock can be granted next, or nil. The waiter is awake in the queue of the
// lock. Neither the holds nor the earlier waiters of this lock block the waiter's request. Other locks of the request
// may still block the request.
func (q *queues) nextInLine(l *lock) *waiter {
	m := l.ext
	if m == nil || m.delayEnd != 0 || m.ranks[awakeShared]+m.ranks[awakeOther] == 0 {
		return nil
	}
	if first := l.anyHold(); first != nil && first.mode == Exclusive {
		return nil
	}
	for r := awakeShared; r <= awakeOther; r++ {
		if w := q.firstOf(l, r); w != nil {
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
		var heads [rankCount]*waiter // the next waiter of each rank
		for r := range rankCount {
			heads[r] = q.firstOf(l, r)
		}
		for probe := new(waiter); ; {
			first := awakeShared
			for r, w := range heads {
				if w != nil && (heads[first] == nil || w.order < heads[first].order) {
					first = rank(r)
				}
			}
			head := heads[first]
			if head == nil || !yield(head) {
				return
			}
			probe.order = head.order + 1
			heads[first] = q.firstFrom(l, first, probe)
		}
	}
}

// waiterNamed returns the waiter with the name n, or nil. It does not find absent waiters.
func (q *queues) waiterNamed(n waits.Name) *waiter {
	w, _ := q.waitersByName.Get(nameProbe(n))
	return w
}

func nameProbe(n waits.Name) *waiter { return &waiter{origin: &n.Origin, ticket: n.Ticket} }

// firstWaiterOf returns the waiter with the lowest name among all waiters of a node, or nil. It ignores absent waiters.
func (q *queues) firstWaiterOf(node string) *waiter {
	w, ok := seek(q.waitersByName, nameProbe(waits.Name{Origin: protocol.Incarnation{Node: node}}))
	if !ok || w.origin.Node != node {
		return nil
	}
	return w
}

// hasNodeEnded reports whether nodeEnds marks the wait of a waiter as ended. It reports false for an absent waiter: no
// client waits for the reply any more.
func (q *queues) hasNodeEnded(w *waiter) bool { return !w.absent && q.nodeEnds.Has(w.name()) }

// IsWaiting reports whether the wait with the given name exists and has not ended.
func (q *queues) IsWaiting(name waits.Name) bool {
	w := q.waiterNamed(name)
	return w != nil && !q.hasNodeEnded(w)
}

// QueuesOf returns the number of queues in which the waiter with the given name has an entry. It returns 0 if there is
// no such waiter.
func (q *queues) QueuesOf(name waits.Name) int {
	if w := q.waiterNamed(name); w != nil {
		return len(w.keys())
	}
	return 0
}

// WaitingIncarnations returns the incarnations to which at least one waiting client is connected, sorted by node and
// epoch. A client whose wait has ended does not count.
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

func (q *queues) copy() queues {
	c := *q
	c.queueEntries, c.waitEnds = q.queueEntries.IsoCopy(), q.waitEnds.IsoCopy()
	c.waitersByOwner, c.waitersByName = q.waitersByOwner.IsoCopy(), q.waitersByName.IsoCopy()
	c.waitersBySession = q.waitersBySession.IsoCopy()
	c.counts, c.nodeEnds = slices.Clone(q.counts), slices.Clone(q.nodeEnds)
	return c
}
