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
	// origin is the incarnation of the node to whose connection the session is attached, or nil. A closed session keeps it
	// for its last event.
	origin *protocol.Incarnation
	conn   int64 // meaningless if origin is nil
	// leased: the session ends by its own lease, and is in ends. Otherwise it ends with its node, and is in attached.
	leased bool
	// closed: the session ended at deadline, and its holds and waiters are not removed yet.
	closed bool
	late   bool // Late was emitted since the session held nothing; in no snapshot
	// holds and waiters count those of the session, places counts the queues that the waiters are in.
	holds, waiters, places int32
}

// sessionEnd is the key of a session in ends.
type sessionEnd struct {
	deadline int64
	id       uint64
}

// endKey returns the key of the session in ends. A closed session is due at once.
func (s *session) endKey() sessionEnd {
	if s.closed {
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

// sessionKey is the key of a session in attached and connections.
type sessionKey struct {
	origin *protocol.Incarnation
	by     int64 // the lease in attached, the connection in connections
	id     uint64
}

func sessionKeyBefore(a, b sessionKey) bool {
	return cmp.Or(a.origin.Compare(*b.origin), cmp.Compare(a.by, b.by), cmp.Compare(a.id, b.id)) < 0
}

// incarnation is an incarnation of a node with attached sessions.
type incarnation struct {
	origin   protocol.Incarnation
	alive    int64 // the instant at which the node was heard of last
	sessions int
}

// sessions has all sessions and their holds.
type sessions struct {
	byID        *btree.BTreeG[*session]
	ends        *btree.BTreeG[sessionEnd] // by the end of the own lease
	attached    *btree.BTreeG[sessionKey] // by incarnation, lease and id
	connections *btree.BTreeG[sessionKey] // by connection and id
	holdsOf     *btree.BTreeG[*hold]      // by session, fence and key

	incarnations []incarnation // in their order
	sessionIDs   uint64        // drawn so far
	// secret makes the ids of sessions unpredictable. Empty: the ids are counted.
	secret string
}

func newSessions(compared *int) sessions {
	return sessions{
		byID:        newTree(func(a, b *session) bool { return a.id < b.id }, compared),
		ends:        newTree(sessionEndBefore, compared),
		attached:    newTree(sessionKeyBefore, compared),
		connections: newTree(sessionKeyBefore, compared),
		holdsOf:     newTree(holdOfBefore, compared),
	}
}

func holdOfBefore(a, b *hold) bool {
	switch {
	case a.bound != b.bound:
		return a.bound < b.bound
	case a.fence != b.fence:
		return a.fence < b.fence
	case a.db != b.db:
		return a.db < b.db
	}
	return a.key < b.key
}

// session returns a session, which may be over and not removed yet, or nil.
func (s *sessions) session(id uint64) *session {
	found, _ := s.byID.Get(&session{id: id})
	return found
}

// endOf returns the last instant of a session, as far as it is known.
func (s *sessions) endOf(of *session) int64 {
	end := of.deadline
	if of.origin != nil && !of.closed {
		if i, ok := s.incarnationAt(*of.origin); ok {
			end = max(end, saturated(s.incarnations[i].alive, of.lease))
		}
	}
	return end
}

// isOpen reports whether a session exists at an instant.
func (s *sessions) isOpen(id uint64, now int64) bool {
	found := s.session(id)
	return found != nil && !found.closed && s.endOf(found) >= now
}

// isFull reports whether a session has no room for so many more holds and places.
func (s *sessions) isFull(id uint64, more int) bool {
	if id == 0 {
		return false
	}
	found := s.session(id)
	return found != nil && int(found.holds)+int(found.places)+more > MaxPerSession
}

func (s *sessions) incarnationAt(o protocol.Incarnation) (index int, ok bool) {
	return slices.BinarySearchFunc(s.incarnations, o, func(l incarnation, o protocol.Incarnation) int {
		return l.origin.Compare(o)
	})
}

// nextEnd returns the session that ends first, and its last instant. A session that was renewed through its node may
// end later.
func (s *sessions) nextEnd() (id uint64, end int64) {
	end = never
	if e, ok := s.ends.Min(); ok {
		id, end = e.id, e.deadline
	}
	for i := range s.incarnations {
		if first, at := s.firstOfIncarnation(i); at < end {
			id, end = first, at
		}
	}
	return id, end
}

// firstOfIncarnation returns the attached session of an incarnation that ends first, and its last instant.
func (s *sessions) firstOfIncarnation(i int) (id uint64, end int64) {
	origin := &s.incarnations[i].origin
	k, _ := seek(s.attached, sessionKey{origin: origin})
	if k.origin == nil || *k.origin != *origin {
		return 0, never // all its sessions end by their own leases
	}
	return k.id, saturated(s.incarnations[i].alive, k.by)
}

// hasSessionEnd reports whether a session ends before an instant.
func (s *sessions) hasSessionEnd(until int64) bool {
	_, end := s.nextEnd()
	return end < until
}

// startLease schedules an unscheduled session by its own lease.
func (s *sessions) startLease(of *session, until int64) {
	of.deadline, of.leased = until, true
	s.ends.Set(of.endKey())
}

// unschedule removes a session from ends and attached.
func (s *sessions) unschedule(of *session) {
	if of.leased {
		s.ends.Delete(of.endKey())
		of.leased = false
	} else {
		s.attached.Delete(sessionKey{of.origin, of.lease, of.id})
	}
}

// disconnect detaches a session from its connection, if there is one.
func (s *sessions) disconnect(of *session) {
	if of.origin == nil {
		return
	}
	s.connections.Delete(sessionKey{of.origin, of.conn, of.id})
	if i, ok := s.incarnationAt(*of.origin); ok {
		if s.incarnations[i].sessions--; s.incarnations[i].sessions == 0 {
			s.incarnations = slices.Delete(s.incarnations, i, i+1)
		}
	}
	of.origin = nil
}

// ofConnection returns the id of the first session of a connection, or 0.
func (s *sessions) ofConnection(c Client) uint64 {
	k, ok := seek(s.connections, sessionKey{origin: &c.Origin, by: c.Conn})
	if !ok || *k.origin != c.Origin || k.by != c.Conn {
		return 0
	}
	return k.id
}

// SessionsOf counts the sessions of a connection.
func (s *sessions) SessionsOf(c Client) (n int) {
	for k := range from(s.connections, sessionKey{origin: &c.Origin, by: c.Conn}) {
		if *k.origin != c.Origin || k.by != c.Conn {
			break
		}
		n++
	}
	return n
}

// firstHold returns the hold of a session with the lowest fence, or nil.
func (s *sessions) firstHold(id uint64) *hold {
	h, ok := seek(s.holdsOf, &hold{bound: id})
	if !ok || h.bound != id {
		return nil
	}
	return h
}

// drawID returns a new id of a session, of 53 bits.
func (s *sessions) drawID() uint64 {
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
	c.byID, c.ends, c.attached = s.byID.IsoCopy(), s.ends.IsoCopy(), s.attached.IsoCopy()
	c.connections, c.holdsOf = s.connections.IsoCopy(), s.holdsOf.IsoCopy()
	c.incarnations = slices.Clone(s.incarnations)
	return c
}

func (s *session) snapshot(c *codec) {
	c.wrong = errSession
	passUint(c, &s.id, MaxFence)
	passText(c, &s.name)
	passText(c, &s.user)
	passInt(c, &s.lease, 1, Forever)
	passInt(c, &s.opened, past, never)
	passInt(c, &s.deadline, past, never-1)
	attached := s.origin != nil
	if passFlags(c, &attached, &s.leased, &s.closed); attached {
		passClient(c, &s.origin, &s.conn)
	}
}

func (c *codec) readSession() {
	s, t := &session{}, c.t
	s.snapshot(c)
	last, _ := t.byID.Max()
	c.require(s.id > 0 && (last == nil || s.id > last.id) && (s.leased || s.origin != nil && !s.closed))
	if s.origin != nil && !s.closed {
		i, known := t.incarnationAt(*s.origin)
		if !c.require(known && t.SessionsOf(s.client()) < MaxAttached) {
			return
		}
		c.require(s.leased || s.deadline <= saturated(t.incarnations[i].alive, s.lease))
		t.incarnations[i].sessions++
		t.connections.Set(sessionKey{s.origin, s.conn, s.id})
	}
	if !c.require(true) {
		return
	}
	if s.leased {
		t.ends.Set(s.endKey())
	} else {
		t.attached.Set(sessionKey{s.origin, s.lease, s.id})
	}
	t.byID.Set(s)
	t.bytes += s.bytes()
}
