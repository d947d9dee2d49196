package lua

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
	for _, s := range lockScripts {
		f.Add(s.source)
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
