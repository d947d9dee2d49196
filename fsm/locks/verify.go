package locks

import (
	"fmt"
	"slices"

	"github.com/holdfast/holdfast/fsm/waits"
)

// Verify looks at everything, and returns what contradicts something else: what stands twice, is counted, or cannot be
// beside another. No call may be under way.
func (t *Table) Verify() error { return t.verify(true) }

// verify is Verify. served: no request in line waits without need.
func (t *Table) verify(served bool) error {
	c := verifier{
		table: t, served: served, sessionHolds: map[uint64]int{}, places: map[uint64]int{}, waiters: map[*waiter]int{},
	}
	c.require(len(t.touched) == 0, "%d locks are touched", len(t.touched))
	for i, d := range slices.Concat(t.live, t.flushed) {
		c.database(i, d)
	}
	c.where = "all"
	c.bounds()
	c.totals()
	return c.err
}

// verifier counts again what a table counts.
type verifier struct {
	table        *Table
	served       bool
	where        string
	err          error
	holdCount    int
	ends         int // waits with an end
	bytes        int64
	sessionHolds map[uint64]int
	places       map[uint64]int  // of each session
	waiters      map[*waiter]int // how often they stand in line
	locks        int
	incarnations []int // sessions of each
}

func (c *verifier) require(ok bool, format string, args ...any) {
	if !ok && c.err == nil {
		c.err = fmt.Errorf("locks: %s: "+format, append([]any{c.where}, args...)...)
	}
}

// database looks at the locks of a database, which is the live one with a number, or was flushed.
func (c *verifier) database(number int, d *database) {
	if d == nil {
		return
	}
	scheduled := 0
	c.require((d.flush != nil) == (number >= len(c.table.live)), "is live and flushed")
	d.locks.Scan(func(l *lock) bool {
		c.where = l.key()
		c.require(d.flush != nil || l.db() == number, "is in database %d, not in %d", number, l.db())
		if c.lock(l); l.scheduled() {
			same, _ := d.agenda.Get(l)
			c.require(same == l, "is not on the agenda")
			scheduled++
		}
		c.lockBounds(l)
		c.holds(l)
		c.queue(l)
		return c.err == nil
	})
	c.require(d.agenda.Len() == scheduled, "%d locks on the agenda are counted as %d", scheduled, d.agenda.Len())
	c.locks += d.locks.Len()
}

// lock looks at what the lock itself says.
func (c *verifier) lock(l *lock) {
	t := c.table
	c.require(l.head&(flagTouched|flagWake) == 0, "is touched")
	c.require(l.head&flagPresent != 0, "is not present")
	c.require(l.contended() == (l.waiters() > 0), "contended says %v, of %d waiters", l.contended(), l.waiters())
	c.require(l.holders() > 0 || l.waiters() > 0 || l.delayed(), "is of no use")
	c.require(t.dueOf(l) == l.due, "is due at %d, not %d", t.dueOf(l), l.due)
	c.bytes += l.bytes()
	if l.more == nil {
		return
	}
	c.bytes += extensionBytes
	if c.served && l.due >= t.now && l.more.sessionHolds == 0 && t.flushOf(l) == nil {
		c.require(t.nextInLine(l) == nil, "is not granted to the first in line")
	}
}

