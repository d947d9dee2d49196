package locks

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// session is the record of a session. If a session ends, all its holds and waiters end.
//
// A copy of the table may share the record. A method that changes a session therefore gets a mutable record from
// [store.mutableSession] first.
type session struct {
	id         uint64
	generation uint64 // the generation of the record, see [store]
	name       string
	user       string // the user who may use the session; see MayUse
	lease      int64  // the duration of the lease in milliseconds
	deadline   int64  // the last instant of the session's own lease; see endOf
	opened     int64  // the time at which the session was opened
	// origin and conn are the connection to which the session is attached. origin is nil if the session is not attached.
	// While endPending is set, origin and conn are the last connection, because SessionEnded will report that connection.
	origin *protocol.Incarnation
	conn   int64
	// hasOwnLease is true if the session has a lease of its own, which ends at deadline. Such a session is in sessionEnds.
	// Any other session is in sessionsByNode, and ends when its node has been silent for the duration of the lease.
	hasOwnLease bool
	endPending  bool // the session ended at deadline, but its holds and waiters are not removed yet
	lateEmitted bool // Late was emitted since the session last got a first hold; not part of a snapshot
	account     int16
	// holds and waiters are the numbers of holds and of waiters of the session. queueEntries is the number of entries that
	// these waiters have in queues.
	holds, waiters, queueEntries int32
}

// sessionEnd is the key of a session in sessionEnds.
type sessionEnd struct {
	deadline int64
	id       uint64
}

// endKey returns the key of the session in sessionEnds. If endPending is set, the key has the millisecond before the
// deadline, so that the session is due at once.
func (s *session) endKey() sessionEnd {
	if s.endPending {
		return sessionEnd{s.deadline - 1, s.id}
	}
	return sessionEnd{s.deadline, s.id}
}

// client returns the connection of a session. It returns the zero Client if the session is nil or has no origin.
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

// incarnation is the record of one incarnation of a node. The record exists while a session is attached to a connection
// of that incarnation.
type incarnation struct {
	origin      protocol.Incarnation
	lastContact int64 // the time at which the attached sessions were last renewed together
	sessions    int   // the number of attached sessions
}

// sessions has all sessions, and an index of the holds that belong to sessions.
type sessions struct {
	sessionsByID         *btree.BTreeG[*session]
	sessionEnds          *btree.BTreeG[sessionEnd]   // sessions with a lease of their own, ordered by deadline and id
	sessionsByNode       *btree.BTreeG[sessionKey]   // all other sessions, ordered by incarnation, lease and id
	sessionsByConnection *btree.BTreeG[sessionKey]   // attached sessions, ordered by connection and id
	holdsBySession       *btree.BTreeG[*sessionHold] // ordered by session, fence and key

	sessionCounts waits.Counts // the number of sessions of each account
	sessionMemory waits.Counts // the estimated memory of the sessions of each account

	incarnations []incarnation // ordered by node and epoch
	sessionIDs   uint64        // the last session number; newSessionID computes an id from the number
	secret       string        // makes session ids unpredictable; if it is empty, the id is the session number
}

func newSessions() sessions {
	return sessions{
		sessionsByID:         newTree(func(a, b *session) bool { return a.id < b.id }),
		sessionEnds:          newTree(sessionEndBefore),
		sessionsByNode:       newTree(sessionKeyBefore),
		sessionsByConnection: newTree(sessionKeyBefore),
		holdsBySession:       newTree(sessionHoldBefore),
	}
}

// sessionHold has a hold that belongs to a session, and the key of its lock. Other holds take no memory for a key.
type sessionHold struct {
	hold
	key string
}

