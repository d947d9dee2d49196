package workload

import (
	"strconv"

	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
	"github.com/holdfast/holdfast/protocol"
)

// dialect imitates the commands and scripts of a lock library, and their order.
type dialect struct {
	name string
	// usable reports whether the target has what the library needs.
	usable func(Features) bool
	// acquire returns 1, with the fencing token of a dialect that has them, or 0. extend and release return 1, or 0 if
	// the caller is not the holder.
	acquire, extend, release func(x exchange, key, owner string, ttlMillis int64) result
	// tries is how often the library itself sends an acquire when the connection breaks or the server is not ready.
	tries int
	// releasesRefused: the library sends a release after a failed acquire.
	releasesRefused bool
	// plain: the key is a string with the owner's token.
	plain bool
}

// The scripts are the libraries' own, with identical text where that matters to a server.
var (
	compareAndDelete = newLua(
		`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) else return 0 end`)
	compareAndExpire = newLua(
		`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("PEXPIRE", KEYS[1], ARGV[2]) else return 0 end`)

	// redsync distinguishes an expired lock from another owner's.
	redsyncRelease = newLua(`local val = redis.call("GET", KEYS[1]) if val == ARGV[1] then return redis.call("DEL", KEYS[1]) elseif val == false then return -1 else return 0 end`)

	// redis-py adds to the remaining lease or replaces it.
	redisPyExtend = newLua(`local token = redis.call('get', KEYS[1])
if not token or token ~= ARGV[1] then return 0 end
local expiration = redis.call('pttl', KEYS[1])
if not expiration then expiration = 0 end
if expiration < 0 then return 0 end
local newttl = ARGV[2]
if ARGV[3] == "0" then newttl = ARGV[2] + expiration end
redis.call('pexpire', KEYS[1], newttl)
return 1`)

	// node-redlock checks all keys before SET, and counts them.
	nodeAcquire = newLua(`for i, key in ipairs(KEYS) do if redis.call("exists", key) == 1 then return 0 end end
for i, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "PX", ARGV[2]) end
return #KEYS`)
	nodeExtend = newLua(`for i, key in ipairs(KEYS) do if redis.call("get", key) ~= ARGV[1] then return 0 end end
for i, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "PX", ARGV[2]) end
return #KEYS`)
	nodeRelease = newLua(`local count = 0
for i, key in ipairs(KEYS) do if redis.call("get", key) == ARGV[1] then redis.pcall("del", key) count = count + 1 end end
return count`)

	// Redisson stores the holder and a count in a hash.
	redissonAcquire = newLua(`if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then
redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end;
return redis.call('pttl', KEYS[1]);`)
	redissonExtend  = newLua(`if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then redis.call('pexpire', KEYS[1], ARGV[1]); return 1; end; return 0;`)
	redissonRelease = newLua(`if (redis.call('hexists', KEYS[1], ARGV[2]) == 0) then return nil; end;
local counter = redis.call('hincrby', KEYS[1], ARGV[2], -1);
if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[1]); return 0; else redis.call('del', KEYS[1]); return 1; end; return nil;`)

	// Grant and token come from one script (as in bsm/redislock), so that no token is drawn without a grant.
	fencedAcquire = newLua(`if redis.call("set", KEYS[1], ARGV[1], "nx", "px", ARGV[2]) then return redis.call("incr", KEYS[2]) end return false`)
)

func always(Features) bool { return true }

