package lua

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

func mustCompile(t testing.TB, source string) *Program {
	p, err := Compile(source, DefaultLimits())
	require.NoError(t, err)
	return p
}

// TestRepliesOfRESP3: a script sees the host's replies as the protocol version has them.
func TestRepliesOfRESP3(t *testing.T) {
	const show = `local function show(v) if type(v) ~= 'table' then return tostring(v) end
local keys = {} for k in pairs(v) do keys[#keys+1] = k end table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
local s = '' for _, k in ipairs(keys) do s = s .. tostring(k) .. '=' .. show(v[k]) .. ' ' end return '{' .. s .. '}' end `
	for _, c := range []struct{ kind, resp2, resp3 string }{
		{"string", "Hello World", "Hello World"},
		{"integer", "12345", "12345"},
		{"double", "3.141", "{double=3.141 }"},
		{"null", "false", "nil"},
		{"array", "{1=0 2=1 3=2 }", "{1=0 2=1 3=2 }"},
		{"set", "{1=0 2=1 3=2 }", "{set={0=true 1=true 2=true } }"},
		{"map", "{1=0 2=0 3=1 4=1 5=2 6=0 }", "{map={0=false 1=true 2=false } }"},
		{"bignum", "1234567999999999999999999999999999999", "{big_number=1234567999999999999999999999999999999 }"},
		{"true", "1", "true"},
		{"false", "0", "false"},
		{"verbatim", "This is a verbatim\nstring", "{verbatim_string={format=txt string=This is a verbatim\nstring } }"},
	} {
		for version, want := range map[int]string{2: c.resp2, 3: c.resp3} {
			p := mustCompile(t, fmt.Sprintf("%s redis.setresp(%d) return show(redis.call('debug', 'protocol', '%s'))", show,
				version, c.kind))
			v, err := p.Run(&Env{Host: newFakeHost()})
			require.NoError(t, err)
			require.Equal(t, protocol.Bulk(want), v, "%s in RESP%d", c.kind, version)
		}
		if c.kind == "set" || c.kind == "map" {
			continue // its order is the table's
		}
		// The host's reply goes to the client unchanged.
		p := mustCompile(t, "redis.setresp(3) return redis.call('debug', 'protocol', '"+c.kind+"')")
		v, err := p.Run(&Env{Host: newFakeHost()})
		require.NoError(t, err)
		require.Equal(t, debugProtocol(c.kind, 3).AppendTo(nil, 3), v.AppendTo(nil, 3), c.kind)
	}
}

func TestBudgetError(t *testing.T) {
	env := &Env{Host: newFakeHost(), SHA: "abc", Limits: Limits{Steps: 1000}}
	v, err := mustCompile(t, "local x = 1\nwhile true do end").Run(env)
	require.ErrorIs(t, err, ErrBudget)
	var over *BudgetError
	require.ErrorAs(t, err, &over)
	require.Equal(t, &BudgetError{Resource: "steps", Limit: 1000}, over)
	require.Equal(t,
		protocol.Err("script is over its budget of 1000 steps (--max-script-steps), "+
			"what it did is undone script: abc, on @user_script:2."), v)

	env.Limits = Limits{MemoryBytes: 5000}
	v, err = mustCompile(t, "return string.rep('x', 5000)").Run(env)
	require.EqualError(t, err, "script is over its budget of 5000 bytes of memory (--max-script-steps)")
	require.True(t, v.IsError())
}

func TestUsed(t *testing.T) {
	r := NewRunner()
	_, err := r.Run(mustCompile(t, "for i = 1, 100 do end"), &Env{Host: newFakeHost()})
	require.NoError(t, err)
	long := r.Used()
	require.Greater(t, long.Steps, int64(100))
	_, err = r.Run(mustCompile(t, "return 1"), &Env{Host: newFakeHost()})
	require.NoError(t, err)
	require.Less(t, r.Used().Steps, int64(10))
}

// TestSeed: the sequence of random numbers is the seed's, and no run continues another's.
func TestSeed(t *testing.T) {
	p, r := mustCompile(t, "return {math.random(1000000), math.random(1000000)}"), NewRunner()
	run := func(seed uint64) protocol.Value {
		v, err := r.Run(p, &Env{Host: newFakeHost(), Seed: seed})
		require.NoError(t, err)
		return v
	}
	first := run(1)
	require.Equal(t, first, run(1))
	require.NotEqual(t, first, run(2))
	require.Equal(t, protocol.Array(protocol.Integer(396465), protocol.Integer(840486)), run(0),
		"a fresh Redis draws these")

	p = mustCompile(t, "math.randomseed(7) return {math.random(1000000), math.random(1000000)}")
	require.Equal(t, run(0), run(1), "lrand48 draws these, whatever the seed")
}

