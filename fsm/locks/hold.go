package locks

import (
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// hold is the record of an owner who holds a lock. A hold in a table is immutable: a change stores a changed copy.
type hold struct {
	owner  string
	*extra // noExtra if all fields of extra are zero, and nil only in probes
	fence  uint64
	// sessionOrLease is the id of the session if deadline is noDeadline. Otherwise it is the lease in milliseconds.
	sessionOrLease uint64
	deadline       int64 // the last instant of the lease, or noDeadline if the hold has a session
	since          int64 // the instant since which the owner has held the lock
	origin         *protocol.Incarnation
	conn           int64
	count          uint32 // 1, plus the reentrant requests that were counted, minus the releases
	mode           Mode
	db             uint8
	// knownToOwner is true if the owner has repeated the request or renewed the hold since the grant. See
	// [Table.ReturnGrant].
	knownToOwner bool
	lateEmitted  bool // whether [Late] was emitted for the hold; not part of a snapshot
}

// maxCount bounds the count of a hold.
const maxCount = 1<<32 - 1

// extra has the fields that only some holds need.
type extra struct {
	note, call     string
	delay, permits int64
}

var noExtra = &extra{}

func (h *hold) session() uint64 {
	if h.deadline == noDeadline {
		return h.sessionOrLease
	}
	return 0
}

func (h *hold) lease() int64 {
	if h.deadline == noDeadline {
		return 0
	}
	return int64(h.sessionOrLease)
}

// sessionCount returns 1 if the hold belongs to a session, and 0 otherwise.
func (h *hold) sessionCount() int32 { return int32(min(h.session(), 1)) }

func (h *hold) permits() int64 {
	if h.mode == Permits {
		return h.extra.permits
	}
	return 0
}

func (h *hold) client() Client { return Client{*h.origin, h.conn} }

// sinceRenewed returns the part of the lease that had passed at a time, or 0 if the hold has a session.
func (h *hold) sinceRenewed(at int64) int64 {
	if h.deadline == noDeadline {
		return 0
	}
	return min(h.lease(), at-(h.deadline-h.lease()))
}

func (h *hold) leftMillis(now int64) int64 {
	if h.deadline == noDeadline {
		return -1
	}
	return max(0, h.deadline-now)
}

// bind gives a hold the session of a request. If the request has no session, the hold gets a lease that starts at the
// time now. The request has the duration of the lease.
func (h *hold) bind(now int64, r *Request) {
	if r.Session != 0 {
		h.sessionOrLease, h.deadline = r.Session, noDeadline
	} else {
		h.sessionOrLease, h.deadline = uint64(r.LeaseMillis), addSaturating(now, r.LeaseMillis)
	}
}

// holdSet has the holds of a lock that has several holds, in three sorted slices. [MaxHolders] bounds each slice.
type holdSet struct {
	byFence, byOwner []*hold
	byEnd            []*hold // only the holds with a lease, sorted by deadline and fence
}

func (s *holdSet) clone() *holdSet {
	if s == nil {
		return nil
	}
	return &holdSet{slices.Clone(s.byFence), slices.Clone(s.byOwner), slices.Clone(s.byEnd)}
}

func compareFences(a, b *hold) int { return cmp.Compare(a.fence, b.fence) }

func compareOwners(a, b *hold) int { return strings.Compare(a.owner, b.owner) }

func compareEnds(a, b *hold) int {
	if a.deadline != b.deadline {
		return cmp.Compare(a.deadline, b.deadline)
	}
	return cmp.Compare(a.fence, b.fence)
}

// change adds hold h if n is 1, and removes hold h if n is -1.
func (s *holdSet) change(h *hold, n int) {
	changeSorted(&s.byFence, h, n, compareFences)
	changeSorted(&s.byOwner, h, n, compareOwners)
	if h.deadline != noDeadline {
		changeSorted(&s.byEnd, h, n, compareEnds)
	}
}

func changeSorted(holds *[]*hold, h *hold, n int, compare func(a, b *hold) int) {
	if i, found := slices.BinarySearchFunc(*holds, h, compare); n > 0 {
		*holds = slices.Insert(*holds, i, h)
	} else if found {
		*holds = slices.Delete(*holds, i, i+1)
	}
}

// ofOwner returns the hold of an owner, or nil if the owner has none.
func (s *holdSet) ofOwner(owner string) *hold {
	i, ok := slices.BinarySearchFunc(s.byOwner, owner, func(h *hold, owner string) int {
		return strings.Compare(h.owner, owner)
	})
	if !ok {
		return nil
	}
	return s.byOwner[i]
}

func (h *hold) passFields(c *codec) {
	c.recordErr = errHold
	passText(c, &h.owner)
	passUint(c, &h.fence, anyUint)
	passUint(c, &h.mode, uint64(Permits))
	passUint(c, &h.count, maxCount)
	session, lease := h.session(), h.lease()
	if passUint(c, &session, anyUint); session == 0 {
		passInt(c, &lease, 1, Forever)
		passInt(c, &h.deadline, minInstant, noDeadline-1)
	}
	passInt(c, &h.since, minInstant, noDeadline)
	passClient(c, &h.origin, &h.conn)
	extended := h.extra != noExtra
	if passFlags(c, &extended, &h.knownToOwner); extended {
		if c.w == nil {
			h.extra = &extra{}
		}
		passText(c, &h.note)
		passText(c, &h.call)
		passInt(c, &h.delay, 0, Forever)
		passInt(c, &h.extra.permits, 0, MaxLimit)
	}
	if c.w == nil {
		if h.sessionOrLease = uint64(lease); session != 0 {
			h.sessionOrLease, h.deadline = session, noDeadline
		}
	}
}

func (c *codec) readHold(l *lock) {
	t, h := c.t, &hold{db: uint8(l.db()), extra: noExtra}
	h.passFields(c)
	c.require(h.session() == 0 || t.session(h.sessionOrLease) != nil)
	c.require(h.count > 0 && h.fence > 0 && h.fence <= t.fences)
	if !c.require(h.mode != Permits || h.permits() > 0) {
		return
	}
	c.require(!t.isSessionFull(h.session(), 1))
	if holds := l.holds(); len(holds) > 0 {
		last := holds[len(holds)-1]
		c.require(h.fence > last.fence && last.mode == h.mode && h.mode != Exclusive)
		c.require(l.ext != nil && len(holds) < MaxHolders && l.holdOf(h.owner) == nil)
		c.require(l.permits()+h.permits() <= MaxLimit)
	}
	if c.require(true) {
		t.addHold(l, h)
	}
}
