package fsm

import (
	"strconv"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

const (
	infoRows      = 1000   // bounds the holds, and also the waits, in a reply to LOCK.INFO
	listedRows    = 100    // bounds the holds, and also the waits, of one lock in a reply to LOCK.LIST
	defaultListed = 10     // the default of COUNT
	rowWork       = 5 << 9 // the work for a hold, a wait or a loss in a reply
)

// rows returns the work for n rows of a reply.
func (c *call) rows(n int) int64 {
	return int64(n) * rowWork
}

func lockInfoOp(c *call) protocol.Value { return c.lockInfo(c.Args[1], infoRows) }

// lockInfo describes a native or stock lock, with at most rows holders and at most rows waiters.
func (c *call) lockInfo(key string, rows int) protocol.Value {
	switch it := c.Find(key); {
	case it == nil || it.IsLock():
	case !it.IsMarked():
		return command.ErrWrongType
	default:
		return c.stockInfo(it, rows)
	}
	info := c.st.Locks.Info(c.DB, key, c.NowMillis, rows)
	if info == nil {
		return protocol.Null
	}
	if !c.shows(info) {
		return command.ErrOverWork
	}
	return protocol.Map(c.showLock(nil, info)...)
}

func (c *call) stockInfo(it *keyspace.Item, maxRows int) protocol.Value {
	if !c.Pays(lockWork + c.rows(min(maxRows, stockSize(it)))) {
		return command.ErrOverWork
	}
	return protocol.Map(c.showStock(nil, it, &locks.Query{MaxRows: maxRows})...)
}

// shows charges the work for the rows of a native lock. It reports whether the budget sufficed; if not, it charges
// nothing.
func (c *call) shows(info *locks.Info) bool {
	return c.Pays(lockWork + c.rows(len(info.Holds)+len(info.Waits)))
}

// modeOf returns the mode of a native lock for replies. A lock without holders is "free".
func modeOf(info *locks.Info) string {
	if info.Holders == 0 {
		return "free"
	}
	return modeName(info.Mode)
}

// showLock appends the fields of a native lock to dst.
func (c *call) showLock(dst []protocol.Value, info *locks.Info) []protocol.Value {
	holders := make([]protocol.Value, len(info.Holds))
	for i := range info.Holds {
		holders[i] = c.showHold(&info.Holds[i])
	}
	waiters := make([]protocol.Value, len(info.Waits))
	for i := range info.Waits {
		waiters[i] = c.showWait(&info.Waits[i])
	}
	return append(dst, lockFields(modeOf(info), info.Holders, info.Waiters, info.Permits, info.DelayLeftMillis, holders,
		waiters)...)
}

func lockFields(mode string, holdersCount, waitersCount int, permits, delayLeft int64, holders,
	waiters []protocol.Value,
) []protocol.Value {
	return []protocol.Value{
		protocol.Bulk("mode"), protocol.Bulk(mode),
		protocol.Bulk("holders-count"), protocol.Integer(int64(holdersCount)),
		protocol.Bulk("waiters-count"), protocol.Integer(int64(waitersCount)),
		protocol.Bulk("permits"), protocol.Integer(permits),
		protocol.Bulk("delay-left"), protocol.Integer(delayLeft),
		protocol.Bulk("holders"), protocol.Array(holders...),
		protocol.Bulk("waiters"), protocol.Array(waiters...),
	}
}

func (c *call) showHold(h *locks.Hold) protocol.Value {
	shown := *h
	if h.Session != 0 {
		shown.LeftMillis = -1
		// The session may be attached to another connection now.
		if s := c.st.Locks.Session(h.Session, c.NowMillis); s != nil && s.Connection {
			shown.Client = s.Client
		}
	}
	return c.showHolder(&shown, modeName(h.Mode), -1)
}

// showHolder returns a holder for a reply. renewals is -1 for native locks, whose renewals are not counted.
func (c *call) showHolder(h *locks.Hold, mode string, renewals int64) protocol.Value {
	fields := []protocol.Value{
		protocol.Bulk("owner"), protocol.Bulk(h.Owner),
		protocol.Bulk("fence"), protocol.Integer(int64(h.Fence)),
		protocol.Bulk("mode"), protocol.Bulk(mode),
		protocol.Bulk("holds"), protocol.Integer(h.Count),
		protocol.Bulk("permits"), protocol.Integer(h.Permits),
		protocol.Bulk("lease-left"), protocol.Integer(h.LeftMillis),
		protocol.Bulk("session"), protocol.Integer(int64(h.Session)),
		protocol.Bulk("since"), protocol.Integer(c.ToWall(h.SinceMillis)),
		protocol.Bulk("note"), protocol.Bulk(h.Note),
		protocol.Bulk("client"), protocol.Bulk(showClient(h.Client)),
		protocol.Bulk("incarnation"), protocol.Integer(incarnationOf(h.Client)),
		protocol.Bulk("lease"), protocol.Integer(h.LeaseMillis),
		protocol.Bulk("renewals"), protocol.Integer(renewals),
	}
	return protocol.Map(fields...)
}

func (c *call) showWait(w *locks.Wait) protocol.Value {
	fields := []protocol.Value{
		protocol.Bulk("owner"), protocol.Bulk(w.Owner),
		protocol.Bulk("mode"), protocol.Bulk(modeName(w.Mode)),
		protocol.Bulk("limit"), protocol.Integer(w.Limit),
		protocol.Bulk("permits"), protocol.Integer(w.Permits),
		protocol.Bulk("keys"), protocol.Integer(int64(w.Keys)),
		protocol.Bulk("session"), protocol.Integer(int64(w.Session)),
		protocol.Bulk("since"), protocol.Integer(c.ToWall(w.SinceMillis)),
		protocol.Bulk("wait-left"), protocol.Integer(w.LeftMillis),
		protocol.Bulk("absent"), command.Boolean(w.Absent),
		protocol.Bulk("notify"), command.Boolean(w.Notify),
		protocol.Bulk("note"), protocol.Bulk(w.Note),
		protocol.Bulk("client"), protocol.Bulk(showClient(w.Client)),
		protocol.Bulk("incarnation"), protocol.Integer(incarnationOf(w.Client)),
	}
	return protocol.Map(fields...)
}

func modeName(m locks.Mode) string {
	return [...]string{locks.Exclusive: "exclusive", locks.Shared: "shared", locks.Permits: "permits"}[m]
}

// showClient returns the name of a connection: its node and its number in CLIENT LIST of that node. For the zero Client
// it returns "".
func showClient(cl locks.Client) string {
	if cl.Conn == 0 {
		return ""
	}
	return cl.Origin.Node + "/" + strconv.FormatInt(cl.Conn, 10)
}

// incarnationOf returns the epoch of the incarnation of a connection, or 0 for the zero Client.
func incarnationOf(cl locks.Client) int64 {
	if cl.Conn == 0 {
		return 0
	}
	return int64(cl.Origin.Epoch)
}

func parseListCursor(word string) (cursor uint64, problem protocol.Value) {
	cursor, ok := command.ParseCursor(word)
	if !ok {
		return 0, protocol.ErrInvalidCursor.Value()
	}
	return cursor, problem
}

func parseListCount(word string) (count int, problem protocol.Value) {
	n, ok := protocol.ParseInt(word)
	switch {
	case !ok:
		return 0, command.ErrNotInteger
	case n < 1:
		return 0, command.ErrSyntax
	}
	return int(min(n, maxListed)), problem
}

// parsePage parses the options CURSOR and COUNT. known reports whether the word is one of them.
func parsePage(word, value string, cursor *uint64, count *int) (known bool, problem protocol.Value) {
	switch {
	case command.IsWord(word, "CURSOR"):
		*cursor, problem = parseListCursor(value)
	case command.IsWord(word, "COUNT"):
		*count, problem = parseListCount(value)
	default:
		return false, problem
	}
	return true, problem
}

// maxListed bounds COUNT.
const maxListed = 1000
