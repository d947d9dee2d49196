package command

import (
	"math"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// Never is the deadline of a key that does not end.
const Never = keyspace.Never

// ExpiryUnit is the unit in which a command has a ttl or a deadline.
type ExpiryUnit uint8

const (
	ExpiryNone      ExpiryUnit = iota
	ExpirySeconds              // EX: a ttl
	ExpiryMillis               // PX: a ttl
	ExpirySecondsAt            // EXAT: an instant of Unix time
	ExpiryMillisAt             // PXAT: an instant of Unix time
)

func (u ExpiryUnit) seconds() bool  { return u == ExpirySeconds || u == ExpirySecondsAt }
func (u ExpiryUnit) relative() bool { return u == ExpirySeconds || u == ExpiryMillis }

// Deadline parses the word amount as a deadline of cluster time, which may have passed. If the word is invalid, ok is
// false and problem is the reply.
//
// As in Redis, a ttl is added to Unix time first, so both servers refuse the same numbers.
func (c *Call) Deadline(u ExpiryUnit, amount string) (deadlineMillis int64, problem protocol.Value, ok bool) {
	n, ok := protocol.ParseInt(amount)
	if !ok {
		return 0, ErrNotInteger, false
	}
	if n <= 0 {
		return 0, ErrExpireTime(c.Args[0]), false
	}
	wallMillis, ok := c.WallInstant(u, n)
	if !ok || wallMillis <= 0 {
		return 0, ErrExpireTime(c.Args[0]), false
	}
	return c.FromWall(wallMillis), protocol.Value{}, true
}

// WallInstant converts n, which may be negative, to Unix time. ok is false if the number is too large.
func (c *Call) WallInstant(u ExpiryUnit, n int64) (wallMillis int64, ok bool) {
	if u.seconds() {
		if n > math.MaxInt64/1000 || n < math.MinInt64/1000 {
			return 0, false
		}
		n *= 1000
	}
	if u.relative() {
		now := c.WallNow()
		if now > 0 && n > math.MaxInt64-now {
			return 0, false
		}
		n = SaturatingAdd(n, now)
	}
	return n, true
}

// WallNow returns the current Unix time: the time of the entry, or the leader's estimate in a read.
func (c *Call) WallNow() int64 { return c.ToWall(c.NowMillis) }

// ToWall converts cluster time to Unix time.
func (c *Call) ToWall(millis int64) int64 { return SaturatingAdd(millis, c.WallOffsetMillis) }

// FromWall converts Unix time to a deadline. The deadline is never 0, since 0 is Never.
func (c *Call) FromWall(wallMillis int64) int64 {
	var d int64
	if c.WallOffsetMillis == math.MinInt64 {
		d = math.MaxInt64
	} else {
		d = SaturatingAdd(wallMillis, -c.WallOffsetMillis)
	}
	if d == Never {
		return -1
	}
	return d
}

func SaturatingAdd(a, b int64) int64 {
	sum := a + b
	switch {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64
	}
	return sum
}

// Expire gives an item another deadline. An item whose deadline is now or earlier ends at once. As in Redis, other
// commands end an item only after its deadline.
func (c *Call) Expire(it *keyspace.Item, deadlineMillis int64) {
	name := "expire"
	switch {
	case deadlineMillis == Never:
		name = "persist"
	case deadlineMillis <= c.NowMillis:
		deadlineMillis, name = beforeMillis(c.NowMillis), "del"
	}
	next := c.withRenewedMark(it, deadlineMillis)
	next.DeadlineMillis = deadlineMillis
	c.Store(c.DB, next)
	c.Notify(event.ClassGeneric, name, next.Key())
}

// beforeMillis returns a deadline that has passed at nowMillis.
func beforeMillis(nowMillis int64) int64 {
	if nowMillis-1 == Never {
		return nowMillis - 2
	}
	return nowMillis - 1
}
