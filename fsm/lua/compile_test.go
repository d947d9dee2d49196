package lua

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// bigSource is a source of about a megabyte that is as hard to compile as its kind can be.
type bigSource struct{ name, before, repeated, after string }

var bigSources = []bigSource{
	{"sum", "local a = 1 return a", "+a", ""},
	{"constants", "return {1", ",'k' .. 5", "}"},
	{"or", "local a return a", " or a", ""},
	{"and or", "local a return a", " and a or a", ""},
	{"comparisons", "local a return a", " == a", ""},
	{"concat", "return 'a'", "..'a'", ""},
	{"elseif", "local a if a then ", "elseif a then ", "end"},
	{"if", "local a ", "if a then end ", ""},
	{"fields", "local a return a", ".b", ""},
	{"calls", "local a return a", "()", ""},
	{"methods", "local a return a", ":b()", ""},
	{"indexes", "local a return a", "[1]", ""},
	{"globals", "", "x=x ", ""},
	{"calls of redis", "", "redis.call() ", ""},
	{"array", "return {", "1,", "}"},
	{"array of names", "local a return {", "a,", "}"},
	{"array of strings", "return {", "'',", "}"},
	{"hash", "return {", "a=1,", "}"},
	{"nested tables", "return ", "{", ""},
	{"nested parentheses", "return ", "(", "1"},
	{"nested functions", "", "function() ", ""},
	{"nested blocks", "", "do ", ""},
	{"nested not", "return ", "not ", "1"},
	{"nested minus", "return ", "- ", "1"},
	{"nested power", "return 1", "^1", ""},
	{"functions", "", "local function f() end ", ""},
	{"scopes", "", "do local a,b,c end ", ""},
	{"locals", "", "local a ", ""},
	{"assignment", "local a a", ",a", "=1"},
	{"arguments", "f(1", ",1", ")"},
	{"parameters", "function f(a", ",a", ") end"},
	{"breaks", "while true do ", "if a then break end ", "end"},
	{"whiles", "", "while a do end ", ""},
	{"repeats", "", "repeat until a ", ""},
	{"fors", "", "for i=1,2 do end ", ""},
	{"generic fors", "", "for k in a do end ", ""},
	{"returns", "", "do return end ", ""},
	{"semicolons", "x=1", ";", ""},
	{"comments", "", "--\n", "return 1"},
	{"long comment", "--[[", "x", "]] return 1"},
	{"unfinished long comment", "--[==[", "]=", ""},
	{"string", "return '", "x", "'"},
	{"escapes", "return '", `\n`, "'"},
	{"unfinished string", "return '", "x", ""},
	{"number", "return ", "1", ""},
	{"long name", "return ", "x", ""},
	{"new lines", "", "\n", "return 1"},
	{"blanks", "", " ", "return 1"},
	{"zero bytes", "", "\x00", ""},
	{"dots", "return ", ".", ""},
	{"brackets", "return ", "[", ""},
	{"equal signs", "return ", "=", ""},
	{"many closures", "local a ", "a=function() return a end ", ""},
	{
		"deep scopes", strings.Repeat("local function f() local a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p ", 60), "x=a ",
		strings.Repeat("end ", 60),
	},
	{
		"deep globals", strings.Repeat("local function f() local a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p ", 60), "x=y ",
		strings.Repeat("end ", 60),
	},
}

// sharedVariables is the first line of sources whose nested functions share variables, and nestedCaptures a bigSource
// of that kind: each function captures what the innermost one reads.
const sharedVariables = "local a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,u,v,w,x,y,z,A,B,C,D,E,F,G,H,I,J,K,L,M,N,O,P,Q,R,S,T,U,V,W,X,Y,Z "

func nestedCaptures(levels int) bigSource {
	reads := strings.ReplaceAll(sharedVariables[len("local "):], ",", " _=")
	repeated := strings.Repeat("_=function()", levels) + "_=" + reads + strings.Repeat("end ", levels)
	return bigSource{"captures by nested functions", sharedVariables, repeated, ""}
}

func (s bigSource) source() string {
	return s.before + strings.Repeat(s.repeated, (1<<20-len(s.before)-len(s.after))/len(s.repeated)) + s.after
}

