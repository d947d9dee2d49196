package locks

import "fmt"

// Verify looks at everything, and returns what contradicts something else: what stands twice, is counted, or cannot be
// beside another. No call may be under way.
func (t *Table) Verify() error { return t.verify(true) }

// verify is Verify. served: no request in line waits without need.
func (t *Table) verify(served bool) error {
	c := verifier{table: t, served: served, sessionHolds: map[uint64]int{}, waiters: map[*waiter]int{}}
	c.require(len(t.touched) == 0, "%d locks are touched", len(t.touched))
	t.locks.Scan(func(l *lock) bool {
		c.where = l.key
		c.lock(l)
		c.holds(l)
		c.line(l)
		return c.err == nil
	})
	c.where = "all"
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
	several, end int // holds of locks with several, and of them those whose leases end
	due, queued  int
	bytes        int64
	sessionHolds map[uint64]int
	waiters      map[*waiter]int // how often they stand in line
}

func (c *verifier) require(ok bool, format string, args ...any) {
	if !ok && c.err == nil {
		c.err = fmt.Errorf("locks: %s: "+format, append([]any{c.where}, args...)...)
	}
}

// lock looks at what the lock itself says.
func (c *verifier) lock(l *lock) {
	t := c.table
	c.require(l.head&(flagTouched|flagWake) == 0, "is touched")
	c.require(l.head&flagPresent != 0 || t.sliced && t.hollow(l), "is not present")
	c.require(l.head&flagQueued != 0 == (l.waiters() > 0), "queued says %v, of %d waiters", l.head&flagQueued != 0, l.waiters())
	c.require(l.holders() > 0 || l.waiters() > 0 || l.delayed(), "is of no use")
	c.require(t.dueOf(l) == l.due, "is due at %d, not %d", t.dueOf(l), l.due)
	if l.waiters() > 0 {
		c.queued++
		same, ok := t.queued.Get(l)
		c.require(ok && same == l, "does not stand among those with waiters")
	}
	if l.due != never {
		c.due++
		same, ok := t.dues.Get(l)
		c.require(ok && same == l, "does not stand among those that are due")
	}
	c.bytes += l.bytes()
	if l.more == nil {
		return
	}
	c.bytes += crowdBytes
	if c.served && l.more.unfinished == 0 && !t.unsettled(l) && l.more.sessionHolds == 0 {
		c.require(t.candidate(l) == nil, "is not granted to the first in line")
	}
}

// holds looks at the holds of a lock: an exclusive one is alone, and fences grow.
func (c *verifier) holds(l *lock) {
	t, n, ofSessions, permits, last := c.table, 0, 0, int64(0), uint64(0)
	t.eachHold(l, func(h *hold) bool {
		n++
		c.require(h.fence > last && h.fence <= t.fences, "fence %d comes behind %d, of %d", h.fence, last, t.fences)
		last = h.fence
		c.require(t.anyHold(l).mode == h.mode, "has holds of two modes")
		c.require(n == 1 || h.mode != Exclusive, "has something beside an exclusive hold")
		c.require(h == t.holdOf(l, h.owner), "%q does not have its hold by owner", h.owner)
		c.require(h == t.holdBy(l, h.fence), "%q does not have its hold by fence", h.owner)
		if c.err != nil {
			return false
		}
		c.bytes += h.bytes()
		permits += h.permits()
		if s := h.session(); s != 0 {
			ofSessions++
			c.sessionHolds[s]++
		}
		if l.hold == nil {
			c.several++
			if h.deadline != never {
				c.end++
			}
			c.bytes += memberBytes
		}
		return c.err == nil
	})
	c.holdCount += n
	c.require(n == l.holders(), "%d holds are counted as %d", n, l.holders())
	c.require((n == 1) == (l.hold != nil), "%d holds, and one alone is %v", n, l.hold != nil)
	if l.more != nil {
		c.require(permits == l.more.permits, "%d permits are counted as %d", permits, l.more.permits)
		c.require(ofSessions == l.more.sessionHolds, "%d holds of sessions are counted as %d", ofSessions, l.more.sessionHolds)
	}
}

// line looks at the line of a lock.
func (c *verifier) line(l *lock) {
	order, places := uint64(0), 0
	c.table.eachWaiter(l, func(w *waiter) bool {
		places++
		c.require(w.order > order && w.order <= c.table.orders, "order %d comes behind %d, of %d", w.order, order, c.table.orders)
		order = w.order
		c.require(w == c.table.waiterOf(l, w.Owner), "%q does not stand in line by owner", w.Owner)
		c.waiters[w]++
		return c.err == nil
	})
	c.require(l.waiters() == places, "%d waiters are counted as %d", places, l.waiters())
}

// totals looks at what the table counts, and at the sessions.
func (c *verifier) totals() {
	t, ofSessions, places := c.table, 0, 0
	for w, n := range c.waiters { // unordered: sums
		c.require(n == len(w.Keys), "%q stands in %d lines of %d", w.Owner, n, len(w.Keys))
		places += n
		c.bytes += w.bytes()
		if w.Session != 0 {
			ofSessions++
		}
	}
	bound := 0
	t.sessions.Scan(func(s *session) bool {
		c.require(c.sessionHolds[s.id] == s.holds, "session %d has %d holds, counted as %d", s.id, c.sessionHolds[s.id], s.holds)
		bound += s.holds
		c.bytes += s.bytes()
		return c.err == nil
	})
	for _, count := range []struct {
		what          string
		found, counts int
	}{
		{"holds", c.holdCount, t.holdCount},
		{"waiters", len(c.waiters), t.waiterCount},
		{"waiters of sessions", ofSessions, t.waitsBySession.Len()},
		{"places", places, t.places.Len()},
		{"places by owner", places, t.waiting.Len()},
		{"locks that are due", c.due, t.dues.Len()},
		{"locks with waiters", c.queued, t.queued.Len()},
		{"holds by owner", c.several, t.byOwner.Len()},
		{"holds by fence", c.several, t.byFence.Len()},
		{"holds by the ends of leases", c.end, t.byEnd.Len()},
		{"holds of sessions", bound, t.bySession.Len()},
		{"bytes", int(c.bytes), int(t.bytes)},
	} {
		c.require(count.found == count.counts, "%d %s are counted as %d", count.found, count.what, count.counts)
	}
}
