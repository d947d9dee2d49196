package raftnode

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
)

// TestBootstrapIsFinished: a power cut between the writes of the term and of the first entry leaves only the term. The
// next start writes the same entry. A log with entries is not changed.
func TestBootstrapIsFinished(t *testing.T) {
	founders := []members.Member{{ID: "n1@a", Addr: "h1:1", Voter: true}, {ID: "n2@b", Addr: "h2:1", Voter: true}}
	open := func(stable *raft.InmemStore, bootstrap []members.Member) *Config {
		return &Config{ID: "n1@a", Bootstrap: bootstrap, Log: stable, Stable: stable, Snapshots: raft.NewInmemSnapshotStore()}
	}
	first := func(c *Config) raft.Log {
		var entry raft.Log
		require.NoError(t, c.Log.GetLog(1, &entry))
		entry.AppendedAt = raft.Log{}.AppendedAt
		return entry
	}
	conf := raft.DefaultConfig()
	conf.LocalID = "n1@a"
	_, transport := raft.NewInmemTransport("n1@a")
	whole := open(raft.NewInmemStore(), founders)
	require.NoError(t, bootstrap(conf, whole, transport))
	term, err := whole.Stable.GetUint64([]byte("CurrentTerm"))
	require.NoError(t, err)
	require.EqualValues(t, 1, term)

	cut := open(raft.NewInmemStore(), founders)
	require.NoError(t, cut.Stable.SetUint64([]byte("CurrentTerm"), 1))
	require.NoError(t, bootstrap(conf, cut, transport))
	require.Equal(t, first(whole), first(cut))

	cut.Bootstrap = founders[:1]
	require.NoError(t, bootstrap(conf, cut, transport))
	require.Equal(t, first(whole), first(cut))
	require.NoError(t, bootstrap(conf, open(raft.NewInmemStore(), nil), transport), "a node that joins waits for a leader")

	installed := open(raft.NewInmemStore(), founders)
	addSnapshot(t, installed.Snapshots, 9, 1, "n1@a", "n2@b")
	require.NoError(t, bootstrap(conf, installed, transport))
	last, err := installed.Log.LastIndex()
	require.NoError(t, err)
	require.Zero(t, last, "a snapshot stands for its log")
}

// TestBootstrapOverAStoreThatCannotBeRead: bootstrap returns the error of a store that cannot be read.
func TestBootstrapOverAStoreThatCannotBeRead(t *testing.T) {
	store := raft.NewInmemStore()
	c := &Config{ID: "n1@a", Log: store, Stable: unreadableStable{store}, Snapshots: raft.NewInmemSnapshotStore()}
	conf := raft.DefaultConfig()
	conf.LocalID = "n1@a"
	for _, founders := range [][]members.Member{nil, {{ID: "n1@a", Addr: "h1:1", Voter: true}}} {
		c.Bootstrap = founders
		require.ErrorContains(t, bootstrap(conf, c, nil), "inspect stores: failed to read current term: it cannot be read")
	}
}

type unreadableStable struct{ raft.StableStore }

func (unreadableStable) GetUint64([]byte) (uint64, error) {
	return 0, errors.New("it cannot be read")
}

// faulty has stores of which one call fails.
type faulty struct {
	raft.LogStore
	raft.StableStore
	raft.SnapshotStore
	left int // calls before that one
}

func newFaulty() *faulty {
	store := raft.NewInmemStore()
	return &faulty{store, store, raft.NewInmemSnapshotStore(), math.MaxInt}
}

func (f *faulty) call() error {
	if f.left--; f.left == -1 {
		return errBroken
	}
	return nil
}

func (f *faulty) FirstIndex() (uint64, error) {
	index, err := f.LogStore.FirstIndex()
	return index, errors.Join(f.call(), err)
}

func (f *faulty) LastIndex() (uint64, error) {
	index, err := f.LogStore.LastIndex()
	return index, errors.Join(f.call(), err)
}

func (f *faulty) GetLog(index uint64, log *raft.Log) error {
	return errors.Join(f.call(), f.LogStore.GetLog(index, log))
}

func (f *faulty) StoreLog(log *raft.Log) error { return f.StoreLogs([]*raft.Log{log}) }

func (f *faulty) StoreLogs(logs []*raft.Log) error {
	if err := f.call(); err != nil {
		return err
	}
	return f.LogStore.StoreLogs(logs)
}

func (f *faulty) DeleteRange(lo, hi uint64) error {
	if err := f.call(); err != nil {
		return err
	}
	return f.LogStore.DeleteRange(lo, hi)
}

func (f *faulty) GetUint64(key []byte) (uint64, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	return f.StableStore.GetUint64(key)
}

func (f *faulty) SetUint64(key []byte, value uint64) error {
	if err := f.call(); err != nil {
		return err
	}
	return f.StableStore.SetUint64(key, value)
}

func (f *faulty) List() ([]*raft.SnapshotMeta, error) {
	stored, err := f.SnapshotStore.List()
	return stored, errors.Join(f.call(), err)
}

