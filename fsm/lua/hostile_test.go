package lua

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// hostileScript is a script that tries to take more than its share. With overruns the budget must
// stop the script; otherwise the script fails or ends by itself.
type hostileScript struct {
	name, source string
	overruns     bool
}

var hostileScripts = []hostileScript{
	{"endless loop", `while true do end`, true},
	{"endless repeat", `repeat until false`, true},
	{"endless loop in pcall", `while true do pcall(function() while true do end end) end`, true},
	{"endless loop in xpcall", `xpcall(function() while true do end end, function() while true do end end)`, true},
	{"endless loop in a handler", `xpcall(error, function() while true do end end)`, true},
	{"endless tail call", `local function f() return f() end f()`, true},
	{"endless goto by error", `local function f() error('x') end while true do pcall(f) end`, true},
	{"recursion", `local function f() return 1 + f() end f()`, false},
	{"recursion with many registers", `local function f() local ` + manyLocals(190) +
		` return 1 + f() end return pcall(f)`, true},
	{"recursion with varargs", `local function f(...) return 1 + f(1, ...) end return pcall(f)`, true},
	{"recursion by __index", `local t = {} setmetatable(t, {__index = function(t, k) return t[k] end}) return t.x`, false},
	{
		"recursion by __index in pcalls",
		`local t = {} setmetatable(t, {__index = function(t, k) pcall(function() return t[k] end) return t[k] end}) while true do pcall(function() return t.x end) end`, true,
	},
	{"recursion by gsub", `local function f() return (string.gsub('x', 'x', f)) end f()`, false},
	{"recursion by sort", `local function f(a, b) table.sort({1, 2, 3}, f) return a < b end f(1, 2)`, false},
	{
		"recursion by tostring",
		`local t = {} setmetatable(t, {__tostring = function() return tostring(t) end}) tostring(t)`, false,
	},
	{"recursion by pcall", `local function f() return pcall(f) end f()`, false},
	{"recursion by __call", `local t = {} setmetatable(t, {__call = function(...) return t(...) end}) t()`, true},
	{"recursion by load", `local function f() return load(f) end f()`, false},
	{"doubling a string", `local s = 'x' while true do s = s .. s end`, true},
	{"doubling a string in pcall", `local s = 'x' while true do pcall(function() s = s .. s end) end`, true},
	{"long chain of ..", `local s = string.rep('x', 1e6) local t = s` + strings.Repeat(`..s`, 150), true},
	{"string.rep", `return #string.rep('x', 1e9)`, true},
	{"string.rep of a long string", `return #string.rep(string.rep('x', 1e6), 1e6)`, true},
	{"string.rep at the largest count", `return #string.rep('xxxxxxxx', 2^31-1)`, true},
	{"string.rep again and again", `while true do local s = string.rep('x', 1e6) end`, true},
	{"string.rep of nothing", `return #string.rep('', 2^31-1)`, false},
	{
		"table.concat of long strings",
		`local s, t = string.rep('x', 1e6), {} for i = 1, 1000 do t[i] = s end return #table.concat(t)`, true,
	},
	{
		"table.concat with a long separator",
		`local s, t = string.rep('x', 1e6), {} for i = 1, 1000 do t[i] = '' end return #table.concat(t, s)`, true,
	},
	{"table.concat of a huge range", `return table.concat({}, '', 1, 2^31-1)`, false},
	{
		"table.concat by metamethods",
		`return table.concat(setmetatable({}, {__index = function() return 'x' end}), '', 1, 2^31-1)`, false,
	},
	{"string.format padding", `local s = '' while true do s = s .. string.format('%99d', 1) end`, true},
	{"string.format of long strings", `local s = string.rep('x', 1e6) return #string.format(string.rep('%s', 100), ` +
		strings.Repeat("s,", 99) + `s)`, true},
	{"string.format %q", `local s = string.rep('\0', 1e7) return #string.format('%q%q', s, s)`, true},
	{"pattern backtracking", `return string.find(string.rep('a', 50), string.rep('a*', 50) .. 'b')`, true},
	{
		"pattern backtracking by a?",
		`return string.find(string.rep('a', 40), string.rep('a?', 40) .. string.rep('a', 40) .. 'b')`, true,
	},
	{"pattern backtracking by a-", `return string.find(string.rep('a', 3e4), 'a-a-a-a-b')`, true},
	{"pattern with .*", `return string.find(string.rep('a', 1e5), '.-.-.-b')`, true},
	{"quadratic find", `return string.find(string.rep('a', 3e5), 'a*b')`, true},
	{"a long set", `return string.find(string.rep('a', 1e5), '[' .. string.rep('b', 1e5) .. ']')`, true},
	{"%b quadratic", `return string.find(string.rep('(', 1e5), '%b()')`, true},
	{"back references", `local s = string.rep('a', 5e4) return string.find(s .. s, '(a*)%1b')`, true},
	{"pattern too deep", `return string.find(string.rep('x', 1e5), string.rep('x?', 1e5))`, false},
	{"pattern with many captures", `return string.find('x', string.rep('()', 1e5))`, false},
	{"gsub that expands", `local s = string.rep('x', 1e4) return #string.gsub(s, 'x', s)`, true},
	{"gsub that doubles", `local s = 'x' while true do s = string.gsub(s, 'x', 'xx') end`, true},
	{"gsub with captures", `local s = string.rep('x', 1e4) return #string.gsub(s, '(x*)', string.rep('%1', 1e5))`, true},
	{
		"gmatch again and again",
		`for w in string.gmatch(string.rep(' ', 1e6), '%a') do end while true do for w in string.gmatch('x', '') do end end`,
		true,
	},
	{"find plain again and again", `local s = string.rep('a', 1e6) while true do string.find(s, 'ab', 1, true) end`, true},
	{"compare long strings", `local a, b = string.rep('a', 1e6), string.rep('a', 1e6) while a == b do end`, true},
	{"order long strings", `local a, b = string.rep('a', 1e6), string.rep('a', 1e6) while a <= b do end`, true},
	{"hash long strings", `local s, t = string.rep('a', 1e5), {} while true do t[s .. 'x'] = 1 end`, true},
	{"convert long strings", `local s = string.rep('1', 1e6) while true do local n = s + 1 end`, true},
	{"upper again and again", `local s = string.rep('a', 1e6) while true do s = string.upper(s) end`, true},
	{"sub again and again", `local s = string.rep('a', 1e6) while true do local x = string.sub(s, 2) end`, true},
	{"array growth", `local t = {} t[1e8] = 1 return #t`, false},
	{"array growth backwards", `local t = {} for i = 1e6, 1, -1 do t[i] = i end`, true},
	{"sparse arrays", `local t = {} for i = 0, 60 do t[2^i] = 1 end return #t`, false},
	{"fill a table", `local t = {} local i = 0 while true do i = i + 1 t[i] = i end`, true},
	{"fill tables", `local t = {} while true do t = {t} end`, true},
	{"fill a hash", `local t = {} local i = 0 while true do i = i + 1 t['k' .. i] = i end`, true},
	{
		"rehash again and again",
		`local t = {} for i = 1, 1e5 do t['k' .. i] = i end local i = 1e5 while true do t['k' .. i] = nil i = i + 1 t['k' .. i] = 1 end`, true,
	},
	{"colliding keys", collidingKeys(), true},
	{
		"next through holes",
		`local t = {} for i = 1, 1e5 do t['k' .. i] = i end for i = 1, 1e5 do t['k' .. i] = nil end while true do next(t) end`, true,
	},
	{"insert at the front", `local t = {} while true do table.insert(t, 1, 1) end`, true},
	{"insert far away", `local t = {} table.insert(t, 2^31-1, 1) table.insert(t, 1, 1) return #t`, false},
	{
		"insert before a far end", `local t = {} for i = 0, 30 do t[2^i] = 1 end while true do table.insert(t, 1, 1) end`,
		true,
	},
	{"insert at a negative place", `table.insert({}, -2^31, 1)`, true},
	{
		"remove from the front",
		`local t = {} for i = 1, 1e5 do t[i] = i end while true do table.remove(t, 1) t[1e5] = 1 end`, true,
	},
	{"unpack a huge range", `return unpack({}, 1, 1e8)`, false},
	{"unpack again and again", `while true do select('#', unpack({}, 1, 7000)) end`, true},
	{
		"varargs again and again",
		`local function f(...) return select('#', ...) end while true do f(unpack({}, 1, 7000)) end`, true,
	},
	{
		"select through varargs",
		`local function f(...) local n = 0 for i = 1, select('#', ...) do n = n + (select(i, ...) or 0) end end while true do f(unpack({}, 1, 7000)) end`, true,
	},
	{
		"sort with a bad comparator",
		`local t = {} for i = 1, 1000 do t[i] = i end while true do pcall(table.sort, t, function() return true end) end`,
		true,
	},
	{
		"sort quadratically",
		`local t = {} for i = 1, 1e5 do t[i] = 1 end table.sort(t, function(a, b) return false end) while true do table.sort(t) end`, true,
	},
	{"maxn again and again", `local t = {} for i = 1, 1e5 do t[i] = i end while true do table.maxn(t) end`, true},
	{
		"ipairs without end",
		`for i in ipairs(setmetatable({}, {__index = function() return 1 end})) do end while true do end`, true,
	},
	{"for without end", `for i = 1, math.huge do end`, true},
	{"for with step 0", `for i = 2, 1, 0 do end`, true},
	{"for over floats", `for i = 2^53, 2^53 + 10 do end while true do end`, true},
	{"cjson of a cycle", `local t = {} t[1] = t return cjson.encode(t)`, false},
	{"cjson of a shared tree", `local t = {1} for i = 1, 40 do t = {t, t} end return cjson.encode(t)`, true},
	{"cjson of escapes", `local s = string.rep('\1', 8e6) return #cjson.encode({s, s, s})`, true},
	{"cjson of a sparse array", `cjson.encode_sparse_array(true, 0) return #cjson.encode({[2^30] = 1})`, true},
	{
		"cjson without a depth limit", `cjson.encode_max_depth(2^31 - 1) local t = {} t[1] = t return cjson.encode(t)`,
		false,
	},
	{"cjson decode nested", `cjson.decode_max_depth(2^31 - 1) return cjson.decode(string.rep('[', 1e6))`, false},
	{
		"cjson decode again and again", `local s = '[' .. string.rep('1,', 1e5) .. '1]' while true do cjson.decode(s) end`,
		true,
	},
	{"cjson decode blanks", `local s = string.rep(' ', 1e6) .. '1' while true do cjson.decode(s) end`, true},
	{"cmsgpack of a shared tree", `local t = {1} for i = 1, 15 do t = {t, t, t, t} end return cmsgpack.pack(t)`, true},
	{"cmsgpack unpack nested", `return cmsgpack.unpack(string.rep('\145', 1e6))`, false},
	{"cmsgpack unpack a huge array", `return cmsgpack.unpack('\221\255\255\255\255')`, false},
	{"cmsgpack unpack a huge string", `return cmsgpack.unpack('\219\255\255\255\255')`, false},
	{"struct with a long format", `return struct.pack(string.rep('b', 1e6), 1)`, false},
	{"struct.pack of long strings", `local s = string.rep('x', 1e6) return #struct.pack(string.rep('s', 100), ` +
		strings.Repeat("s,", 99) + `s)`, true},
	{"struct.unpack of blanks", `local f = string.rep(' ', 1e6) while true do struct.unpack(f, '') end`, true},
	{"loadstring again and again", `local s = string.rep('local x = 1 ', 1000) while true do loadstring(s) end`, true},
	{"loadstring nested", `return loadstring(string.rep('(', 1e5))`, false},
	{
		"loadstring in loadstring",
		`local function f(s) return loadstring('return ' .. string.format('%q', s)) end local s = 'x' while true do s = f(s .. s)() end`, true,
	},
	{"load without end", `return load(function() return 'x' end)`, true},
	{"load of numbers", `return load(function() return 5 end)`, true},
	{"tostring again and again", `while true do tostring(1.5) end`, true},
	{"sha1hex again and again", `local s = string.rep('x', 1e6) while true do redis.sha1hex(s) end`, true},
	{"log again and again", `local s = string.rep('x', 1e6) while true do redis.log(3, s, s) end`, true},
	{"elementary functions", `while true do local x = math.sin(1e300) ^ 0.3 end`, true},
	{"calls of the host", `while true do redis.call('ping') end`, true},
	{
		"calls with long replies",
		`redis.call('set', 'k', string.rep('x', 1e6)) local t = {} while true do t[#t+1] = redis.call('get', 'k') end`, true,
	},
	{"a call with many words", `while true do redis.pcall('del', unpack({}, 1, 7000)) end`, true},
	{"error values", `while true do pcall(error, string.rep('x', 1e5)) end`, true},
	{"a nested reply", `local t = {} t[1] = t return t`, false},
	{"a reply that grows", `local t = {1} for i = 1, 40 do t = {t, t} end return t`, true},
	{"a reply in a map", `local t = {1} for i = 1, 40 do t = {map = {t, t}} end return t`, true},
	{"a reply by __index", `return setmetatable({}, {__index = function() return 1 end})`, false},
	{"close many upvalues", `local function f() local ` + manyLocals(190) +
		` return function() return a1, a2, a3 end end while true do f() end`, true},
	{"many closures", `local t = {} while true do t[#t+1] = function() return t end end`, true},
	{"names in errors", `local x` + strings.Repeat(` x = 1`, 3000) +
		` while true do pcall(function() return x.y.z end) end`, true},
	{
		"positions in errors",
		`local function f(n) if n == 0 then error('x', 10000) end return 1 + f(n - 1) end while true do pcall(f, 10000) end`,
		true,
	},
}

