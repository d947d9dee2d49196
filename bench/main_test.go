package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/bench/internal/fakeredis"
	"github.com/holdfast/holdfast/bench/internal/report"
	"github.com/holdfast/holdfast/bench/internal/target"
	"github.com/holdfast/holdfast/bench/internal/workload"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// short returns flags for very short runs.
func short(out string, more ...string) []string {
	return append([]string{"--warmup", "1ms", "--measure", "100ms", "--keys", "100", "--out", out, "--rounds", "2"},
		more...)
}

func TestRunMeasuresByTurns(t *testing.T) {
	protocoltest.SkipShort(t, "starts servers")
	t.Parallel()
	a, b := fakeredis.Start(t), fakeredis.Start(t)
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), short(dir, "--targets", "a="+a.Addr+",b="+b.Addr, "--connections", "1,4",
		"--workloads", "uncontended,contended,hot,renewals,reads,pipelined", "--poll", "1ms"), &stdout, &stderr)
	require.NoError(t, err, stderr.String())

	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	text := protocoltest.ReadFile(t, files[0])
	var result report.Result
	require.NoError(t, json.Unmarshal([]byte(text), &result))
	require.Len(t, result.Runs, 2*6*2*2)
	var order []string
	measured := make(map[string]int64) // count of each step in all runs of a workload
	for _, r := range result.Runs {
		require.Empty(t, r.Failed)
		require.Empty(t, r.Figures.Errors, "%+v", r.Point)
		for step, l := range r.Figures.Steps {
			measured[r.Workload+" "+step] += l.Count
		}
		order = append(order, r.Target)
	}
	require.Equal(t, strings.Repeat("ab", 12)+strings.Repeat("ba", 12), strings.Join(order, ""))
	for _, step := range []string{
		"uncontended acquire", "uncontended release", "uncontended pair", "contended pair", "hot handoff", "renewals renew",
		"reads get", "pipelined batch",
	} {
		require.Positive(t, measured[step], step)
	}
	require.Contains(t, stdout.String(), "## uncontended")
	require.Contains(t, stdout.String(), "| 1 connection | 4 connections |")
	require.NotContains(t, stdout.String(), "## Errors")
}

// Waiting clients are measured against a real server, since only that has messages.
func TestRunOfThoseWhoWait(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("no redis-server")
	}
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), short(dir, "--peers", "redis-redisson", "--rounds", "1",
		"--workloads", "uncontended:1,hot:4,contended:4,renewals:1,handoffs:4,publish:4"), &stdout, &stderr)
	require.NoError(t, err, stderr.String())
	require.NotContains(t, stdout.String(), "## Errors")
	for _, title := range []string{
		"## handoffs", "## publish", "The longest as a multiple of the mean",
		"Others that were served while one waited", "Messages that subscribers got, a second",
	} {
		require.Contains(t, stdout.String(), title)
	}
	require.NotContains(t, stdout.String(), "Log entries for each", "Redis has no log of entries")
}

// Workloads of native locks are skipped for servers without them.
func TestNativeWorkloads(t *testing.T) {
	t.Parallel()
	w, err := workload.Named("native-sessions")
	require.NoError(t, err)
	native, err := target.Parse("a=h:1@leader@native")
	require.NoError(t, err)
	require.True(t, w.Suits(native))
	require.False(t, w.Suits(target.Target{Name: "b"}))
}

func TestRunWithARate(t *testing.T) {
	t.Parallel()
	s := fakeredis.Start(t)
	var stdout, stderr bytes.Buffer
	dir := t.TempDir()
	err := run(t.Context(), short(dir, "--targets", "a="+s.Addr, "--connections", "4", "--rates", "100,200"),
		&stdout, &stderr)
	require.NoError(t, err, stderr.String())
	require.Contains(t, stdout.String(), "| 100/s offered, 4 connections | 200/s offered, 4 connections |")
}