// panickingHost has a defect.
type panickingHost struct{ fakeHost }

func (panickingHost) Call([]string, int) protocol.Value { panic("defect of the host") }

// TestPanics: a defect of the engine costs the script, a defect of the host is none of the engine's.
func TestPanics(t *testing.T) {
	require.PanicsWithValue(t, "defect of the host", func() {
		_, _ = mustCompile(t, "pcall(redis.call, 'get', 'x')").Run(&Env{Host: &panickingHost{}})
	})
	l := &state{lib: shared, env: &Env{SHA: "abc"}}
	v, err := l.panicReply(errors.New("index out of range\nhere"))
	require.ErrorIs(t, err, ErrInternal)
	require.Equal(t, protocol.Err("script engine failed: index out of range here"), v)
	_, err = l.panicReply("text")
	require.EqualError(t, err, "script engine failed: text")
}

func TestHandlerFails(t *testing.T) {
	v, err := mustCompile(t, "error(redis)").Run(&Env{Host: newFakeHost(), SHA: "abc"})
	require.NoError(t, err)
	require.Equal(t, protocol.Err("Error running script abc, error in error handling"), v)
}

func TestVersion(t *testing.T) {
	v, err := mustCompile(t, "return {redis.REDIS_VERSION, redis.REDIS_VERSION_NUM}").Run(&Env{Host: newFakeHost()})
	require.NoError(t, err)
	var major, minor, patch int64
	_, err = fmt.Sscanf(protocol.RedisVersion, "%d.%d.%d", &major, &minor, &patch)
	require.NoError(t, err)
	require.Equal(t, protocol.Array(protocol.Bulk(protocol.RedisVersion), protocol.Integer(major<<16|minor<<8|patch)), v)
}

func TestLog(t *testing.T) {
	h := newFakeHost()
	_, err := mustCompile(t, "redis.log(redis.LOG_NOTICE, 'a', 1, {}, 'b') redis.log(3, 'x\\0y')").Run(&Env{Host: h})
	require.NoError(t, err)
	require.Equal(t, []string{"2 a 1 b", "3 x\x00y"}, h.logs)
}

// TestCallWords: a command gets the script's arguments as words.
func TestCallWords(t *testing.T) {
	h := newFakeHost()
	_, err := mustCompile(t, "redis.pcall('SeT', 'k', 1.5, -0, 1e17, 2^53, 'a\\0b')").Run(&Env{Host: h})
	require.NoError(t, err)
	require.Equal(t, []string{"SeT k 1.5 -0 1e+17 9007199254740992 a\x00b"}, h.calls)
}

// TestRunnerForgets: nothing of a run shows in the next, whatever its runner has kept.
func TestRunnerForgets(t *testing.T) {
	r := NewRunner()
	_, err := r.Run(mustCompile(t, "KEYS.x = 1 KEYS[9] = 2 cjson.encode_max_depth(2) redis.setresp(3) return 1"),
		&Env{Host: newFakeHost(), Keys: []string{"a", "b", "c"}})
	require.NoError(t, err)
	v,
		err := r.Run(mustCompile(t,
		"return {#KEYS, tostring(KEYS.x), tostring(KEYS[2]), tostring(KEYS[9]), cjson.encode_max_depth(), "+
			"tostring(redis.call('get', 'x'))}"),
		&Env{Host: newFakeHost(), Keys: []string{"a"}})
	require.NoError(t, err)
	require.Equal(t, "*6|:1|$3|nil|$3|nil|$3|nil|:1000|$5|false", showReply(v, ""))
	var keys []string
	for range 100 {
		keys = append(keys, strings.Repeat("k", len(keys)))
	}
	v, err = r.Run(mustCompile(t, "return {#KEYS, KEYS[5], KEYS[100]:len()}"), &Env{Host: newFakeHost(), Keys: keys})
	require.NoError(t, err)
	require.Equal(t, "*3|:100|$4|kkkk|:99", showReply(v, ""))
}

