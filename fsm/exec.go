package fsm

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/protocol"
)

// timeOp runs TIME. It replies with the wall time of the entry, which has whole milliseconds.
func timeOp(c *call) protocol.Value {
	wallMillis := max(0, c.WallNow())
	return protocol.Strings(command.FormatUint(uint64(wallMillis/1000)), command.FormatUint(uint64(wallMillis%1000*1000)))
}

// execOp runs a transaction. The words of the request are the watched keys and the queued requests, as the client's
// node encodes them: see [protocol.AppendTransaction].
func execOp(c *call) protocol.Value {
	if len(c.Args) != 3 {
		return command.ErrArity("exec")
	}
	watches, queued := c.Args[1], c.Args[2]
	count, ok := countRequests(queued)
	if !ok {
		return protocol.Err("transaction is corrupt")
	}
	if cause := c.refusesQueued(queued); cause != nil {
		return protocol.ExecAbortedBy(cause).Value()
	}
	changed, ok := c.watchedChanged(watches)
	switch {
	case !ok:
		return protocol.Err("transaction is corrupt")
	case changed:
		return protocol.NullArray
	case c.OverBudget:
		return command.ErrOverWork
	}
	return c.transact(watches, queued, count)
}

// errOverTransaction is the reply to a transaction that was undone since it exceeded its budget.
var errOverTransaction = protocol.ExecAbortedBy(&protocol.Error{
	Prefix: "ERR",
	Text:   "transaction is over its budget of work",
}).Value()

// transact runs the requests of a transaction. If they exceed the budget, it undoes all their changes.
func (c *call) transact(watches, queued string, count int) protocol.Value {
	db, words := c.DB, c.Args
	outer := c.Narrow(c.bounds.transaction)
	var reply protocol.Value
	if c.Fits(int64(count) * requestWork) {
		from := c.beginSavepoint()
		c.watched = watches
		if reply = c.runQueued(queued, count); c.OverBudget {
			c.undoTo(&from)
		} else {
			c.releaseSavepoint(&from)
		}
		c.watched = ""
	}
	c.DB, c.Args = db, words
	if c.Widen(outer) {
		return errOverTransaction
	}
	return reply
}

// runQueued runs the requests of a transaction in their order, until the budget is spent. If a request fails, the next
// ones still run.
func (c *call) runQueued(queued string, count int) protocol.Value {
	number := c.Seed
	var replies []protocol.Value
	if !c.Quiet {
		replies = make([]protocol.Value, 0, count)
	}
	var r protocol.Request
	for queued != "" && !c.OverBudget {
		rest, _ := protocol.NextRequest(queued, &r) // countRequests has found no error
		c.Spend(price(&r, len(queued)-len(rest)))
		if !c.Fits(0) {
			break
		}
		queued = rest
		number++
		c.begin(&r, number)
		writes := c.writes(r.Args[0])
		switch {
		case c.Quiet && !writes:
		case r.Args[0] == "exec":
			replies = append(replies, protocol.ErrNestedMulti.Value())
		case r.Args[0] == "watch":
			replies = append(replies, protocol.ErrWatchInMulti.Value())
		case !writes:
			replies = append(replies, c.readInEntry())
		default:
			replies = append(replies, c.run())
		}
	}
	return protocol.Array(replies...)
}

// countRequests counts the encoded requests in body. ok reports whether all of them are valid.
func countRequests(body string) (n int, ok bool) {
	var r protocol.Request
	for body != "" {
		rest, err := protocol.NextRequest(body, &r)
		if err != nil {
			return 0, false
		}
		body = rest
		n++
	}
	return n, true
}

// mark is the reply to WATCH for a key. EXEC compares it with the state of the key. A mark is twice the last version
// that was issued, plus 1 if the key was missing. It is valid on all nodes.
type mark uint64

func newMark(versions uint64, missing bool) mark {
	m := mark(versions << 1)
	if missing {
		m++
	}
	return m
}

func (m mark) versions() uint64 { return uint64(m >> 1) }
func (m mark) missing() bool    { return m&1 != 0 }

// watchOp runs WATCH. It replies with the marks of the keys.
func watchOp(c *call) protocol.Value {
	elems := make([]protocol.Value, len(c.Args)-1)
	for i, key := range c.Args[1:] {
		elems[i] = protocol.Integer(int64(newMark(c.st.Versions, c.Find(key) == nil)))
	}
	return protocol.Array(elems...)
}

// watchedChanged reports whether a watched key has changed since WATCH, even if it has its old value again. ok reports
// whether the list of watched keys is valid.
func (c *call) watchedChanged(watches string) (changed, ok bool) {
	var w protocol.Watch
	for watches != "" {
		rest, err := protocol.NextWatch(watches, &w)
		if err != nil {
			return false, false
		}
		watches = rest
		c.Spend(watchWork)
		if !c.Fits(0) {
			return false, true
		}
		changed = changed || c.changedSince(&w, mark(w.Mark))
	}
	return changed, true
}

// changedSince reports whether a watched key was created or removed, or got another value or deadline, after mark m. A
// swap of the database counts as a change of each key, since the versions of swapped items may be older than m.
func (c *call) changedSince(w *protocol.Watch, m mark) bool {
	it := c.FindIn(w.DB, w.Key)
	switch {
	case c.st.Swaps[w.DB] > m.versions():
		return true
	case m.missing():
		return it != nil || c.st.NewKeys[c.st.NewKeys.Place(w.DB, c.HashOf(w.Key))] > m.versions()
	default:
		return it == nil || it.Version() > m.versions()
	}
}
