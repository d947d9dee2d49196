package store

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/raftnode/hclogger"
)

// tally is a state machine that sums up what it has applied, and reports an entry that is applied twice.
type tally struct {
	t  *testing.T
	mu sync.Mutex
	at sum
}

// sum is the state at an index. It is its own snapshot.
type sum struct{ index, value uint64 }

func (f *tally) now() sum {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at
}

func (f *tally) Apply(l *raft.Log) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.Index <= f.at.index {
		f.t.Errorf("entry %d after %d", l.Index, f.at.index)
	}
	f.at.index = l.Index
	for _, b := range l.Data {
		f.at.value = f.at.value*31 + uint64(b)
	}
	return nil
}

func (f *tally) Snapshot() (raft.FSMSnapshot, error) { return f.now(), nil }

func (f *tally) Restore(r io.ReadCloser) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := fmt.Fscanf(r, "%d %d", &f.at.index, &f.at.value)
	return err
}

func (s sum) Release() {}

func (s sum) Persist(sink raft.SnapshotSink) error {
	if _, err := fmt.Fprintf(sink, "%d %d", s.index, s.value); err != nil {
		return err
	}
	return sink.Close()
}

// member is a raft node over a real folder.
type member struct {
	config    Config
	store     *Store
	raft      *raft.Raft
	fsm       *tally
	transport *raft.InmemTransport
}

func (m *member) start(t *testing.T, peers raft.Configuration) {
	t.Helper()
	s, err := Open(m.config)
	require.NoError(t, err)
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(m.config.Name)
	c.Logger = hclogger.New(slog.New(slog.DiscardHandler))
	c.SnapshotThreshold, c.SnapshotInterval, c.TrailingLogs = 40, 100*time.Millisecond, 20
	m.store, m.fsm = s, &tally{t: t}
	_, m.transport = raft.NewInmemTransport(raft.ServerAddress(m.config.Name))
	if s.Lineage.Current()>>32 == 1 {
		require.NoError(t, raft.BootstrapCluster(c, s.Log, s.Stable, s.Snapshots, m.transport, peers))
	}
	m.raft, err = raft.NewRaft(c, m.fsm, s.Log, s.Stable, s.Snapshots, m.transport)
	require.NoError(t, err)
}

func (m *member) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, m.raft.Shutdown().Error())
	require.NoError(t, m.transport.Close())
	require.NoError(t, m.store.Close())
}

// connect connects all members.
func connect(members []*member) {
	for _, a := range members {
		for _, b := range members {
			if a != b {
				a.transport.Connect(b.transport.LocalAddr(), b.transport)
			}
		}
	}
}

func leaderOf(t *testing.T, members []*member) *member {
	t.Helper()
	for range 200 {
		time.Sleep(100 * time.Millisecond)
		for _, m := range members {
			if m.raft.State() == raft.Leader && m.raft.VerifyLeader().Error() == nil {
				return m
			}
		}
	}
	t.Fatal("no leader")
	return nil
}

// TestRaftOverRealFolders: three nodes have equal states after elections, conflicting tails, installed snapshots and
// restarts.
func TestRaftOverRealFolders(t *testing.T) {
	protocoltest.SkipShort(t, "real disks")
	dir := memoryDir(t)
	synctest.Test(t, func(t *testing.T) {
		var members []*member
		var peers raft.Configuration
		for i := range 3 {
			name := fmt.Sprintf("n%d", i+1)
			c := Config{DataDir: dir + "/" + name, Name: name}
			c.Hooks.OnFault = func(op Op, err error) { t.Errorf("%s: %s: %v", name, op, err) }
			c.Hooks.OnStall = func(op Op, elapsed time.Duration) { t.Errorf("%s: %s takes %v", name, op, elapsed) }
			members = append(members, &member{config: c})
			peers.Servers = append(peers.Servers, raft.Server{ID: raft.ServerID(name), Address: raft.ServerAddress(name)})
		}
		for _, m := range members {
			m.start(t, peers)
		}
		connect(members)
		for round := range 4 {
			troubledRound(t, members, peers, round)
		}
		for _, m := range members {
			m.stop(t)
		}
	})
}

// troubledRound cuts off the leader, which then appends entries that no other node gets. Meanwhile the others continue,
// in every second round so long that the old leader needs a snapshot. Then all three are restarted.
func troubledRound(t *testing.T, members []*member, peers raft.Configuration, round int) {
	t.Helper()
	apply := func(m *member, n int) {
		for i := range n {
			require.NoError(t, m.raft.Apply(fmt.Appendf(nil, "round %d entry %d", round, i), time.Second).Error())
		}
	}
	old := leaderOf(t, members)
	apply(old, 30)
	old.transport.DisconnectAll()
	var rest []*member
	for _, m := range members {
		if m != old {
			m.transport.Disconnect(old.transport.LocalAddr())
			rest = append(rest, m)
		}
	}
	for range 10 {
		_ = old.raft.Apply([]byte("nobody hears this"), time.Second)
	}
	behind := 10 // the old leader's tail is replaced
	if round%2 == 1 {
		behind = 300 // the old leader gets a snapshot
	}
	apply(leaderOf(t, rest), behind)
	time.Sleep(time.Second)
	connect(members)
	apply(leaderOf(t, members), 1)
	time.Sleep(5 * time.Second)
	requireEqual(t, members)
	for _, m := range members {
		m.stop(t)
	}
	for _, m := range members {
		m.start(t, peers)
	}
	connect(members)
	apply(leaderOf(t, members), 1)
	time.Sleep(5 * time.Second)
	requireEqual(t, members)
}

