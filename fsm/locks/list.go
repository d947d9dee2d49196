package locks

// maxLooked bounds the holds and waiters that List looks at, and the sessions that Sessions looks at, for one page.
const maxLooked = 200_000

// List describes the locks of a database in the order of (hash of the key, key). next is the cursor of the next page, 0
// at the end; looked counts the locks, holds and waits that were looked at.
//
// With a session, the pages are the session's holds by fence, and then its waits.
func (s *store) List(q *Query, nowMillis int64) (rows []Info, next uint64, looked int) {
	if q.Session != 0 {
		return s.listSession(q, nowMillis)
	}
	d := s.database(q.DB)
	if d == nil || q.Cursor >= 1<<53 {
		return nil, 0, 0
	}
	last, locks := uint64(0), 0
	from := probeAt(q.DB, q.Cursor<<cursorShift, "")
	d.locks.Ascend(&from, func(l *lock) bool {
		at := l.hash >> cursorShift
		if (locks >= max(q.Count, 1) || looked > maxLooked) && at != last {
			next = at
			return false
		}
		locks++
		last = at
		if q.Match != nil && !q.Match(l.key()) {
			return true
		}
		row, seen := s.describe(l, q, nowMillis)
		if looked += seen; len(row.Holds)+len(row.Waits) > 0 {
			rows = append(rows, row)
		}
		return true
	})
	return rows, next, looked + locks
}

// listSession lists the holds and waits of a session.
func (s *store) listSession(q *Query, now int64) (rows []Info, next uint64, looked int) {
	id := q.Session
	if !s.isOpen(id, now) {
		return nil, 0, 0
	}
	one := func(db int, key string, each func(l *lock, row *Info)) {
		looked++
		if q.DB >= 0 && db != q.DB || q.Match != nil && !q.Match(key) {
			return
		}
		l := s.peek(db, key)
		if l == nil {
			return // the lock was flushed
		}
		row := l.summary(now)
		if each(l, &row); len(row.Holds)+len(row.Waits) > 0 {
			rows = append(rows, row)
		}
	}
	full := func(last, at uint64) bool { return looked >= max(q.Count, 1) && at != last }
	last := uint64(0)
	if q.Cursor&1 == 0 && (!q.Waiting || q.Held) {
		s.holdsOf.Ascend(&hold{bound: id, fence: q.Cursor / 2}, func(h *hold) bool {
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
				if l.holdOf(h.owner) == h && (!q.ByOwner || h.owner == q.Owner) {
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
	s.waitsOf.Ascend(&waiter{session: id, order: from}, func(w *waiter) bool {
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
				if !q.ByOwner || w.owner == q.Owner {
					row.Waits = []Wait{w.show(now)}
				}
			})
		}
		return true
	})
	return rows, next, looked
}

// maxQueues bounds the queues that EachQueue looks at.
const maxQueues = 10_000

// EachQueue calls f with keys and the lengths of their queues, in no particular order.
func (s *store) EachQueue(f func(key string, waiters int)) {
	left := maxQueues
	for _, d := range s.live {
		d.agenda.Scan(func(l *lock) bool {
			if !l.contended() || left == 0 {
				return false
			}
			left--
			f(l.key(), l.waiters())
			return true
		})
	}
}

// Session describes a session, or returns nil if there is none.
func (s *store) Session(id uint64, nowMillis int64) *SessionInfo {
	if !s.isOpen(id, nowMillis) {
		return nil
	}
	shown := s.showSession(s.session(id), nowMillis)
	return &shown
}

func (s *store) showSession(of *session, now int64) SessionInfo {
	shown := SessionInfo{
		ID: of.id, Name: of.name, User: of.user, LeaseMillis: of.lease, LeftMillis: s.endOf(of) - now,
		OpenedMillis: of.opened,
		Holds:        int(of.holds), Waiters: int(of.waiters),
	}
	if of.origin != nil {
		shown.Connection, shown.Client = true, Client{*of.origin, of.conn}
	}
	return shown
}

// Sessions describes at most count sessions that a user may use, from the id cursor on. next is the cursor of the next
// page, 0 at the end; looked counts the sessions that were looked at.
func (s *store) Sessions(user string, cursor uint64, count int, nowMillis int64) (rows []SessionInfo, next uint64,
	looked int,
) {
	passed := 0
	s.byID.Ascend(&session{id: cursor}, func(of *session) bool {
		usable := user == "" || of.user == user
		if usable && passed >= max(count, 1) || looked > maxLooked {
			next = of.id
			return false
		}
		if looked++; !usable {
			return true
		}
		passed++
		if !of.closed && s.endOf(of) >= nowMillis {
			rows = append(rows, s.showSession(of, nowMillis))
		}
		return true
	})
	return rows, next, looked
}
