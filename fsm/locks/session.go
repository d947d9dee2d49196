package locks

import (
	"slices"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// OpenSession opens a session, and returns the id of the session. If the argument connection is true, OpenSession
// attaches the session to the client's connection. The argument user is the user who may use the session: see
// [Table.MayUse]. The session counts for the account, if that is not 0: see [Table.SessionsOfAccount].
func (t *Table) OpenSession(leaseMillis int64, client Client, connection bool, name, user string, account int16) (
	id uint64, err error,
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
		lease: min(leaseMillis, Forever), opened: t.now, account: account,
	}
	t.changeSessions(s, 1)
	if connection {
		t.attach(s, client)
	} else {
		t.startLease(s, addSaturating(t.now, s.lease))
	}
	return s.id, nil
}

// settleSession returns the mutable record of a session, or nil if there is no such session. If the deadline of the
// session has passed, settleSession ends the session and returns nil.
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

// KeepAlive renews a session, and returns the duration of its lease in milliseconds. ok reports whether the session
// exists.
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

// Attach attaches a session to a connection, and renews the session. If the session does not exist, ok is false and err
// is nil.
func (t *Table) Attach(id uint64, client Client) (ok bool, err error) {
	if client == (Client{}) {
		return false, ErrRequest
	}
	s := t.settleSession(id)
	switch {
	case s == nil:
		return false, nil
	case client == s.client():
		// The session is attached to this connection already, so the connection does not get one more session.
	case t.SessionsOf(client) >= MaxAttached:
		return false, ErrFull
	}
	t.emitLateSession(s, t.now)
	t.unschedule(s)
	t.detach(s)
	t.attach(s, client)
	return true, nil
}

// attach attaches a session to a connection. It renews all sessions that are attached to connections of the same
// incarnation.
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

// CloseSession ends a session, and returns the number of holds that the session had. ok reports whether the session
// existed.
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

// KeepNodeAlive renews all sessions that are attached to connections of an incarnation. First it ends attached sessions
// whose deadlines have passed: see endSessionsOfIncarnation.
func (t *Table) KeepNodeAlive(o protocol.Incarnation) {
	t.endSessionsOfIncarnation(o)
	if i, ok := t.incarnationAt(o); ok {
		t.incarnations[i].lastContact = t.now
	}
}

// endSessionsOfIncarnation ends attached sessions of an incarnation, if their deadlines have passed and while the
// budget lasts. It does not end sessions that have a lease of their own; see [session].
//
// The caller then renews the remaining sessions of the incarnation. If the budget was spent, the caller also renews
// sessions that have ended.
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

// EndSessionsOf ends the sessions that are attached to a connection, and returns the number of these sessions. Once the
// budget is spent, EndSessionsOf only detaches each remaining session and sets its endPending. [Table.Sweep] ends the
// remaining sessions.
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
		s.origin, s.endPending = origin, true // SessionEnded reports the origin, which detach has cleared
		t.startLease(s, at)
	}
	return sessions
}