// A workload can have its own numbers of connections; depths and held locks are columns.
func TestPoints(t *testing.T) {
	t.Parallel()
	o,
		err := parseOptions(strings.Fields("--workloads uncontended,hot:8+16,pipelined:4,growth:2,idle --connections 1,2 "+
		"--depth 16,64 --held 10,20"), io.Discard)
	require.NoError(t, err)
	var titles []string
	for _, w := range o.workloads {
		for _, p := range points(o, w) {
			titles = append(titles, w.Name+" "+p.Title())
		}
	}
	alone, err := parsePlanned("hot:8@a+b")
	require.NoError(t, err)
	require.True(t, alone.suits(subject{Target: target.Target{Name: "b"}}))
	require.False(t, alone.suits(subject{Target: target.Target{Name: "c"}}))
	require.Equal(t, []string{
		"uncontended 1 connection", "uncontended 2 connections", "hot 8 connections", "hot 16 connections",
		"pipelined 4 connections, depth 16", "pipelined 4 connections, depth 64",
		"growth 10 held, 2 connections", "growth 20 held, 2 connections", "idle ",
	}, titles)

	o, err = parseOptions(strings.Fields("--workloads hot:8 --round-trips 10ms,1s"), io.Discard)
	require.NoError(t, err)
	apart := points(o, o.workloads[0])
	require.Len(t, apart, 2)
	require.Equal(t, "10ms apart, 8 connections", apart[0].Title())
	require.Equal(t, time.Second, apart[1].RoundTrip)
}

func TestErrorsAreReported(t *testing.T) {
	protocoltest.SkipShort(t, "starts servers")
	t.Parallel()
	s := fakeredis.Start(t)
	s.Refuse("CLUSTERDOWN No leader is known")
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), short(t.TempDir(), "--targets", "a="+s.Addr, "--connections", "2", "--workloads",
		"uncontended,reads,memory"), &stdout, &stderr)
	require.NoError(t, err)
	require.Contains(t, stdout.String(), "## Errors")
	require.Contains(t, stdout.String(), "× CLUSTERDOWN No leader is known")
	require.Contains(t, stdout.String(), "reads, 2 connections, round 0 failed: CLUSTERDOWN No leader is known")
	require.Contains(t, stdout.String(), "a, memory, round 1 failed: the servers' processes are not known: give --pids")
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                                 "nothing to measure",
		"--targets x":                      "target \"x\"",
		"--targets a=h:1 --workloads none": `no workload "none"`,
		"--targets a=h:1 --connections 0":  "--connections",
		"--targets a=h:1 --connections x":  "read list",
		"--targets a=h:1 --rates -1":       "--rates",
		"--targets a=h:1 --pids b=1":       "no target has this name",
		"--targets a=h:1 --rounds 0":       "--rounds",
		"--targets a=h:1 --measure 0s":     "--measure",
		"--targets a=h:1,a=h:2":            "two targets are called a",
		"extra":                            "unexpected argument",
		"--nonsense":                       "not defined",

		"--targets a=h:1 --workloads hot:0": "--workloads hot",
		"--targets a=h:1 --workloads hot:x": "read list",
		"--targets a=h:1 --depth 0":         "--depth",
		"--targets a=h:1 --held 0":          "--held",
		"--targets a=h:1 --steady 0":        "--steady",
		"--targets a=h:1 --sessions 0":      "--sessions",

		"--targets a=h:1 --round-trips 10ms": "--round-trips is for --peers alone",
		"--peers redis --round-trips 0s":     "--round-trips: want times above 0",
		"--peers redis --round-trips often":  "read list",
		"--targets a=h:1@norwegian":          `unknown option "norwegian"`,
	} {
		var stdout, stderr bytes.Buffer
		err := run(t.Context(), append([]string{"--out", t.TempDir()}, strings.Fields(args)...), &stdout, &stderr)
		require.ErrorContains(t, err, want, args)
	}
}

func TestInTurn(t *testing.T) {
	require.Equal(t, []int{1, 2, 3}, inTurn([]int{1, 2, 3}, 0))
	require.Equal(t, []int{3, 2, 1}, inTurn([]int{1, 2, 3}, 1))
	require.Equal(t, []int{1, 2, 3}, inTurn([]int{1, 2, 3}, 2))
}

