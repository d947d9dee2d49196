package locks

// cursorShift makes a cursor of a hash: its upper 53 bits, as in SCAN.
const cursorShift = 64 - 53

// Has reports whether the lock is there: an owner holds it or waits for it, or its delay runs. It is what
// Came and Went tell, so what has ended may be there until it is worked off: see There.
func (t *Table) Has(db int, key string) bool {
	l := t.peek(db, key)
	return l != nil && l.head&flagPresent != 0 && t.pendingFlush(l) == nil
}

// Holders is how many hold a lock, at most: the price of a Break, and of Info.
func (t *Table) Holders(db int, key string) int {
	l := t.peek(db, key)
	if l == nil {
		return 0
	}
	return l.holders()
}

// Standers is how many hold a lock or stand in line: the price of Usage.
func (t *Table) Standers(db int, key string) int {
	l := t.peek(db, key)
	if l == nil {
		return 0
	}
	return l.holders() + l.waiters()
}

// Usage is what a lock counts for, its holds and waiters included. A waiter for several locks counts at each.
func (t *Table) Usage(db int, key string) (bytes int64) {
	l := t.peek(db, key)
	if l == nil {
		return 0
	}
	bytes = l.bytes()
	if l.more != nil {
		bytes += extensionBytes
	}
	t.eachHold(l, func(h *hold) bool {
		if bytes += h.bytes(); l.hold == nil {
			bytes += memberBytes
		}
		return true
	})
	t.eachWaiter(l, func(w *waiter) bool {
		bytes += w.bytes()
		return true
	})
	return bytes
}

// Check returns the fence of the owner's hold at an instant, 0: not the owner's. It changes nothing.
func (t *Table) Check(db int, key, owner string, nowMillis int64) uint64 {
	l := t.peek(db, key)
	if l == nil {
		return 0
	}
	h := t.searchHold(new(hold), l, owner)
	if h == nil || t.over(l, h, nowMillis) {
		return 0
	}
	return h.fence
}

// Blocked reports whether a request would not be granted at an instant: others hold the lock, or stand in line. An
// owner that has the lock, or a place in line, asks again, and is not blocked. Where something is due, and in
// doubt, the answer is no. It changes nothing.
func (t *Table) Blocked(r *Request, nowMillis int64) (blocked bool) {
	for _, key := range r.Keys {
		l := t.peek(r.DB, key)
		if l == nil {
			continue
		}
		h := t.anyHold(l)
		switch {
		case t.unsettledAt(l, nowMillis), h != nil && t.over(l, h, nowMillis),
			t.searchHold(new(hold), l, r.Owner) != nil, t.searchWaiter(new(waiter), l, r.Owner) != nil:
			return false
		case l.delayed(), !joins(l, r, h), !t.unobstructed(l, r, noOrder):
			blocked = true
		}
	}
	return blocked
}

// LeftMillis is what is left of the longest hold of a lock, -1 if a hold is a session's. ok: an owner holds
// the lock.
func (t *Table) LeftMillis(db int, key string, nowMillis int64) (millis int64, ok bool) {
	l := t.peek(db, key)
	switch {
	case l == nil, l.holders() == 0:
		return 0, false
	case l.hold != nil:
		if t.over(l, l.hold, nowMillis) {
			return 0, false
		}
		return l.hold.leftMillis(nowMillis), true
	case l.more.sessionHolds > 0:
		return t.longestLeft(l, nowMillis)
	}
	last := t.lastEnd(l)
	if last == nil || t.over(l, last, nowMillis) {
		return 0, false
	}
	return last.leftMillis(nowMillis), true
}

// longestLeft is LeftMillis of a lock with several holds, some of sessions.
func (t *Table) longestLeft(l *lock, now int64) (millis int64, ok bool) {
	t.eachHold(l, func(h *hold) bool {
		if !t.over(l, h, now) {
			millis, ok = max(millis, h.leftMillis(now)), true
			if h.deadline == never {
				millis = -1
			}
		}
		return millis >= 0
	})
	return millis, ok
}

// lastEnd is the hold whose lease ends last. Requires: there are several holds.
func (t *Table) lastEnd(l *lock) (last *hold) {
	t.byEnd.Descend(member{l.id(), &hold{deadline: never, fence: ^uint64(0)}}, func(m member) bool {
		if m.lock == l.id() {
			last = m.hold
		}
		return false
	})
	return last
}

// show describes a hold.
func (h *hold) show(now int64) Hold {
	shown := Hold{
		Owner: h.owner, Fence: h.fence, Mode: h.mode, Count: int64(h.count), Permits: h.permits(),
		Session: h.session(), LeftMillis: h.leftMillis(now), LeaseMillis: h.lease(), SinceMillis: h.since, Client: h.client(),
	}
	if h.extra != nil {
		shown.Note = h.extra.note
	}
	return shown
}

