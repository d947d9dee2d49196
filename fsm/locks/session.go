package locks

import (
	"slices"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// OpenSession opens a session with a lease, and returns its id. If connection is set, the session is attached to the
// client's connection. The session belongs to user: see [Table.MayUse].
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
		id: t.newSessionID(), generation: t.generation, name: strings.Clone(name), user: strings.Clone(user),
		lease: min(leaseMillis, Forever), opened: t.now,
	}
	t.sessionsByID.Set(s)
	t.bytes += s.bytes()
	if connection {
		t.attach(s, client)
	} else {
		t.startLease(s, addSaturating(t.now, s.lease))
	}
	return s.id, nil
}

// settleSession ends a session if its deadline has passed. Otherwise it returns the session as a record that the call
// may change. It returns nil if the session does not exist or has ended.
func (t *Table) settleSession(id uint64) *session {
	s := t.session(id)
	if s == nil {
		return nil
	}
	if end := t.endOf(s); s.endPending || end < t.now {
		t.endSession(id, end)
		t.finishStep()
		return nil
	}
	return t.mutableSession(id)
}

// KeepAlive renews a session, and returns its lease in milliseconds. ok reports whether the session exists.
func (t *Table) KeepAlive(id uint64) (leftMillis int64, ok bool) {
	s := t.settleSession(id)
	if s == nil {
		return 0, false
	}
	t.emitLateSession(s, t.now)
	if !s.hasOwnLease {
		if i, _ := t.incarnationAt(*s.origin); t.incarnations[i].lastContact == t.now {
			return s.lease, true
		}
	}
	t.unschedule(s)
	t.startLease(s, addSaturating(t.now, s.lease))
	return s.lease, true
}

// Attach attaches a session to a connection, and renews the session. ok reports whether the session exists.
func (t *Table) Attach(id uint64, client Client) (ok bool, err error) {
	if client == (Client{}) {
		return false, ErrRequest
	}
	s := t.settleSession(id)
	switch {
	case s == nil:
		return false, nil
	case client == s.client():
		// The session is attached to this connection already, so the number of its sessions does not grow.
	case t.SessionsOf(client) >= MaxAttached:
		return false, ErrFull
	}
	t.emitLateSession(s, t.now)
	t.unschedule(s)
	t.detach(s)
	t.attach(s, client)
	return true, nil
}

// attach attaches a session to a connection, and renews all sessions that are attached to the same incarnation.
//
// Requires: the session is not attached, and is in neither sessionEnds nor sessionsByNode.
func (t *Table) attach(s *session, c Client) {
	o := t.internOrigin(c.Origin)
	t.endSessionsOfIncarnation(*o)
	i, known := t.incarnationAt(*o)
	if !known {
		t.incarnations = slices.Insert(t.incarnations, i, incarnation{origin: *o})
	}
	t.incarnations[i].lastContact = t.now
	t.incarnations[i].sessions++
	s.origin, s.conn, s.deadline = o, c.Conn, t.now
	t.sessionsByNode.Set(sessionKey{o, s.lease, s.id})
	t.sessionsByConnection.Set(sessionKey{o, s.conn, s.id})
}

// CloseSession ends a session, and returns the number of its holds. ok reports whether the session existed.
func (t *Table) CloseSession(id uint64) (holds int, ok bool) {
	defer t.finishStep()
	s := t.settleSession(id)
	if s == nil {
		return 0, false
	}
	holds = int(s.holds)
	t.endSession(id, t.now)
	return holds, true
}

// KeepNodeAlive renews all sessions that are attached to connections of an incarnation.
func (t *Table) KeepNodeAlive(o protocol.Incarnation) {
	t.endSessionsOfIncarnation(o)
	if i, ok := t.incarnationAt(o); ok {
		t.incarnations[i].lastContact = t.now
	}
}

// endSessionsOfIncarnation ends the attached sessions of an incarnation whose deadlines have passed, while the budget
// lasts. The caller then renews all sessions of the incarnation that are left. These include sessions that have ended,
// if the budget was spent first.
func (t *Table) endSessionsOfIncarnation(o protocol.Incarnation) {
	for t.hasBudget() {
		i, ok := t.incarnationAt(o)
		if !ok {
			break
		}
		id, end := t.nextSessionEndOf(i)
		if end >= t.now {
			break
		}
		t.endSession(id, end)
	}
	t.finishStep()
}

// EndSessionsOf ends the sessions that are attached to a connection, and returns their number. When the budget is
// spent, it marks the remaining sessions with endPending, and Sweep ends them.
func (t *Table) EndSessionsOf(c Client) (sessions int) {
	defer t.finishStep()
	for id := t.firstSessionOf(c); id != 0; id = t.firstSessionOf(c) {
		sessions++
		s := t.mutableSession(id)
		origin, at := s.origin, min(t.now, t.endOf(s))
		if t.hasBudget() {
			t.endSession(id, at)
			continue
		}
		t.charge(0, 1)
		t.unschedule(s)
		t.detach(s)
		s.origin, s.endPending = origin, true // detach has cleared the origin, which SessionEnded reports
		t.startLease(s, at)
	}
	return sessions
}
