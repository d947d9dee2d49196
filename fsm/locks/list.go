package locks

// maxLooked bounds the work for one page: the holds and waits that List lists, or the sessions that Sessions reads.
const maxLooked = 200_000

// List describes the locks of a database, ordered by hash and key. If a session is selected, List describes the holds
// and waits of the session: see listSession. next is the cursor of the next page, or 0 after the last page. looked
// counts the locks that List has read, and the holds and waits that List has listed.
func (s *store) List(q *Query, nowMillis int64) (rows []Info, next uint64, looked int) {
	if q.Session != 0 {
		return s.listSession(q, nowMillis)
	}
	d := s.database(q.DB)
	if d == nil || q.Cursor >= 1<<53 {
		return nil, 0, 0
	}
	last, locks, first := uint64(0), 0, probeAt(q.DB, q.Cursor<<cursorShift, "")
	for l := range ascend(d.locks, &first) {
		at := l.hash >> cursorShift
		if (locks >= max(q.Count, 1) || looked > maxLooked) && at != last {
			return rows, at, looked + locks
		}
		locks++
		last = at
		if q.Match != nil && !q.Match(l.key()) {
			continue
		}
		row := s.describe(l, q, nowMillis)
		if shown := len(row.Holds) + len(row.Waits); shown > 0 {
			looked += shown
			rows = append(rows, row)
		}
	}
	return rows, 0, looked + locks
}

// listSession lists the holds of a session, ordered by fence, and then the waits of the session, ordered by order. The
// cursor of a page that begins with a hold is twice the fence of the hold. The cursor of a page that begins with a
// wait is twice the order of the waiter, plus 1. looked counts the holds and queue entries that listSession has read.
func (s *store) listSession(q *Query, now int64) (rows []Info, next uint64, looked int) {
	if !s.isSessionOpen(q.Session, now) {
		return nil, 0, 0
	}
	last := uint64(0)
	isFull := func(at uint64) bool {
		full := looked >= max(q.Count, 1) && at != last
		last = at
		return full
	}
	add := func(db int, key, owner string, fill func(l *lock, row *Info)) {
		looked++
		if q.DB >= 0 && db != q.DB || q.Match != nil && !q.Match(key) || q.ByOwner && owner != q.Owner {
			return
		}
		l := s.peek(db, key)
		if l == nil {
			return // the lock is flushed
		}
		row := l.summary(now)
		if fill(l, &row); len(row.Holds)+len(row.Waits) > 0 {
			rows = append(rows, row)
		}
	}
	cursor := q.Cursor
	if cursor&1 == 0 && (!q.Waiting || q.Held) {
		from := &sessionHold{hold: hold{sessionOrLease: q.Session, fence: cursor / 2}}
		for h := range ascend(s.holdsBySession, from) {
			if h.sessionOrLease != q.Session {
				break
			}
			if isFull(h.fence) {
				return rows, h.fence * 2, looked
			}
			add(int(h.db), h.key, h.owner, func(l *lock, row *Info) {
				if row.Mode = h.mode; l.holdOf(h.owner) == &h.hold {
					row.Holds = []Hold{h.info(now)}
				}
			})
		}
	}
	if cursor&1 == 0 {
		cursor, last = 0, 0
	}
	if q.Held && !q.Waiting {
		return rows, 0, looked
	}
	for w := range ascend(s.waitersBySession, &waiter{term: -int64(q.Session), order: cursor / 2}) {
		if w.session() != q.Session {
			break
		}
		if isFull(w.order) {
			return rows, w.order*2 + 1, looked
		}
		for _, key := range w.keys() {
			add(int(w.db), key, w.owner, func(_ *lock, row *Info) { row.Waits = []Wait{w.info(now)} })
		}
	}
	return rows, 0, looked
}

// maxQueues bounds the calls of f by EachQueue.
const maxQueues = 10_000

// EachQueue calls f for each queue of a live lock. f gets the key of the lock, and the number of entries in the queue.
// EachQueue calls f at most 10,000 times, in no particular order.
func (s *store) EachQueue(f func(key string, waiters int)) {
	left := maxQueues
	for _, d := range s.liveDatabases {
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

// Session describes the session with an id. It returns nil if that session does not exist, or has ended at nowMillis.
func (s *store) Session(id uint64, nowMillis int64) *SessionInfo {
	if !s.isSessionOpen(id, nowMillis) {
		return nil
	}
	shown := s.sessionInfo(s.session(id), nowMillis)
	return &shown
}

func (s *store) sessionInfo(sess *session, now int64) SessionInfo {
	return SessionInfo{
		ID: sess.id, Name: sess.name, User: sess.user, LeaseMillis: sess.lease, LeftMillis: s.endOf(sess) - now,
		OpenedMillis: sess.opened, Connection: sess.origin != nil, Client: sess.client(), Holds: int(sess.holds),
		Waiters: int(sess.waiters),
	}
}

// Sessions describes sessions that a user may use, ordered by id. The page begins at the first id that is not below
// cursor, and has at most count sessions. next is the cursor of the next page, or 0 after the last page. looked is the
// number of sessions that Sessions has read.
func (s *store) Sessions(user string, cursor uint64, count int, nowMillis int64) (rows []SessionInfo, next uint64,
	looked int,
) {
	passed := 0
	for sess := range ascend(s.sessionsByID, &session{id: cursor}) {
		usable := user == "" || sess.user == user
		if usable && passed >= max(count, 1) || looked > maxLooked {
			return rows, sess.id, looked
		}
		if looked++; !usable {
			continue
		}
		if passed++; !sess.endPending && s.endOf(sess) >= nowMillis {
			rows = append(rows, s.sessionInfo(sess, nowMillis))
		}
	}
	return rows, 0, looked
}