// show describes a waiter.
func (w *waiter) show(now int64) Wait {
	shown := Wait{
		Owner: w.owner, Mode: w.mode, Limit: int64(w.limit), Permits: int64(w.permits), Session: w.session,
		SinceMillis: w.since, LeftMillis: -1, Absent: w.absent, Notify: w.notify, Keys: len(w.keys()),
		Note: w.note, Client: w.client(),
	}
	if w.deadline != never {
		if end := w.lastInstant(); w.deadline < now && end >= now { // the wait is over, and that is not worked off
			shown.Absent, shown.LeftMillis = true, end-now
			return shown
		}
		shown.LeftMillis = max(0, w.deadline-now)
	}
	return shown
}

// shows reports whether a waiter still stands in line at an instant.
func (t *Table) shows(w *waiter, now int64) bool {
	return w.lastInstant() >= now && !t.dropped(w) && (w.session == 0 || t.openAt(w.session, now))
}

// eachWaiter calls f with the places of a queue in line, until f returns false.
func (t *Table) eachWaiter(l *lock, f func(w *waiter) bool) {
	var heads [rankCount]place
	var left [rankCount]bool
	for r := range rankCount {
		heads[r], left[r] = t.firstPlace(l, r)
	}
	for {
		least := rankCount
		for r := range rankCount {
			if left[r] && (least == rankCount || heads[r].order() < heads[least].order()) {
				least = r
			}
		}
		if least == rankCount || !f(heads[least].waiter) {
			return
		}
		from := placeAt(l, least, heads[least].order()+1)
		next, ok := seek(t.places, from)
		heads[least], left[least] = next, ok && next.lock == l.id() && rank(next.at>>orderBits) == least
	}
}

// describe is what a query without a session shows of a lock, and how many holds and waits were looked at.
func (t *Table) describe(l *lock, q *Query, now int64) (shown Info, looked int) {
	shown = Info{DB: l.db(), Key: l.key(), Holders: l.holders(), Waiters: l.waiters()}
	if first := t.anyHold(l); first != nil {
		shown.Mode = first.mode
	}
	if l.more != nil {
		shown.Permits = l.more.permits
		if l.more.delay != 0 {
			shown.DelayLeftMillis = max(0, l.more.delay-now)
		}
	} else if l.hold != nil {
		shown.Permits = l.hold.permits()
	}
	looked = t.count(l, &shown, now)
	seen := 0
	addHold := func(h *hold) bool {
		seen++
		switch {
		case t.over(l, h, now):
		case !q.ByOwner || h.owner == q.Owner:
			shown.Holds = append(shown.Holds, h.show(now))
		}
		return len(shown.Holds) < min(q.Most, shown.Holders)
	}
	addWait := func(w *waiter) bool {
		seen++
		switch {
		case !t.shows(w, now):
		case !q.ByOwner || w.owner == q.Owner:
			shown.Waits = append(shown.Waits, w.show(now))
		}
		return len(shown.Waits) < min(q.Most, shown.Waiters)
	}
	if (!q.Waiting || q.Held) && shown.Holders > 0 {
		if q.ByOwner {
			if h := t.searchHold(new(hold), l, q.Owner); h != nil {
				addHold(h)
			}
		} else {
			t.eachHold(l, addHold)
		}
	}
	looked, seen = looked+seen, 0
	if (!q.Held || q.Waiting) && shown.Waiters > 0 {
		if q.ByOwner {
			if w := t.searchWaiter(new(waiter), l, q.Owner); w != nil {
				addWait(w)
			}
		} else {
			t.eachWaiter(l, addWait)
		}
	}
	return shown, looked + seen
}

// Info describes a lock, with so many of its holds and of its waits at most. Nil: there is none.
func (t *Table) Info(db int, key string, nowMillis int64, most int) *Info {
	l := t.peek(db, key)
	if l == nil {
		return nil
	}
	shown, _ := t.describe(l, &Query{Most: most}, nowMillis)
	if there, _ := t.there(l, nowMillis); !there {
		return nil
	}
	return &shown
}

// maxLooked is how many holds and waiters List, or sessions Sessions, looks at before it ends the page.
const maxLooked = 200_000

// List describes the locks of a database in the order of (hash of the key, key). next is the cursor to go
// on from, 0 at the end; looked is how many locks, holds and waits were looked at.
//
// With a session, the cursor goes through the session's holds by fence instead, and then its waits.
func (t *Table) List(q *Query, nowMillis int64) (rows []Info, next uint64, looked int) {
	if q.Session != 0 {
		return t.listSession(q, nowMillis)
	}
	if q.Cursor >= 1<<53 {
		return nil, 0, 0
	}
	last, locks := uint64(0), 0
	from := probeAt(q.DB, q.Cursor<<cursorShift, "")
	t.locks.Ascend(&from, func(l *lock) bool {
		at := l.hash >> cursorShift
		switch {
		case l.db() != q.DB:
			return false
		case (locks >= max(q.Count, 1) || looked > maxLooked) && at != last:
			next = at
			return false
		}
		locks++
		last = at
		if q.Match != nil && !q.Match(l.key()) {
			return true
		}
		row, seen := t.describe(l, q, nowMillis)
		if looked += seen; len(row.Holds)+len(row.Waits) > 0 {
			rows = append(rows, row)
		}
		return true
	})
	return rows, next, looked + locks
}