// TestPackKeyZero: a table with the key 0 is a map, as in Redis, though its largest key is the number of its keys.
func TestPackKeyZero(t *testing.T) {
	v, err := mustCompile(t, "return cmsgpack.pack({[0] = 1, [2] = 2})").Run(&Env{Host: newFakeHost()})
	require.NoError(t, err)
	require.Equal(t, protocol.Bulk("\x82\x00\x01\x02\x02"), v)
}

// TestSparseArrays: a table is too sparse to be an array when its largest key is more than twice
// the number of its keys, as in Redis, and not at exactly twice.
func TestSparseArrays(t *testing.T) {
	v, err := mustCompile(t, "return cjson.encode({1, 2, 3, 4, 5, [12] = 6})").Run(&Env{Host: newFakeHost()})
	require.NoError(t, err)
	require.Equal(t, protocol.Bulk("[1,2,3,4,5,null,null,null,null,null,null,6]"), v)
	v, err = mustCompile(t, "return cjson.encode({1, 2, 3, 4, 5, [13] = 6})").Run(&Env{Host: newFakeHost()})
	require.NoError(t, err)
	require.Contains(t, v.Str, "excessively sparse array")
}

// TestArgumentsHaveRoomToGrow: KEYS and ARGV have room as after one assignment per element. The
// length of a table with a hole shows the room. Redis 7.0.15 gives the same.
func TestArgumentsHaveRoomToGrow(t *testing.T) {
	three, nine := []string{"a", "b", "c"}, strings.Split("abcdefghi", "")
	for source, want := range map[string]int64{
		"KEYS[2] = nil return #KEYS": 1,
		"KEYS[3] = nil return #KEYS": 2,
		"ARGV[8] = nil return #ARGV": 7,
		"ARGV[10] = '' return #ARGV": 10,
		"ARGV[17] = '' return #ARGV": 9,
	} {
		v, err := mustCompile(t, source).Run(&Env{Host: newFakeHost(), Keys: three, Args: nine})
		require.NoError(t, err)
		require.Equal(t, protocol.Integer(want), v, source)
	}
}

// pairsHost replies with pairs.
type pairsHost struct{ *fakeHost }

func (h pairsHost) Call([]string, int) protocol.Value {
	return protocol.Pairs(protocol.Bulk("a"), protocol.Double(1.5), protocol.Bulk("b"), protocol.Double(2))
}

