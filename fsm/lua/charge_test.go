package lua

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// TestReplyStandsFor: a reply is charged by the bytes that are sent for it, however few there are in memory.
func TestReplyStandsFor(t *testing.T) {
	const limit = 1 << 20
	for _, c := range []struct {
		source string
		over   bool
	}{
		{"local s = string.rep('x', 3e5) return {s, s, s}", false},
		{"local s = string.rep('x', 3e5) return {s, s, s, s}", true},
		{"local s = string.rep('x', 3e5) local t = {s, s} return {t, t}", true},
		{"local s = string.rep('x', 3e5) local t = {s, s} return {t, {t}}", true},
		{"local t = {ok = string.rep('x', 3e5)} return {t, t, t}", false},
		{"local t = {ok = string.rep('x', 3e5)} return {t, t, t, t}", true},
		{"local t = {err = string.rep('x', 3e5)} return {t, t, t, t}", true},
		{"redis.setresp(3) local t = {big_number = string.rep('1', 3e5)} return {t, t, t, t}", true},
		{"redis.setresp(3) local t = {verbatim_string = {format = 'txt', string = string.rep('1', 3e5)}} return " +
			"{t, t, t, t}", true},
		{"redis.setresp(3) local s = string.rep('x', 3e5) return {map = {[1] = s, [2] = s, [3] = {s, s}}}", true},
		{"redis.setresp(3) local s = string.rep('x', 3e5) return {set = {[s] = true, [s .. 'x'] = true}}", false},
		{"redis.call('set', 'k', string.rep('x', 3e5)) local s = redis.call('get', 'k') return {s, s, s, s}", true},
		{"return string.rep('x', 9e5)", false},
	} {
		_, err := mustCompile(t, c.source).Run(&Env{Host: newFakeHost(), Limits: Limits{MemoryBytes: limit}})
		require.Equal(t, c.over, errors.Is(err, ErrBudget), "%s: %v", c.source, err)
	}
}

// TestReplyElementsAreCharged: a reply of many elements takes memory, though the tables that stand for them are few.
func TestReplyElementsAreCharged(t *testing.T) {
	const source = "local t = {} for i = 1, 1000 do t[i] = 1 end return {t, t, t, t, t, t, t, t, t, t}"
	_, err := mustCompile(t, source).Run(&Env{Host: newFakeHost(), Limits: Limits{MemoryBytes: 1 << 20}})
	require.ErrorIs(t, err, ErrBudget)
}

// TestHostRepliesAreCharged: results of redis.call count as if the script had made them.
func TestHostRepliesAreCharged(t *testing.T) {
	h := newFakeHost()
	h.strings["k"] = strings.Repeat("x", 3e5)
	for calls, over := range map[int]bool{3: false, 4: true} {
		source := fmt.Sprintf("local t = {} for i = 1, %d do t[i] = redis.call('get', 'k') end return #t", calls)
		_, err := mustCompile(t, source).Run(&Env{Host: h, Limits: Limits{MemoryBytes: 1 << 20}})
		require.Equal(t, over, errors.Is(err, ErrBudget), source)
	}
}

// largeTables is what Redis's own test suite does with cmsgpack.
const largeTables = `
local array, map = {}, {}
for i = 1, 100000 do array[i] = i map['key' .. i] = 'v' .. i end
local packed = cmsgpack.pack({array, map})
local back = cmsgpack.unpack(packed)
for i = 1, 100000, 997 do assert(back[1][i] == i and back[2]['key' .. i] == 'v' .. i) end
return #packed`

// TestLargeTables: memory that the engine drops is given back, so structures fit that are no larger
// than the budget.
func TestLargeTables(t *testing.T) {
	p, r := mustCompile(t, largeTables), NewRunner()
	v, err := r.Run(p, &Env{Host: newFakeHost()})
	require.NoError(t, err)
	require.Greater(t, v.Num, int64(1_000_000))
	t.Logf("%+v", r.Used())
}

