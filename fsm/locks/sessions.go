package locks

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/protocol"
)

// session has holds and waiters that end together. It changes only through [store.mutableSession].
type session struct {
	id         uint64
	generation uint64
	name       string
	// user may use the session, and so may users with all rights. Empty: only these may.
	user     string
	lease    int64
	deadline int64 // the last instant of its own lease
	opened   int64
	// origin is the incarnation of the node to whose connection the session is attached, or nil. A session whose end is
	// pending keeps it for its last event.
	origin *protocol.Incarnation
	conn   int64 // meaningless if origin is nil
	// hasOwnLease: the session ends by its own lease, and is in sessionEnds. Otherwise it ends with its node, and is in
	// sessionsByNode.
	hasOwnLease bool
	// endPending: the session ended at deadline, and its holds and waiters are not removed yet.
	endPending  bool
	lateEmitted bool // Late was emitted since the session held nothing; in no snapshot
	// holds and waiters count those of the session, queueEntries counts the queues that the waiters are in.
	holds, waiters, queueEntries int32
}

// sessionEnd is the key of a session in sessionEnds.
type sessionEnd struct {
	deadline int64
	id       uint64
}

// endKey returns the key of the session in sessionEnds. A session whose end is pending is due at once.
func (s *session) endKey() sessionEnd {
	if s.endPending {
		return sessionEnd{s.deadline - 1, s.id}
	}
	return sessionEnd{s.deadline, s.id}
}

// client returns the connection that the session is attached to, or the zero Client.
func (s *session) client() Client {
	if s == nil || s.origin == nil {
		return Client{}
	}
	return Client{*s.origin, s.conn}
}

func sessionEndBefore(a, b sessionEnd) bool {
	return cmp.Or(cmp.Compare(a.deadline, b.deadline), cmp.Compare(a.id, b.id)) < 0
}

// sessionKey is the key of a session in sessionsByNode and sessionsByConnection.
type sessionKey struct {
	origin      *protocol.Incarnation
	leaseOrConn int64 // the lease in sessionsByNode, the connection in sessionsByConnection
	id          uint64
}

func sessionKeyBefore(a, b sessionKey) bool {
	return cmp.Or(a.origin.Compare(*b.origin), cmp.Compare(a.leaseOrConn, b.leaseOrConn), cmp.Compare(a.id, b.id)) < 0
}

// incarnation is an incarnation of a node with attached sessions.
type incarnation struct {
	origin      protocol.Incarnation
	lastContact int64 // the instant at which the node was heard of last
	sessions    int
}

// sessions has all sessions and their holds.
type sessions struct {
	sessionsByID         *btree.BTreeG[*session]
	sessionEnds          *btree.BTreeG[sessionEnd] // by the end of the own lease
	sessionsByNode       *btree.BTreeG[sessionKey] // by incarnation, lease and id
	sessionsByConnection *btree.BTreeG[sessionKey] // by connection and id
	holdsBySession       *btree.BTreeG[*hold]      // by session, fence and key

	incarnations []incarnation // in their order
	sessionIDs   uint64        // drawn so far
	// secret makes the ids of sessions unpredictable. Empty: the ids are counted.
	secret string
}

func newSessions(compared *int) sessions {
	return sessions{
		sessionsByID:         newTree(func(a, b *session) bool { return a.id < b.id }, compared),
		sessionEnds:          newTree(sessionEndBefore, compared),
		sessionsByNode:       newTree(sessionKeyBefore, compared),
		sessionsByConnection: newTree(sessionKeyBefore, compared),
		holdsBySession:       newTree(holdOfBefore, compared),
	}
}

func holdOfBefore(a, b *hold) bool {
	switch {
	case a.sessionOrLease != b.sessionOrLease:
		return a.sessionOrLease < b.sessionOrLease
	case a.fence != b.fence:
		return a.fence < b.fence
	case a.db != b.db:
		return a.db < b.db
	}
	return a.key < b.key
}

// session returns a session, which may be over and not removed yet, or nil.
func (s *sessions) session(id uint64) *session {
	found, _ := s.sessionsByID.Get(&session{id: id})
	return found
}

// endOf returns the last instant of a session, as far as it is known.
func (s *sessions) endOf(sess *session) int64 {
	end := sess.deadline
	if sess.origin != nil && !sess.endPending {
		if i, ok := s.incarnationAt(*sess.origin); ok {
			end = max(end, addSaturating(s.incarnations[i].lastContact, sess.lease))
		}
	}
	return end
}

// isSessionOpen reports whether a session exists at an instant.
func (s *sessions) isSessionOpen(id uint64, now int64) bool {
	found := s.session(id)
	return found != nil && !found.endPending && s.endOf(found) >= now
}

// isSessionFull reports whether a session has no room for so many more holds and queue entries.
func (s *sessions) isSessionFull(id uint64, more int) bool {
	if id == 0 {
		return false
	}
	found := s.session(id)
	return found != nil && int(found.holds)+int(found.queueEntries)+more > MaxPerSession
}

func (s *sessions) incarnationAt(o protocol.Incarnation) (index int, ok bool) {
	return slices.BinarySearchFunc(s.incarnations, o, func(l incarnation, o protocol.Incarnation) int {
		return l.origin.Compare(o)
	})
}

// nextSessionEnd returns the session that ends first, and its last instant. A session that was renewed through its node
// may end later.
func (s *sessions) nextSessionEnd() (id uint64, end int64) {
	end = noDeadline
	if e, ok := s.sessionEnds.Min(); ok {
		id, end = e.id, e.deadline
	}
	for i := range s.incarnations {
		if first, at := s.nextSessionEndOf(i); at < end {
			id, end = first, at
		}
	}
	return id, end
}

