package lua

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

const compareAndDelete = `if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end`

// constantHost answers without looking, so that a benchmark measures the engine.
type constantHost struct{ get, del protocol.Value }

func (h *constantHost) Call(words []string, _ int) protocol.Value {
	if words[0] == "get" {
		return h.get
	}
	return h.del
}
func (h *constantHost) Log(int, string)                  {}
func (h *constantHost) CheckACL([]string) (bool, string) { return true, "" }

func benchmarkScript(b *testing.B, source string, keys, args []string) {
	p, err := Compile(source, DefaultLimits())
	require.NoError(b, err)
	env := &Env{
		Keys: keys, Args: args, SHA: "0123456789012345678901234567890123456789",
		Host: &constantHost{get: protocol.Bulk("token"), del: protocol.Integer(1)},
	}
	r := NewRunner()
	b.ReportAllocs()
	for b.Loop() {
		v, err := r.Run(p, env)
		if err != nil || v.IsError() {
			b.Fatal(v, err)
		}
	}
	b.ReportMetric(float64(r.Used().Steps), "steps/op")
	b.ReportMetric(float64(r.Used().MemoryBytes), "charged-B/op")
}

func BenchmarkCompareAndDelete(b *testing.B) {
	benchmarkScript(b, compareAndDelete, []string{"lock"}, []string{"token"})
}

func BenchmarkCompareAndExpire(b *testing.B) {
	benchmarkScript(b, `if redis.call("get", KEYS[1]) == ARGV[1] then
	return redis.call("pexpire", KEYS[1], ARGV[2])
else
	return 0
end`, []string{"lock"}, []string{"token", "30000"})
}

func BenchmarkEmpty(b *testing.B) { benchmarkScript(b, "return 1", nil, nil) }

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(compareAndDelete, DefaultLimits()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkArithmeticLoop(b *testing.B) {
	benchmarkScript(b, `local s = 0 for i = 1, 100000 do s = s + i % 7 * 2 end return s`, nil, nil)
}

func BenchmarkTableLoop(b *testing.B) {
	benchmarkScript(b,
		`local t = {} for i = 1, 10000 do t[i] = i end local s = 0 for i, v in ipairs(t) do s = s + v end return s`, nil, nil)
}

func BenchmarkFieldLoop(b *testing.B) {
	benchmarkScript(b, `local t = {a=1,b=2} for i = 1, 100000 do t.a = t.a + t.b end return t.a`, nil, nil)
}

func BenchmarkCalls(b *testing.B) {
	benchmarkScript(b, `local function f(n) if n < 2 then return n end return f(n-1) + f(n-2) end return f(20)`, nil, nil)
}
