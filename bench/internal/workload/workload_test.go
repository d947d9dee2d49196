package workload

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/bench/internal/fakeredis"
	"github.com/holdfast/holdfast/bench/internal/proc"
	"github.com/holdfast/holdfast/bench/internal/target"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// someEnv is a short run against a fake.
func someEnv(s *fakeredis.Server) Env {
	return Env{
		Target: target.Target{Name: "x", Addrs: []string{s.Addr}, Via: target.ViaSpread, PIDs: func() []int {
			return []int{os.Getpid()}
		}, Own: true},
		Client:      target.Options{TTL: 30 * time.Second, Timeout: 5 * time.Second},
		Connections: 2, Measure: 100 * time.Millisecond,
		Sizes: Sizes{Keys: 100, Locks: 500, Depth: 4, Steady: 1000, Poll: time.Millisecond},
	}
}

func TestGrowthHoldsLocksMeanwhile(t *testing.T) {
	t.Parallel()
	s := fakeredis.Start(t)
	e := someEnv(s)
	e.Held = 300
	f, err := growth(t.Context(), e)
	require.NoError(t, err)
	require.Positive(t, f.Steps["pair"].Count)
	require.GreaterOrEqual(t, s.Count("set"), 300+int(f.Steps["acquire"].Count))
	require.Zero(t, s.Keys(), "they are taken away again")

	e.Target.Own = false
	s.Keep("somebody's key")
	_, err = growth(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, 1, s.Keys(), "what is not ours stays")
}

func TestLongIsASeries(t *testing.T) {
	protocoltest.SkipShort(t, "waits for real time")
	t.Parallel()
	e := someEnv(fakeredis.Start(t))
	e.Target.Dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(e.Target.Dir, "log"), make([]byte, 1000), 0o644))
	e.Measure = 2 * time.Second
	f, err := long(t.Context(), e)
	require.NoError(t, err)
	require.Len(t, f.Series["seconds"], 2)
	for name, values := range f.Series {
		require.Len(t, values, 2, name)
		require.Positive(t, values[1], name)
	}
	require.Equal(t, []float64{1000, 1000}, f.Series["disk_bytes"])
	require.InDelta(t, f.Series["pairs_per_second"][1]/f.Series["pairs_per_second"][0],
		f.Numbers["last_quarter_by_first"], 1e-9)
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	for command, info := range map[string][]string{
		"debug":  {"holdfast_version:1\r\n"},
		"bgsave": {"aof_enabled:0\r\n", "rdb_bgsave_in_progress:1\r\n", "rdb_bgsave_in_progress:0\r\n"},
		"bgrewriteaof": {
			"aof_enabled:1\r\n", "aof_rewrite_scheduled:1\r\n", "aof_rewrite_in_progress:1\r\n",
			"aof_enabled:1\r\n",
		},
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			s := fakeredis.Start(t)
			s.Info = info
			f, err := snapshot(t.Context(), someEnv(s))
			require.NoError(t, err)
			require.Empty(t, f.Errors)
			require.GreaterOrEqual(t, s.Count(command), 2, "at least one in each of the two windows")
			require.GreaterOrEqual(t, s.Count("info"), len(info))
			for _, phase := range []string{"before", "leader", "all"} {
				require.Positive(t, f.Numbers["p99_ms_"+phase], phase)
			}
			require.NotContains(t, f.Numbers, "snapshot_seconds_before")
			require.Zero(t, s.Keys())
		})
	}
}

// An election on a busy machine must not end a run before its start.
func TestFillTriesAgain(t *testing.T) {
	t.Parallel()
	s := fakeredis.Start(t)
	e := someEnv(s)
	s.RefuseTimes("UNCERTAIN The command may or may not have been applied", 3)
	require.NoError(t, fill(t.Context(), e, 500, lockKey))
	require.Equal(t, 500, s.Keys())
	require.Equal(t, 500+fillDepth, s.Count("set"), "one pipeline twice")
}

// control records actions on servers that do not exist.
type control struct{ killed, started, frozen, thawed atomic.Int32 }

func (c *control) Kill(string) error {
	c.killed.Add(1)
	return nil
}

func (c *control) Empty(string) error { return nil }

func (c *control) Start(context.Context, string) error {
	c.started.Add(1)
	return nil
}

func (c *control) Freeze(string) error {
	c.frozen.Add(1)
	return nil
}

func (c *control) Thaw(string) error {
	c.thawed.Add(1)
	return nil
}

func (c *control) Ready(context.Context) error { return nil }

func TestRestart(t *testing.T) {
	t.Parallel()
	s := fakeredis.Start(t)
	e := someEnv(s)
	_, err := restart(t.Context(), e)
	require.ErrorIs(t, err, errNotOurs)
	c := &control{}
	e.Control = c
	f, err := restart(t.Context(), e)
	require.NoError(t, err)
	require.GreaterOrEqual(t, f.Numbers["found_locks"], 500.0)
	require.Positive(t, f.Numbers["serves_after_seconds"])
	require.Positive(t, f.Numbers["serves_after_snapshot_seconds"])
	require.EqualValues(t, 2, c.killed.Load())
	require.EqualValues(t, 2, c.started.Load())
}

