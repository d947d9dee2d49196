package locks

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/protocol"
)

// session is the record of a session: all holds and waiters of a session end with it. A call obtains the record from
// [store.mutableSession] before it changes the session.
type session struct {
	id         uint64
	generation uint64 // see [store]
	name       string
	user       string // the user who may use the session; see MayUse
	lease      int64  // in milliseconds
	deadline   int64  // the last instant of the session's own lease
	opened     int64  // the time at which the session was opened
	// origin and conn are the connection to which the session is attached. origin is nil if the session is not attached.
	// They keep their values while endPending is set, since the last event of the session reports them.
	origin *protocol.Incarnation
	conn   int64
	// hasOwnLease is set if the session ends at deadline; it is then in sessionEnds. Otherwise the session ends when its
	// node has been silent for the lease; it is then in sessionsByNode.
	hasOwnLease bool
	endPending  bool // the session ended at deadline, and its holds and waiters are not removed yet
	lateEmitted bool // Late was emitted; cleared when a session without holds gets one; in no snapshot
	// holds and waiters are the numbers of holds and waiters of the session. queueEntries is the number of entries that
	// the waiters have in queues.
	holds, waiters, queueEntries int32
}

// sessionEnd is the key of a session in sessionEnds.
type sessionEnd struct {
	deadline int64
	id       uint64
}

// endKey returns the key of the session in sessionEnds. If endPending is set, the key is one millisecond earlier, so
// that the session is due at once.
func (s *session) endKey() sessionEnd {
	if s.endPending {
		return sessionEnd{s.deadline - 1, s.id}
	}
	return sessionEnd{s.deadline, s.id}
}

// client returns the connection to which the session is attached, or the zero Client. A nil session has none.
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

// incarnation is the record of one incarnation of a node. It exists while a session is attached to a connection of that
// incarnation.
type incarnation struct {
	origin      protocol.Incarnation
	lastContact int64 // the time at which the node last renewed its attached sessions
	sessions    int   // the number of attached sessions
}

// sessions has all sessions and their holds.
type sessions struct {
	sessionsByID         *btree.BTreeG[*session]
	sessionEnds          *btree.BTreeG[sessionEnd] // sessions with a lease of their own, ordered by deadline and id
	sessionsByNode       *btree.BTreeG[sessionKey] // other sessions, ordered by incarnation, lease and id
	sessionsByConnection *btree.BTreeG[sessionKey] // attached sessions, ordered by connection and id
	holdsBySession       *btree.BTreeG[*hold]      // ordered by session, fence and key

	incarnations []incarnation // ordered by node and epoch
	sessionIDs   uint64        // the last session number; newSessionID makes an id of it
	secret       string        // makes session ids unpredictable; without it the id is the session number
}

func newSessions(compared *int) sessions {
	return sessions{
		sessionsByID:         newTree(func(a, b *session) bool { return a.id < b.id }, compared),
		sessionEnds:          newTree(sessionEndBefore, compared),
		sessionsByNode:       newTree(sessionKeyBefore, compared),
		sessionsByConnection: newTree(sessionKeyBefore, compared),
		holdsBySession:       newTree(holdBySessionBefore, compared),
	}
}