// nextSessionEndOf returns the attached session of an incarnation that ends first, and its last instant.
func (s *sessions) nextSessionEndOf(i int) (id uint64, end int64) {
	origin := &s.incarnations[i].origin
	k, _ := seek(s.sessionsByNode, sessionKey{origin: origin})
	if k.origin == nil || *k.origin != *origin {
		return 0, noDeadline // all its sessions end by their own leases
	}
	return k.id, addSaturating(s.incarnations[i].lastContact, k.leaseOrConn)
}

// hasEndedSession reports whether a session ends before an instant.
func (s *sessions) hasEndedSession(until int64) bool {
	_, end := s.nextSessionEnd()
	return end < until
}

// startLease schedules an unscheduled session by its own lease.
func (s *sessions) startLease(sess *session, until int64) {
	sess.deadline, sess.hasOwnLease = until, true
	s.sessionEnds.Set(sess.endKey())
}

// unschedule removes a session from sessionEnds and sessionsByNode.
func (s *sessions) unschedule(sess *session) {
	if sess.hasOwnLease {
		s.sessionEnds.Delete(sess.endKey())
		sess.hasOwnLease = false
	} else {
		s.sessionsByNode.Delete(sessionKey{sess.origin, sess.lease, sess.id})
	}
}

// detach detaches a session from its connection, if there is one.
func (s *sessions) detach(sess *session) {
	if sess.origin == nil {
		return
	}
	s.sessionsByConnection.Delete(sessionKey{sess.origin, sess.conn, sess.id})
	if i, ok := s.incarnationAt(*sess.origin); ok {
		if s.incarnations[i].sessions--; s.incarnations[i].sessions == 0 {
			s.incarnations = slices.Delete(s.incarnations, i, i+1)
		}
	}
	sess.origin = nil
}

// firstSessionOf returns the id of the first session of a connection, or 0.
func (s *sessions) firstSessionOf(c Client) uint64 {
	k, ok := seek(s.sessionsByConnection, sessionKey{origin: &c.Origin, leaseOrConn: c.Conn})
	if !ok || *k.origin != c.Origin || k.leaseOrConn != c.Conn {
		return 0
	}
	return k.id
}

// SessionsOf counts the sessions of a connection.
func (s *sessions) SessionsOf(c Client) (n int) {
	for k := range ascend(s.sessionsByConnection, sessionKey{origin: &c.Origin, leaseOrConn: c.Conn}) {
		if *k.origin != c.Origin || k.leaseOrConn != c.Conn {
			break
		}
		n++
	}
	return n
}

// firstHold returns the hold of a session with the lowest fence, or nil.
func (s *sessions) firstHold(id uint64) *hold {
	h, ok := seek(s.holdsBySession, &hold{sessionOrLease: id})
	if !ok || h.sessionOrLease != id {
		return nil
	}
	return h
}

// newSessionID returns a new id of a session, of 53 bits.
func (s *sessions) newSessionID() uint64 {
	for {
		s.sessionIDs++
		id := s.sessionIDs
		if s.secret != "" {
			sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte(s.secret), id))
			id = binary.BigEndian.Uint64(sum[:]) & MaxFence
		}
		if id != 0 && s.session(id) == nil {
			return id
		}
	}
}

// AddSecret makes the ids of later sessions unpredictable to those who do not know the secret.
func (s *sessions) AddSecret(secret string) {
	sum := sha256.Sum256([]byte(s.secret + secret))
	s.secret = string(sum[:])
}

// MayUse reports whether a user may use a session. The empty user may use all sessions.
func (s *sessions) MayUse(id uint64, user string) bool {
	if user == "" {
		return true
	}
	found := s.session(id)
	return found != nil && found.user == user
}

func (s *sessions) copy() sessions {
	c := *s
	c.sessionsByID, c.sessionEnds = s.sessionsByID.IsoCopy(), s.sessionEnds.IsoCopy()
	c.sessionsByNode, c.sessionsByConnection = s.sessionsByNode.IsoCopy(), s.sessionsByConnection.IsoCopy()
	c.holdsBySession = s.holdsBySession.IsoCopy()
	c.incarnations = slices.Clone(s.incarnations)
	return c
}

func (s *session) passFields(c *codec) {
	c.recordErr = errSession
	passUint(c, &s.id, MaxFence)
	passText(c, &s.name)
	passText(c, &s.user)
	passInt(c, &s.lease, 1, Forever)
	passInt(c, &s.opened, minInstant, noDeadline)
	passInt(c, &s.deadline, minInstant, noDeadline-1)
	attached := s.origin != nil
	if passFlags(c, &attached, &s.hasOwnLease, &s.endPending); attached {
		passClient(c, &s.origin, &s.conn)
	}
}

func (c *codec) readSession() {
	s, t := &session{}, c.t
	s.passFields(c)
	last, _ := t.sessionsByID.Max()
	c.require(s.id > 0 && (last == nil || s.id > last.id) && (s.hasOwnLease || s.origin != nil && !s.endPending))
	if s.origin != nil && !s.endPending {
		i, known := t.incarnationAt(*s.origin)
		if !c.require(known && t.SessionsOf(s.client()) < MaxAttached) {
			return
		}
		c.require(s.hasOwnLease || s.deadline <= addSaturating(t.incarnations[i].lastContact, s.lease))
		t.incarnations[i].sessions++
		t.sessionsByConnection.Set(sessionKey{s.origin, s.conn, s.id})
	}
	if !c.require(true) {
		return
	}
	if s.hasOwnLease {
		t.sessionEnds.Set(s.endKey())
	} else {
		t.sessionsByNode.Set(sessionKey{s.origin, s.lease, s.id})
	}
	t.sessionsByID.Set(s)
	t.bytes += s.bytes()
}
