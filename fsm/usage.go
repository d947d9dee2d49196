package fsm

import (
	"github.com/holdfast/holdfast/protocol"

	"github.com/holdfast/holdfast/fsm/command"
)

// usageOps are the commands that ask what keys take.
var usageOps = map[string]op{"memory|usage": memoryUsageOp}

// standerWork is what MEMORY USAGE does with a hold or a waiter of a lock.
const standerWork = 64

// memoryUsageOp answers with the bytes that the key counts against the limit. Nothing is sampled.
func memoryUsageOp(c *call) protocol.Value {
	for i := 2; i < len(c.Args); i += 2 {
		if !command.IsWord(c.Args[i], "SAMPLES") || i+1 >= len(c.Args) {
			return command.ErrSyntax
		}
		n, ok := protocol.ParseInt(c.Args[i+1])
		switch {
		case !ok:
			return command.ErrNotInteger
		case n < 0:
			return command.ErrSyntax
		}
	}
	it := c.FindIn(c.DB, c.Args[1]) // which Redis does not count
	if it == nil {
		return protocol.Null
	}
	bytes := it.Bytes()
	if it.IsLock() {
		work := int64(c.st.Locks.Standers(c.DB, c.Args[1])) * standerWork
		if !c.Fits(work) {
			return command.ErrOverWork
		}
		c.Spend(work)
		bytes += c.st.Locks.Usage(c.DB, c.Args[1])
	}
	return protocol.Integer(bytes)
}
