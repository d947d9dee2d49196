package lua

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// lockScript is a script as a lock library sends it, with the expected results.
type lockScript struct {
	name, source string
	keys, args   []string
	// before fills the keyspace.
	before func(h *fakeHost)
	want   string
	// after are strings, hash fields ("key.field") and deadlines ("key ttl") that must then be there.
	after map[string]string
}

var lockScripts = []lockScript{
	{
		name: "redsync release, held", source: `
	local val = redis.call("GET", KEYS[1])
	if val == ARGV[1] then
		return redis.call("DEL", KEYS[1])
	elseif val == false then
		return -1
	else
		return 0
	end
`, keys: []string{"lock"}, args: []string{"token"},
		before: func(h *fakeHost) { h.strings["lock"] = "token" }, want: ":1",
	},
	{
		name: "redsync release, gone", source: `
	local val = redis.call("GET", KEYS[1])
	if val == ARGV[1] then
		return redis.call("DEL", KEYS[1])
	elseif val == false then
		return -1
	else
		return 0
	end
`, keys: []string{"lock"}, args: []string{"token"}, want: ":-1",
	},
	{
		name: "redis-py extend", source: `
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        local expiration = redis.call('pttl', KEYS[1])
        if not expiration then
            expiration = 0
        end
        if expiration < 0 then
            return 0
        end

        local newttl = ARGV[2]
        if ARGV[3] == "0" then
            newttl = ARGV[2] + expiration
        end
        redis.call('pexpire', KEYS[1], newttl)
        return 1
    `, keys: []string{"lock"}, args: []string{"token", "5000", "0"},
		before: func(h *fakeHost) { h.strings["lock"], h.ttls["lock"] = "token", 1234 },
		want:   ":1", after: map[string]string{"lock ttl": "6234"},
	},
	{
		name: "Redisson lock, free", source: redissonLock, keys: []string{"lock"}, args: []string{"30000", "uuid:1"},
		want: "$-1", after: map[string]string{"lock.uuid:1": "1", "lock ttl": "30000"},
	},
	{
		name: "Redisson lock, again", source: redissonLock, keys: []string{"lock"}, args: []string{"30000", "uuid:1"},
		before: func(h *fakeHost) { h.hashes["lock"], h.ttls["lock"] = map[string]string{"uuid:1": "1"}, 77 },
		want:   "$-1", after: map[string]string{"lock.uuid:1": "2", "lock ttl": "30000"},
	},
	{
		name: "Redisson lock, held by another", source: redissonLock, keys: []string{"lock"}, args: []string{
			"30000",
			"uuid:2",
		},
		before: func(h *fakeHost) { h.hashes["lock"], h.ttls["lock"] = map[string]string{"uuid:1": "1"}, 77 }, want: ":77",
	},
	{
		name: "Redisson unlock",
		source: `local val = redis.call('get', KEYS[3]); if val ~= false then return tonumber(val);end; if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil;end; ` +
			`local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); redis.call('set', KEYS[3], 0, 'px', ARGV[5]); return 0; ` +
			`else redis.call('del', KEYS[1]); redis.call(ARGV[4], KEYS[2], ARGV[1]); redis.call('set', KEYS[3], 1, 'px', ARGV[5]); return 1; end; `,
		keys: []string{"lock", "channel", "latch"}, args: []string{"0", "30000", "uuid:1", "PUBLISH", "13500"},
		before: func(h *fakeHost) { h.hashes["lock"] = map[string]string{"uuid:1": "1"} },
		want:   ":1", after: map[string]string{"latch": "1", "latch ttl": "13500"},
	},
	{
		name:   "Redisson watchdog",
		source: `local result = {} for i = 1, #KEYS, 1 do if (redis.call('hexists', KEYS[i], ARGV[i + 1]) == 1) then redis.call('pexpire', KEYS[i], ARGV[1]); table.insert(result, 1); else table.insert(result, 0); end; end; return result;`,
		keys:   []string{"a", "b"}, args: []string{"30000", "uuid:1", "uuid:1"},
		before: func(h *fakeHost) { h.hashes["a"] = map[string]string{"uuid:1": "1"} },
		want:   "*2|:1|:0", after: map[string]string{"a ttl": "30000"},
	},
	{
		// The bound of the for is a string.
		name: "Redisson read lock renewal", source: `
local counter = redis.call('hget', KEYS[1], ARGV[2]);
if (counter ~= false) then
    redis.call('pexpire', KEYS[1], ARGV[1]);
    if (redis.call('hlen', KEYS[1]) > 1) then
        local keys = redis.call('hkeys', KEYS[1]);
        for n, key in ipairs(keys) do
            counter = tonumber(redis.call('hget', KEYS[1], key));
            if type(counter) == 'number' then
                for i=counter, 1, -1 do
                    redis.call('pexpire', KEYS[2] .. ':' .. key .. ':rwlock_timeout:' .. i, ARGV[1]);
                end;
            end;
        end;
    end;
    for c=redis.call('hget', KEYS[1], ARGV[2]), 1, -1 do
        redis.call('pexpire', KEYS[2] .. ':' .. ARGV[2] .. ':rwlock_timeout:' .. c, ARGV[1]);
    end;
    return 1;
end;
return 0;`, keys: []string{"lock", "{lock}"}, args: []string{"30000", "uuid:1"},
		before: func(h *fakeHost) {
			h.hashes["lock"] = map[string]string{"mode": "read", "uuid:1": "2"}
			h.strings["{lock}:uuid:1:rwlock_timeout:1"] = "1"
			h.strings["{lock}:uuid:1:rwlock_timeout:2"] = "1"
		},
		want: ":1", after: map[string]string{
			"{lock}:uuid:1:rwlock_timeout:1 ttl": "30000",
			"{lock}:uuid:1:rwlock_timeout:2 ttl": "30000",
		},
	},
	{
		name:   "Redisson read lock remain time",
		source: `local remainTime = redis.call('pttl', KEYS[1]); redis.call('pexpire', KEYS[1], math.max(remainTime, ARGV[1])); return nil;`,
		keys:   []string{"lock"}, args: []string{"500"},
		before: func(h *fakeHost) { h.strings["lock"], h.ttls["lock"] = "x", 100 }, want: "$-1",
		after: map[string]string{"lock ttl": "500"},
	},
	{
		name: "node-redlock acquire", source: `
    -- Return 0 if an entry already exists.
    for i, key in ipairs(KEYS) do
      if redis.call("exists", key) == 1 then
        return 0
      end
    end

    -- Create an entry for each provided key.
    for i, key in ipairs(KEYS) do
      redis.call("set", key, ARGV[1], "PX", ARGV[2])
    end

    -- Return the number of entries added.
    return #KEYS
  `, keys: []string{"a", "b"}, args: []string{"token", "1000"}, want: ":2", after: map[string]string{"a": "token", "b": "token", "b ttl": "1000"},
	},
	{
		name: "node-redlock release", source: `
    local count = 0
    for i, key in ipairs(KEYS) do
      -- Only remove entries for *this* lock value.
      if redis.call("get", key) == ARGV[1] then
        redis.pcall("del", key)
        count = count + 1
      end
    end

    -- Return the number of entries removed.
    return count
  `, keys: []string{"a", "b"}, args: []string{"token"},
		before: func(h *fakeHost) { h.strings["a"], h.strings["b"] = "token", "other" }, want: ":1",
		after: map[string]string{"b": "other"},
	},
	{
		name: "redislock obtain many", source: `
local ttl = tonumber(ARGV[#ARGV])
local args = {}
for i, key in ipairs(KEYS) do
	table.insert(args, key)
	table.insert(args, ARGV[1])
end
for i = 1, #args, 2 do
	if not redis.call("set", args[i], args[i+1], "NX", "PX", ttl) then return false end
end
return redis.status_reply("OK")`, keys: []string{"a", "b"}, args: []string{"token", "250"}, want: "+OK", after: map[string]string{"a ttl": "250"},
	},
	{
		name: "sidekiq-unique-jobs lock", source: sidekiqLock, keys: []string{"digest", "digest:INFO"},
		args: []string{"jid-1", "5000", `{"worker":"W","limit":2,"args":[1,null,"x"]}`},
		want: `$5|jid-1`, after: map[string]string{"digest.jid-1": "5000", "digest:INFO": `{"at":5000,"limit":2,"count":3}`},
	},
	{
		name:   "fencing",
		source: `if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then local token = redis.call('incr', KEYS[2]) return {-1, token} end return {redis.call('pttl', KEYS[1]), -1}`,
		keys:   []string{"lock", "token"}, args: []string{"me", "100"}, want: "*2|:-1|:1",
	},
	{
		name:   "non reentrant",
		source: `if redis.call('hexists', KEYS[1], ARGV[1]) == 1 then return redis.error_reply(ARGV[2]) end return nil`,
		keys:   []string{"lock"}, args: []string{"uuid:1", "NON_REENTRANT_REACQUIRE"},
		before: func(h *fakeHost) { h.hashes["lock"] = map[string]string{"uuid:1": "1"} },
		want:   "-ERR NON_REENTRANT_REACQUIRE",
	},
	{
		name: "BullMQ extendLock with cmsgpack", source: `local rcall = redis.call
local opts = cmsgpack.unpack(ARGV[1])
if rcall("GET", KEYS[1]) == opts.token then
  if rcall("SET", KEYS[1], opts.token, "PX", opts.ms) then return 1 end
end
return 0`, keys: []string{"lock"}, args: []string{"\x82\xa5token\xa1t\xa2ms\xcd\x75\x30"},
		before: func(h *fakeHost) { h.strings["lock"] = "t" }, want: ":1", after: map[string]string{"lock ttl": "30000"},
	},
}