func manyLocals(n int) string {
	var names []string
	for i := range n {
		names = append(names, "a"+strings.Repeat("b", i/26)+string(rune('c'+i%20)))
	}
	return strings.Join(append(names, "a1", "a2", "a3"), ",")
}

// collidingKeys is a script whose keys all have the same hash: numbers are hashed by adding
// their halves.
func collidingKeys() string {
	return `local t = {} for i = 1, 1e5 do t[2^40 + i * 2^32 - i] = i end while true do end`
}

// hostileLimits are low, so that a script that uses up a budget takes milliseconds.
var hostileLimits = Limits{Steps: 500_000, MemoryBytes: 16 << 20}

func runHostile(t testing.TB, s hostileScript, limits Limits) (protocol.Value, Used, error) {
	p, err := Compile(s.source, limits)
	require.NoError(t, err)
	r := NewRunner()
	v, err := r.Run(p, &Env{Host: newFakeHost(), SHA: sha1Hex(s.source), Limits: limits})
	return v, r.Used(), err
}

// TestHostileScripts: each script ends, within the budget, in the same way every time, as an error
// of its caller alone.
func TestHostileScripts(t *testing.T) {
	protocoltest.SkipShort(t, "scripts that use up every budget")
	limits := hostileLimits
	for _, s := range hostileScripts {
		t.Run(s.name, func(t *testing.T) {
			v, used, err := runHostile(t, s, limits)
			require.Equal(t, s.overruns, errors.Is(err, ErrBudget), "%v %v", v, err)
			require.NotErrorIs(t, err, ErrInternal)
			require.LessOrEqual(t, used.Steps, limits.Steps)
			require.LessOrEqual(t, used.MemoryBytes, limits.MemoryBytes)
			again, usedAgain, errAgain := runHostile(t, s, limits)
			require.Equal(t, v, again)
			require.Equal(t, used, usedAgain)
			require.Equal(t, err == nil, errAgain == nil)
		})
	}
}
