package fsm

import "github.com/holdfast/holdfast/protocol"

// timeOp is TIME by the entry's wall clock, in whole milliseconds.
func timeOp(c *call) protocol.Value {
	wallMillis := max(0, c.wallNow())
	return protocol.Strings(formatUint(uint64(wallMillis/1000)), formatUint(uint64(wallMillis%1000*1000)))
}

// execOp runs a transaction: a request that nodes write, with the watched keys and the queued requests
// as its words. See protocol/transaction.go.
func execOp(c *call) protocol.Value {
	if len(c.args) != 3 {
		return errArity("exec")
	}
	watches, queued := c.args[1], c.args[2]
	count, ok := countRequests(queued)
	if !ok {
		return protocol.Err("transaction is corrupt")
	}
	if c.refusesQueued(queued) {
		return errOOMExec
	}
	changed, ok := c.watchedChanged(watches)
	switch {
	case !ok:
		return protocol.Err("transaction is corrupt")
	case changed:
		return protocol.NullArray
	case c.over:
		return errOverWork
	}
	if c.entryVersion < versionBudgets {
		return c.runQueued(queued, count)
	}
	return c.transact(watches, queued, count)
}

// errOverTransaction is the reply to a transaction over its budget. Nothing of the transaction is kept.
var errOverTransaction = protocol.ExecAbortedBy(&protocol.Error{
	Prefix: "ERR",
	Text:   "transaction is over its budget of work",
}).Value()

// transact runs all requests of a transaction that watches keys, or none if they exceed the budget.
func (c *call) transact(watches, queued string, count int) protocol.Value {
	db, words := c.db, c.args
	outer := c.narrow(c.bounds.transaction)
	var reply protocol.Value
	if c.fits(int64(count) * requestWork) {
		from := c.begins()
		c.watched = watches
		if reply = c.runQueued(queued, count); c.over {
			c.undoTo(&from)
		} else {
			c.ends(&from)
		}
		c.watched = ""
	}
	c.db, c.args = db, words
	if c.widen(outer) {
		return errOverTransaction
	}
	return reply
}

// runQueued runs the requests of a transaction in order, as far as the budget goes. An error of a
// request does not stop the others.
func (c *call) runQueued(queued string, count int) protocol.Value {
	number := c.seed
	var replies []protocol.Value
	if !c.quiet {
		replies = make([]protocol.Value, 0, count)
	}
	var r protocol.Request
	for queued != "" && !c.over {
		rest, _ := protocol.NextRequest(queued, &r) // parsed before without error
		c.spend(price(&r, len(queued)-len(rest)))
		if !c.fits(0) {
			break
		}
		queued = rest
		number++
		c.begin(&r, number)
		writes := c.writes(r.Args[0])
		switch {
		case c.quiet && !writes:
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

// countRequests returns false if the requests cannot all be read.
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