// TestCompileBigSources: each compiles, or is refused, without a deep stack and in a moment.
func TestCompileBigSources(t *testing.T) {
	protocoltest.SkipShort(t, "megabytes of source")
	for _, s := range append(slices.Clone(bigSources), nestedCaptures(60)) {
		t.Run(s.name, func(t *testing.T) {
			p, err := Compile(s.source(), DefaultLimits())
			if err != nil {
				var refused *CompileError
				require.ErrorAs(t, err, &refused)
				require.Less(t, len(refused.Text), 2<<20)
				return
			}
			// A program that compiles must also run, and be stopped if endless.
			_, err = p.Run(&Env{Host: newFakeHost(), Limits: Limits{Steps: 1_000_000, MemoryBytes: 16 << 20}})
			require.NotErrorIs(t, err, ErrInternal)
		})
	}
}

// TestCompileCaptures: functions that share variables with functions inside them are compiled in about the memory of
// their source, however deep they are.
func TestCompileCaptures(t *testing.T) {
	for _, levels := range []int{1, 8, 60} {
		source := nestedCaptures(levels).source()[:200_000]
		source = source[:strings.LastIndex(source, "end _=")+4]
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Compile(source, DefaultLimits())
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(160*len(source)), "%d levels", levels)
	}
}

// TestCapturedOnce: a function captures a variable once, whatever the functions inside it do between.
func TestCapturedOnce(t *testing.T) {
	p := mustCompile(t, "local a = 1 local function f() "+strings.Repeat("a = (function() return a end)() + a ", 5)+
		"return a end return f()")
	require.Len(t, p.main.proto.protos[0].captured, 1)
	v, err := p.Run(&Env{Host: newFakeHost()})
	require.NoError(t, err)
	require.Equal(t, protocol.Integer(32), v)
}

func TestCompileRefusesLongSources(t *testing.T) {
	_, err := Compile(strings.Repeat(" ", 101), Limits{SourceBytes: 100})
	require.EqualError(t, err, "ERR Error compiling script (new function): the source has 101 bytes, the limit is 100")
	_, err = Compile(strings.Repeat(" ", 100), Limits{SourceBytes: 100})
	require.NoError(t, err)
}

func TestShebangFlags(t *testing.T) {
	p, err := Compile("#!lua flags=no-writes,allow-stale\nreturn 1", DefaultLimits())
	require.NoError(t, err)
	require.True(t, p.HasShebang())
	require.Equal(t, FlagNoWrites|FlagAllowStale, p.Flags())
	p, err = Compile("return 1", DefaultLimits())
	require.NoError(t, err)
	require.False(t, p.HasShebang())
	require.Zero(t, p.Flags())
}

func addSeeds(f *testing.F) {
	for _, file := range snippetFiles(f) {
		for i, s := range readSnippets(f, file) {
			if i%7 == 0 {
				f.Add(s.script)
			}
		}
	}
	for _, s := range hostileScripts {
		if len(s.source) < 1000 {
			f.Add(s.source)
		}
	}
	for seed := range uint64(20) {
		f.Add(generateProgram(seed))
	}
}

// FuzzCompile: any source compiles or is refused with a line of text.
func FuzzCompile(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, source string) {
		p, err := Compile(source, DefaultLimits())
		if err == nil {
			require.Equal(t, source, p.Source())
			return
		}
		var refused *CompileError
		require.ErrorAs(t, err, &refused)
		require.True(t, strings.HasPrefix(refused.Text, "ERR "), refused.Text)
	})
}

// FuzzRun: two runs of any program agree in all they do, keep to the budget, and meet no defect.
func FuzzRun(f *testing.F) {
	addSeeds(f)
	limits := Limits{Steps: 50_000, MemoryBytes: 4 << 20}
	f.Fuzz(func(t *testing.T, source string) {
		p, err := Compile(source, limits)
		if err != nil {
			return
		}
		first, second := NewRunner(), NewRunner()
		run := func(r *Runner) (*fakeHost, string, error) {
			host := newFakeHost()
			v, err := r.Run(p, &Env{Keys: snippetKeys, Args: snippetArgs, Host: host, SHA: "sha", Limits: limits})
			return host, string(v.AppendTo(nil, 3)), err
		}
		host, reply, err := run(first)
		if err != nil && !errors.Is(err, ErrBudget) {
			t.Fatalf("run: %v", err)
		}
		require.LessOrEqual(t, first.Used().Steps, limits.Steps)
		require.LessOrEqual(t, first.Used().MemoryBytes, limits.MemoryBytes)
		_, _, _ = run(second)
		for range 2 { // a runner that ran before is as good as new
			hostAgain, replyAgain, errAgain := run(second)
			require.Equal(t, reply, replyAgain)
			require.Equal(t, host.calls, hostAgain.calls)
			require.Equal(t, first.Used(), second.Used())
			require.Equal(t, err == nil, errAgain == nil)
		}
	})
}
