package fsm

import "github.com/holdfast/holdfast/protocol"

// usageOps are the commands that ask what keys take.
var usageOps = map[string]op{"memory|usage": memoryUsageOp}

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
	return protocol.Integer(it.Bytes())
}
