package fsm

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/lua"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// eval runs a script with keys and no arguments.
func (d *driver) eval(source string, keys ...string) protocol.Value {
	d.t.Helper()
	return d.do(append([]string{"eval", source, fmt.Sprint(len(keys))}, keys...)...)
}

const endless = "while true do end"

// TestOverrunLeavesNothing: a script that exceeds its budget is undone completely, including its place in the cache.
func TestOverrunLeavesNothing(t *testing.T) {
	for _, what := range []string{
		"redis.call('set','a','changed')",
		"redis.call('del','a')",
		"redis.call('pexpire','lease','1')",
		"redis.call('set','lease','x','PX','1')",
		"redis.call('rename','a','b')",
		"redis.call('select','1') redis.call('set','x','y')",
		"redis.call('move','a','1')",
		"redis.call('flushdb')",
		"redis.call('flushall') redis.call('set','a','new')",
		"redis.call('set','a','new') redis.call('swapdb','0','1') redis.call('set','a','newer') redis.call('swapdb','1','2')",
		"for i=1,1000 do redis.call('incr','counter') end",
		"pcall(function() " + endless + " end)",
		"",
	} {
		d := newDriver(t)
		d.do("set", "a", "1")
		d.do("set", "lease", "token", "PX", "30000")
		d.db = 1
		d.do("set", "other", "2")
		d.db = 0
		before := d.m.Hash()
		beforeState := dump(t, d.m)
		versions := d.m.st.Versions
		seq := d.seq

		reply := d.eval(what + " " + endless)
		require.True(t, reply.IsError(), what)
		require.Contains(t, reply.Str, "budget")
		require.Equal(t, versions, d.m.st.Versions, what)
		// The session records the batch; everything else is unchanged.
		require.Equal(t, seq+1, d.seq)
		d.m.st.sessions[0].low, d.m.st.sessions[0].applied = seq, []appliedRange{{seq, seq + 1}}
		require.Equal(t, before, d.m.Hash(), what)
		require.Equal(t, beforeState, dump(t, d.m), what)
		for _, db := range d.m.st.Databases {
			require.NoError(t, db.Verify())
		}
	}
}

// In a transaction only the script is undone.
func TestOverrunInTransaction(t *testing.T) {
	d := newDriver(t)
	reply := d.exec(nil,
		[]string{"set", "before", "1"},
		[]string{"eval", "redis.call('set','during','1') " + endless, "0"},
		[]string{"set", "after", "1"})
	require.Equal(t, "OK", reply.Elems[0].Str)
	require.True(t, reply.Elems[1].IsError())
	require.Equal(t, "OK", reply.Elems[2].Str)
	require.Equal(t, `["1" nil "1"]`, line(d.do("mget", "before", "during", "after")))
}

// A failed script keeps its writes, as in Redis.
func TestFailureKeepsWrites(t *testing.T) {
	d := newDriver(t)
	require.True(t, d.eval("redis.call('set','a','1') redis.call('nosuch')").IsError())
	require.True(t, d.eval("redis.call('set','b','1') error('boom')").IsError())
	require.Equal(t, `["1" "1"]`, line(d.do("mget", "a", "b")))
}