// listSession is List of a session.
func (t *Table) listSession(q *Query, now int64) (rows []Info, next uint64, looked int) {
	id := q.Session
	if !t.openAt(id, now) {
		return nil, 0, 0
	}
	one := func(db int, key string, each func(l *lock, row *Info)) {
		looked++
		if q.DB >= 0 && db != q.DB || q.Match != nil && !q.Match(key) {
			return
		}
		l := t.peek(db, key)
		row := Info{DB: db, Key: l.key(), Holders: l.holders(), Waiters: l.waiters()}
		looked += t.count(l, &row, now)
		if each(l, &row); len(row.Holds)+len(row.Waits) > 0 {
			rows = append(rows, row)
		}
	}
	full := func(last, at uint64) bool { return looked >= max(q.Count, 1) && at != last }
	last := uint64(0)
	if q.Cursor&1 == 0 && (!q.Waiting || q.Held) {
		t.bySession.Ascend(&hold{bound: id, fence: q.Cursor / 2}, func(h *hold) bool {
			if h.bound != id {
				return false
			}
			if full(last, h.fence) {
				next = h.fence * 2
				return false
			}
			last = h.fence
			one(int(h.db), h.key, func(l *lock, row *Info) {
				row.Mode = h.mode
				if !t.over(l, h, now) && (!q.ByOwner || h.owner == q.Owner) {
					row.Holds = []Hold{h.show(now)}
				}
			})
			return true
		})
	}
	if next != 0 || q.Held && !q.Waiting {
		return rows, next, looked
	}
	from := uint64(0)
	if q.Cursor&1 == 1 {
		from = q.Cursor / 2
	}
	last = 0
	t.waitsBySession.Ascend(&waiter{session: id, order: from}, func(w *waiter) bool {
		if w.session != id {
			return false
		}
		if full(last, w.order) {
			next = w.order*2 + 1
			return false
		}
		last = w.order
		for _, key := range w.keys() {
			one(int(w.db), key, func(l *lock, row *Info) {
				if t.shows(w, now) && (!q.ByOwner || w.owner == q.Owner) {
					row.Waits = []Wait{w.show(now)}
				}
			})
		}
		return true
	})
	return rows, next, looked
}

// maxQueues is how many queues EachQueue looks at.
const maxQueues = 10_000

// EachQueue calls f with the keys that requests wait for, and with the places in line, in no order that means anything.
func (t *Table) EachQueue(f func(key string, waiters int)) {
	for id, left := uint64(0), maxQueues; left > 0; left-- {
		s, ok := seek(t.waiting, stand{id, firstWaiter})
		if !ok {
			return
		}
		for _, key := range s.waiter.keys() {
			if l := t.peek(int(s.waiter.db), key); l != nil && l.id() == s.lock {
				f(key, l.waiters())
			}
		}
		id = s.lock + 1
	}
}

// Session describes a session. Nil: there is none.
func (t *Table) Session(id uint64, nowMillis int64) *SessionInfo {
	if !t.openAt(id, nowMillis) {
		return nil
	}
	shown := t.showSession(t.session(id), nowMillis)
	return &shown
}

func (t *Table) showSession(s *session, now int64) SessionInfo {
	shown := SessionInfo{
		ID: s.id, Name: s.name, User: s.user, LeaseMillis: s.lease, LeftMillis: t.endOf(s) - now, OpenedMillis: s.opened,
		Holds: t.holdsOf(s), Waiters: t.waitersOf(s, now),
	}
	if s.origin != nil {
		shown.Connection, shown.Client = true, Client{*s.origin, s.conn}
	}
	return shown
}

// Sessions describes the sessions that a user may use, from the id cursor on, so many at most. next is the cursor to go
// on from, 0 at the end; looked is how many sessions were looked at.
func (t *Table) Sessions(user string, cursor uint64, count int, nowMillis int64) (rows []SessionInfo, next uint64,
	looked int,
) {
	passed := 0
	t.sessions.Ascend(&session{id: cursor}, func(s *session) bool {
		usable := user == "" || s.user == user
		if usable && passed >= max(count, 1) || looked > maxLooked {
			next = s.id
			return false
		}
		if looked++; !usable {
			return true
		}
		passed++
		if !s.over && t.endOf(s) >= nowMillis {
			rows = append(rows, t.showSession(s, nowMillis))
		}
		return true
	})
	return rows, next, looked
}