// The flags of every preset are valid, its peers exist, and explicit flags win.
func TestPresets(t *testing.T) {
	t.Parallel()
	require.Len(t, presets, len(presetOrder))
	for _, name := range presetOrder {
		o, err := parseOptions([]string{"--preset", name, "--rounds", "7"}, io.Discard)
		require.NoError(t, err, name)
		require.Equal(t, 7, o.rounds)
		require.NotEmpty(t, o.peers)
	}
	_, err := parseOptions([]string{"--preset", "none"}, io.Discard)
	require.ErrorContains(t, err, `there is no preset "none"`)
}

// servers records the actions on servers that do not exist.
type servers struct{ did []string }

func (s *servers) Kill(addr string) error {
	s.did = append(s.did, "kill "+addr)
	return nil
}

func (s *servers) Empty(addr string) error {
	s.did = append(s.did, "empty "+addr)
	return nil
}

func (s *servers) Start(_ context.Context, addr string) error {
	s.did = append(s.did, "start "+addr)
	return nil
}

func (s *servers) Freeze(string) error { return nil }

func (s *servers) Thaw(string) error { return nil }

func (s *servers) Ready(context.Context) error {
	s.did = append(s.did, "ready")
	return nil
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	s := &servers{}
	e := workload.Env{Control: s, Target: target.Target{Addrs: []string{"a", "b"}}}
	require.NoError(t, prepare(t.Context(), workload.Workload{}, e))
	require.Equal(t, []string{"ready"}, s.did)
	require.NoError(t, prepare(t.Context(), workload.Workload{Fresh: true}, e))
	require.Equal(t, []string{"ready", "kill a", "kill b", "empty a", "empty b", "start a", "start b", "ready"}, s.did)
	require.NoError(t, prepare(t.Context(), workload.Workload{Fresh: true}, workload.Env{}))
}

func TestWrite(t *testing.T) {
	t.Parallel()
	s := fakeredis.Start(t)
	out := t.TempDir()
	results := filepath.Join(out, "RESULTS.md")
	const native = "<!-- native -->\nstays\n<!-- /native -->\n"
	require.NoError(t, os.WriteFile(results, []byte("a\n<!-- performance -->\nold\n<!-- /performance -->\n"+native),
		0o644))
	var stdout, stderr bytes.Buffer
	require.ErrorContains(t, run(t.Context(), []string{"--write", results, "--out", out}, &stdout, &stderr),
		"neither --preset table nor --preset native")
	require.NoError(t, run(t.Context(), short(out, "--preset", "table", "--peers", "", "--targets", "holdfast="+s.Addr,
		"--workloads", "uncontended:64"), &stdout, &stderr), stderr.String())
	require.NoError(t, run(t.Context(), []string{"--write", results, "--out", out}, &stdout, &stderr))
	text := protocoltest.ReadFile(t, results)
	require.NotContains(t, text, "\nold\n")
	require.Contains(t, text, "| `holdfast`:")
	require.Contains(t, text, "| pairs/s, 64 connections: at least `redis-always` |  | not measured |")
	require.Contains(t, text, native)
}

// Native locks are a preset and a section of their own.
func TestSections(t *testing.T) {
	t.Parallel()
	all, err := sections(map[string]*report.Result{"native": {}, "limits": {}})
	require.NoError(t, err)
	require.Contains(t, all[report.NativeLocks], "native hot lock, 64 waiters")
	require.NotContains(t, all, report.Performance)
	all, err = sections(map[string]*report.Result{"native": {}, "table": {}})
	require.NoError(t, err)
	require.NotContains(t, all[report.Performance], "native hot lock")
	all, err = sections(map[string]*report.Result{"libraries": {}})
	require.NoError(t, err)
	require.Contains(t, all[report.LockLibraries], "one client")
	require.Len(t, all, 1)
}
