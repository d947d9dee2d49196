package locks

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/holdfast/holdfast/protocol"
)

// alive notes that an incarnation of a node was heard of now. The incarnation has one session more.
func (t *Table) alive(o *protocol.Incarnation) {
	i, known := t.incarnationAt(*o)
	if !known {
		t.incarnations = slices.Insert(t.incarnations, i, incarnation{origin: *o})
	}
	t.incarnations[i].alive = t.now
	t.incarnations[i].sessions++
}

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
	case connection && t.Attached(client) >= MaxAttached, t.sessionIDs >= MaxFence:
		return 0, ErrFull
	}
	s := &session{
		id: t.drawSessionID(), generation: t.generation, name: cloned(name), user: cloned(user),
		lease: min(leaseMillis, Forever), opened: t.now,
	}
	t.sessions.Set(s)
	t.bytes += s.bytes()
	if connection {
		t.attach(s, client)
	} else {
		t.startLease(s)
	}
	return s.id, nil
}

// drawSessionID draws the id of a session, which fits into 53 bits and which no session has.
func (t *Table) drawSessionID() uint64 {
	for {
		t.sessionIDs++
		id := t.sessionIDs
		if t.secret != "" {
			sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte(t.secret), id))
			id = binary.BigEndian.Uint64(sum[:]) & MaxFence
		}
		if id != 0 && t.session(id) == nil {
			return id
		}
	}
}

// AddSecret makes the ids of sessions that are opened from now on unknown to who does not know the secret.
func (t *Table) AddSecret(secret string) {
	sum := sha256.Sum256([]byte(t.secret + secret))
	t.secret = string(sum[:])
}

// MayUse reports whether a session is a user's. An empty user may use all sessions.
func (t *Table) MayUse(id uint64, user string) bool {
	if user == "" {
		return true
	}
	s := t.session(id)
	return s != nil && s.user == user
}

// startLease gives a session its own lease from now on.
func (t *Table) startLease(s *session) {
	s.deadline, s.leased = saturated(t.now, s.lease), true
	t.sessionEnds.Set(ending{s.deadline, s.id})
}

// attach makes a session, which stands in no tree of ends, live with a connection.
func (t *Table) attach(s *session, c Client) {
	o := t.origin(c.Origin)
	t.endIncarnation(*o)
	t.alive(o)
	s.origin, s.conn, s.deadline = o, c.Conn, t.now
	t.attached.Set(bound{o, s.lease, s.id})
	t.connections.Set(bound{o, s.conn, s.id})
}

// detach takes a session out of the trees of ends.
func (t *Table) detach(s *session) {
	if s.leased {
		t.sessionEnds.Delete(ending{s.deadline, s.id})
		s.leased = false
	} else {
		t.attached.Delete(bound{s.origin, s.lease, s.id})
	}
	if s.origin == nil {
		return
	}
	t.connections.Delete(bound{s.origin, s.conn, s.id})
	if i, ok := t.incarnationAt(*s.origin); ok {
		if t.incarnations[i].sessions--; t.incarnations[i].sessions == 0 {
			t.incarnations = slices.Delete(t.incarnations, i, i+1)
		}
	}
	s.origin = nil
}

// opened is a session to be changed, nil if there is none or its time is over.
func (t *Table) opened(id uint64) *session {
	s := t.session(id)
	if s == nil || s.over {
		return nil
	}
	if end := t.endOf(s); end < t.now {
		t.endSession(id, end)
		return nil
	}
	return t.ownSession(id)
}

// KeepAlive renews a session, and returns its lease. ok: it is there.
func (t *Table) KeepAlive(id uint64) (leftMillis int64, ok bool) {
	defer t.finish()
	s := t.opened(id)
	if s == nil {
		return 0, false
	}
	t.emitLateSession(s, t.now)
	if s.leased {
		t.sessionEnds.Delete(ending{s.deadline, s.id})
	} else if i, _ := t.incarnationAt(*s.origin); t.incarnations[i].alive == t.now {
		return s.lease, true
	} else {
		t.attached.Delete(bound{s.origin, s.lease, s.id})
	}
	t.startLease(s)
	return s.lease, true
}

// Attach makes a session live with a connection. ok: it is there.
func (t *Table) Attach(id uint64, client Client) (ok bool, err error) {
	defer t.finish()
	if client == (Client{}) {
		return false, ErrRequest
	}
	s := t.opened(id)
	switch {
	case s == nil:
		return false, nil
	case s.origin != nil && client == (Client{*s.origin, s.conn}):
		// Renewed below, and no session more.
	case t.Attached(client) >= MaxAttached:
		return false, ErrFull
	}
	t.emitLateSession(s, t.now)
	t.detach(s)
	t.attach(s, client)
	return true, nil
}

