package keys

import (
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/protocol"
)

// expiryRules has the options of EXPIRE.
type expiryRules struct{ nx, xx, gt, lt bool }

// expireAt is EXPIRE, PEXPIRE, EXPIREAT or PEXPIREAT. A deadline in the past removes the key.
func expireAt(c *command.Call, u command.ExpiryUnit) protocol.Value {
	rules, problem, ok := parseExpiryRules(c.Args[3:])
	if !ok {
		return problem
	}
	n, ok := protocol.ParseInt(c.Args[2])
	if !ok {
		return command.ErrNotInteger
	}
	wallMillis, ok := c.WallInstant(u, n)
	if !ok {
		return command.ErrExpireTime(c.Args[0])
	}
	deadlineMillis := c.FromWall(wallMillis)
	it := c.Find(c.Args[1])
	if it == nil || !rules.allow(it.DeadlineMillis, deadlineMillis) {
		return command.Zero
	}
	c.Expire(it, deadlineMillis)
	return command.One
}

func parseExpiryRules(words []string) (r expiryRules, problem protocol.Value, ok bool) {
	for _, word := range words {
		switch {
		case command.IsWord(word, "NX"):
			r.nx = true
		case command.IsWord(word, "XX"):
			r.xx = true
		case command.IsWord(word, "GT"):
			r.gt = true
		case command.IsWord(word, "LT"):
			r.lt = true
		default:
			return r, command.ErrQuoting("Unsupported option " + word), false
		}
	}
	if r.nx && (r.xx || r.gt || r.lt) {
		return r, protocol.Err("NX and XX, GT or LT options at the same time are not compatible"), false
	}
	if r.gt && r.lt {
		return r, protocol.Err("GT and LT options at the same time are not compatible"), false
	}
	return r, problem, true
}

// allow reports whether the next deadline may replace the current one. GT and LT treat a key without a deadline as the
// last to expire.
func (r expiryRules) allow(current, next int64) bool {
	switch {
	case r.nx && current != command.Never, r.xx && current == command.Never:
		return false
	case r.gt && (current == command.Never || next <= current):
		return false
	case r.lt && current != command.Never && next >= current:
		return false
	}
	return true
}

func persistOp(c *command.Call) protocol.Value {
	it := c.Find(c.Args[1])
	if it == nil || it.DeadlineMillis == command.Never {
		return command.Zero
	}
	c.Expire(it, command.Never)
	return command.One
}

func ttlOp(c *command.Call) protocol.Value {
	return remaining(c, func(deadlineMillis int64) int64 { return roundToSeconds(deadlineMillis - c.NowMillis) })
}

func pttlOp(c *command.Call) protocol.Value {
	return remaining(c, func(deadlineMillis int64) int64 { return deadlineMillis - c.NowMillis })
}

func expiretimeOp(c *command.Call) protocol.Value {
	return remaining(c, func(deadlineMillis int64) int64 { return roundToSeconds(c.ToWall(deadlineMillis)) })
}

func pexpiretimeOp(c *command.Call) protocol.Value { return remaining(c, c.ToWall) }

// remaining returns f of the key's deadline, -2 if the key is missing, or -1 if it has no deadline.
func remaining(c *command.Call, f func(deadlineMillis int64) int64) protocol.Value {
	it := c.Find(c.Args[1])
	if it == nil {
		return protocol.Integer(-2)
	}
	deadlineMillis := it.DeadlineMillis
	if it.IsLock() {
		deadlineMillis = c.LockDeadline(it.Key())
	}
	if deadlineMillis == command.Never {
		return protocol.Integer(-1)
	}
	return protocol.Integer(f(deadlineMillis))
}

// roundToSeconds rounds to the nearest second, and half a second up, as Redis does.
func roundToSeconds(millis int64) int64 { return command.SaturatingAdd(millis, 500) / 1000 }
