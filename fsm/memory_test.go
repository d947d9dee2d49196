package fsm

import (
	"fmt"
	"math/rand"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

const oomText = "(OOM command not allowed when used memory > 'maxmemory'.)"

// filled returns a machine whose state exceeds the memory limit of its entries.
func filled(t *testing.T) *driver {
	d := newDriver(t)
	d.do("set", "lock", "token", "px", "30000")
	d.do("set", "big", strings.Repeat("x", 10_000))
	d.do("set", "n", "1")
	d.limits.MemoryBytes = uint64(d.m.Stats().UsedBytes) - 1
	return d
}

// TestFull: at the memory limit, commands that may make the state grow are refused; others run.
func TestFull(t *testing.T) {
	d := filled(t)
	before := d.m.st.Versions
	for _, words := range []string{
		"set a b", "set big x", "setnx a b", "setex a 10 b", "psetex a 10 b", "mset a b", "msetnx a b", "msetex 1 a b",
		"append a b", "setrange a 0 b", "incr n", "decr n", "incrby n 2", "decrby n 2", "incrbyfloat n 1", "getset n 2",
		"copy big other", "rename n longer", "renamenx n longer", "set nosuch v xx", "set lock v nx",
	} {
		require.Equal(t, oomText, line(d.doLine(words)), words)
	}
	require.Equal(t, before, d.m.st.Versions, "nothing was written")
	for _, row := range [][2]string{
		{"set a", "(ERR wrong number of arguments for 'set' command)"},
		{"get n", `"1"`},
		{"exists lock nosuch", "1"},
		{"getex n ex 100", `"1"`},
		{"persist n", "1"},
		{"pexpire lock 20000", "1"},
		{"ttl lock", "20"},
		{"rename n m", "OK"},
		{"move m 3", "1"},
		{"delifeq lock token", "1"},
		{"del big", "1"},
		{"set a b", "OK"}, // there is room again
	} {
		require.Equal(t, row[1], line(d.doLine(row[0])), row[0])
	}
}

// TestFullUntilItEnds: an ended key frees its memory in the very entry, swept or not.
func TestFullUntilItEnds(t *testing.T) {
	d := newDriver(t)
	d.do("set", "a", strings.Repeat("x", 10_000), "px", "100")
	d.limits.MemoryBytes = uint64(d.m.Stats().UsedBytes) - 1
	d.nowMillis += 100
	require.Equal(t, oomText, line(d.doLine("set b c")))
	d.nowMillis++
	require.Equal(t, "OK", line(d.doLine("set b c")))
}

// TestFullScripts: a script runs, and its commands are refused like any client's. A script that has already written is
// undone, so that none leaves half of its effects.
func TestFullScripts(t *testing.T) {
	const (
		release = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
		renew   = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else " +
			"return 0 end"
	)
	d := filled(t)
	d.limits.MemoryBytes -= 1000 // one lock less is not enough
	require.Equal(t, "1", line(d.do("eval", renew, "1", "lock", "token", "5000")))
	require.Equal(t, "5000", line(d.do("pttl", "lock")))

	reply := line(d.do("eval", "return redis.call('set','a','b')", "0"))
	require.Equal(t, strings.TrimSuffix(oomText, ")")+" script: "+scriptSHA("return redis.call('set','a','b')")+
		", on @user_script:1.)", reply)
	require.Equal(t, `["OOM command not allowed when used memory > 'maxmemory'." 1]`,
		line(d.do("eval", "local e = redis.pcall('set','a','b') return {e.err, redis.call('del','n')}", "0")),
		"it may go on with others")

	for _, source := range []string{
		"redis.call('del','lock') return redis.call('set','a','b')",
		"redis.call('del','lock') redis.pcall('set','a','b') redis.pcall('del', 'big') return 'done'",
		"redis.call('swapdb', 0, 1) redis.pcall('set','a','b')",
	} {
		reply := d.do("eval", source, "0")
		require.Equal(t, oomText, line(reply))
		require.Equal(t, protocol.OutcomeNone, protocol.OutcomeOf(reply.Str))
		require.Equal(t, `"token"`, line(d.do("get", "lock")), "what it did is undone")
		require.Equal(t, `0`, line(d.do("exists", "a")))
	}
	// A script may use the memory that it frees.
	require.Equal(t, "OK", line(d.do("eval", "redis.call('del','big') return redis.call('set','a','b')", "0")))
	d.do("set", "big", strings.Repeat("x", 10_000))

	require.Equal(t, oomText, line(d.do("eval", "#!lua\nreturn 1", "0")))
	require.Equal(t, "1", line(d.do("eval", "#!lua flags=allow-oom\nreturn 1", "0")))
	require.Equal(t, "1", line(d.do("eval", "#!lua flags=no-writes\nreturn 1", "0")))
	require.Equal(t, "1", line(d.do("eval", "#!lua flags=allow-oom\nreturn redis.call('del', 'a')", "0")))
	require.Contains(t, line(d.do("eval", "#!lua flags=allow-oom\nreturn redis.call('set', 'a', 'b')", "0")),
		"OOM command not allowed")
	require.Equal(t, "1", line(d.do("eval", release, "1", "lock", "token")))
}

// TestFullWhileAScriptRuns: a script that reaches the limit is undone.
func TestFullWhileAScriptRuns(t *testing.T) {
	d := newDriver(t)
	d.limits.MemoryBytes = 100_000
	before := d.m.Stats()
	require.Equal(t, oomText, line(d.do("eval", "for i = 1, 1000 do redis.pcall('set', i, string.rep('x', 1000)) end",
		"0")))
	require.Equal(t, before.Keys, d.m.Stats().Keys)
}

// TestFullTransactions: a transaction with a command that would be refused alone is refused as a whole, as in Redis.
// One that reaches the limit as it runs gets the error at that command.
func TestFullTransactions(t *testing.T) {
	d := filled(t)
	reply := d.exec(nil, []string{"del", "lock"}, []string{"set", "a", "b"})
	require.Equal(t,
		"(EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.)", line(reply))
	require.Equal(t, `["token" nil]`, line(d.do("mget", "lock", "a")))
	require.Equal(t, "[1 1]", line(d.exec(nil, []string{"pexpire", "lock", "10"}, []string{"del", "n"})))

	d.limits.MemoryBytes = uint64(d.m.Stats().UsedBytes) + 5_000
	reply = d.exec(nil, []string{"setrange", "c", "20000", "x"}, []string{"setrange", "e", "20000", "x"},
		[]string{"del", "c"})
	require.Equal(t, "[20001 "+oomText+" 1]", line(reply))
}

// TestFullByEntry: each entry's own limit applies.
func TestFullByEntry(t *testing.T) {
	d := filled(t)
	require.Equal(t, oomText, line(d.doLine("set a b")))
	d.limits.MemoryBytes += 1000
	require.Equal(t, "OK", line(d.doLine("set a b")))
	d.limits.MemoryBytes = 0
	require.Equal(t, "OK", line(d.doLine("set a b")))
}

// TestUsedBytes: the count is a function of the state: equal after a restore at any point, on a node that sweeps at
// other times, and after undone scripts.
func TestUsedBytes(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	d, other := newDriver(t), newDriver(t)
	words := func() []string {
		key, value := fmt.Sprint(rng.Intn(300)), strings.Repeat("v", rng.Intn(3000))
		switch rng.Intn(12) {
		case 0:
			return []string{"del", key}
		case 1:
			return []string{
				"eval", "redis.call('flushdb') redis.call('set', KEYS[1], ARGV[1]) string.rep('x', 1e9)", "1", key,
				value,
			}
		case 2:
			return []string{"eval", "redis.call('set', KEYS[1], ARGV[1]) return '" + key + "'", "1", key, value}
		case 3:
			return []string{"persist", key}
		case 4:
			return []string{"move", key, "1"}
		case 5:
			return []string{"append", key, value}
		case 6:
			return []string{"swapdb", "0", "1"}
		case 7:
			if rng.Intn(20) == 0 {
				return []string{pick(rng, []string{"flushdb", "flushall"})}
			}
			return []string{"rename", key, fmt.Sprint(rng.Intn(300))}
		default:
			return []string{"set", key, value, "px", fmt.Sprint(1 + rng.Intn(300))}
		}
	}
	for i := range 1000 {
		w := words()
		d.nowMillis += int64(rng.Intn(5))
		other.nowMillis, other.seq = d.nowMillis, d.seq
		require.Equal(t, d.do(w...), other.do(w...))
		if rng.Intn(30) == 0 {
			other.m = restored(t, other.m)
		}
		for _, db := range other.m.st.Databases {
			if rng.Intn(20) == 0 {
				db.SweepAll(d.m.st.ClockMillis)
			}
		}
		require.Equal(t, d.m.Stats().UsedBytes, other.m.Stats().UsedBytes, "%d: %q", i, w)
		sum := int64(0)
		for _, db := range d.m.st.Databases {
			if i%20 == 0 {
				require.NoError(t, db.Verify())
			}
			sum += db.Bytes()
		}
		require.Equal(t, sum, d.m.st.ItemBytes)
	}
	require.Equal(t, d.m.Hash(), other.m.Hash())
}

// TestStormIsCounted: leases that end together stop counting with the entry that ends them, before they are swept.
func TestStormIsCounted(t *testing.T) {
	const n = 3 * sweepLimit
	d := newDriver(t)
	d.fill("k", n, 100)
	require.Greater(t, d.m.st.ItemBytes, int64(100*n))
	d.advance(101)
	require.Positive(t, d.m.st.Databases[0].Stored(), "some wait to be swept")
	require.Zero(t, d.m.st.ItemBytes)
	require.NoError(t, d.m.st.Databases[0].Verify())
	d.do("set", "k1", "in the place of one that waits")
	require.Equal(t, int64(112+32), d.m.st.ItemBytes)
	require.NoError(t, d.m.st.Databases[0].Verify())
}

// TestFullDisk: an entry that says so refuses what may make the state grow, also in scripts and transactions, and
// nothing else. The next entry runs everything again.
func TestFullDisk(t *testing.T) {
	d := newDriver(t)
	for _, key := range []string{"lock", "k"} {
		d.do("set", key, "v")
	}
	d.limits.DiskFull = true
	refusal := protocol.ErrDiskFull.Value()
	require.Equal(t, refusal, d.do("set", "a", "b"))
	require.Equal(t, refusal, d.do("rename", "k", "k-is-longer"))
	require.Equal(t, protocol.ExecAbortedBy(protocol.ErrDiskFull).Value(),
		d.exec(nil, []string{"del", "k"}, []string{"set", "a", "b"}))
	require.Contains(t, d.do("eval", "return redis.call('set', 'a', 'b')", "0").Str, refusal.Str)
	require.Equal(t, protocol.Integer(1), d.do("eval", "return redis.call('del', KEYS[1])", "1", "lock"))
	require.False(t, d.do("script", "load", "return 1").IsError())
	require.Equal(t, protocol.Integer(1), d.do("pexpire", "k", "1000"))
	require.Equal(t, protocol.Integer(1), d.do("del", "k"))
	d.limits.DiskFull = false
	require.Equal(t, protocol.OK, d.do("set", "a", "b"))
}

// TestPeakBytes: the peak is the largest count after an entry.
func TestPeakBytes(t *testing.T) {
	d := newDriver(t)
	d.do("set", "big", strings.Repeat("x", 10_000))
	most := d.m.Stats().UsedBytes
	require.Equal(t, most, d.m.Stats().PeakBytes)
	d.do("del", "big")
	require.Less(t, d.m.Stats().UsedBytes, most-10_000)
	require.Equal(t, most, d.m.Stats().PeakBytes)
}

// TestScriptsAreBounded: scripts count as memory. SCRIPT LOAD is refused when they fill the state, except for a few,
// and EVAL's scripts have a limited share.
func TestScriptsAreBounded(t *testing.T) {
	large := func(i int) string { return fmt.Sprintf("return '%d%s'", i, strings.Repeat("x", 22_500)) }
	d := newDriver(t)
	d.limits.MemoryBytes = 8 << 20
	refused := 0
	for i := range 40 {
		if reply := d.do("script", "load", large(i)); reply.IsError() {
			require.Equal(t, protocol.ErrOOM.Value(), reply)
			refused++
		}
	}
	require.Equal(t, 40-5, refused)
	require.LessOrEqual(t, d.m.Stats().UsedBytes, int64(8<<20))
	d.limits.MemoryBytes = 1
	require.Equal(t, protocol.ErrOOM.Value(), d.do("script", "load", "return 1"), "the share is of the limit")
	d.limits.MemoryBytes = 8 << 20
	d.do("script", "flush")
	for i := range 100 {
		require.False(t, d.do("eval", large(i), "0").IsError())
	}
	require.LessOrEqual(t, d.m.Stats().UsedBytes, int64(1<<20)+1000)
	d.do("set", "k", strings.Repeat("v", 8<<20))
	require.Equal(t, protocol.ErrOOM.Value(), d.do("set", "k2", "v"))
	require.False(t, d.do("script", "load", "return 1").IsError(), "a client loads the script that gives its lock back")
	require.Equal(t, protocol.ErrOOM.Value(), d.do("script", "load", large(1000)+strings.Repeat(" ", 30_000)))
}

// TestScriptMemory: no source takes more memory than is counted for it.
func TestScriptMemory(t *testing.T) {
	repeated := func(unit string) string {
		function := "x=function() local a " + strings.Repeat(unit, 2000) + " end "
		return strings.Repeat(function, max(1, 300_000/len(function)))
	}
	var sources []string
	for _, unit := range []string{
		"a() ", "a={} ", "a=function()end ", "a=function(a,b,c)end ", "a=function()a=a end ",
		"do local b,c,d end ", "a=a..a ",
	} {
		sources = append(sources, repeated(unit))
	}
	var shared []string // by nested functions
	for i := range 60 {
		shared = append(shared, fmt.Sprintf("v%d", i))
	}
	captures := strings.Repeat("x=function()", 60) + "x=" + strings.Join(shared, " x=") + strings.Repeat(" end", 60) + " "
	sources = append(sources, "local "+strings.Join(shared, ",")+" "+strings.Repeat(captures, 300))
	for _, source := range sources {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		program := compile(source, "", 0)
		runtime.GC()
		runtime.ReadMemStats(&after)
		require.NotNil(t, program.program)
		require.LessOrEqual(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), scriptsBytes(1, len(source))*2/3,
			source[:100])
		runtime.KeepAlive(program)
	}
}
