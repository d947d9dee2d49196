package fsm

import (
	"strconv"

	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

const (
	// infoRows is the most holds, and the most waits, in the reply of LOCK.INFO, and listedRows of each lock
	// in the reply of LOCK.LIST.
	infoRows   = 1000
	listedRows = 100
	// defaultListed is COUNT if there is none.
	defaultListed = 10
	// rowWork is a hold or a wait in a reply.
	rowWork = 1 << 10
)

// meetLock is for a read that meets a lock: what is due there by the read's instant has to be in the log
// first.
func (c *call) meetLock(db int, key string) {
	c.dueMet = c.dueMet || c.st.locks.DueAt(db, key, c.st.clockMillis, c.nowMillis)
}

// meetLocks is [call.meetLock] for all locks and sessions.
func (c *call) meetLocks() {
	c.dueMet = c.dueMet || c.reading && c.st.locks.DueBetween(c.st.clockMillis, c.nowMillis)
}

func lockInfoOp(c *call) protocol.Value {
	key := c.args[1]
	if c.strange(key) {
		return errWrongType
	}
	info := c.st.locks.Info(c.db, key, c.nowMillis, infoRows)
	if info == nil {
		return protocol.Null
	}
	if !c.shows(info) {
		return errOverWork
	}
	return protocol.Map(c.showLock(nil, info)...)
}

// shows charges for the rows of a lock.
func (c *call) shows(info *locks.Info) bool {
	work := lockWork + int64(len(info.Holds)+len(info.Waits))*rowWork
	if !c.fits(work) {
		return false
	}
	c.spend(work)
	return true
}

// showLock appends the fields of a lock.
func (c *call) showLock(dst []protocol.Value, info *locks.Info) []protocol.Value {
	mode := "free"
	if info.Holders > 0 {
		mode = modeName(info.Mode)
	}
	holders := make([]protocol.Value, len(info.Holds))
	for i := range info.Holds {
		holders[i] = c.showHold(&info.Holds[i])
	}
	waiters := make([]protocol.Value, len(info.Waits))
	for i := range info.Waits {
		waiters[i] = c.showWait(&info.Waits[i])
	}
	return append(dst,
		protocol.Bulk("mode"), protocol.Bulk(mode),
		protocol.Bulk("holders-count"), protocol.Integer(int64(info.Holders)),
		protocol.Bulk("waiters-count"), protocol.Integer(int64(info.Waiters)),
		protocol.Bulk("permits"), protocol.Integer(info.Permits),
		protocol.Bulk("delay-left"), protocol.Integer(info.DelayLeftMillis),
		protocol.Bulk("holders"), protocol.Array(holders...),
		protocol.Bulk("waiters"), protocol.Array(waiters...))
}

func (c *call) showHold(h *locks.Hold) protocol.Value {
	left := h.LeftMillis
	if h.Session != 0 {
		left = -1
	}
	return protocol.Map(
		protocol.Bulk("owner"), protocol.Bulk(h.Owner),
		protocol.Bulk("fence"), protocol.Integer(int64(h.Fence)),
		protocol.Bulk("mode"), protocol.Bulk(modeName(h.Mode)),
		protocol.Bulk("holds"), protocol.Integer(h.Count),
		protocol.Bulk("permits"), protocol.Integer(h.Permits),
		protocol.Bulk("lease-left"), protocol.Integer(left),
		protocol.Bulk("session"), protocol.Integer(int64(h.Session)),
		protocol.Bulk("since"), protocol.Integer(c.toWall(h.SinceMillis)),
		protocol.Bulk("note"), protocol.Bulk(h.Note),
		protocol.Bulk("client"), protocol.Bulk(showClient(h.Client)))
}

func (c *call) showWait(w *locks.Wait) protocol.Value {
	return protocol.Map(
		protocol.Bulk("owner"), protocol.Bulk(w.Owner),
		protocol.Bulk("mode"), protocol.Bulk(modeName(w.Mode)),
		protocol.Bulk("limit"), protocol.Integer(w.Limit),
		protocol.Bulk("permits"), protocol.Integer(w.Permits),
		protocol.Bulk("keys"), protocol.Integer(int64(w.Keys)),
		protocol.Bulk("session"), protocol.Integer(int64(w.Session)),
		protocol.Bulk("since"), protocol.Integer(c.toWall(w.SinceMillis)),
		protocol.Bulk("wait-left"), protocol.Integer(w.LeftMillis),
		protocol.Bulk("absent"), boolean(w.Absent),
		protocol.Bulk("notify"), boolean(w.Notify),
		protocol.Bulk("note"), protocol.Bulk(w.Note),
		protocol.Bulk("client"), protocol.Bulk(showClient(w.Client)))
}

func modeName(m locks.Mode) string {
	return [...]string{locks.Exclusive: "exclusive", locks.Shared: "shared", locks.Permits: "permits"}[m]
}

// showClient names a connection by its node, and the number that CLIENT LIST of the node has.
func showClient(cl locks.Client) string {
	if cl.Conn == 0 {
		return ""
	}
	return cl.Origin.Node + "/" + strconv.FormatInt(cl.Conn, 10)
}

func parseListCursor(word string) (cursor uint64, problem protocol.Value) {
	cursor, ok := parseCursor(word)
	if !ok {
		return 0, protocol.ErrInvalidCursor.Value()
	}
	return cursor, problem
}

func parseListCount(word string) (count int, problem protocol.Value) {
	n, ok := protocol.ParseInt(word)
	switch {
	case !ok:
		return 0, errNotInteger
	case n < 1:
		return 0, errSyntax
	}
	return int(min(n, maxListed)), problem
}

// parsePage reads the options of LOCK.LIST and SESSION.LIST that say which rows are wanted.
func parsePage(word, value string, cursor *uint64, count *int) (known bool, problem protocol.Value) {
	switch {
	case isWord(word, "CURSOR"):
		*cursor, problem = parseListCursor(value)
	case isWord(word, "COUNT"):
		*count, problem = parseListCount(value)
	default:
		return false, problem
	}
	return true, problem
}

// parseQuery reads the options of LOCK.LIST.
func parseQuery(q *locks.Query, m *matcher, words []string) protocol.Value {
	problem := parseLockOptions(words, func(word string) bool {
		held, waiting := isWord(word, "HELD"), isWord(word, "WAITING")
		q.Held, q.Waiting = q.Held || held, q.Waiting || waiting
		return held || waiting
	}, func(word, value string) (known bool, problem protocol.Value) {
		switch {
		case isWord(word, "MATCH"):
			m.pattern = value
		case isWord(word, "OWNER"):
			q.ByOwner, q.Owner = true, value
		case isWord(word, "SESSION"):
			q.Session, problem = parseSession(value)
		default:
			return parsePage(word, value, &q.Cursor, &q.Count)
		}
		return true, problem
	})
	if !problem.IsError() && q.Held && q.Waiting {
		return errSyntax
	}
	return problem
}

// lockListOp answers with a cursor and locks, each a map as of LOCK.INFO with the key before.
func lockListOp(c *call) protocol.Value {
	q := locks.Query{DB: c.db, Count: defaultListed, Most: listedRows}
	m := matcher{pattern: "*"}
	if problem := parseQuery(&q, &m, c.args[1:]); problem.IsError() {
		return problem
	}
	if !c.worksOn(q.Count) {
		return errOverWork
	}
	c.meetLocks()
	m.start(c)
	q.Match = m.match
	rows, next, looked := c.st.locks.List(&q, c.nowMillis)
	m.charge(c)
	c.spend(int64(looked) * keyWork)
	if !c.fits(0) {
		return errOverWork
	}
	if m.tired() {
		return errPattern
	}
	var shown []protocol.Value
	for i := range rows {
		if !c.shows(&rows[i]) {
			return errOverWork
		}
		shown = append(shown, protocol.Map(c.showLock([]protocol.Value{protocol.Bulk("key"), protocol.Bulk(rows[i].Key)}, &rows[i])...))
	}
	return protocol.Array(protocol.Bulk(formatUint(next)), protocol.Array(shown...))
}