// TestReleased: no more memory is given back than was charged.
func TestReleased(t *testing.T) {
	for _, source := range []string{
		"local t = {} for i = 1, 5000 do t[i] = i end",
		"local t = {} for i = 1, 5000 do t['k' .. i] = i end",
		"for i = 1, 300 do local t = {1, 2, 3, x = 1} for j = 1, 20 do t[j] = j t['k' .. j] = j end end",
		"for i = 1, 50 do KEYS[i] = i KEYS['k' .. i] = i ARGV[i] = i end",
		"local t = {} for i = 1, 500 do t[i] = string.rep('x', i) end for i = 1, 20 do cmsgpack.pack(t) cjson.encode(t) end",
		"local function f(n) if n == 0 then return 0 end return 1 + f(n - 1) end for i = 1, 10 do f(2000) end",
		"pcall(cjson.encode, {string.rep('x', 5000), tostring}) pcall(cmsgpack.pack)",
		"local t = {} for r = 1, 20 do for i = 1, 500 do t[i] = i t['k' .. i] = i end for i = 1, 500 do t[i] = nil t['k' " +
			".. i] = nil end end",
	} {
		for _, keys := range [][]string{nil, {"a"}, {"a", "b", "c", "d", "e"}, make([]string, 100)} {
			p, r := mustCompile(t, source), NewRunner()
			_, err := r.Run(p, &Env{Host: newFakeHost(), Keys: keys})
			require.NoError(t, err, source)
			require.Positive(t, r.Used().MemoryBytes, source)
		}
	}
}

// TestGarbageIsBounded: dropped memory costs the script steps, so that garbage does not pile up
// faster than the collector frees garbage.
func TestGarbageIsBounded(t *testing.T) {
	for name, source := range map[string]string{
		"a table that grows again and again": `while true do local t = {} for i = 1, 2e4 do t[i] = i end end`,
		"a hash that moves again and again":  `local t = {} for i = 1, 2e4 do t['k' .. i] = 1 end while true do for i = 1, 3e4 do t[i + 0.5] = i t[i + 0.5] = nil end end`,
		"a large buffer dropped each time":   `local t = {} for i = 1, 1000 do t[i] = 1e9 + i end while true do cmsgpack.pack(t) end`,
		"a buffer of a failure":              `local t = {string.rep('x', 1e5), tostring} while true do pcall(cjson.encode, t) end`,
	} {
		var before, after runtime.MemStats
		p := mustCompile(t, source)
		runtime.ReadMemStats(&before)
		_, err := p.Run(&Env{Host: newFakeHost()})
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, ErrBudget, name)
		total := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s: %d MB in all", name, total>>20)
		require.Less(t, total, uint64(2<<30), name)
	}
}

// deepHost replies with arrays in arrays.
type deepHost struct {
	*fakeHost
	depth, width int
}

func (h *deepHost) Call([]string, int) protocol.Value {
	v := protocol.Array(make([]protocol.Value, h.width)...)
	for range h.depth {
		v = protocol.Array(v)
	}
	return v
}

// TestHostRepliesTakeSteps: a wide reply of the host costs steps for each element, and a deep reply
// is an error.
func TestHostRepliesTakeSteps(t *testing.T) {
	p, r := mustCompile(t, "return #redis.call('get', 'k')"), NewRunner()
	steps := func(width int) int64 {
		_, err := r.Run(p, &Env{Host: &deepHost{fakeHost: newFakeHost(), width: width}})
		require.NoError(t, err)
		return r.Used().Steps
	}
	rehashing := func(width int) int64 { return int64(width) / 4 } // what the table of them takes at the least
	require.GreaterOrEqual(t, steps(4096)-steps(0), 4096/2+rehashing(4096))

	v, err := r.Run(p, &Env{Host: &deepHost{fakeHost: newFakeHost(), depth: maxReplyDepth}})
	require.NoError(t, err)
	require.Equal(t, protocol.Integer(1), v)
	v, err = r.Run(p, &Env{Host: &deepHost{fakeHost: newFakeHost(), depth: maxReplyDepth + 1}})
	require.NoError(t, err)
	require.Contains(t, v.Str, "ERR reached lua stack limit")
}

// TestErrorsAreOneLine: a line break in a text that a script made would end the reply, and what
// follows would be taken for the next one.
func TestErrorsAreOneLine(t *testing.T) {
	for source, want := range map[string]protocol.Value{
		`return {err = "A b\r\n+OK"}`:                       protocol.ErrValue("A b  +OK"),
		`return {ok = "A b\r\n+OK"}`:                        protocol.Simple("A b  +OK"),
		`return redis.error_reply("A b\r\n+OK")`:            protocol.ErrValue("A b  +OK"),
		`redis.setresp(3) return {big_number = "1\r\n+OK"}`: protocol.BigNumber("1  +OK"),
		`return {{err = "A b\r\n+OK"}}`:                     protocol.Array(protocol.ErrValue("A b  +OK")),
		`redis.setresp(3) return {map = {a = {ok = "x\r\ny"}}}`: {
			Kind:  protocol.KindMap,
			Elems: []protocol.Value{protocol.Bulk("a"), protocol.Simple("x  y")},
		},
	} {
		v, err := mustCompile(t, source).Run(&Env{Host: newFakeHost()})
		require.NoError(t, err)
		require.Equal(t, want, v, source)
	}
}

