package workload

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
	"github.com/holdfast/holdfast/protocol"
)

// The scripts of Redisson 4.7.0, with identical text: its lock and read-write lock, and their renewal.
var (
	rLock = newLua(`if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; return redis.call('pttl', KEYS[1]);`)

	rUnlock = newLua(`local val = redis.call('get', KEYS[3]); if val ~= false then return tonumber(val);end; if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil;end; local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); redis.call('set', KEYS[3], 0, 'px', ARGV[5]); return 0; else redis.call('del', KEYS[1]); redis.call(ARGV[4], KEYS[2], ARGV[1]); redis.call('set', KEYS[3], 1, 'px', ARGV[5]); return 1; end; `)

	rRenew = newLua(`local result = {} for i = 1, #KEYS, 1 do if (redis.call('hexists', KEYS[i], ARGV[i + 1]) == 1) then redis.call('pexpire', KEYS[i], ARGV[1]); table.insert(result, 1); else table.insert(result, 0); end; end; return result;`)

	rReadLock = newLua(`local mode = redis.call('hget', KEYS[1], 'mode'); if (mode == false) then redis.call('hset', KEYS[1], 'mode', 'read'); redis.call('hset', KEYS[1], ARGV[2], 1); redis.call('set', KEYS[2] .. ':1', 1); redis.call('pexpire', KEYS[2] .. ':1', ARGV[1]); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; if (mode == 'read') or (mode == 'write' and redis.call('hexists', KEYS[1], ARGV[3]) == 1) then local ind = redis.call('hincrby', KEYS[1], ARGV[2], 1); local key = KEYS[2] .. ':' .. ind;redis.call('set', key, 1); redis.call('pexpire', key, ARGV[1]); local remainTime = redis.call('pttl', KEYS[1]); redis.call('pexpire', KEYS[1], math.max(remainTime, ARGV[1])); return nil; end;return redis.call('pttl', KEYS[1]);`)

	rReadUnlock = newLua(`local val = redis.call('get', KEYS[5]); if val ~= false then return tonumber(val);end; local mode = redis.call('hget', KEYS[1], 'mode'); if (mode == false) then redis.call(ARGV[3], KEYS[2], ARGV[1]); redis.call('set', KEYS[5], 1, 'px', ARGV[4]); return nil; end; local lockExists = redis.call('hexists', KEYS[1], ARGV[2]); if (lockExists == 0) then return nil;end; local counter = redis.call('hincrby', KEYS[1], ARGV[2], -1); if (counter == 0) then redis.call('hdel', KEYS[1], ARGV[2]); end;redis.call('del', KEYS[3] .. ':' .. (counter+1)); if (redis.call('hlen', KEYS[1]) > 1) then local maxRemainTime = -3; local keys = redis.call('hkeys', KEYS[1]); for n, key in ipairs(keys) do counter = tonumber(redis.call('hget', KEYS[1], key)); if type(counter) == 'number' then for i=counter, 1, -1 do local remainTime = redis.call('pttl', KEYS[4] .. ':' .. key .. ':rwlock_timeout:' .. i); maxRemainTime = math.max(remainTime, maxRemainTime);end; end; end; if maxRemainTime > 0 then redis.call('pexpire', KEYS[1], maxRemainTime); redis.call('set', KEYS[5], 0, 'px', ARGV[4]); return 0; end;if mode == 'write' then redis.call('set', KEYS[5], 0, 'px', ARGV[4]); return 0;end; end; redis.call('del', KEYS[1]); redis.call(ARGV[3], KEYS[2], ARGV[1]); redis.call('set', KEYS[5], 1, 'px', ARGV[4]); return 1; `)

	rReadRenew = newLua(`local result = {} local argIdx = 2 for i = 1, #KEYS, 2 do local anyAlive = false; local lockNamesCount = tonumber(ARGV[argIdx]); argIdx = argIdx + 1; for k = 1, lockNamesCount do local counter = redis.call('hget', KEYS[i], ARGV[argIdx]); if (counter ~= false) then anyAlive = true; for c=counter, 1, -1 do redis.call('pexpire', KEYS[i+1] .. ':' .. ARGV[argIdx] .. ':rwlock_timeout:' .. c, ARGV[1]); end; end; argIdx = argIdx + 1; end; if (anyAlive) then redis.call('pexpire', KEYS[i], ARGV[1]); table.insert(result, 1); else table.insert(result, 0); end; end; return result;`)

	rWriteLock = newLua(`local mode = redis.call('hget', KEYS[1], 'mode'); if (mode == false) then redis.call('hset', KEYS[1], 'mode', 'write'); redis.call('hset', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; if (mode == 'write') then if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then redis.call('hincrby', KEYS[1], ARGV[2], 1); local currentExpire = redis.call('pttl', KEYS[1]); redis.call('pexpire', KEYS[1], currentExpire + ARGV[1]); return nil; end; end;return redis.call('pttl', KEYS[1]);`)

	rWriteUnlock = newLua(`local val = redis.call('get', KEYS[3]); if val ~= false then return tonumber(val);end; local mode = redis.call('hget', KEYS[1], 'mode'); if (mode == false) then redis.call(ARGV[4], KEYS[2], ARGV[1]); redis.call('set', KEYS[3], 1, 'px', ARGV[5]); return nil; end;if (mode == 'write') then local lockExists = redis.call('hexists', KEYS[1], ARGV[3]); if (lockExists == 0) then return nil;else local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); redis.call('set', KEYS[3], 0, 'px', ARGV[5]); return 0; else redis.call('hdel', KEYS[1], ARGV[3]); if (redis.call('hlen', KEYS[1]) == 1) then redis.call('del', KEYS[1]); redis.call(ARGV[4], KEYS[2], ARGV[1]); else redis.call('hset', KEYS[1], 'mode', 'read'); end; redis.call('set', KEYS[3], 1, 'px', ARGV[5]); return 1; end; end; end; return nil;`)
)