// holds looks at the holds of a lock: an exclusive one is alone, and fences grow.
func (c *verifier) holds(l *lock) {
	t, n, ofSessions, ends, permits, last := c.table, 0, int32(0), 0, int64(0), uint64(0)
	for _, h := range l.holds() {
		n++
		c.require(h.fence > last && h.fence <= t.fences, "fence %d comes behind %d, of %d", h.fence, last, t.fences)
		last = h.fence
		c.require(l.anyHold().mode == h.mode, "has holds of two modes")
		c.require(n == 1 || h.mode != Exclusive, "has something beside an exclusive hold")
		c.require(h == l.holdOf(h.owner), "%q does not have its hold by owner", h.owner)
		c.holdBounds(h)
		if c.err != nil {
			return
		}
		c.bytes += h.bytes()
		permits += h.permits()
		if s := h.session(); s != 0 {
			same, _ := t.holdsOf.Get(h)
			c.require(same == h, "%q does not have its hold by session", h.owner)
			ofSessions++
			c.sessionHolds[s]++
		}
		if l.hold == nil {
			if h.deadline != never {
				ends++
			}
			c.bytes += memberBytes
		}
	}
	c.holdCount += n
	c.require(n == l.holders(), "%d holds are counted as %d", n, l.holders())
	c.require((n == 1) == (l.hold != nil), "%d holds, and one alone is %v", n, l.hold != nil)
	if l.more != nil {
		c.require(permits == l.more.permits, "%d permits are counted as %d", permits, l.more.permits)
		c.require(ofSessions == l.more.sessionHolds, "%d holds of sessions are counted as %d", ofSessions,
			l.more.sessionHolds)
		c.require((l.more.holds != nil) == (n > 1), "%d holds, and several is %v", n, l.more.holds != nil)
	}
	if n > 1 && c.err == nil {
		set := l.more.holds
		c.require(len(set.byOwner) == n && len(set.byEnd) == ends, "%d holds by owner of %d, %d by end of %d",
			len(set.byOwner), n, len(set.byEnd), ends)
		c.require(slices.IsSortedFunc(set.byOwner, compareOwners) && slices.IsSortedFunc(set.byEnd, compareEnds),
			"has holds out of order")
	}
}

// queue looks at the queue of a lock: each waiter stands there once, in the rank of its own, by its order.
func (c *verifier) queue(l *lock) {
	t, places, found := c.table, 0, extension{}
	c.table.eachWaiter(l, func(w *waiter) bool {
		places++
		i := slices.Index(w.keys(), l.key())
		c.require(i >= 0, "%q stands in a line of another lock", w.owner)
		r := w.rankAt(i)
		c.require(w.order > 0 && w.order <= t.orders, "order %d of %d", w.order, t.orders)
		p, _ := t.places.Get(placeAt(l, r, w.order))
		c.require(p.waiter == w, "%q does not stand in line by rank", w.owner)
		c.require(w == t.waiterOf(l, w.owner), "%q does not stand in line by owner", w.owner)
		c.waiterBounds(w)
		if w.session != 0 {
			found.sessionWaits++
		}
		if len(w.keys()) > 1 {
			found.many++
		}
		if i == 0 && w.deadline != never {
			c.ends++
			s, _ := t.waitEnds.Get(queueKey{l.id(), w})
			c.require(s.waiter == w, "%q does not stand among the ends of waits", w.owner)
		}
		c.waiters[w]++
		return c.err == nil
	})
	c.require(l.waiters() == places, "%d waiters are counted as %d", places, l.waiters())
	if m := l.more; m != nil {
		c.require(found.sessionWaits == m.sessionWaits && found.many == m.many,
			"waiters: %d of sessions, %d for many are counted as %d, %d", found.sessionWaits, found.many, m.sessionWaits, m.many)
	}
}

// session looks at how a session ends: by its own lease, or with its node.
func (c *verifier) session(s *session, waiters int) {
	t := c.table
	c.require(c.sessionHolds[s.id] == int(s.holds), "session %d has %d holds, counted as %d", s.id, c.sessionHolds[s.id],
		s.holds)
	c.require(waiters == int(s.waiters), "session %d has %d waiters, counted as %d", s.id, waiters, s.waiters)
	c.require(c.places[s.id] == int(s.places), "session %d has %d places, counted as %d", s.id, c.places[s.id], s.places)
	c.require(!t.isFull(s.id, 0), "session %d has %d holds and %d places", s.id, s.holds, s.places)
	_, leased := t.ends.Get(s.end())
	c.require(leased == s.leased, "session %d has its own lease: %v, among the leases: %v", s.id, s.leased, leased)
	c.require(s.leased || s.origin != nil, "session %d has no end", s.id)
	c.require(!s.closed || s.leased, "session %d is closed and has no end", s.id)
	if s.origin == nil || s.closed {
		return
	}
	_, attached := t.attached.Get(sessionKey{s.origin, s.lease, s.id})
	c.require(attached != s.leased, "session %d has its own lease: %v, and lives with its node: %v", s.id, s.leased,
		attached)
	_, connected := t.connections.Get(sessionKey{s.origin, s.conn, s.id})
	i, known := t.incarnationAt(*s.origin)
	c.require(connected, "session %d is not known by its connection", s.id)
	if known {
		c.incarnations[i]++
	}
}

