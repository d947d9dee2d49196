package locks

import (
	"slices"

	"github.com/holdfast/holdfast/protocol"
)

// OpenSession opens a session with a lease for a user: see [Table.MayUse]. connection: it lives with the client's
// connection.
func (t *Table) OpenSession(leaseMillis int64, client Client, connection bool, name, user string) (id uint64,
	err error,
) {
	switch {
	case len(name) > MaxText, len(user) > MaxText:
		return 0, ErrTooLong
	case leaseMillis < 1 || connection && client == (Client{}):
		return 0, ErrRequest
	case connection && t.SessionsOf(client) >= MaxAttached, t.sessionIDs >= MaxFence:
		return 0, ErrFull
	}
	s := &session{
		id: t.drawID(), generation: t.generation, name: cloned(name), user: cloned(user),
		lease: min(leaseMillis, Forever), opened: t.now,
	}
	t.byID.Set(s)
	t.bytes += s.bytes()
	if connection {
		t.attach(s, client)
	} else {
		t.startLease(s, saturated(t.now, s.lease))
	}
	return s.id, nil
}

// liveSession returns a mutable session, or nil if there is none, or it is over and was ended now.
func (t *Table) liveSession(id uint64) *session {
	s := t.session(id)
	if s == nil {
		return nil
	}
	if end := t.endOf(s); s.closed || end < t.now {
		t.endSession(id, end)
		t.finish()
		return nil
	}
	return t.mutableSession(id)
}

// KeepAlive renews a session, and returns its lease. ok: the session exists.
func (t *Table) KeepAlive(id uint64) (leftMillis int64, ok bool) {
	s := t.liveSession(id)
	if s == nil {
		return 0, false
	}
	t.emitLateSession(s, t.now)
	if !s.leased {
		if i, _ := t.incarnationAt(*s.origin); t.incarnations[i].alive == t.now {
			return s.lease, true
		}
	}
	t.unschedule(s)
	t.startLease(s, saturated(t.now, s.lease))
	return s.lease, true
}

// Attach attaches a session to a connection, and renews it. ok: the session exists.
func (t *Table) Attach(id uint64, client Client) (ok bool, err error) {
	if client == (Client{}) {
		return false, ErrRequest
	}
	s := t.liveSession(id)
	switch {
	case s == nil:
		return false, nil
	case client == s.client():
		// It is attached there: the session is renewed below, and the connection's count stays.
	case t.SessionsOf(client) >= MaxAttached:
		return false, ErrFull
	}
	t.emitLateSession(s, t.now)
	t.unschedule(s)
	t.disconnect(s)
	t.attach(s, client)
	return true, nil
}

// attach attaches an unscheduled session to a connection, from now on.
func (t *Table) attach(s *session, c Client) {
	o := t.origin(c.Origin)
	t.endOfIncarnation(*o)
	i, known := t.incarnationAt(*o)
	if !known {
		t.incarnations = slices.Insert(t.incarnations, i, incarnation{origin: *o})
	}
	t.incarnations[i].alive = t.now
	t.incarnations[i].sessions++
	s.origin, s.conn, s.deadline = o, c.Conn, t.now
	t.attached.Set(sessionKey{o, s.lease, s.id})
	t.connections.Set(sessionKey{o, s.conn, s.id})
}

// CloseSession ends a session, and returns the number of its holds. ok: the session existed.
func (t *Table) CloseSession(id uint64) (holds int, ok bool) {
	defer t.finish()
	s := t.liveSession(id)
	if s == nil {
		return 0, false
	}
	holds = int(s.holds)
	t.endSession(id, t.now)
	return holds, true
}

// KeepNodeAlive renews all sessions that are attached to connections of an incarnation of a node.
func (t *Table) KeepNodeAlive(o protocol.Incarnation) {
	t.endOfIncarnation(o)
	if i, ok := t.incarnationAt(o); ok {
		t.incarnations[i].alive = t.now
	}
}

// endOfIncarnation ends the sessions of an incarnation that are over, before the incarnation is renewed. If the budget
// does not suffice, the others are renewed, too: late, not early.
func (t *Table) endOfIncarnation(o protocol.Incarnation) {
	for t.hasBudget() {
		i, ok := t.incarnationAt(o)
		if !ok {
			break
		}
		id, end := t.firstOfIncarnation(i)
		if end >= t.now {
			break
		}
		t.endSession(id, end)
	}
	t.finish()
}

// EndConnection ends the sessions that are attached to a connection, and returns how many. Those for which the budget
// does not suffice are closed, and Sweep ends them.
func (t *Table) EndConnection(c Client) (sessions int) {
	defer t.finish()
	for id := t.ofConnection(c); id != 0; id = t.ofConnection(c) {
		sessions++
		s := t.mutableSession(id)
		origin, at := s.origin, min(t.now, t.endOf(s))
		if t.hasBudget() {
			t.endSession(id, at)
			continue
		}
		t.charge(0, 1)
		t.unschedule(s)
		t.disconnect(s)
		s.origin, s.closed = origin, true // for the last event
		t.startLease(s, at)
	}
	return sessions
}