// latchMillis is how long the result of an unlock is stored for a client that repeats it.
const latchMillis = 15_000

// rKind is one of Redisson's locks: the recorded operations' names, and the scripts.
type rKind struct {
	acquire, extend, release string
	channel                  string // prefix of the key's name
	lock, unlock, renew      func(x exchange, key, owner string, ttlMillis int64) wire.Reply
}

func suffixed(key, suffix string) string { return "{" + key + "}:" + suffix }

func latch(key, owner string) string { return "redisson_unlock_latch:{" + key + "}:" + owner }

func channelOf(prefix, key string) string { return prefix + ":{" + key + "}" }

const (
	lockChannel   = "redisson_lock__channel"
	rwlockChannel = "redisson_rwlock"
	rwTimeout     = ":rwlock_timeout"
)

var mutexKind = rKind{
	"acquire", "extend", "release", lockChannel,
	func(x exchange, key, owner string, ttl int64) wire.Reply {
		return x.eval(rLock, thenLoad, []string{key}, decimal(ttl), owner)
	},
	func(x exchange, key, owner string, ttl int64) wire.Reply {
		return x.eval(rUnlock, thenLoad, []string{key, channelOf(lockChannel, key), latch(key, owner)},
			"0", decimal(ttl), owner, "PUBLISH", decimal(latchMillis))
	},
	func(x exchange, key, owner string, ttl int64) wire.Reply {
		return x.eval(rRenew, thenLoad, []string{key}, decimal(ttl), owner)
	},
}

var readKind = rKind{
	"share", "extend-shared", "release-shared", rwlockChannel,
	func(x exchange, key, owner string, ttl int64) wire.Reply {
		return x.eval(rReadLock, thenLoad, []string{key, suffixed(key, owner) + rwTimeout}, decimal(ttl), owner, owner+
			":write")
	},
	func(x exchange, key, owner string, _ int64) wire.Reply {
		return x.eval(rReadUnlock, thenLoad,
			[]string{key, channelOf(rwlockChannel, key), suffixed(key, owner) + rwTimeout, "{" + key + "}", latch(key, owner)},
			"1", owner, "PUBLISH", decimal(latchMillis))
	},
	func(x exchange, key, owner string, ttl int64) wire.Reply {
		return x.eval(rReadRenew, thenLoad, []string{key, "{" + key + "}"}, decimal(ttl), "1", owner)
	},
}

var writeKind = rKind{
	"acquire", "extend", "release", rwlockChannel,
	func(x exchange, key, owner string, ttl int64) wire.Reply {
		return x.eval(rWriteLock, thenLoad, []string{key}, decimal(ttl), owner+":write")
	},
	func(x exchange, key, owner string, ttl int64) wire.Reply {
		return x.eval(rWriteUnlock, thenLoad, []string{key, channelOf(rwlockChannel, key), latch(key, owner)},
			"0", decimal(ttl), owner+":write", "PUBLISH", decimal(latchMillis))
	},
	func(x exchange, key, owner string, ttl int64) wire.Reply {
		return x.eval(rRenew, thenLoad, []string{key}, decimal(ttl), owner+":write")
	},
}

// redisson has clients that take locks as Redisson does: a refused client subscribes to the lock's channel, and tries
// again when the lock is released or its lease ends.
type redisson struct {
	o      *Options
	keys   *Rotation
	owners atomic.Int64
	judges []checker.Func
}

func newRedisson(o *Options) Workload {
	clocks := checker.Clocks{Drift: o.Drift}
	return &redisson{
		o: o, keys: NewRotation(o.name, max(1, o.Concurrency/3), 200, 8),
		judges: []checker.Func{
			checker.Exclusion(clocks), checker.Wakes(wakeBounds(o)),
			checker.Linear("owner-aware lock", checker.OwnerLock(clocks), checker.LockFunctions),
		},
	}
}