// totals looks at what the table counts, and at the sessions.
func (c *verifier) totals() {
	t, ofSessions, places, named, waiting := c.table, 0, 0, 0, int64(0)
	bySession := map[uint64]int{}
	var counts waits.Counts
	for w, n := range c.waiters { // unordered: sums
		c.require(n == len(w.keys()), "%q stands in %d lines of %d", w.owner, n, len(w.keys()))
		places += n
		waiting += w.bytes()
		counts.Add(int(w.account), 1)
		if !w.absent {
			named++
			same, _ := t.names.Get(w)
			c.require(same == w, "%q is not known by its ticket", w.owner)
		}
		if w.session != 0 {
			ofSessions++
			bySession[w.session]++
			c.places[w.session] += n
		}
	}
	c.bytes += waiting
	c.require(counts.Equal(t.counts), "accounts with %d waiters are counted as %d", counts, t.counts)
	bound, leased := 0, 0
	c.incarnations = make([]int, len(t.incarnations))
	t.byID.Scan(func(s *session) bool {
		c.session(s, bySession[s.id])
		bound += int(s.holds)
		c.bytes += s.bytes()
		if s.leased {
			leased++
		}
		return c.err == nil
	})
	connected := 0
	for i, n := range c.incarnations {
		c.require(n == t.incarnations[i].sessions && n > 0, "%d sessions of incarnation %v are counted as %d", n,
			t.incarnations[i].origin, t.incarnations[i].sessions)
		connected += n
	}
	for _, count := range []struct {
		what          string
		found, counts int
	}{
		{"holds", c.holdCount, t.holdCount},
		{"waiters", len(c.waiters), t.waiterCount},
		{"waiters of sessions", ofSessions, t.waitsOf.Len()},
		{"places", places, t.places.Len()},
		{"places by owner", places, t.byOwner.Len()},
		{"locks", c.locks, t.lockCount},
		{"holds of sessions", bound, t.holdsOf.Len()},
		{"waiters by name", named, t.names.Len()},
		{"ends of waits", c.ends, t.waitEnds.Len()},
		{"leases of sessions", leased, t.ends.Len()},
		{"sessions of connections", connected, t.connections.Len()},
		{"bytes of waiters", int(waiting), int(t.waitingBytes)},
		{"bytes", int(c.bytes), int(t.bytes)},
	} {
		c.require(count.found == count.counts, "%d %s are counted as %d", count.found, count.what, count.counts)
	}
}

// bounds looks at what the table alone says: numbers given out, and lists in order.
func (c *verifier) bounds() {
	t := c.table
	c.require(t.fences < noOrder && t.orders < noOrder && t.sessionIDs <= MaxFence, "too much was given out: %d, %d, %d",
		t.fences, t.orders, t.sessionIDs)
	c.require(t.waitingBytes <= MaxWaitingBytes, "waiters have %d bytes", t.waitingBytes)
	c.require(slices.IsSortedFunc(t.incarnations, func(a, b incarnation) int {
		return a.origin.Compare(b.origin)
	}), "incarnations are out of order")
	for i, d := range t.drops {
		c.require(i == 0 || t.drops[i-1].Origin.Node < d.Origin.Node, "drops are out of order")
	}
	t.byID.Scan(func(s *session) bool {
		c.require(s.id > 0 && s.id <= MaxFence && s.lease > 0 && s.lease <= Forever && s.deadline < never &&
			len(s.name) <= MaxText && len(s.user) <= MaxText,
			"session %d has lease %d until %d, and texts of %d and %d bytes", s.id, s.lease, s.deadline,
			len(s.name), len(s.user))
		if s.origin != nil && !s.closed {
			i, known := t.incarnationAt(*s.origin)
			c.require(known && (s.leased || s.deadline <= saturated(t.incarnations[i].alive, s.lease)),
				"session %d ends behind its incarnation", s.id)
			c.require(t.Attached(Client{*s.origin, s.conn}) <= MaxAttached, "session %d is one of too many", s.id)
		}
		return c.err == nil
	})
}

