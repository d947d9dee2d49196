package fsm

import (
	"strconv"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// fenceOps has the commands for fences.
var fenceOps = map[string]op{
	"fence.get":   fenceGetOp,
	"fence.pass":  fencePassOp,
	"fence.raise": fenceRaiseOp,
}

func parseFence(word string) (fence int64, ok bool) {
	fence, ok = protocol.ParseInt(word)
	return fence, ok && fence >= 1 && fence <= locks.MaxFence
}

// fencePassOp passes a fence unless a larger one has passed. A resource calls it before each write, and
// so refuses the writes of earlier holders of a lock. The key keeps its deadline.
func fencePassOp(c *call) protocol.Value {
	key := c.Args[1]
	fence, ok := parseFence(c.Args[2])
	if !ok {
		return command.ErrNotInteger
	}
	it, ok := c.FindString(key)
	if !ok {
		return command.ErrWrongType
	}
	deadlineMillis := int64(command.Never)
	if it != nil {
		passed, ok := parseFence(it.Value())
		switch {
		case !ok:
			return errNoFence
		case fence < passed:
			c.locked.FencesRefused++
			return command.Zero
		case fence == passed:
			return command.One
		}
		deadlineMillis = it.DeadlineMillis
	}
	c.Set(key, strconv.FormatInt(fence, 10), deadlineMillis)
	c.Notify(event.ClassModule, "fence.pass", key)
	return command.One
}

var errNoFence = protocol.Err("the value at the key is not a fence")

// maxRaisedFence is the largest argument of FENCE.RAISE. It is larger than the current time in microseconds, and half
// of all fences remain for native locks.
const maxRaisedFence = 1 << 52

var errRaisedTooFar = protocol.Err("fences are raised to 4503599627370496 at most")

// fenceRaiseOp makes the fences of native locks larger than a number, for resources that have seen fences of another
// lock server. The reply is the largest number that later fences exceed.
func fenceRaiseOp(c *call) protocol.Value {
	above, ok := parseFence(c.Args[1])
	switch {
	case !ok:
		return command.ErrNotInteger
	case above > maxRaisedFence:
		return errRaisedTooFar
	}
	reached := c.changeLocks(0).RaiseFences(uint64(above))
	c.publishLockEvents()
	return protocol.Integer(int64(reached))
}

// fenceGetOp replies with the largest fence that has passed, or nil.
func fenceGetOp(c *call) protocol.Value {
	it, reply, ok := c.FindStringOr(c.Args[1], protocol.Null)
	if !ok {
		return reply
	}
	fence, ok := parseFence(it.Value())
	if !ok {
		return errNoFence
	}
	return protocol.Integer(fence)
}