func holdBySessionBefore(a, b *hold) bool {
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

// session returns the session with an id, or nil. The session may have ended.
func (s *sessions) session(id uint64) *session {
	found, _ := s.sessionsByID.Get(&session{id: id})
	return found
}

// endOf returns the deadline of a session. For an attached session it is the later one of two instants: the field
// deadline, and the last contact with its node plus the lease.
func (s *sessions) endOf(sess *session) int64 {
	end := sess.deadline
	if sess.origin != nil && !sess.endPending {
		if i, ok := s.incarnationAt(*sess.origin); ok {
			end = max(end, addSaturating(s.incarnations[i].lastContact, sess.lease))
		}
	}
	return end
}

// isSessionOpen reports whether a session exists and has not ended at the time now.
func (s *sessions) isSessionOpen(id uint64, now int64) bool {
	found := s.session(id)
	return found != nil && !found.endPending && s.endOf(found) >= now
}

// isSessionFull reports whether a session would exceed [MaxPerSession] with a number of additional holds and queue
// entries. Without a session (id 0) it reports false.
func (s *sessions) isSessionFull(id uint64, additional int) bool {
	if id == 0 {
		return false
	}
	found := s.session(id)
	return found != nil && int(found.holds)+int(found.queueEntries)+additional > MaxPerSession
}

// incarnationAt returns the index of an incarnation in incarnations, or the index at which to insert it.
func (s *sessions) incarnationAt(o protocol.Incarnation) (index int, ok bool) {
	return slices.BinarySearchFunc(s.incarnations, o, func(l incarnation, o protocol.Incarnation) int {
		return l.origin.Compare(o)
	})
}

// nextSessionEnd returns the session that ends first of all sessions, and its deadline. If there is no session, it
// returns 0 and noDeadline. The session may end later than that: if it has a lease of its own, a contact with its node
// may have renewed it.
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

// nextSessionEndOf returns the session that ends first of all sessions in sessionsByNode of the i-th incarnation, and
// its deadline. If there is no such session, it returns 0 and noDeadline.
func (s *sessions) nextSessionEndOf(i int) (id uint64, end int64) {
	origin := &s.incarnations[i].origin
	k, _ := seek(s.sessionsByNode, sessionKey{origin: origin})
	if k.origin == nil || *k.origin != *origin {
		return 0, noDeadline // all sessions of the incarnation have leases of their own
	}
	return k.id, addSaturating(s.incarnations[i].lastContact, k.leaseOrConn)
}

// hasEndedSession reports whether the deadline of any session is before until.
func (s *sessions) hasEndedSession(until int64) bool {
	_, end := s.nextSessionEnd()
	return end < until
}

// startLease gives a session a lease of its own, with the deadline until, and adds the session to sessionEnds.
//
// Requires: the session is not in sessionsByNode.
func (s *sessions) startLease(sess *session, until int64) {
	sess.deadline, sess.hasOwnLease = until, true
	s.sessionEnds.Set(sess.endKey())
}

// unschedule removes a session from sessionEnds or sessionsByNode.
func (s *sessions) unschedule(sess *session) {
	if sess.hasOwnLease {
		s.sessionEnds.Delete(sess.endKey())
		sess.hasOwnLease = false
	} else {
		s.sessionsByNode.Delete(sessionKey{sess.origin, sess.lease, sess.id})
	}
}

// detach detaches a session from its connection, if it is attached.
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

// firstSessionOf returns the lowest id of the sessions that are attached to a connection, or 0.
func (s *sessions) firstSessionOf(c Client) uint64 {
	k, ok := seek(s.sessionsByConnection, sessionKey{origin: &c.Origin, leaseOrConn: c.Conn})
	if !ok || *k.origin != c.Origin || k.leaseOrConn != c.Conn {
		return 0
	}
	return k.id
}

// SessionsOf counts the sessions that are attached to a connection.
func (s *sessions) SessionsOf(c Client) (n int) {
	for k := range ascend(s.sessionsByConnection, sessionKey{origin: &c.Origin, leaseOrConn: c.Conn}) {
		if *k.origin != c.Origin || k.leaseOrConn != c.Conn {
			break
		}
		n++
	}
	return n
}

// firstHold returns the hold with the lowest fence of all holds of a session, or nil.
func (s *sessions) firstHold(id uint64) *hold {
	h, ok := seek(s.holdsBySession, &hold{sessionOrLease: id})
	if !ok || h.sessionOrLease != id {
		return nil
	}
	return h
}

// newSessionID returns an id for a new session. It is not 0, and has at most 53 bits, since clients may keep ids as
// doubles.
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

// AddSecret mixes a text into the secret. The ids of later sessions cannot be predicted without the secret.
func (s *sessions) AddSecret(secret string) {
	sum := sha256.Sum256([]byte(s.secret + secret))
	s.secret = string(sum[:])
}

// MayUse reports whether a user may use a session. An empty user stands for all rights, and may use all sessions.
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
