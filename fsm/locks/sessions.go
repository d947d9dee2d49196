package locks

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/protocol"
)

// session groups holds and waiters that live and die together. A session changes by [store.ownSession] alone.
type session struct {
	id         uint64
	generation uint64
	name       string
	// user is the one that may use the session, besides users who may do everything; empty: those alone.
	user     string
	lease    int64
	deadline int64 // the last instant of its own lease
	opened   int64
	// origin is the incarnation of the node with whose connection the session lives; nil: with none.
	// A closed one has still to be told there.
	origin *protocol.Incarnation
	conn   int64 // of no meaning without an origin
	// leased: the session stands in ends, by its own lease. Else it stands in attached, and lives while its node is
	// heard of.
	leased bool
	// closed: the session ended at the instant deadline, and its holds and waiters are still to be removed.
	closed bool
	late   bool // Late was told since the session held nothing; in no snapshot
	// holds are its holds, waiters its requests in line, and places the places of those.
	holds, waiters, places int32
}

// sessionEnd is the end of a session's own lease.
type sessionEnd struct {
	deadline int64
	id       uint64
}

// end is the key of a session with a lease of its own: a closed one is due at once.
func (s *session) end() sessionEnd {
	if s.closed {
		return sessionEnd{s.deadline - 1, s.id}
	}
	return sessionEnd{s.deadline, s.id}
}

func sessionEndBefore(a, b sessionEnd) bool {
	return cmp.Or(cmp.Compare(a.deadline, b.deadline), cmp.Compare(a.id, b.id)) < 0
}

// sessionKey is a session that lives with a connection.
type sessionKey struct {
	origin *protocol.Incarnation
	by     int64 // the lease in attached, the connection in connections
	id     uint64
}

func sessionKeyBefore(a, b sessionKey) bool {
	return cmp.Or(a.origin.Compare(*b.origin), cmp.Compare(a.by, b.by), cmp.Compare(a.id, b.id)) < 0
}

// incarnation is one of a node, with sessions that live with its connections.
type incarnation struct {
	origin   protocol.Incarnation
	alive    int64 // when the node was heard of last
	sessions int
}

// sessions are all sessions, with their holds.
type sessions struct {
	byID        *btree.BTreeG[*session]
	ends        *btree.BTreeG[sessionEnd] // by the end of the own lease
	attached    *btree.BTreeG[sessionKey] // by incarnation, lease and id
	connections *btree.BTreeG[sessionKey] // by connection and id
	holdsOf     *btree.BTreeG[*hold]      // by session, fence and key

	incarnations []incarnation // with sessions that are attached to their connections, in order
	sessionIDs   uint64        // given out
	// secret is what the ids of sessions are drawn by; empty: they are counted.
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

// session is a session to be looked at, also if its time is over. Nil: there is none.
func (s *sessions) session(id uint64) *session {
	found, _ := s.byID.Get(&session{id: id})
	return found
}

// endOf is the last instant of a session, as far as is known.
func (s *sessions) endOf(of *session) int64 {
	end := of.deadline
	if of.origin != nil && !of.closed {
		if i, ok := s.incarnationAt(*of.origin); ok {
			end = max(end, saturated(s.incarnations[i].alive, of.lease))
		}
	}
	return end
}

// isOpen reports whether a session is there at an instant.
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
	return found != nil && int(found.holds)+int(found.places)+more > MaxSession
}

func (s *sessions) incarnationAt(o protocol.Incarnation) (index int, ok bool) {
	return slices.BinarySearchFunc(s.incarnations, o, func(l incarnation, o protocol.Incarnation) int {
		return l.origin.Compare(o)
	})
}

// next is the session whose time is over first, as the trees know, and the instant.
func (s *sessions) next() (id uint64, end int64) {
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

// firstOfIncarnation is the session that ends first of those that live with a node, and the instant.
func (s *sessions) firstOfIncarnation(i int) (id uint64, end int64) {
	origin := &s.incarnations[i].origin
	k, _ := seek(s.attached, sessionKey{origin: origin})
	if k.origin == nil || *k.origin != *origin {
		return 0, never // all of them have leases of their own at the moment
	}
	return k.id, saturated(s.incarnations[i].alive, k.by)
}

// anyEnds reports whether the time of any session is over by an instant.
func (s *sessions) anyEnds(until int64) bool {
	_, end := s.next()
	return end < until
}

// hear notes that an incarnation of a node was heard of at an instant, if sessions live with it.
func (s *sessions) hear(o protocol.Incarnation, now int64) {
	if i, ok := s.incarnationAt(o); ok {
		s.incarnations[i].alive = now
	}
}

// startLease gives a session, which stands in no tree of ends, its own lease until an instant.
func (s *sessions) startLease(of *session, until int64) {
	of.deadline, of.leased = until, true
	s.ends.Set(of.end())
}

// attach makes a session, which stands in no tree of ends, live with a connection from now on.
func (s *sessions) attach(of *session, o *protocol.Incarnation, conn, now int64) {
	i, known := s.incarnationAt(*o)
	if !known {
		s.incarnations = slices.Insert(s.incarnations, i, incarnation{origin: *o})
	}
	s.incarnations[i].alive = now
	s.incarnations[i].sessions++
	of.origin, of.conn, of.deadline = o, conn, now
	s.attached.Set(sessionKey{o, of.lease, of.id})
	s.connections.Set(sessionKey{o, of.conn, of.id})
}

// unschedule takes a session out of the trees of ends.
func (s *sessions) unschedule(of *session) {
	if of.leased {
		s.ends.Delete(of.end())
		of.leased = false
	} else {
		s.attached.Delete(sessionKey{of.origin, of.lease, of.id})
	}
}

// disconnect takes a session from its connection, if it lives with one.
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

// ofConnection is the first session that is attached to a connection; 0: there is none.
func (s *sessions) ofConnection(c Client) uint64 {
	k, ok := seek(s.connections, sessionKey{origin: &c.Origin, by: c.Conn})
	if !ok || *k.origin != c.Origin || k.by != c.Conn {
		return 0
	}
	return k.id
}

// Attached is how many sessions are attached to a connection.
func (s *sessions) Attached(c Client) (n int) {
	s.connections.Ascend(sessionKey{origin: &c.Origin, by: c.Conn}, func(k sessionKey) bool {
		if *k.origin != c.Origin || k.by != c.Conn {
			return false
		}
		n++
		return true
	})
	return n
}

// clientOf is the connection with which a session lives.
func (s *sessions) clientOf(id uint64) Client {
	found := s.session(id)
	if found == nil || found.origin == nil {
		return Client{}
	}
	return Client{*found.origin, found.conn}
}

// firstHold is the hold of a session with the least fence, nil if it has none.
func (s *sessions) firstHold(id uint64) *hold {
	h, ok := seek(s.holdsOf, &hold{bound: id})
	if !ok || h.bound != id {
		return nil
	}
	return h
}

// drawID draws the id of a session, which fits into 53 bits and which no session has.
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

// AddSecret makes the ids of sessions that are opened from now on unknown to who does not know the secret.
func (s *sessions) AddSecret(secret string) {
	sum := sha256.Sum256([]byte(s.secret + secret))
	s.secret = string(sum[:])
}

// MayUse reports whether a session is a user's. An empty user may use all sessions.
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