func requireEqual(t *testing.T, members []*member) {
	t.Helper()
	for _, m := range members[1:] {
		require.Equal(t, members[0].fsm.now(), m.fsm.now())
		require.Equal(t, members[0].raft.AppliedIndex(), m.raft.AppliedIndex())
	}
}

// TestRaftSurvivesALateSnapshot: a follower gets an old snapshot again. Raft restores it, applies the later entries
// again, and finds all of them in the log.
func TestRaftSurvivesALateSnapshot(t *testing.T) {
	dir := memoryDir(t)
	synctest.Test(t, func(t *testing.T) {
		var members []*member
		var peers raft.Configuration
		for i := range 3 {
			name := fmt.Sprintf("n%d", i+1)
			members = append(members, &member{config: Config{DataDir: dir + "/" + name, Name: name}})
			peers.Servers = append(peers.Servers, raft.Server{ID: raft.ServerID(name), Address: raft.ServerAddress(name)})
		}
		for _, m := range members {
			m.start(t, peers)
		}
		connect(members)
		leader := leaderOf(t, members)
		for i := range 10 {
			require.NoError(t, leader.raft.Apply(fmt.Appendf(nil, "%d", i), time.Second).Error())
		}
		time.Sleep(50 * time.Millisecond)
		early := leader.fsm.now()
		for i := range 20 {
			require.NoError(t, leader.raft.Apply(fmt.Appendf(nil, "%d", i), time.Second).Error())
		}
		follower := members[0]
		if follower == leader {
			follower = members[1]
		}
		var at raft.Log
		require.NoError(t, leader.store.Log.GetLog(early.index, &at))
		state := fmt.Sprintf("%d %d", early.index, early.value)
		request := &raft.InstallSnapshotRequest{
			RPCHeader: raft.RPCHeader{
				ProtocolVersion: 3, ID: []byte(leader.config.Name),
				Addr: []byte(leader.config.Name),
			},
			SnapshotVersion: 1, Term: leader.raft.CurrentTerm(), LastLogIndex: at.Index, LastLogTerm: at.Term,
			Configuration: raft.EncodeConfiguration(peers), ConfigurationIndex: 1, Size: int64(len(state)),
		}
		var reply raft.InstallSnapshotResponse
		require.NoError(t, leader.transport.InstallSnapshot("", follower.transport.LocalAddr(), request, &reply,
			strings.NewReader(state)))
		require.True(t, reply.Success)
		require.NoError(t, leader.raft.Apply([]byte("and on"), time.Second).Error())
		time.Sleep(time.Second)
		requireEqual(t, members)
		for _, m := range members {
			m.stop(t)
		}
		for _, m := range members {
			m.start(t, peers)
		}
		connect(members)
		require.NoError(t, leaderOf(t, members).raft.Apply([]byte("and on"), time.Second).Error())
		time.Sleep(time.Second)
		requireEqual(t, members)
		for _, m := range members {
			m.stop(t)
		}
	})
}

// BenchmarkAppend appends batches of entries of 128 bytes on the disk of TMPDIR. It
// reports entries a second, and the median and the 99th percentile of one append.
func BenchmarkAppend(b *testing.B) {
	for _, batch := range []int{1, 64, 256} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			s, err := Open(Config{DataDir: b.TempDir(), Name: "n1", Logger: slog.New(slog.DiscardHandler)})
			require.NoError(b, err)
			defer func() { _ = s.Close() }()
			data := make([]byte, 128)
			logs := make([]*raft.Log, batch)
			next := uint64(1)
			var took []time.Duration
			for b.Loop() {
				for i := range logs {
					logs[i] = &raft.Log{Index: next, Term: 1, Data: data, AppendedAt: time.Now()}
					next++
				}
				begun := time.Now()
				if err := s.Log.StoreLogs(logs); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begun))
			}
			slices.Sort(took)
			b.ReportMetric(float64(next-1)/b.Elapsed().Seconds(), "entries/s")
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// BenchmarkOpen opens a folder with a log of 16,384 entries behind a snapshot, as raft leaves it.
func BenchmarkOpen(b *testing.B) {
	c := Config{DataDir: b.TempDir(), Name: "n1"}
	s, err := Open(c)
	require.NoError(b, err)
	data := make([]byte, 1024)
	for i := uint64(1); i <= 16384; i += 64 {
		var logs []*raft.Log
		for j := range uint64(64) {
			logs = append(logs, &raft.Log{Index: i + j, Term: 1, Data: data})
		}
		require.NoError(b, s.Log.StoreLogs(logs))
	}
	require.NoError(b, s.Close())
	for b.Loop() {
		s, err := Open(c)
		require.NoError(b, err)
		b.StopTimer()
		require.NoError(b, s.Close())
		b.StartTimer()
	}
}