// dialects are the imitated libraries.
var dialects = []dialect{
	{
		name: "redsync", usable: always, plain: true, tries: 4, releasesRefused: true,
		// go-redis sends EX for whole seconds and PX otherwise, in lower case.
		acquire: func(x exchange, key, owner string, ttl int64) result {
			if ttl%1000 == 0 {
				return onOKOrNull(x.do("set", key, owner, "ex", decimal(ttl/1000), "nx"))
			}
			return onOKOrNull(x.do("set", key, owner, "px", decimal(ttl), "nx"))
		},
		extend:  byScript(compareAndExpire, thenEval),
		release: byScript(redsyncRelease, thenEval),
	},
	{
		name: "redis-py", usable: always, plain: true, tries: 3,
		acquire: func(x exchange, key, owner string, ttl int64) result {
			return onOKOrNull(x.do("SET", key, owner, "PX", decimal(ttl), "NX"))
		},
		extend: func(x exchange, key, owner string, ttl int64) result {
			return onFlag(x.eval(redisPyExtend, thenLoad, []string{key}, owner, decimal(ttl), "1"))
		},
		release: byScript(compareAndDelete, thenLoad),
	},
	{
		name: "node-redlock", usable: always, plain: true, tries: 1, releasesRefused: true,
		acquire: byScript(nodeAcquire, thenEval),
		extend:  byScript(nodeExtend, thenEval),
		release: byScript(nodeRelease, thenEval),
	},
	{
		name: "stackexchange", usable: always, plain: true, tries: 1,
		acquire: func(x exchange, key, owner string, ttl int64) result {
			return onOKOrNull(x.do("SET", key, owner, "PX", decimal(ttl), "NX"))
		},
		extend: func(x exchange, key, owner string, ttl int64) result {
			return watchAndDo(x, key, owner, "PEXPIRE", key, decimal(ttl))
		},
		release: func(x exchange, key, owner string, _ int64) result {
			return watchAndDo(x, key, owner, "DEL", key)
		},
	},
	{
		name: "ifeq", usable: func(f Features) bool { return f.IfEq }, plain: true, tries: 1,
		acquire: func(x exchange, key, owner string, ttl int64) result {
			return onOKOrNull(x.do("SET", key, owner, "PX", decimal(ttl), "NX"))
		},
		extend: func(x exchange, key, owner string, ttl int64) result {
			return onOKOrNull(x.do("SET", key, owner, "PX", decimal(ttl), "IFEQ", owner))
		},
		release: func(x exchange, key, owner string, _ int64) result {
			return onFlag(x.do("DELEX", key, "IFEQ", owner))
		},
	},
	{
		name: "redisson", usable: func(f Features) bool { return f.Hashes }, tries: 1,
		acquire: func(x exchange, key, owner string, ttl int64) result {
			return onNullIsYes(x.eval(redissonAcquire, thenLoad, []string{key}, decimal(ttl), owner+":1"))
		},
		extend: func(x exchange, key, owner string, ttl int64) result {
			return onFlag(x.eval(redissonExtend, thenLoad, []string{key}, decimal(ttl), owner+":1"))
		},
		release: func(x exchange, key, owner string, ttl int64) result {
			return onNullIsNo(x.eval(redissonRelease, thenLoad, []string{key}, decimal(ttl), owner+":1"))
		},
	},
}

// fenced is the dialect of the fenced set: acquire returns a token.
var fenced = dialect{
	name: "fenced", usable: always, plain: true, tries: 1,
	acquire: func(x exchange, key, owner string, ttl int64) result {
		r := x.eval(fencedAcquire, thenEval, []string{key, key + "/fence"}, owner, decimal(ttl))
		switch {
		case r.Outcome != history.OK:
			return not(r)
		case r.Value.IsNull():
			return ok(0)
		case r.Value.Kind == protocol.KindInteger:
			return ok(1, r.Value.Num)
		}
		return unexpected(r)
	},
	extend:  byScript(compareAndExpire, thenEval),
	release: byScript(compareAndDelete, thenEval),
}

// byScript is an operation that is a single script of the key, the owner and the TTL.
func byScript(s script, f fallback) func(exchange, string, string, int64) result {
	return func(x exchange, key, owner string, ttl int64) result {
		return onFlag(x.eval(s, f, []string{key}, owner, decimal(ttl)))
	}
}

// watchAndDo runs a command only if the key still has the owner: WATCH, GET, MULTI, …, EXEC. After a null from EXEC
// nothing was done, since the key changed after GET. The caller may still hold the lock, as its own delayed extension
// may have caused the change.
func watchAndDo(x exchange, key, owner string, command ...string) result {
	head := x.conn.Pipeline([][]string{{"WATCH", key}, {"GET", key}})
	for _, r := range head {
		if r.Outcome != history.OK {
			x.conn.Close()
			return failed(r.Why) // only reads so far
		}
	}
	if head[1].Value.Str != owner {
		x.do("UNWATCH")
		return ok(0)
	}
	exec := x.conn.Pipeline([][]string{{"MULTI"}, command, {"EXEC"}})[2]
	switch {
	case exec.Outcome != history.OK:
		x.conn.Close()
		return not(exec)
	case exec.Value.IsNull():
		return failed("conflict")
	case len(exec.Value.Elems) == 1:
		return onFlag(wire.Reply{Value: exec.Value.Elems[0], Outcome: history.OK})
	}
	return unexpected(exec)
}

// onNullIsYes reads Redisson's acquire: null, or the remaining lease of another owner.
func onNullIsYes(r wire.Reply) result {
	got := onInteger(r)
	switch {
	case r.Outcome == history.OK && r.Value.IsNull():
		return ok(1)
	case got.outcome == history.OK:
		return ok(0)
	}
	return got
}

// onNullIsNo reads Redisson's release: null if the caller is not the holder.
func onNullIsNo(r wire.Reply) result {
	if r.Outcome == history.OK && r.Value.IsNull() {
		return ok(0)
	}
	return onFlag(r)
}

// ownerToken returns an owner's unique, readable value of a key.
func ownerToken(owner int64) string { return "owner-" + strconv.FormatInt(owner, 10) }