// CloseSession ends a session, and returns how many holds end with it. ok: it was there.
func (t *Table) CloseSession(id uint64) (holds int, ok bool) {
	defer t.finish()
	s := t.opened(id)
	if s == nil {
		return 0, false
	}
	holds = t.holdsOf(s)
	t.endSession(id, t.now)
	t.workEnded()
	return holds, true
}

// endSession ends a session; at was the session's last instant. Its holds count as lost, and its waiters as gone;
// workEnded works them off.
func (t *Table) endSession(id uint64, at int64) {
	s := t.ownSession(id)
	e := Effect{Kind: SessionEnded, Session: id, LeaseMillis: s.lease, HeldMillis: at - s.opened}
	if s.origin != nil {
		e.Client = Client{*s.origin, s.conn}
		e.Attached = e.Client
	}
	t.emit(e)
	t.emitLateSession(s, at)
	origin := s.origin
	t.detach(s)
	s.over, s.deadline, s.origin = true, at, origin
	t.ended.Set(id)
}

// workEnded works off sessions that have ended, while there are steps.
func (t *Table) workEnded() {
	for t.steps > 0 {
		id, ok := t.ended.Min()
		if !ok {
			return
		}
		t.workSession(t.session(id))
	}
}

// workSession takes waiters and holds from a session that has ended, and at last the session away, while there are
// steps. Nothing is granted before: the last hold may bring a delay.
func (t *Table) workSession(s *session) {
	t.behind(s.deadline)
	for ; s != nil && t.steps > 0; s = t.session(s.id) {
		t.pay()
		switch {
		case s.waiters > 0:
			w, _ := seek(t.waitsBySession, &waiter{session: s.id})
			t.dismiss(w, ErrNoSession)
		case s.holds > 0:
			h, _ := seek(t.bySession, &hold{bound: s.id})
			t.loseWith(s, h)
		default:
			t.ended.Delete(s.id)
			t.sessions.Delete(s)
			t.bytes -= s.bytes()
		}
	}
	t.finish()
}

// loseWith ends a hold of a session that has ended; or does what was due at the lock before.
func (t *Table) loseWith(s *session, h *hold) {
	l := t.take(int(h.db), h.key)
	switch {
	case t.dueOf(l) < s.deadline:
		t.steps += StepUnits // step pays
		t.step(l)
		t.behind(s.deadline)
	default:
		t.lose(l, h, t.lossOf(l, h))
	}
}

// Alive renews all sessions that are attached to connections of an incarnation of a node.
func (t *Table) Alive(o protocol.Incarnation) {
	defer t.finish()
	t.endIncarnation(o)
	if i, ok := t.incarnationAt(o); ok {
		t.incarnations[i].alive = t.now
	}
}

// endIncarnation ends the sessions of an incarnation whose time is over, before the incarnation is renewed. If the
// steps do not suffice, the rest lives on: late, not early.
func (t *Table) endIncarnation(o protocol.Incarnation) {
	for t.steps > 0 {
		i, ok := t.incarnationAt(o)
		if !ok {
			return
		}
		b, _ := seek(t.attached, bound{origin: &o})
		end := saturated(t.incarnations[i].alive, b.by)
		if b.origin == nil || *b.origin != o || end >= t.now {
			return
		}
		t.pay()
		t.endSession(b.id, end)
	}
}

// Gone ends the sessions that are attached to a connection, and returns how many. Attached says it before.
func (t *Table) Gone(c Client) (sessions int) {
	defer t.finish()
	for {
		b, ok := seek(t.connections, bound{origin: &c.Origin, by: c.Conn})
		if !ok || *b.origin != c.Origin || b.by != c.Conn {
			t.workEnded()
			return sessions
		}
		t.pay()
		sessions++
		t.endSession(b.id, min(t.now, t.endOf(t.session(b.id))))
	}
}

// Attached is how many sessions are attached to a connection.
func (t *Table) Attached(c Client) (sessions int) {
	t.connections.Ascend(bound{origin: &c.Origin, by: c.Conn}, func(b bound) bool {
		if *b.origin != c.Origin || b.by != c.Conn {
			return false
		}
		sessions++
		return true
	})
	return sessions
}