const redissonLock = `if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then redis.call('hincrby', KEYS[1], ARGV[2], 1); ` +
	`redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; return redis.call('pttl', KEYS[1]);`

const sidekiqLock = `
-------- BEGIN keys ---------
local digest    = KEYS[1]
local info      = KEYS[2]
-------- BEGIN arguments ---------
local job_id    = ARGV[1]
local now       = tonumber(ARGV[2])
local item      = cjson.decode(ARGV[3])
local debug_lua = ARGV[4] == "true"

local function toversion(version)
  local _, _, maj, min, pat = string.find(version, "(%d+)%.(%d+)%.(%d+)")
  return { ["version"] = version, ["major"] = tonumber(maj), ["minor"] = tonumber(min), ["patch"] = tonumber(pat) }
end

local function log_debug( ... )
  if debug_lua ~= true then return end
  local result = ""
  for _,v in ipairs({...}) do result = result .. " " .. tostring(v) end
  redis.log(redis.LOG_DEBUG, digest .. " -" .. result)
end

if toversion("6.0.5")["major"] < 6 then return redis.error_reply("VERSION too old") end
log_debug("BEGIN lock", digest)
if redis.call("HEXISTS", digest, job_id) == 0 then
  redis.call("HSET", digest, job_id, now)
end
local out = '{"at":' .. now .. ',"limit":' .. item.limit .. ',"count":' .. #item.args .. '}'
assert(cjson.decode(out).at == now, "cjson disagrees")
redis.call("SET", info, out)
log_debug("END lock", digest)
return job_id`