// TestScansAreCharged: a library function's search costs steps, also a search without a result.
func TestScansAreCharged(t *testing.T) {
	const length, times = 1 << 18, 20
	for name, c := range map[string]struct{ function, args string }{
		"a name of a chunk":               {"loadstring", "'', s"},
		"a name of a loaded chunk":        {"load", "function() end, s"},
		"a layout":                        {"struct.size", "'s' .. s"},
		"text without an end":             {"struct.unpack", "'s', s"},
		"JSON text without an end":        {"cjson.decode", `'"' .. s`},
		"JSON text with a wrong escape":   {"cjson.decode", `'"\\n' .. s .. '\\y"'`},
		"a pattern that is never reached": {"for _ in string.gmatch", "'', 'y' .. s"},
		"a pattern of gsub":               {"string.gsub", "'', 'y' .. s, ''"},
	} {
		t.Run(name, func(t *testing.T) {
			steps := func(call string) int64 {
				p := mustCompile(t, fmt.Sprintf("local s = string.rep('x', %d) for i = 1, %d do pcall(function() %s end) end",
					length, times, call))
				r := NewRunner()
				_, err := r.Run(p, &Env{Host: newFakeHost()})
				require.NoError(t, err)
				return r.Used().Steps
			}
			call := c.function + "(" + c.args + ")"
			if strings.HasPrefix(call, "for") {
				call += " do end"
			}
			require.Greater(t, steps(call)-steps("type("+c.args+")"), int64(times*length/64)*9/10)
		})
	}
}

// TestFormatLooksAtItsPrecision: %s ignores the bytes behind the precision.
func TestFormatLooksAtItsPrecision(t *testing.T) {
	p, r := mustCompile(t, "return string.format('%.2s|%5.1s|%.4s|%s', 'a\\0c', 'xyz', 'abc', 'd\\0e')"), NewRunner()
	v, err := r.Run(p, &Env{Host: newFakeHost()})
	require.NoError(t, err)
	require.Equal(t, "a|    x|abc|d", v.Str)
}

// TestLoopsOfTheEngineTakeSteps: one instruction's loops cost steps in proportion.
func TestLoopsOfTheEngineTakeSteps(t *testing.T) {
	r := NewRunner()
	used := func(source string) Used {
		_, err := r.Run(mustCompile(t, source), &Env{Host: newFakeHost()})
		require.NoError(t, err, source)
		return r.Used()
	}
	const fill = "local t = {} for i = 1, 4000 do t[i] = i * 7919 % 4001 end "
	for name, c := range map[string]struct {
		before, loop string
		least        int64
	}{
		"table.insert at the front":   {fill, "for i = 1, 100 do table.insert(t, 1, 0) end", 100 * 4000 / 4},
		"table.insert behind the end": {"", "local t = {} for i = 1, 100 do table.insert(t, 1e6, 0) end", 100},
		"table.sort":                  {fill, "table.sort(t)", 4000 * 11}, // of log2(4000) comparisons for each
		"variable arguments": {
			fill + "local function f(n, ...) for i = 1, n do select('#', ...) end end f(0, unpack(t)) ",
			"f(100, unpack(t))", 100 * 4000 / 8,
		},
		"back references": {
			"local s = string.rep('x', 8192) local all = s .. 'y' .. string.rep(s, 200) ",
			"assert(string.find(all, '^(x*)y' .. string.rep('%1', 200)))", 200 * 8192 / 64,
		},
		"next over what was removed": {
			`local t, last = {} for i = 1, 4096 do t['k' .. i] = i end for k in pairs(t) do last = k end
			for k in pairs(t) do if k ~= last then t[k] = nil end end `,
			"for i = 1, 100 do assert(next(t) == last) end", 100 * 4000 / 4,
		},
	} {
		require.GreaterOrEqual(t, used(c.before+c.loop).Steps-used(c.before).Steps, c.least, name)
	}
	const maps = "redis.setresp(3) " + fill
	require.GreaterOrEqual(t, used(maps+"return {map = t}").MemoryBytes-used(maps).MemoryBytes, int64(4000*2*replyBytes))
}

// TestNamesAreChargedAsBefore: a look for the name in an error costs what it cost when a captured variable was an
// instruction behind the closure: entries that are in a log mean what they meant.
func TestNamesAreChargedAsBefore(t *testing.T) {
	source := "local a, b, c, d = 1, 2, 3, 4 local function f() local nothing "
	source += strings.Repeat("local function g() return a, b, c, d end ", 50) + "return nothing.x end return pcall(f)"
	r := NewRunner()
	_, err := r.Run(mustCompile(t, source), &Env{Host: newFakeHost()})
	require.NoError(t, err)
	require.Equal(t, int64(100), r.Used().Steps)
}