func newRWLock(o *Options) Workload {
	clocks := checker.Clocks{Drift: o.Drift}
	return &redisson{
		o: o, keys: NewRotation(o.name, max(1, o.Concurrency/3), 400, 100),
		judges: []checker.Func{checker.Sharing(clocks), checker.Wakes(wakeBounds(o))},
	}
}

// wakeBounds bounds the delay of the message about a released lock.
func wakeBounds(o *Options) checker.TTLBounds {
	return checker.TTLBounds{Late: 2 * time.Second, Settle: o.Settle}
}

func (w *redisson) Checkers() []checker.Func { return w.judges }

// rHold is an owner's attempt to hold a lock.
type rHold struct {
	*rKind
	key   string
	slot  int
	owner int64
	ttl   int64
	until time.Time // end of the lease, counted from before the request
}

func (w *redisson) Step(ctx context.Context, c *Client) {
	c.hop()
	n, key := w.keys.Pick(c.rng)
	h := &rHold{
		rKind: &mutexKind, key: key, slot: n, owner: w.owners.Add(1),
		ttl: leaseChoices[c.rng.IntN(len(leaseChoices))],
	}
	if w.o.name == "rwlock" {
		// A reader's renewal sets the lease of all readers, so they have one TTL, like Redisson's watchdog timeout.
		h.ttl = leaseChoices[n%len(leaseChoices)]
		if h.rKind = &writeKind; c.chance(0.6) {
			h.rKind = &readKind
		}
	}
	if !w.take(ctx, c, h) || c.chance(0.1) {
		return // or a crashed holder, whose lease expires
	}
	for range c.rng.IntN(3) {
		if !Sleep(ctx, time.Duration(c.rng.Float64()*0.5*float64(time.Until(h.until)))) {
			return
		}
		if c.chance(0.5) {
			w.do(ctx, c, h, h.extend)
		}
	}
	w.do(ctx, c, h, h.release)
}

// take acquires the lock, waiting for it.
func (w *redisson) take(ctx context.Context, c *Client, h *rHold) bool {
	left, granted := w.do(ctx, c, h, h.acquire)
	if granted || left < 0 || c.chance(0.3) { // without waiting
		return granted
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	messages := 0
	conn.OnPush = func(protocol.Value) { messages++ }
	commands := [][]string{{"SUBSCRIBE", channelOf(h.channel, h.key)}}
	if c.chance(0.5) {
		commands = append([][]string{{"HELLO", "3"}}, commands...)
	}
	for _, words := range commands {
		if conn.Do(words...).Outcome != history.OK {
			return false
		}
	}
	for range 4 {
		from := c.o.Recorder.Now()
		if left, granted = w.do(ctx, c, h, h.acquire); granted || left < 0 || ctx.Err() != nil {
			return granted
		}
		messages = 0
		standing := conn.Listen(min(time.Duration(left)*time.Millisecond, 4*time.Second), func() bool { return messages > 0 })
		op := history.Op{F: "wait", Key: h.key, Input: []int64{h.owner, from}}
		if !standing {
			return false
		}
		c.o.Recorder.Invoke(c.worker*maxPipe, op).OK(int64(min(messages, 1)))
	}
	return false
}

// do performs and records a script. left is the remaining lease of another owner, or -1 if unknown.
func (w *redisson) do(ctx context.Context, c *Client, h *rHold, f string) (left int64, granted bool) {
	c.hop()
	run := map[string]func(exchange, string, string, int64) wire.Reply{
		h.acquire: h.lock, h.extend: h.renew,
		h.release: h.unlock,
	}[f]
	input := []int64{h.owner, h.ttl}
	if f == h.release {
		input = input[:1]
	}
	asked := time.Now()
	left = -1
	r := c.op(ctx, history.Op{F: f, Key: h.key, Input: input}, func(x exchange) result {
		reply := run(x, h.key, ownerToken(h.owner), h.ttl)
		if f == h.acquire && reply.Outcome == history.OK {
			left = reply.Value.Num
		}
		return h.read(f, reply)
	})
	if r.outcome == history.Info {
		w.keys.Unknown(h.slot)
	}
	if granted = r.outcome == history.OK && r.output[0] == 1; granted && f != h.release {
		h.until = asked.Add(time.Duration(h.ttl) * time.Millisecond)
	}
	return left, granted
}

// read reads the reply of a script as 1, or as 0 if another owner has the lock.
func (h *rHold) read(f string, r wire.Reply) result {
	switch {
	case r.Outcome != history.OK:
		return not(r)
	case f == h.acquire:
		return onNullIsYes(r)
	case f == h.extend && len(r.Value.Elems) == 1:
		return onFlag(wire.Reply{Value: r.Value.Elems[0], Outcome: history.OK})
	case f == h.extend:
		return unexpected(r)
	case r.Value.IsNull():
		return ok(0)
	}
	return ok(1) // 0: readers remain, 1: the lock is free
}

// Final reads nothing: the replies are enough for the checkers.
func (w *redisson) Final(context.Context, *Client) {}
