package locks

import (
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// hold is an owner's part in a lock. A hold in a table is immutable.
type hold struct {
	key, owner string
	extra      *extra // nil: all fields are zero
	fence      uint64
	// bound is the session if deadline is never, and otherwise the lease in milliseconds.
	bound    uint64
	deadline int64 // the last instant of the lease
	since    int64
	origin   *protocol.Incarnation
	conn     int64
	count    uint32 // acquires minus releases
	mode     Mode
	db       uint8
	// asked: the owner has asked for the lock again or renewed the hold since the grant, so it knows of the hold.
	asked bool
	late  bool // Late was emitted; in no snapshot
}

// extra has the fields that few holds need.
type extra struct {
	note, call     string
	delay, permits int64
}

func (h *hold) session() uint64 {
	if h.deadline == never {
		return h.bound
	}
	return 0
}

func (h *hold) lease() int64 {
	if h.deadline == never {
		return 0
	}
	return int64(h.bound)
}

// sessions returns 1 for a session's hold, and 0 for others.
func (h *hold) sessions() int32 {
	if h.deadline == never {
		return 1
	}
	return 0
}

func (h *hold) permits() int64 {
	if h.mode == Permits {
		return h.extra.permits
	}
	return 0
}

func (h *hold) delay() int64 {
	if h.extra == nil {
		return 0
	}
	return h.extra.delay
}

func (h *hold) client() Client { return Client{*h.origin, h.conn} }

func (h *hold) leftMillis(now int64) int64 {
	if h.deadline == never {
		return -1
	}
	return max(0, h.deadline-now)
}

// bind binds a hold to the session of a request, or to its lease from now on.
func (h *hold) bind(now int64, r *Request) {
	if r.Session != 0 {
		h.bound, h.deadline = r.Session, never
	} else {
		h.bound, h.deadline = uint64(r.LeaseMillis), saturated(now, r.LeaseMillis)
	}
}

// holdSet has the holds of a lock with several holds, in three sorted slices of at most [MaxHolders].
type holdSet struct {
	byFence, byOwner []*hold
	byEnd            []*hold // holds with leases, by deadline and fence
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

// change adds a hold if n is 1, and removes it if n is -1.
func (s *holdSet) change(h *hold, n int) {
	changeSorted(&s.byFence, h, n, compareFences)
	changeSorted(&s.byOwner, h, n, compareOwners)
	if h.deadline != never {
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

// ofOwner returns the hold of an owner, or nil.
func (s *holdSet) ofOwner(owner string) *hold {
	i, ok := slices.BinarySearchFunc(s.byOwner, owner, func(h *hold, owner string) int {
		return strings.Compare(h.owner, owner)
	})
	if !ok {
		return nil
	}
	return s.byOwner[i]
}

func (h *hold) snapshot(c *codec) {
	c.wrong = errHold
	passText(c, &h.owner)
	passUint(c, &h.fence, anyUint)
	passUint(c, &h.mode, uint64(Permits))
	passUint(c, &h.count, maxCount)
	session, lease := h.session(), h.lease()
	if passUint(c, &session, anyUint); session == 0 {
		passInt(c, &lease, 1, Forever)
		passInt(c, &h.deadline, past, never-1)
	}
	passInt(c, &h.since, past, never)
	passClient(c, &h.origin, &h.conn)
	x := h.extra
	extended := x != nil
	if passFlags(c, &extended, &h.asked); extended {
		if x == nil {
			x = &extra{}
		}
		passText(c, &x.note)
		passText(c, &x.call)
		passInt(c, &x.delay, 0, Forever)
		passInt(c, &x.permits, 0, MaxLimit)
	}
	if c.w == nil {
		if h.bound, h.extra = uint64(lease), x; session != 0 {
			h.bound, h.deadline = session, never
		}
	}
}

func (c *codec) readHold(l *lock) {
	t, h := c.t, &hold{key: l.key(), db: uint8(l.db())}
	h.snapshot(c)
	c.require(h.session() == 0 || t.session(h.bound) != nil)
	c.require(h.count > 0 && h.fence > 0 && h.fence <= t.fences)
	if !c.require(h.mode != Permits || h.extra != nil && h.extra.permits > 0) {
		return
	}
	c.require(!t.isFull(h.session(), 1))
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