// The work of commands in one call is bounded as well, and pcall does not help.
func TestWorkOfCommandsIsBounded(t *testing.T) {
	protocoltest.SkipShort(t, "large values")
	d := newDriver(t)
	d.fill("k", 100_000, 1_000_000)
	d.do("set", "big", strings.Repeat("x", 4<<20))
	for _, source := range []string{
		"redis.call('set','mark','1') for i=1,1000000 do redis.call('keys','nomatch') end",
		"redis.call('set','mark','1') for i=1,1000000 do redis.call('scan','0','count','1000000','match','nomatch') end",
		"redis.call('set','mark','1') for i=1,1000000 do redis.call('append','big','x') end",
		"redis.call('set','mark','1') for i=1,1000000 do redis.call('copy','big','copy','replace') end",
		"redis.call('set','mark','1') for i=1,1000000 do redis.call('digest','big') end",
		"redis.call('set','mark','1') for i=1,1000000 do redis.call('setrange','big','4000000','x') end",
		"redis.call('set','mark','1') for i=1,1000000 do redis.pcall('keys','nomatch') end return 1",
		"redis.call('set','mark','1') for i=1,1000000 do redis.call('incrbyfloat','f','1e4000') end",
		"redis.call('set','mark','1') for i=1,10000000 do redis.call('ping') end",
	} {
		start := time.Now()
		reply := d.eval(source)
		t.Logf("%5d ms: %s", time.Since(start).Milliseconds(), source)
		require.True(t, reply.IsError(), source)
		require.Contains(t, reply.Str, "budget", source)
		require.Zero(t, d.do("exists", "mark").Num, source)
	}
}

func TestSelectDoesNotLeak(t *testing.T) {
	d := newDriver(t)
	body := request(nil, 0, "eval", "redis.call('select','5') redis.call('set','a','in five')", "0")
	body = request(body, 0, "set", "a", "in zero")
	d.apply(body)
	require.Equal(t, `"in zero"`, line(d.do("get", "a")))
	d.db = 5
	require.Equal(t, `"in five"`, line(d.do("get", "a")))
}

// TestReadOnlyScripts: they run concurrently with each other and with entries, and write nothing.
func TestReadOnlyScripts(t *testing.T) {
	d := newDriver(t)
	d.do("set", "a", "1")
	before := d.m.Hash()
	reply, _ := d.read("eval_ro", "return redis.call('get','a')", "0")
	require.Equal(t, `"1"`, line(reply))
	reply, _ = d.read("eval_ro", "return redis.call('set','a','2')", "0")
	require.Contains(t, reply.Str, "ERR Write commands are not allowed from read-only scripts.")
	reply, _ = d.read("eval_ro", endless, "0")
	require.Contains(t, reply.Str, "budget")
	reply, _ = d.read("eval_ro", "return x(", "0")
	require.Contains(t, reply.Str, "ERR Error compiling script")
	reply, _ = d.read("evalsha_ro", scriptSHA("return redis.call('get','a')"), "0")
	require.Equal(t, errNoScript, reply, "a read caches nothing")
	require.Equal(t, before, d.m.Hash())

	d.do("set", "lease", "1", "PX", "100")
	d.nowMillis += 101
	_, due := d.read("eval_ro", "return redis.call('exists','lease')", "0")
	require.True(t, due)
	_, due = d.read("eval_ro", "return redis.call('get','a')", "0")
	require.False(t, due)

	var wg sync.WaitGroup
	body := string(request(nil, 0, "eval_ro", "local n = 0 for i=1,100 do n = n + redis.call('get','a') end return n",
		"0"))
	now, offset := d.nowMillis, d.wallOffset
	for range 4 {
		wg.Go(func() {
			for range 50 {
				replies, _, _, err := d.m.Read(body, 1, now, offset, ReadLong)
				if err != nil || replies[0].Num != 100 {
					t.Errorf("read: %v %v", replies, err)
				}
			}
		})
	}
	for range 50 {
		d.do("set", "a", "1")
		d.eval("return redis.call('get','a')")
		d.m.Snapshot()
	}
	wg.Wait()
}

func TestScriptCache(t *testing.T) {
	d := newDriver(t)
	sha := d.do("script", "load", "return 'loaded'").Str
	require.Equal(t, scriptSHA("return 'loaded'"), sha)
	require.Equal(t, `"loaded"`, line(d.do("evalsha", strings.ToUpper(sha), "0")))
	d.eval("return 'evaluated'")
	evaluated := scriptSHA("return 'evaluated'")
	require.Equal(t, "[1 1 0]", line(d.do("script", "exists", strings.ToUpper(sha), evaluated, "none")))

	// A node that is restored from the snapshot has them too.
	d.m = restored(t, d.m)
	require.Equal(t, `"loaded"`, line(d.do("evalsha", sha, "0")))
	require.Equal(t, `"evaluated"`, line(d.do("evalsha", evaluated, "0")))
	require.Equal(t, 2, d.m.Stats().Scripts)

	require.Equal(t, "OK", line(d.do("script", "flush")))
	require.Equal(t, "[0 0]", line(d.do("script", "exists", sha, evaluated)))
	require.Equal(t, errNoScript, d.do("evalsha", sha, "0"))
}