// failEach calls do again and again, and each time another call of the stores fails. do must return the error.
func failEach(t *testing.T, stores func() *faulty, do func(*faulty) error) {
	t.Helper()
	for at := 0; ; at++ {
		f := stores()
		f.left = at
		err := do(f)
		failed := f.left < 0
		f.left = math.MaxInt
		if !failed {
			require.NoError(t, err)
			require.Positive(t, at)
			return
		}
		require.ErrorContains(t, err, errBroken.Error(), "call %d", at)
	}
}

// addSnapshot stores a snapshot up to index, with the members of the entry configuration.
func addSnapshot(t *testing.T, snapshots raft.SnapshotStore, index, configuration uint64, ids ...string) {
	t.Helper()
	_, transport := raft.NewInmemTransport("")
	conf := raft.DecodeConfiguration(configurationAt(configuration, ids...).Data)
	sink, err := snapshots.Create(1, index, 2, conf, configuration, transport)
	require.NoError(t, err)
	require.NoError(t, sink.Close())
}

// TestNoFailureOfAStartIsOverlooked: a node does not start if any call of its stores fails. It then leaves nothing
// running.
func TestNoFailureOfAStartIsOverlooked(t *testing.T) {
	fresh := newFaulty
	withTerm := func() *faulty {
		f := newFaulty()
		require.NoError(t, f.SetUint64([]byte("CurrentTerm"), 1))
		return f
	}
	used := func() *faulty {
		f := withTerm()
		require.NoError(t, f.StoreLogs([]*raft.Log{configurationAt(1, "n1", "n2"), {Index: 2, Term: 1, Type: raft.LogNoop}}))
		return f
	}
	withSnapshot := func() *faulty {
		f := used()
		addSnapshot(t, f.SnapshotStore, 2, 1, "n1", "n2")
		require.NoError(t, f.StoreLog(&raft.Log{Index: 3, Term: 2, Type: raft.LogNoop}))
		return f
	}
	for name, stores := range map[string]func() *faulty{
		"fresh": fresh, "term alone": withTerm, "log": used, "snapshot": withSnapshot,
	} {
		t.Run(name, func(t *testing.T) {
			failEach(t, stores, func(f *faulty) (err error) {
				synctest.Test(t, func(t *testing.T) {
					c := singleConfig(nil, nil)
					c.Log, c.Stable, c.Snapshots = f, f, f
					c.Bootstrap = []members.Member{{ID: "n1", Addr: "n1:1", Voter: true}, {ID: "n2", Addr: "n2:1", Voter: true}}
					var n *Node
					if n, err = Open(c); err != nil {
						return
					}
					require.GreaterOrEqual(t, f.left, 0, "a failure was overlooked")
					f.left = math.MaxInt
					require.Equal(t, []string{"n1", "n2"}, n.configurations.ids())
					require.True(t, n.Stop())
					require.NoError(t, n.Wait())
				})
				return err
			})
		})
	}
}

// TestNoFailureOfTheLogIsOverlooked: each failure of the log is returned while configurations are read from it, and
// while entries are deleted.
func TestNoFailureOfTheLogIsOverlooked(t *testing.T) {
	stores := func() *faulty {
		f := newFaulty()
		for i := range uint64(5) {
			require.NoError(t, f.StoreLog(configurationAt(i+1, "n1", "n2")))
		}
		addSnapshot(t, f.SnapshotStore, 3, 1, "n1", "n2")
		return f
	}
	failEach(t, stores, func(f *faulty) error {
		_, _, _, err := StoredConfigurations(f, nil, nil)
		return err
	})
	failEach(t, stores, func(f *faulty) error { return newConfigurations("n1").open(f, f) })
	for _, cut := range [][2]uint64{{1, 2}, {4, 5}} {
		failEach(t, stores, func(f *faulty) error {
			l := newParallelLog(f, 1<<20, func(error) {})
			l.configurations = newConfigurations("n1")
			l.configurations.appended([]*raft.Log{configurationAt(1, "n1"), configurationAt(4, "n1", "n2")})
			bounds := func() (committed, snapshot uint64, err error) {
				stored, err := f.List()
				if err != nil {
					return 0, 0, err
				}
				return 3, stored[0].Index, nil
			}
			l.bounds.Store(&bounds)
			err := l.DeleteRange(cut[0], cut[1])
			first, _ := f.LogStore.FirstIndex()
			last, _ := f.LogStore.LastIndex()
			if err != nil {
				require.Equal(t, [2]uint64{1, 5}, [2]uint64{first, last}, "nothing was deleted")
				require.Equal(t, uint64(4), l.configurations.view().Index)
			} else {
				require.Equal(t, cut[1]-cut[0]+1, 5-(last-first+1), "so many entries were")
				require.Equal(t, map[uint64]uint64{1: 4, 4: 1}[cut[0]], l.configurations.view().Index)
			}
			return err
		})
	}
}