func sessionHoldBefore(a, b *sessionHold) bool {
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

// session returns the session with the given id, or nil. The session may have ended.
func (s *sessions) session(id uint64) *session {
	found, _ := s.sessionsByID.Get(&session{id: id})
	return found
}

// endOf returns the last instant of a session. For an attached session, this is the later of two instants: the field
// deadline of the session, and the last contact with the node of the session plus the lease.
func (s *sessions) endOf(sess *session) int64 {
	end := sess.deadline
	if sess.origin != nil && !sess.endPending {
		if i, ok := s.incarnationAt(*sess.origin); ok {
			end = max(end, addSaturating(s.incarnations[i].lastContact, sess.lease))
		}
	}
	return end
}

// isSessionOpen reports whether a session exists and has not ended at the given time.
func (s *sessions) isSessionOpen(id uint64, now int64) bool {
	found := s.session(id)
	return found != nil && !found.endPending && s.endOf(found) >= now
}

// isSessionFull reports whether a session would exceed [MaxPerSession] if it got the given number of additional holds
// or queue entries. It reports false if there is no such session.
func (s *sessions) isSessionFull(id uint64, additional int) bool {
	if id == 0 {
		return false
	}
	found := s.session(id)
	return found != nil && int(found.holds)+int(found.queueEntries)+additional > MaxPerSession
}

// incarnationAt searches the slice incarnations for o. If ok is true, index is the position of o. If ok is false, index
// is the position at which to insert o.
func (s *sessions) incarnationAt(o protocol.Incarnation) (index int, ok bool) {
	return slices.BinarySearchFunc(s.incarnations, o, func(l incarnation, o protocol.Incarnation) int {
		return l.origin.Compare(o)
	})
}

// nextSessionEnd returns the id and the deadline of the session that ends first, or 0 and noDeadline if there is no
// session.
//
// A session in sessionEnds is returned with the deadline of its own lease. That deadline may be too early: if its node
// has renewed the session since, the session ends later. runSessionEnd handles that case.
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

// nextSessionEndOf searches sessionsByNode for the sessions of the i-th incarnation. It returns the id and the deadline
// of the session that ends first, or 0 and noDeadline if there is no such session.
func (s *sessions) nextSessionEndOf(i int) (id uint64, end int64) {
	origin := &s.incarnations[i].origin
	k, _ := seek(s.sessionsByNode, sessionKey{origin: origin})
	if k.origin == nil || *k.origin != *origin {
		return 0, noDeadline // each attached session of the incarnation has a lease of its own
	}
	return k.id, addSaturating(s.incarnations[i].lastContact, k.leaseOrConn)
}

// hasEndedSession reports whether the deadline that nextSessionEnd returns is before an instant. If hasEndedSession
// reports false, no session has ended before that instant.
func (s *sessions) hasEndedSession(until int64) bool {
	_, end := s.nextSessionEnd()
	return end < until
}

// startLease gives a session a lease of its own, and adds the session to sessionEnds. The argument until is the
// deadline of the lease.
//
// Requires: the session is not in sessionsByNode.
func (s *sessions) startLease(sess *session, until int64) {
	sess.deadline, sess.hasOwnLease = until, true
	s.sessionEnds.Set(sess.endKey())
}

// unschedule removes a session from the tree that has it: sessionEnds or sessionsByNode.
func (s *sessions) unschedule(sess *session) {
	if sess.hasOwnLease {
		s.sessionEnds.Delete(sess.endKey())
		sess.hasOwnLease = false
	} else {
		s.sessionsByNode.Delete(sessionKey{sess.origin, sess.lease, sess.id})
	}
}

// detach detaches a session from its connection, if the session is attached.
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

// firstSessionOf returns the lowest id of all sessions that are attached to a connection, or 0 if there is no such
// session.
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

// firstHold returns the hold with the lowest fence among all holds of a session, or nil.
func (s *sessions) firstHold(id uint64) *sessionHold {
	h, ok := seek(s.holdsBySession, &sessionHold{hold: hold{sessionOrLease: id}})
	if !ok || h.sessionOrLease != id {
		return nil
	}
	return h
}

// newSessionID returns an id for a new session. The id is not 0. The id has at most 53 bits, because clients may keep
// ids in doubles.
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

// AddSecret mixes a text into the secret of the table. Nobody can predict the ids of later sessions without this
// secret.
func (s *sessions) AddSecret(secret string) {
	sum := sha256.Sum256([]byte(s.secret + secret))
	s.secret = string(sum[:])
}

// SessionsOfAccount returns the number of the sessions of an account, and their estimated memory.
func (s *sessions) SessionsOfAccount(account int) (n, bytes int64) {
	return int64(s.sessionCounts.Of(account)), int64(s.sessionMemory.Of(account))
}

// MayUse reports whether a user may use a session. An empty user may use all sessions.
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
	c.sessionCounts, c.sessionMemory = slices.Clone(s.sessionCounts), slices.Clone(s.sessionMemory)
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
	attached, counted := s.origin != nil, s.account != 0
	if passFlags(c, &attached, &s.hasOwnLease, &s.endPending, &counted); attached {
		passClient(c, &s.origin, &s.conn)
	}
	if counted {
		passUint(c, &s.account, keyspace.MaxAccount)
		c.require(s.account != 0)
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
	t.changeSessions(s, 1)
}