// Generated sources neither fill the memory nor evict scripts in use.
func TestEvaluatedScriptsAreForgotten(t *testing.T) {
	d := newDriver(t)
	loaded := d.do("script", "load", "return 'loaded'").Str
	d.eval("return 'used'")
	used := scriptSHA("return 'used'")
	d.eval("return 'unused'")
	for i := range 3 * maxRemembered {
		d.eval(fmt.Sprintf("return %d", i))
		if i%100 == 0 {
			require.Equal(t, `"used"`, line(d.do("evalsha", used, "0")))
			require.NoError(t, d.m.st.scripts.verify())
		}
	}
	require.Equal(t, maxRemembered+1, d.m.st.scripts.bySHA.Len())
	require.Equal(t, "[1 1 0 0 1]", line(d.do("script", "exists", loaded, used, scriptSHA("return 'unused'"),
		scriptSHA("return 0"), scriptSHA(fmt.Sprintf("return %d", 3*maxRemembered-1)))))
	// The same holds for their sizes.
	for i := range 20 {
		d.eval(fmt.Sprintf("return %d --%s", i, strings.Repeat("x", maxRememberedBytes/10)))
	}
	require.LessOrEqual(t, d.m.st.scripts.rememberedBytes, maxRememberedBytes)
	require.NoError(t, d.m.st.scripts.verify())
	// SCRIPT LOAD of an evaluated script keeps it.
	d.eval("return 'kept'")
	kept := d.do("script", "load", "return 'kept'").Str
	for i := range maxRemembered {
		d.eval(fmt.Sprintf("return -%d", i))
	}
	require.Equal(t, `"kept"`, line(d.do("evalsha", kept, "0")))
	require.NoError(t, d.m.st.scripts.verify())
	// A read records no use, in an entry or outside.
	turns := d.m.st.scripts.turns
	for _, words := range [][]string{{"eval_ro", "return -1", "0"}, {"evalsha_ro", scriptSHA("return -1"), "0"}} {
		require.Equal(t, protocol.Integer(-1), d.do(words...))
		reply, _ := d.read(words...)
		require.Equal(t, protocol.Integer(-1), reply)
		require.Equal(t, turns, d.m.st.scripts.turns, words[0])
	}
	require.Equal(t, protocol.Integer(-1), d.do("evalsha", scriptSHA("return -1"), "0"))
	require.Equal(t, turns+1, d.m.st.scripts.turns)
	require.Equal(t, d.m.Hash(), restored(t, d.m).Hash())
}

func TestLoadedScriptsAreBounded(t *testing.T) {
	c := call{st: newState(), programs: new(lua.Cache)}
	c.Ceiling = boundless
	sc := &c.st.scripts
	for i := range maxLoaded {
		require.False(t, c.loadScript(fmt.Sprintf("return %d", i)).IsError())
	}
	require.True(t, c.loadScript("return 'one more'").IsError())
	require.False(t, c.loadScript("return 77").IsError(), "it is there")
	require.NoError(t, sc.verify())

	*sc = newScriptCache()
	big := strings.Repeat("x", lua.DefaultLimits().SourceBytes-100)
	n := 0
	for !c.loadScript(fmt.Sprintf("return %d --%s", n, big)).IsError() {
		n++
	}
	require.Equal(t, maxLoadedBytes/len(big), n)
	require.LessOrEqual(t, sc.loadedBytes, maxLoadedBytes)

	*sc = newScriptCache()
	for _, turn := range []uint64{0, 0, 1, 2, 0} { // one replaces another
		sc.turns = turn
		sc.add(compile("return 1", scriptSHA("return 1"), turn))
		require.NoError(t, sc.verify())
	}
}

