package raftnode

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
)

// capturing is a state machine whose Capture is a function of the test.
type capturing struct {
	machineStub
	capture func() io.WriterTo
}

func (m capturing) Capture() io.WriterTo { return m.capture() }

// writes is a state whose WriteTo calls the function.
type writes func() error

func (w writes) WriteTo(io.Writer) (int64, error) { return 3, w() }

// TestSnapshotIsComplete: a snapshot is complete when the state is written, and raft's limit of trailing entries is
// set. A failure is reported, and changes nothing.
func TestSnapshotIsComplete(t *testing.T) {
	for _, c := range []struct {
		name    string
		written error
		left    int // calls of the log until one fails
		failed  bool
	}{
		{"all is written", nil, 9, false},
		{"the state is not", errBroken, 9, true},
		{"the log cannot be read", nil, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := openSingle(t)
				n.start()
				var events []Event
				n.applier.tell = func(e Event) { events = append(events, e) }
				before, store := n.raft.ReloadableConfig().TrailingLogs, n.log.store
				n.log.store = &faulty{LogStore: store, left: c.left}
				taken := &capture{a: n.applier, state: writes(func() error { return c.written })}
				err := taken.Persist(nil)
				n.log.store = store
				require.Len(t, events, 1)
				require.Equal(t, err, events[0].(SnapshotTaken).Err)
				require.EqualValues(t, 3, events[0].(SnapshotTaken).Bytes)
				if c.failed {
					require.ErrorIs(t, err, errBroken)
					require.Equal(t, before, n.raft.ReloadableConfig().TrailingLogs)
				} else {
					require.NoError(t, err)
					require.Equal(t, n.Last(), n.raft.ReloadableConfig().TrailingLogs)
				}
			})
		})
	}
}

// TestCutThatFails: a failed snapshot is logged, unless the node ends.
func TestCutThatFails(t *testing.T) {
	for _, row := range []struct {
		written error
		ends    bool
		logged  string
	}{{nil, false, ""}, {errBroken, false, `msg="take snapshot" error=`}, {errBroken, true, ""}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			c := singleConfig(raft.NewInmemStore(), raft.NewInmemSnapshotStore())
			c.Bootstrap = []members.Member{{ID: "n1", Addr: "n1:1", Voter: true}}
			c.Machine = capturing{capture: func() io.WriterTo {
				return writes(func() error {
					if row.ends {
						end()
					}
					return row.written
				})
			}}
			n, err := Open(c)
			require.NoError(t, err)
			time.Sleep(10 * time.Second) // it is elected
			var out bytes.Buffer
			ended := make(chan error, 1)
			notify(n.applier.cut)
			go func() { ended <- n.applier.snapshotBySize(ctx, slog.New(slog.NewTextHandler(&out, nil))) }()
			synctest.Wait()
			require.Empty(t, n.applier.cut)
			end()
			require.NoError(t, <-ended)
			require.Equal(t, row.logged != "", out.Len() > 0, "%s", &out)
			require.Contains(t, out.String(), row.logged)
			require.True(t, n.Stop())
			require.NoError(t, n.Wait())
		})
	}
}

// applies is a state machine that records the entries that it gets.
type applies struct {
	machineStub
	applied, reached []uint64
}

func (m *applies) Apply(e Entry) error {
	m.applied = append(m.applied, e.Index)
	return nil
}

func (m *applies) Reach(index uint64) { m.reached = append(m.reached, index) }

// TestEntriesThatAreNotApplied: entries that are not applied still raise the reached index, unless they show that this
// node cannot continue, or the node is in quarantine.
func TestEntriesThatAreNotApplied(t *testing.T) {
	stamped := func(data []byte, stamp ...byte) *raft.Log {
		return &raft.Log{Index: 5, Term: 2, Data: data, Extensions: stamp}
	}
	log := newParallelLog(raft.NewInmemStore(), 1<<20, nil)
	for _, c := range []struct {
		name             string
		entry            *raft.Log
		frozen           bool
		applied, reached []uint64
		failed           string
	}{
		{name: "as any", entry: stamped(nil, 2, 9), applied: []uint64{5}, reached: []uint64{5}},
		{name: "of another leadership", entry: stamped(nil, 1), reached: []uint64{5}},
		{name: "of none", entry: stamped(nil), failed: "for which term it was stamped"},
		{name: "of raft", entry: &raft.Log{Index: 5, Type: raft.LogNoop}, reached: []uint64{5}},
		{name: "in quarantine", entry: stamped(nil, 2), frozen: true},
		{name: "that the disk has lost", entry: stamped(log.placeholder, 2), failed: "log not found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, failed, reports := &applies{}, "", 0
			a := newApplier(&Config{Machine: m, Fail: func(err error) { failed = err.Error() }}, log, nil)
			a.policy.SnapshotBytes, a.applied = 1<<20, func() { reports++ }
			a.quarantine.frozen.Store(c.frozen)
			require.Len(t, a.ApplyBatch([]*raft.Log{c.entry}), 1)
			require.Equal(t, c.applied, m.applied)
			require.Equal(t, c.reached, m.reached)
			require.Equal(t, len(c.reached), reports)
			require.Contains(t, failed, c.failed)
			require.Equal(t, c.failed != "", a.broken.Load())
			_, err := a.Snapshot()
			require.Equal(t, c.frozen || c.failed != "", err != nil, "the state is not the log's")
		})
	}
}

// TestConfigurationThatIsApplied: a configuration counts as committed when its entry is applied.
func TestConfigurationThatIsApplied(t *testing.T) {
	a := newApplier(&Config{Machine: machineStub{}}, newParallelLog(raft.NewInmemStore(), 1<<20, nil), nil)
	a.configurations = newConfigurations("n1")
	var committed []uint64
	a.configurations.committed = func(c committedChange) { committed = append(committed, c.index) }
	logs := []*raft.Log{configurationAt(4, "n1"), {Index: 5, Type: raft.LogNoop}, configurationAt(6, "n1", "n2")}
	a.configurations.appended(logs)
	a.ApplyBatch(logs[:2])
	require.Equal(t, []uint64{4}, committed)
	a.ApplyBatch(logs[2:])
	require.Equal(t, []uint64{4, 6}, committed)
}

// TestCutAfterSoManyBytes: a snapshot is requested after a number of bytes. If it fails, it is not requested again with
// each entry.
func TestCutAfterSoManyBytes(t *testing.T) {
	a := newApplier(&Config{Machine: machineStub{}}, newParallelLog(raft.NewInmemStore(), 1<<20, nil), nil)
	a.policy.SnapshotBytes = 100
	for i, cuts := range []int{0, 1, 0, 1} {
		a.ApplyBatch([]*raft.Log{{Index: uint64(i + 1), Term: 2, Extensions: []byte{2}, Data: make([]byte, 60)}})
		require.Len(t, a.cut, cuts, "entry %d", i)
		if cuts > 0 {
			<-a.cut
		}
	}
}
