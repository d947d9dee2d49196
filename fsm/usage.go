package fsm

import "github.com/holdfast/holdfast/protocol"

// usageOps are the commands that ask what keys take.
var usageOps = map[string]op{"memory|usage": memoryUsageOp}

// standerWork is what MEMORY USAGE does with a hold or a waiter of a lock.
const standerWork = 64

// memoryUsageOp answers with the bytes that the key counts against the limit. Nothing is sampled.
func memoryUsageOp(c *call) protocol.Value {
	for i := 2; i < len(c.args); i += 2 {
		if !isWord(c.args[i], "SAMPLES") || i+1 >= len(c.args) {
			return errSyntax
		}
		n, ok := protocol.ParseInt(c.args[i+1])
		switch {
		case !ok:
			return errNotInteger
		case n < 0:
			return errSyntax
		}
	}
	it := c.findIn(c.db, c.args[1]) // which Redis does not count
	if it == nil {
		return protocol.Null
	}
	bytes := it.Bytes()
	if it.IsLock() {
		work := int64(c.st.locks.Standers(c.db, c.args[1])) * standerWork
		if !c.fits(work) {
			return errOverWork
		}
		c.spend(work)
		bytes += c.st.locks.Usage(c.db, c.args[1])
	}
	return protocol.Integer(bytes)
}