// The leader is disabled the requested number of times and restored; another server answers meanwhile.
func TestFailovers(t *testing.T) {
	t.Parallel()
	leader, other := fakeredis.Start(t), fakeredis.Start(t)
	other.Role = "slave"
	e := someEnv(leader)
	e.Target.Addrs, e.Sizes.Failover = append(e.Target.Addrs, other.Addr), 3
	_, err := failover(t.Context(), e)
	require.ErrorIs(t, err, errNoControl)
	c := &control{}
	e.Control = c
	for _, run := range []func(context.Context, Env) (*Figures, error){failover, freeze, hang} {
		f, err := run(t.Context(), e)
		require.NoError(t, err)
		require.Positive(t, f.Numbers["median_ms"])
		require.GreaterOrEqual(t, f.Numbers["slowest_ms"], f.Numbers["fastest_ms"])
	}
	require.Equal(t, []int32{6, 6, 3, 3}, []int32{c.killed.Load(), c.started.Load(), c.frozen.Load(), c.thawed.Load()})
	require.Zero(t, leader.Count("set"), "who is out of action is not asked")
	require.Equal(t, 9, other.Count("set"))
	require.Equal(t, 3, leader.Count("debug"))
}

func TestBusyCountsTerms(t *testing.T) {
	t.Parallel()
	s := fakeredis.Start(t)
	s.Info = []string{"raft_term:3\r\nx:1\r\n", "raft_term:5\r\n"}
	f, err := busy(t.Context(), someEnv(s))
	require.NoError(t, err)
	require.Equal(t, 2.0, f.Numbers["elections"])

	none := fakeredis.Start(t)
	_, err = busy(t.Context(), someEnv(none))
	require.EqualError(t, err, "x counts no terms: INFO has no raft_term")
}

// TestBesideLeasesThatEnd: acquires count until the last lease has ended, and no longer.
func TestBesideLeasesThatEnd(t *testing.T) {
	t.Parallel()
	s := fakeredis.Start(t)
	s.Info = []string{"expired_keys:5\r\n", "expired_keys:300\r\nx:1\r\n", "expired_keys:504\r\n", "expired_keys:505\r\n"}
	e := someEnv(s)
	e.Measure = time.Hour
	n := neighbours[len(neighbours)-1]
	require.True(t, n.ends)
	sum, took, err := besidePart(t.Context(), e, e.Target.Addrs, &n)
	require.NoError(t, err)
	require.Empty(t, sum.Errors)
	require.EqualValues(t, e.Sizes.Locks, sum.Counts["done"])
	acquire := sum.Steps["acquire"]
	require.InDelta(t, acquire.Count, acquire.PerSecond*took.Seconds(), 1)
	require.Greater(t, s.Keys(), e.Sizes.Locks-1)
	require.Equal(t, e.Sizes.Locks+int(acquire.Count), s.Count("set"), "that many leases were set")

	s.Info = nil
	_, _, err = besidePart(t.Context(), e, e.Target.Addrs, &n)
	require.EqualError(t, err, "INFO has no expired_keys")
}

// An unconfirmed pipeline to a server with WAIT does not count.
func TestPipelineWaits(t *testing.T) {
	t.Parallel()
	s := fakeredis.Start(t)
	s.Replicas = 1
	e := someEnv(s)
	e.Target.Wait = 1
	f, err := pipelined(t.Context(), e)
	require.NoError(t, err)
	require.Empty(t, f.Errors)
	require.Positive(t, s.Count("wait"))
	e.Target.Wait = 2
	f, err = pipelined(t.Context(), e)
	require.NoError(t, err)
	require.Contains(t, f.Errors, target.ErrNotReplicated.Error())
}

// A hand-off whose write is not confirmed by replicas is an error.
func TestConfirmed(t *testing.T) {
	t.Parallel()
	s := fakeredis.Start(t)
	s.Replicas = 1
	c, err := writer(t.Context(), someEnv(s))
	require.NoError(t, err)
	defer c.Close()
	for replicas, want := range []error{nil, nil, target.ErrNotReplicated} {
		v, err := confirmed(c, replicas, "ping")
		require.ErrorIs(t, err, want)
		require.Equal(t, "PONG", v.Str)
		require.Equal(t, replicas, s.Count("wait"), "no WAIT where no replica is asked for")
	}
}

func TestWorkloadsSuit(t *testing.T) {
	t.Parallel()
	suits := func(name string, to target.Target) bool {
		w, err := Named(name)
		require.NoError(t, err)
		return w.Suits(to)
	}
	require.True(t, suits("reads", target.Target{Kind: target.Etcd}))
	require.False(t, suits("pipelined", target.Target{Kind: target.Etcd}))
	require.True(t, suits("uncontended", target.Target{Via: target.ViaRedlock}))
	require.False(t, suits("reads", target.Target{Via: target.ViaRedlock}))
	require.False(t, suits("memory", target.Target{Via: target.ViaRedlock}))
}

// TestCostsByRole: a leader has figures of its own. The figures of followers are their mean.
func TestCostsByRole(t *testing.T) {
	t.Parallel()
	m := &meter{leader: 1, pids: []int{1, 2, 3}}
	for i, cpu := range []float64{2, 10, 4} {
		m.server.Each = append(m.server.Each, proc.Process{CPUSeconds: 1, ReadBytes: 10, WrittenBytes: 20})
		m.last.Each = append(m.last.Each, proc.Process{CPUSeconds: 1 + cpu, ReadBytes: 10 + int64(100*i), WrittenBytes: 20 +
			int64(50*i)})
	}
	n := make(map[string]float64)
	m.byRole(n)
	require.Equal(t, map[string]float64{
		"leader_cpu_seconds": 10, "follower_cpu_seconds": 3, "follower_read_bytes": 100, "follower_written_bytes": 50,
	}, n)
}