// TestPairs: flat in RESP2, arrays of two in RESP3.
func TestPairs(t *testing.T) {
	for source, want := range map[string]protocol.Value{
		"return redis.call('x')": protocol.Strings("a", "1.5", "b", "2"),
		"redis.setresp(3) local t = redis.call('x') return {#t, t[1][1], t[2][2].double}": protocol.Array(
			protocol.Integer(2), protocol.Bulk("a"), protocol.Integer(2)),
	} {
		v, err := mustCompile(t, source).Run(&Env{Host: pairsHost{newFakeHost()}})
		require.NoError(t, err)
		require.Equal(t, want, v, source)
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

func TestCacheCompilesOnce(t *testing.T) {
	var c Cache
	source := "return " + strings.Repeat("1+", 1000) + "1"
	require.False(t, c.Has(source))
	var programs [8]*Program
	var all sync.WaitGroup
	for i := range programs {
		all.Go(func() {
			var err error
			programs[i], err = c.Compile(source)
			require.NoError(t, err)
		})
	}
	all.Wait()
	require.True(t, c.Has(source))
	for _, p := range programs {
		require.Same(t, programs[0], p)
	}
	require.Equal(t, source, programs[0].Source())

	for range 2 {
		_, err := c.Compile("return (")
		_, want := Compile("return (", DefaultLimits())
		require.Equal(t, want, err)
		require.False(t, c.Has("return ("))
	}
	require.Len(t, c.recent, 1)
	require.Equal(t, sourceOverhead+len(source), c.bytes)
}

// TestCacheSharesNothing: a source is a part of a log entry, whose memory is used again.
func TestCacheSharesNothing(t *testing.T) {
	var c Cache
	entry := []byte("return 'a'")
	p, err := c.Compile(unsafe.String(&entry[0], len(entry)))
	require.NoError(t, err)
	copy(entry, "return 'b'")
	require.Equal(t, "return 'a'", p.Source())
	require.True(t, c.Has("return 'a'"))
	require.False(t, c.Has("return 'b'"))
	reply, err := NewRunner().Run(p, &Env{})
	require.NoError(t, err)
	require.Equal(t, "a", reply.Str)
}

// TestCacheIsBounded: a source in use stays, however many others are compiled.
func TestCacheIsBounded(t *testing.T) {
	var c Cache
	used, err := c.Compile("return 'used'")
	require.NoError(t, err)
	for i := range 5000 {
		_, err := c.Compile(fmt.Sprintf("return %d --%s", i, strings.Repeat("x", 700)))
		require.NoError(t, err)
		again, err := c.Compile("return 'used'")
		require.NoError(t, err)
		require.Same(t, used, again)
		require.LessOrEqual(t, c.bytes, maxRecentBytes)
		sum := 0
		for source := range c.recent {
			sum += sourceOverhead + len(source)
		}
		require.Equal(t, sum, c.bytes)
	}
	require.Greater(t, len(c.former), 500)
	require.False(t, c.Has("return 0 --"+strings.Repeat("x", 700)))

	long := func(i int) string {
		return fmt.Sprintf("return %d --%s", i, strings.Repeat("x", DefaultLimits().SourceBytes-100))
	}
	for i := range 3 {
		_, err := c.Compile(long(i))
		require.NoError(t, err)
	}
	require.Len(t, c.recent, 1)
	require.Len(t, c.former, 1)
	require.True(t, c.Has(long(2)) && c.Has(long(1)) && !c.Has(long(0)))
}

// sameEverywhere is the hash of what [TestSameBitsEverywhere] computes. For the same scripts it may change only with
// the version of the entry.
const sameEverywhere = "93ec2c6430cffe027d1c18fa0cbe23b3c580e5edd6b147116199292aa94023fa"

// mathScript shows all bits of elementary functions of random numbers.
func mathScript(seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 3))
	var out strings.Builder
	out.WriteString("local o = {} local function p(x) o[#o+1] = string.format('%.17g', x) end\n")
	for _, f := range []string{
		"exp", "log", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
		"sqrt", "deg", "rad",
	} {
		fmt.Fprintf(&out, "p(math.%s(%s)) p(math.%s(0.%d)) ", f, numeral(r, 15), f, r.Int64N(1e15))
	}
	for range 10 {
		x, y := numeral(r, 3), numeral(r, 1)
		fmt.Fprintf(&out, "p(math.abs(%s)^%s) p(%s %% %s) p(math.atan2(%s, %s)) p(%s * %s + %s) ", x, y, x, y, x, y, x, y, x)
	}
	return out.String() + "return table.concat(o, ' ')"
}

// numeral is a number as text, made without floating point.
func numeral(r *rand.Rand, exponents int) string {
	sign := pick(r, 1, "", "-")
	return fmt.Sprintf("%s%de%d", sign, r.Int64N(1e15), r.IntN(2*exponents)-exponents-15)
}

// TestSameBitsEverywhere runs thousands of scripts, and compares the hash of all replies, steps and
// bytes with the hash from other machines. Run the test with GOAMD64=v3 too, where the compiler
// fuses multiplications and additions, as on ARM.
func TestSameBitsEverywhere(t *testing.T) {
	protocoltest.SkipShort(t, "thousands of scripts")
	sum, r := sha256.New(), NewRunner()
	run := func(script string, limits Limits) {
		p, err := Compile(script, limits)
		if err != nil {
			fmt.Fprintln(sum, err)
			return
		}
		v, err := r.Run(p, &Env{Keys: snippetKeys, Args: snippetArgs, Host: newFakeHost(), SHA: "sha", Limits: limits})
		fmt.Fprintf(sum, "%q %v %v\n", v.AppendTo(nil, 3), err, r.Used())
	}
	for seed := range uint64(1000) {
		run(generateProgram(seed), DefaultLimits())
		run(mathScript(seed), DefaultLimits())
	}
	for _, kind := range sortedKeys(libraryGenerators) {
		for seed := range uint64(30) {
			run(libraryScript(kind, seed), DefaultLimits())
		}
	}
	for _, s := range hostileScripts {
		run(s.source, hostileLimits)
	}
	run(`local o = {} local seen = {} local function walk(t) if seen[t] then return end seen[t] = true
for k, v in pairs(t) do o[#o+1] = tostring(k) .. '=' .. (tostring(k):find('VERSION') and '' or tostring(v)) if type(v) == 'table' then walk(v) end end end
walk(_G) walk(getmetatable('')) walk(getmetatable(_G)) return table.concat(o, ' ')`, DefaultLimits())
	require.Equal(t, sameEverywhere, hex.EncodeToString(sum.Sum(nil)))
}