func TestLockScripts(t *testing.T) {
	r := NewRunner()
	for _, s := range lockScripts {
		t.Run(s.name, func(t *testing.T) {
			p, err := Compile(s.source, DefaultLimits())
			require.NoError(t, err)
			h := newFakeHost()
			if s.before != nil {
				s.before(h)
			}
			v, err := r.Run(p, &Env{Keys: s.keys, Args: s.args, Host: h, SHA: sha1Hex(s.source)})
			require.NoError(t, err)
			require.Equal(t, s.want, showReply(v, s.source))
			for place, want := range s.after {
				require.Equal(t, want, h.look(place), place)
			}
			require.Less(t, r.Used().Steps, int64(2000))
		})
	}
}

// TestConcurrentRuns: programs and the library are shared by concurrent reads.
func TestConcurrentRuns(t *testing.T) {
	source := `local t = {} for k in pairs(_G) do t[#t+1] = k end table.sort(t) return {#t, cjson.encode({1,2}), ("x"):rep(3), tostring(string.rep), math.random(100), redis.sha1hex('a')}`
	p, err := Compile(source, DefaultLimits())
	require.NoError(t, err)
	replies := make(chan protocol.Value)
	for range 8 {
		go func() {
			var v protocol.Value
			for range 50 {
				v, _ = p.Run(&Env{Keys: snippetKeys, Host: newFakeHost()})
			}
			replies <- v
		}()
	}
	first := <-replies
	require.False(t, first.IsError(), first)
	for range 7 {
		require.Equal(t, first, <-replies)
	}
}
