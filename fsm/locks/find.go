package locks

import (
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// find is the lock of a key for a call that may change it, nil if there is none.
func (t *Table) find(db int, key string) *lock {
	if n := &t.near; !n.known || n.db != db || n.key != key {
		hash := keyspace.Hash(key)
		*n = near{true, db, key, hash, t.search(&t.mine().lock, db, key, hash)}
	}
	return t.near.lock
}

// peek is find for what only reads.
func (t *Table) peek(db int, key string) *lock {
	return t.search(new(lock), db, key, keyspace.Hash(key))
}

func (t *Table) search(p *lock, db int, key string, hash uint64) *lock {
	if t.locks.Len() == 0 {
		return nil
	}
	*p = probeAt(db, hash, key)
	l, _ := t.locks.Get(p)
	p.text = ""
	return l
}

// holdOf is the owner's hold, also if its time is over; nil if there is none.
func (t *Table) holdOf(l *lock, owner string) *hold { return t.searchHold(&t.mine().hold, l, owner) }

func (t *Table) searchHold(p *hold, l *lock, owner string) *hold {
	switch {
	case l.hold != nil && l.hold.owner == owner:
		return l.hold
	case l.hold == nil && l.holders() > 0:
		p.owner = owner
		m, _ := t.byOwner.Get(member{l.id(), p})
		p.owner = ""
		return m.hold
	}
	return nil
}

// waiterOf is the owner's place in a queue, nil if there is none.
func (t *Table) waiterOf(l *lock, owner string) *waiter {
	return t.searchWaiter(&t.mine().waiter, l, owner)
}

func (t *Table) searchWaiter(p *waiter, l *lock, owner string) *waiter {
	if l == nil || l.waiters() == 0 {
		return nil
	}
	p.owner = owner
	s, _ := t.waiting.Get(stand{l.id(), p})
	p.owner = ""
	return s.waiter
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

// first is the order of the first place of a rank, or beyond every order.
func (t *Table) first(l *lock, r rank) uint64 {
	p, ok := t.firstPlace(l, r)
	if !ok {
		return noOrder
	}
	return p.order()
}

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

// session is a session to be looked at, also if it is over. Nil: there is none.
func (t *Table) session(id uint64) *session {
	s, _ := t.sessions.Get(&session{id: id})
	return s
}

// endOf is the last instant of a session, as far as is known.
func (t *Table) endOf(s *session) int64 {
	end := s.deadline
	if s.origin != nil && !s.over {
		if i, ok := t.incarnationAt(*s.origin); ok {
			end = max(end, saturated(t.incarnations[i].alive, s.lease))
		}
	}
	return end
}

// openAt reports whether a session is there at an instant.
func (t *Table) openAt(id uint64, now int64) bool {
	s := t.session(id)
	return s != nil && !s.over && t.endOf(s) >= now
}

// open is openAt now.
func (t *Table) open(id uint64) bool { return t.openAt(id, t.now) }

func (t *Table) incarnationAt(o protocol.Incarnation) (index int, ok bool) {
	return slices.BinarySearchFunc(t.incarnations, o, func(l incarnation, o protocol.Incarnation) int {
		return l.origin.Compare(o)
	})
}

// ownSession is a session to be changed. Requires: there is one.
func (t *Table) ownSession(id uint64) *session {
	s := t.session(id)
	if s.generation != t.generation {
		c := *s
		c.generation = t.generation
		s = &c
		t.sessions.Set(s)
	}
	return s
}

// lostOf is a hold that was lost with others of its lock, and is not worked off; nil if there is none.
func (t *Table) lostOf(l *lock) *hold {
	if l.more == nil || l.more.lost.below == 0 || l.holders() == 0 {
		return nil
	}
	h := t.firstHold(l)
	if h.fence >= l.more.lost.below {
		return nil
	}
	// A lease may have ended before.
	if first, end := t.firstHoldEnd(l); first != nil && end < l.more.lost.at {
		return first
	}
	return h
}

// pendingFlush is the flush that a lock has still to go through.
func (t *Table) pendingFlush(l *lock) *flush {
	for i := range t.flushes {
		if f := &t.flushes[i]; f.db == l.db() && t.bornOf(l) < f.mark {
			return f
		}
	}
	return nil
}

// lastFence is the largest fence of the holds. Requires: there is one.
func (t *Table) lastFence(l *lock) (fence uint64) {
	if l.hold != nil {
		return l.hold.fence
	}
	t.byFence.Descend(member{l.id(), &hold{fence: ^uint64(0)}}, func(m member) bool {
		fence = m.hold.fence
		return false
	})
	return fence
}

// bornOf is a fence: flushes before it are over for the lock.
func (t *Table) bornOf(l *lock) uint64 {
	if l.more != nil {
		return l.more.createdFence
	}
	if l.hold != nil {
		return l.hold.fence
	}
	return t.fences // it is being made
}

// firstHoldEnd is the hold that ends first, as far as the lock knows.
func (t *Table) firstHoldEnd(l *lock) (*hold, int64) {
	switch {
	case l.hold != nil && l.hold.deadline != never:
		return l.hold, l.hold.deadline
	case l.hold != nil:
		s := t.session(l.hold.bound)
		if s.over {
			return l.hold, min(s.deadline, t.now-1)
		}
		return l.hold, t.endOf(s)
	case l.holders() > 1:
		if m, ok := seek(t.byEnd, member{l.id(), firstEnding}); ok && m.lock == l.id() {
			return m.hold, m.hold.deadline
		}
	}
	return nil, never
}

// clientOf is the connection with which a session lives.
func (t *Table) clientOf(id uint64) Client {
	s := t.session(id)
	if s == nil || s.origin == nil {
		return Client{}
	}
	return Client{*s.origin, s.conn}
}
