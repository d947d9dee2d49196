package locks

import (
	"slices"

	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// Table is all locks, sessions and fences.
type Table struct {
	trees
	now int64
	// as is the instant at which the call under way reads locks: now, or just behind the instant of what is due and
	// happens.
	as    int64
	steps int
	// queuedAt is where the next pass over those with waiters goes on.
	queuedAt spot
	// generation is counted up by Copy. Locks and sessions of an older generation may be a copy's too, so
	// they are copied before they change.
	generation uint64
	// fences, orders and sessionIDs were given out. lockIDs are names for the trees alone: no order that
	// shows rests on them, and no snapshot has them.
	fences, orders, sessionIDs, lockIDs uint64
	// secret is what the ids of sessions are drawn by; empty: they are counted.
	secret                 string
	bytes, waitingBytes    int64
	holdCount, waiterCount int
	counts                 waits.Counts // of waiters

	incarnations []incarnation           // with sessions that are attached to their connections, in order
	origins      []*protocol.Incarnation // known incarnations of nodes, so that holds share them
	drops        []before                // whose waiters are gone, ordered by node
	flushes      []flush                 // databases that are not worked off, in order
	// touched are the locks that the call under way may have changed: see finish.
	touched []*lock
	// woken are those of them whose queues are to be looked at.
	woken   []*lock
	effects []Effect
	near    near
	probe   *probe // nil until the first use
}

// trees are copied on write, so a copy of all of them takes constant time.
//
// Locks with one hold, which most are, stand in locks and timers alone; their hold in bySession if it is bound
// to a session.
type trees struct {
	locks  *btree.BTreeG[*lock] // by database, hash and key
	timers *btree.BTreeG[*lock] // by due: those that have one
	queued *btree.BTreeG[*lock] // as in locks: those with waiters

	// The holds of locks with several: by owner, by fence, and by the end of the lease.
	byOwner, byFence, byEnd *btree.BTreeG[member]
	bySession               *btree.BTreeG[*hold] // by session and fence

	places         *btree.BTreeG[place]   // by lock, rank and order
	waiting        *btree.BTreeG[stand]   // by lock and owner
	waitEnds       *btree.BTreeG[stand]   // by the lock of the first key, deadline and order
	names          *btree.BTreeG[*waiter] // by name: those whose clients wait
	waitsBySession *btree.BTreeG[*waiter] // by session and order

	sessions    *btree.BTreeG[*session] // by id
	sessionEnds *btree.BTreeG[ending]   // by the end of the own lease
	attached    *btree.BTreeG[bound]    // by incarnation, lease and id
	connections *btree.BTreeG[bound]    // by connection and id
	ended       *btree.BTreeG[uint64]   // sessions that have ended and are not worked off
}

// New returns a table without locks.
func New() *Table { return newTable(nil) }

// newTable is New, with a count of the comparisons that the trees make, if compared is not nil.
func newTable(compared *int) *Table {
	return &Table{trees: trees{
		locks:          newTree(lockBefore, compared),
		timers:         newTree(dueBefore, compared),
		queued:         newTree(lockBefore, compared),
		byOwner:        newTree(ownerBefore, compared),
		byFence:        newTree(fenceBefore, compared),
		byEnd:          newTree(endBefore, compared),
		bySession:      newTree(bySessionBefore, compared),
		places:         newTree(placeBefore, compared),
		waiting:        newTree(waitingBefore, compared),
		waitEnds:       newTree(waitEndBefore, compared),
		names:          newTree(nameBefore, compared),
		waitsBySession: newTree(waitBySessionBefore, compared),
		sessions:       newTree(func(a, b *session) bool { return a.id < b.id }, compared),
		sessionEnds:    newTree(sessionEndBefore, compared),
		attached:       newTree(boundBefore, compared),
		connections:    newTree(boundBefore, compared),
		ended:          newTree(func(a, b uint64) bool { return a < b }, compared),
	}}
}

func newTree[T any](less func(a, b T) bool, compared *int) *btree.BTreeG[T] {
	if compared != nil {
		plain := less
		less = func(a, b T) bool {
			*compared++
			return plain(a, b)
		}
	}
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

// Copy returns a table that changes of the original do not change, nor the reverse, in constant time. The
// copy has no effects.
func (t *Table) Copy() *Table {
	t.generation++
	c := *t
	c.trees = trees{
		t.locks.IsoCopy(), t.timers.IsoCopy(), t.queued.IsoCopy(),
		t.byOwner.IsoCopy(), t.byFence.IsoCopy(), t.byEnd.IsoCopy(), t.bySession.IsoCopy(),
		t.places.IsoCopy(), t.waiting.IsoCopy(), t.waitEnds.IsoCopy(), t.names.IsoCopy(), t.waitsBySession.IsoCopy(),
		t.sessions.IsoCopy(), t.sessionEnds.IsoCopy(), t.attached.IsoCopy(), t.connections.IsoCopy(), t.ended.IsoCopy(),
	}
	c.incarnations, c.drops, c.flushes = slices.Clone(t.incarnations), slices.Clone(t.drops), slices.Clone(t.flushes)
	c.origins = slices.Clone(t.origins)
	c.counts = slices.Clone(t.counts)
	c.touched, c.woken, c.effects, c.near, c.probe = nil, nil, nil, near{}, nil
	return &c
}

// Begin says what time it is, and how many steps granting and sweeping may take from here on. Time never
// goes back. To be called as an entry begins and before each request.
func (t *Table) Begin(nowMillis int64, steps int) {
	t.now, t.steps = max(t.now, nowMillis), steps
	t.as = t.now
}

// Steps is what is left of the steps; below zero if the last thing took more than was left.
func (t *Table) Steps() int { return t.steps }

// Bytes is what the table counts for.
func (t *Table) Bytes() int64 { return t.bytes }

// Count is the number of waiters of an account, places that are kept included.
func (t *Table) Count(account int) int { return t.counts.Of(account) }

// Accounts is the largest number of an account that [Table.Count] knows.
func (t *Table) Accounts() int { return max(0, len(t.counts)-1) }

// Len is the number of locks, also of those that were flushed and are not worked off.
func (t *Table) Len() int { return t.locks.Len() }

// Stats are numbers of the moment.
func (t *Table) Stats() Stats {
	return Stats{
		Locks: t.locks.Len(), Holds: t.holdCount, Waiters: t.waiterCount, Sessions: t.sessions.Len() - t.ended.Len(),
		Bytes: t.bytes, Fences: t.fences,
	}
}

// seek is the first item at or behind pivot.
func seek[T any](tree *btree.BTreeG[T], pivot T) (found T, ok bool) {
	tree.Ascend(pivot, func(item T) bool {
		found, ok = item, true
		return false
	})
	return found, ok
}

// saturated is a + b, or the largest number.
func saturated(a, b int64) int64 {
	if a > 0 && b > Forever-a {
		return Forever
	}
	return a + b
}

// origin is o as all holds of an incarnation share it.
func (t *Table) origin(o protocol.Incarnation) *protocol.Incarnation {
	for i, known := range t.origins {
		if *known == o {
			return known
		}
		if known.Node == o.Node {
			fresh := &protocol.Incarnation{Node: known.Node, Epoch: o.Epoch}
			t.origins = slices.Clone(t.origins)
			t.origins[i] = fresh
			return fresh
		}
	}
	if o == (protocol.Incarnation{}) {
		return &noOrigin
	}
	fresh := &protocol.Incarnation{Node: cloned(o.Node), Epoch: o.Epoch}
	t.origins = append(slices.Clip(t.origins), fresh)
	return fresh
}

var noOrigin protocol.Incarnation

// near is the lock that the call under way looked for last, as most calls look for one lock several times.
// Empty between calls.
type near struct {
	known bool
	db    int
	key   string
	hash  uint64
	lock  *lock // nil: there is none
}

// probe is what trees are searched by. Calls that change the table share one, for what they do most; what only reads
// makes its own, since reads run beside each other.
type probe struct {
	lock   lock
	waiter waiter
	hold   hold
	origin protocol.Incarnation // the waiter's, if it is named
}

// named is a probe for waiters by name.
func (p *probe) named(n waits.Name) *waiter {
	p.origin = n.Origin
	p.waiter.origin, p.waiter.ticket = &p.origin, n.Ticket
	return &p.waiter
}

// mine is the probe of calls that change the table.
func (t *Table) mine() *probe {
	if t.probe == nil {
		t.probe = new(probe)
	}
	return t.probe
}

// The probes for what is first in a lock are never changed.
var (
	firstWaiter = &waiter{deadline: past}
	firstEnding = &hold{deadline: past}
	firstFence  = new(hold)
)

// Effects are the effects since the last TakeEffects.
func (t *Table) Effects() []Effect { return t.effects }

// TakeEffects returns the effects and forgets them. The slice is good until the next call that changes
// the table.
func (t *Table) TakeEffects() []Effect {
	taken := t.effects
	if t.effects = t.effects[:0]; cap(taken) > 1<<8 {
		t.effects = nil
	}
	return taken
}

func (t *Table) emit(e Effect) { t.effects = append(t.effects, e) }

// pay takes a step.
func (t *Table) pay() { t.steps -= StepUnits }

// payPlaces takes the steps for a waiter that joins or leaves its queues.
func (t *Table) payPlaces(w *waiter) {
	t.steps -= PlaceUnits * (len(w.keys()) - 1)
}

const (
	// StepUnits is what a step takes of the steps that [Table.Begin] grants. A look at a lock takes 1.
	StepUnits = 16
	// PlaceUnits is what it takes that a waiter joins or leaves a queue, beside the first of its queues.
	PlaceUnits = 2
)
