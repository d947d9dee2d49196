package fsm

import (
	"math"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// never is the deadline of a key that does not end.
const never = keyspace.Never

// expiryUnit is how a command states a deadline.
type expiryUnit uint8

const (
	expiryNone      expiryUnit = iota
	expirySeconds              // EX: a ttl
	expiryMillis               // PX: a ttl
	expirySecondsAt            // EXAT: an instant of Unix time
	expiryMillisAt             // PXAT: an instant of Unix time
)

func (u expiryUnit) seconds() bool  { return u == expirySeconds || u == expirySecondsAt }
func (u expiryUnit) relative() bool { return u == expirySeconds || u == expiryMillis }

// deadline turns amount, a word of the command, into a deadline, which may have passed already. If
// amount is invalid, ok is false and problem is the reply.
//
// As in Redis, a ttl is added to Unix time first, so the same numbers are too large for both servers.
func (c *call) deadline(u expiryUnit, amount string) (deadlineMillis int64, problem protocol.Value, ok bool) {
	n, ok := protocol.ParseInt(amount)
	if !ok {
		return 0, errNotInteger, false
	}
	if n <= 0 {
		return 0, errExpireTime(c.args[0]), false
	}
	wallMillis, ok := c.wallInstant(u, n)
	if !ok || wallMillis <= 0 {
		return 0, errExpireTime(c.args[0]), false
	}
	return c.fromWall(wallMillis), protocol.Value{}, true
}

// wallInstant is n, which may be negative, as Unix time; false if the number is too large.
func (c *call) wallInstant(u expiryUnit, n int64) (wallMillis int64, ok bool) {
	if u.seconds() {
		if n > math.MaxInt64/1000 || n < math.MinInt64/1000 {
			return 0, false
		}
		n *= 1000
	}
	if u.relative() {
		now := c.wallNow()
		if now > 0 && n > math.MaxInt64-now {
			return 0, false
		}
		n = saturatingAdd(n, now)
	}
	return n, true
}

// wallNow is Unix time now, by the entry or the leader.
func (c *call) wallNow() int64 { return c.toWall(c.nowMillis) }

// toWall turns an instant of cluster time into Unix time.
func (c *call) toWall(millis int64) int64 { return saturatingAdd(millis, c.wallOffsetMillis) }

// fromWall turns an instant of Unix time into a deadline, which is never 0: a key with 0 would not end.
func (c *call) fromWall(wallMillis int64) int64 {
	var d int64
	if c.wallOffsetMillis == math.MinInt64 {
		d = math.MaxInt64
	} else {
		d = saturatingAdd(wallMillis, -c.wallOffsetMillis)
	}
	if d == never {
		return -1
	}
	return d
}

func saturatingAdd(a, b int64) int64 {
	sum := a + b
	switch {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64
	}
	return sum
}