// An invalid source is refused before the log, and by the state machine.
func TestBadScript(t *testing.T) {
	d := newDriver(t)
	err := newMachine().Compile("return (")
	require.Error(t, err)
	for _, words := range [][]string{{"eval", "return (", "0"}, {"script", "load", "return ("}} {
		require.Equal(t, err.Error(), d.do(words...).Str)
	}
	require.Zero(t, d.m.Stats().Scripts)
	require.NoError(t, newMachine().Compile(compareAndDelete))
}

// The entry limits a script's steps; for reads the newest entry does, or else the default. The error names the flag.
func TestEntrySaysHowLongScriptsRun(t *testing.T) {
	d := newDriver(t)
	loop := func(n int) string { return fmt.Sprintf("for i=1,%d do end return 1", n) }
	d.do("set", "big", strings.Repeat("x", 1<<20))
	writes := "for i=1,10 do redis.call('copy','big','k','replace') end return 1" // ten million units of work
	for _, c := range []struct {
		steps uint64
		over  string
	}{{100_000, "100000 steps"}, {0, ""}, {1_000_000, ""}, {1 << 63, ""}} {
		d.limits.ScriptSteps = c.steps
		for _, reply := range []protocol.Value{d.eval(loop(200_000)), d.eval(writes), func() protocol.Value {
			v, _ := d.read("eval_ro", loop(200_000), "0")
			return v
		}()} {
			if c.over == "" {
				require.Equal(t, protocol.Integer(1), reply, c.steps)
			} else {
				require.Contains(t, reply.Str, "script is over its budget of ")
				require.Contains(t, reply.Str, "(--"+protocol.ScriptStepsFlag+")")
			}
		}
	}
	d.limits.ScriptSteps = 20_000_000
	require.Equal(t, "1", line(d.eval("local s = string.rep('x', 70 * 2^20) return 1")), "four bytes a step")
	d.limits.ScriptSteps = 2_000_000
	require.Equal(t, protocol.Integer(60<<20), d.eval("return #string.rep('x', 60 * 2^20)", "k"), "64 MiB at least")
}

// This is housekeeping as in bull 4: clean() has one script remove all finished jobs. At 100,000 jobs it takes 21
// million steps, 78 MB and more work in commands than any other stock script; dramatiq's dispatch and the reaper of
// sidekiq-unique-jobs take 5 to 7 million steps.
func TestHousekeepingFitsTheDefaultBudget(t *testing.T) {
	protocoltest.SkipShort(t, "100,000 jobs")
	d := newDriver(t)
	d.limits = protocol.EntryLimits{}
	require.Equal(t, "1", line(d.eval(`for i = 1, 1e5 do
		redis.call('HSET', 'jobs:' .. i, 'timestamp', 1000, 'finishedOn', 1000, 'data', '{}')
		redis.call('ZADD', 'jobs:completed', 1000 + i, i)
	end return 1`)))
	require.Equal(t, protocol.Integer(100_000), d.eval(`local deleted = {}
	for _, id in ipairs(redis.call('ZRANGE', 'jobs:completed', 0, -1)) do
		local job, time = 'jobs:' .. id, nil
		if redis.call('EXISTS', job .. ':lock') == 0 then
			for _, ts in ipairs(redis.call('HMGET', job, 'finishedOn', 'processedOn', 'timestamp')) do
				if ts then time = ts break end
			end
			if not time or time < '2000' then
				redis.call('ZREM', 'jobs:completed', id)
				redis.call('ZREM', 'jobs:priority', id)
				redis.call('DEL', job)
				redis.call('DEL', job .. ':logs')
				local index = 'jobs:limiter' .. ':index'
				if redis.call('HGET', index, id) then redis.call('HDEL', index, id) end
				table.insert(deleted, id)
			end
		end
	end return #deleted`))
}
