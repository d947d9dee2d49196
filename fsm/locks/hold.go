package locks

import (
	"cmp"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// hold is an owner's part in a lock. Invariant: never changed once in a table.
type hold struct {
	key, owner string
	extra      *extra // nil: nothing of it
	fence      uint64
	// bound is the session, if deadline is never; else the lease.
	bound    uint64
	deadline int64 // the last instant of the lease
	since    int64
	origin   *protocol.Origin
	conn     int64
	count    uint32 // acquires that were not given back
	mode     Mode
	db       uint8
	// asked: the owner has asked again since the grant, so it knows of the hold.
	asked bool
	late  bool // Late was told; in no snapshot
}

// extra is what few holds have.
type extra struct {
	note, call     string
	delay, permits int64
}

func (h *hold) session() uint64 {
	if h.deadline == never {
		return h.bound
	}
	return 0
}

func (h *hold) lease() int64 {
	if h.deadline == never {
		return 0
	}
	return int64(h.bound)
}

// sessions is 1 for a hold of a session.
func (h *hold) sessions() int {
	if h.deadline == never {
		return 1
	}
	return 0
}

func (h *hold) permits() int64 {
	if h.mode == Permits {
		return h.extra.permits
	}
	return 0
}

func (h *hold) delay() int64 {
	if h.extra == nil {
		return 0
	}
	return h.extra.delay
}

// delays is 1 for a hold that asks for a delay.
func (h *hold) delays() int {
	if h.delay() > 0 {
		return 1
	}
	return 0
}

func (h *hold) client() Client { return Client{*h.origin, h.conn} }

// member is a hold of a lock with several.
type member struct {
	lock uint64
	hold *hold
}

func ownerBefore(a, b member) bool {
	return cmp.Or(cmp.Compare(a.lock, b.lock), strings.Compare(a.hold.owner, b.hold.owner)) < 0
}

func fenceBefore(a, b member) bool {
	return cmp.Or(cmp.Compare(a.lock, b.lock), cmp.Compare(a.hold.fence, b.hold.fence)) < 0
}

func endBefore(a, b member) bool {
	return cmp.Or(cmp.Compare(a.lock, b.lock), cmp.Compare(a.hold.deadline, b.hold.deadline),
		cmp.Compare(a.hold.fence, b.hold.fence)) < 0
}

func bySessionBefore(a, b *hold) bool {
	return cmp.Or(cmp.Compare(a.bound, b.bound), cmp.Compare(a.fence, b.fence), cmp.Compare(a.db, b.db),
		strings.Compare(a.key, b.key)) < 0
}

// holdBy is the hold with a fence.
func (t *Table) holdBy(l *lock, fence uint64) *hold {
	switch {
	case l.hold != nil && l.hold.fence == fence:
		return l.hold
	case l.hold == nil && l.holders() > 0:
		m, _ := t.byFence.Get(member{l.id(), &hold{fence: fence}})
		return m.hold
	}
	return nil
}

// eachHold calls f with the holds by fence, until f returns false.
func (t *Table) eachHold(l *lock, f func(h *hold) bool) {
	switch {
	case l.hold != nil:
		f(l.hold)
	case l.holders() > 0:
		t.byFence.Ascend(member{l.id(), firstFence}, func(m member) bool { return m.lock == l.id() && f(m.hold) })
	}
}

// firstHold is the hold with the least fence. Requires: there is a hold.
func (t *Table) firstHold(l *lock) (first *hold) {
	t.eachHold(l, func(h *hold) bool {
		first = h
		return false
	})
	return first
}

// firstEnd is the first end of a lease. Requires: there are several holds.
func (t *Table) firstEnd(l *lock) int64 {
	m, ok := seek(t.byEnd, member{l.id(), firstEnding})
	if !ok || m.lock != l.id() {
		return never
	}
	return m.hold.deadline
}

// addHold adds a hold of an owner that has none.
func (t *Table) addHold(l *lock, h *hold) {
	t.holdCount++
	t.bytes += h.bytes()
	if s := h.session(); s != 0 {
		t.bySession.Set(h)
		bound := t.ownSession(s)
		bound.late = bound.late && bound.holds > 0
		bound.holds++
	}
	if l.hold == nil && l.more == nil {
		l.hold = h
		return
	}
	m := t.extensionOf(l)
	m.holders++
	m.permits += h.permits()
	m.sessionHolds += h.sessions()
	m.delays += h.delays()
	if m.holders == 1 {
		l.hold = h
		return
	}
	if l.hold != nil {
		t.enrol(l, l.hold)
		l.hold = nil
	}
	t.enrol(l, h)
}

// enrol adds a hold to the trees of locks with several.
func (t *Table) enrol(l *lock, h *hold) {
	m := member{l.id(), h}
	t.byOwner.Set(m)
	t.byFence.Set(m)
	if h.deadline != never {
		t.byEnd.Set(m)
	}
	t.bytes += memberBytes
}

func (t *Table) strike(l *lock, h *hold) {
	m := member{l.id(), h}
	t.byOwner.Delete(m)
	t.byFence.Delete(m)
	if h.deadline != never {
		t.byEnd.Delete(m)
	}
	t.bytes -= memberBytes
}

// removeHold removes a hold of the lock.
func (t *Table) removeHold(l *lock, h *hold) {
	t.holdCount--
	t.bytes -= h.bytes()
	if s := h.session(); s != 0 {
		t.bySession.Delete(h)
		t.ownSession(s).holds--
	}
	t.wake(l)
	if l.more == nil {
		l.hold = nil
		return
	}
	m := l.more
	m.holders--
	m.permits -= h.permits()
	m.sessionHolds -= h.sessions()
	m.delays -= h.delays()
	if l.hold != nil {
		l.hold = nil
		return
	}
	t.strike(l, h)
	if m.holders == 1 {
		last := t.lastHold(l)
		t.strike(l, last)
		l.hold = last
	}
}

// lastHold is the one hold that is left in the trees.
func (t *Table) lastHold(l *lock) *hold {
	m, _ := seek(t.byFence, member{l.id(), firstFence})
	return m.hold
}

// replaceHold puts a changed copy of a hold in its place.
func (t *Table) replaceHold(l *lock, old, h *hold) {
	woken := l.head & flagWake
	if l.hold != nil && old.session() == h.session() && (h.session() == 0 || old.fence == h.fence) {
		// The common case: a lease anew.
		t.bytes += h.bytes() - old.bytes()
		if h.session() != 0 {
			t.bySession.Set(h)
		}
		if l.more != nil {
			l.more.permits += h.permits() - old.permits()
			l.more.delays += h.delays() - old.delays()
		}
		l.hold = h
		return
	}
	t.removeHold(l, old)
	t.addHold(l, h)
	l.head = l.head&^flagWake | woken
}