func within(n int64) bool { return n >= 0 && n <= Forever }

// lockBounds looks at the numbers of an extension, and whether the lock needs it.
func (c *verifier) lockBounds(l *lock) {
	m := l.more
	if m == nil {
		return
	}
	c.require(l.holders() <= MaxHolders && m.permits <= MaxLimit && l.waiters() <= MaxWaiters,
		"%d holds, %d permits, %d waiters", l.holders(), m.permits, l.waiters())
	c.require(l.holders() > 1 || m.delay != 0 || m.grantAt != 0 || l.waiters() > 0, "needs no extension")
	c.require(within(m.delay) && m.grantAt >= 0 && m.grantAt < never, "delay %d, a grant as of %d", m.delay, m.grantAt)
}

func (c *verifier) holdBounds(h *hold) {
	c.require(len(h.owner) <= MaxText && h.count > 0 && h.mode <= Permits, "hold by %d bytes, %d times in mode %d",
		len(h.owner), h.count, h.mode)
	if h.deadline == never {
		c.require(c.table.session(h.bound) != nil, "%q has the hold of no session %d", h.owner, h.bound)
	} else {
		c.require(h.bound > 0 && h.bound <= Forever, "%q has lease %d", h.owner, h.bound)
	}
	x := h.extra
	if x == nil {
		c.require(h.mode != Permits, "%q has no permits", h.owner)
		return
	}
	c.require(len(x.note) <= MaxText && len(x.call) <= MaxText && within(x.delay) && x.permits >= 0 &&
		x.permits <= MaxLimit && (h.mode != Permits || x.permits > 0),
		"%q has %d permits, delay %d, and texts of %d and %d bytes", h.owner, x.permits, x.delay, len(x.note), len(x.call))
}

func (c *verifier) waiterBounds(w *waiter) {
	c.require(len(w.owner) <= MaxText && len(w.note) <= MaxText && len(w.call) <= MaxText &&
		(w.reentrant || w.call == ""), "texts of a waiter")
	c.require(len(w.keys()) <= MaxKeys && int(w.blocked) < len(w.keys()) && w.ticket != 0 && w.ticket != ^uint64(0),
		"%q waits for %d keys, at %d, with ticket %d", w.owner, len(w.keys()), w.blocked, w.ticket)
	c.require(!w.absent || w.deadline != never, "%q is absent for ever", w.owner)
	c.require(within(w.wait) && within(w.delay) && within(w.grace),
		"%q waits for %d, delay %d, grace %d", w.owner, w.wait, w.delay, w.grace)
	c.require((w.session != 0) == (w.lease == 0) && within(w.lease) &&
		(w.session == 0 || c.table.session(w.session) != nil), "%q waits with session %d and lease %d", w.owner,
		w.session, w.lease)
	if w.mode == Permits {
		c.require(w.permits > 0 && w.permits <= w.limit && w.limit > 1, "%q wants %d permits of %d", w.owner, w.permits,
			w.limit)
	} else {
		c.require(w.mode < Permits && w.permits == 0 && w.limit == 0, "%q wants %d permits of %d in mode %d", w.owner,
			w.permits, w.limit, w.mode)
	}
}
