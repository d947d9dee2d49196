package fsm

import (
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

func expireOp(c *call) protocol.Value    { return c.expireAt(expirySeconds) }
func pexpireOp(c *call) protocol.Value   { return c.expireAt(expiryMillis) }
func expireatOp(c *call) protocol.Value  { return c.expireAt(expirySecondsAt) }
func pexpireatOp(c *call) protocol.Value { return c.expireAt(expiryMillisAt) }

// expiryRules are NX, XX, GT and LT of EXPIRE.
type expiryRules struct{ nx, xx, gt, lt bool }

// expireAt is the EXPIRE family. An instant that has passed removes the key.
func (c *call) expireAt(u expiryUnit) protocol.Value {
	rules, problem, ok := parseExpiryRules(c.args[3:])
	if !ok {
		return problem
	}
	n, ok := protocol.ParseInt(c.args[2])
	if !ok {
		return errNotInteger
	}
	wallMillis, ok := c.wallInstant(u, n)
	if !ok {
		return errExpireTime(c.args[0])
	}
	deadlineMillis := c.fromWall(wallMillis)
	it := c.find(c.args[1])
	if it == nil || !rules.allow(it.DeadlineMillis, deadlineMillis) {
		return zero
	}
	c.expire(it, deadlineMillis)
	return one
}

func parseExpiryRules(words []string) (r expiryRules, problem protocol.Value, ok bool) {
	for _, word := range words {
		switch {
		case isWord(word, "NX"):
			r.nx = true
		case isWord(word, "XX"):
			r.xx = true
		case isWord(word, "GT"):
			r.gt = true
		case isWord(word, "LT"):
			r.lt = true
		default:
			return r, errQuoting("Unsupported option " + word), false
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

// allow reports whether the next deadline may take the place of the current one. A key that never
// ends counts as ending later than any other.
func (r expiryRules) allow(current, next int64) bool {
	switch {
	case r.nx && current != never, r.xx && current == never:
		return false
	case r.gt && (current == never || next <= current):
		return false
	case r.lt && current != never && next >= current:
		return false
	}
	return true
}

// expire gives an item another deadline. A deadline that is reached already ends the item at once: here
// Redis asks whether the instant is reached, and elsewhere whether it has passed.
func (c *call) expire(it *keyspace.Item, deadlineMillis int64) {
	event := "expire"
	switch {
	case deadlineMillis == never:
		event = "persist"
	case deadlineMillis <= c.nowMillis:
		deadlineMillis, event = beforeMillis(c.nowMillis), "del"
	}
	next := c.remarked(it, deadlineMillis)
	next.DeadlineMillis = deadlineMillis
	c.store(c.db, next)
	c.notify(classGeneric, event, next.Key())
}

// beforeMillis is a deadline that has passed at nowMillis.
func beforeMillis(nowMillis int64) int64 {
	if nowMillis-1 == never {
		return nowMillis - 2
	}
	return nowMillis - 1
}

func persistOp(c *call) protocol.Value {
	it := c.find(c.args[1])
	if it == nil || it.DeadlineMillis == never {
		return zero
	}
	c.expire(it, never)
	return one
}

func ttlOp(c *call) protocol.Value {
	return c.remaining(func(deadlineMillis int64) int64 { return roundToSeconds(deadlineMillis - c.nowMillis) })
}

func pttlOp(c *call) protocol.Value {
	return c.remaining(func(deadlineMillis int64) int64 { return deadlineMillis - c.nowMillis })
}

func expiretimeOp(c *call) protocol.Value {
	return c.remaining(func(deadlineMillis int64) int64 { return roundToSeconds(c.toWall(deadlineMillis)) })
}

func pexpiretimeOp(c *call) protocol.Value { return c.remaining(c.toWall) }

// remaining is the frame of the TTL commands: -2 for no key, -1 for no deadline.
func (c *call) remaining(f func(deadlineMillis int64) int64) protocol.Value {
	it := c.find(c.args[1])
	if it == nil {
		return protocol.Integer(-2)
	}
	deadlineMillis := it.DeadlineMillis
	if it.IsLock() {
		deadlineMillis = c.lockDeadline(it.Key())
	}
	if deadlineMillis == never {
		return protocol.Integer(-1)
	}
	return protocol.Integer(f(deadlineMillis))
}

// roundToSeconds rounds as Redis does: half a second up.
func roundToSeconds(millis int64) int64 { return saturatingAdd(millis, 500) / 1000 }
