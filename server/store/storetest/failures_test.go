package storetest

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/store"
	"github.com/holdfast/holdfast/server/store/internal/memdisk"
)

// failing makes one call fail: the nth of those that meet counts.
type failing struct {
	n   int64
	met atomic.Int64
	op  memdisk.Op // that failed
}

func (f *failing) meet(op memdisk.Op) error {
	if f.met.Add(1) != f.n {
		return nil
	}
	f.op = op
	return syscall.EIO
}

// reads counts only reads, opens and closes.
func (f *failing) reads(op memdisk.Op) error {
	if op.Kind != memdisk.OpRead && op.Kind != memdisk.OpOpen && op.Kind != memdisk.OpClose {
		return nil
	}
	return f.meet(op)
}

// failingStable is a store of terms and votes whose calls count.
type failingStable struct {
	store.StableStore
	failing *failing
}

func (s failingStable) meet(name string) error {
	return s.failing.meet(memdisk.Op{Kind: "stable", Name: name})
}

func (s failingStable) Get(key []byte) ([]byte, error) {
	if err := s.meet("get " + string(key)); err != nil {
		return nil, err
	}
	return s.StableStore.Get(key)
}

func (s failingStable) GetUint64(key []byte) (uint64, error) {
	if err := s.meet("get " + string(key)); err != nil {
		return 0, err
	}
	return s.StableStore.GetUint64(key)
}

func (s failingStable) Set(key, value []byte) error {
	if err := s.meet("set " + string(key)); err != nil {
		return err
	}
	return s.StableStore.Set(key, value)
}

func (s failingStable) SetUint64(key []byte, value uint64) error {
	if err := s.meet("set " + string(key)); err != nil {
		return err
	}
	return s.StableStore.SetUint64(key, value)
}

// TestNoFailureOfAnOpenIsOverlooked: one read fails, or one call of the store of terms and votes. Then Open fails and
// leaves nothing open, and the next Open finds everything.
func TestNoFailureOfAnOpenIsOverlooked(t *testing.T) {
	third := histories[len(histories)-1].before
	third = append(third[:len(third):len(third)], votes("n1", ""),
		belongs("c1", "entries 16 to 30, snapshot 20 of 600 bytes, vote n1, cluster c1"))
	// These failures have no effect: a descriptor is reserved by each open of the identity, the end of a snapshot is
	// read twice, and an older snapshot is not needed.
	known := map[string]int{"open ident": 4, "read 1-20-": 1, "open 1-10-": 1, "read 1-10-": 6}
	for name, was := range map[string]struct {
		steps      []step
		stops      func(l *diskHistory)
		overlooked map[string]int
	}{
		"new":    {nil, nil, map[string]int{"open ident": 4}},
		"closed": {third, func(l *diskHistory) { require.NoError(l.t, l.store.Close()) }, known},
		"killed": {third, (*diskHistory).end, known},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				written, want := newDiskHistory(t, memdisk.New(1)), nothing
				if was.stops != nil {
					require.NoError(t, written.begin())
					want = written.play(nothing, was.steps)[0]
					was.stops(written)
				}
				refused, overlooked := 0, map[string]int{}
				for f, n := (&failing{}), int64(1); f.n != 0 || n == 1; n++ {
					f = &failing{n: n}
					opened := written.fork(1).opensWith(f, want)
					if !opened {
						refused++
					} else if f.n != 0 && f.op.Kind != memdisk.OpClose {
						overlooked[string(f.op.Kind)+" "+filepath.Base(f.op.Name)[:5]]++
					}
				}
				require.Greater(t, refused, 20)
				require.Equal(t, was.overlooked, overlooked)
			})
		})
	}
}

// opensWith opens the folder while f makes a call fail, and again after that. It reports whether the first Open
// succeeded. Afterwards f.n is 0 if there were fewer calls.
func (l *diskHistory) opensWith(f *failing, want string) (opened bool) {
	t, p := l.t, l.files.Boot()
	on := device(p)
	on.OpenStable = func(path string) (store.StableStore, error) {
		s, err := openStable(p, path)
		if err != nil {
			return nil, err
		}
		return failingStable{s, f}, nil
	}
	l.files.HookAll(f.reads)
	s, err := store.OpenOn(on, store.Config{DataDir: dataDir, Name: "node"})
	synctest.Wait()
	l.files.Hook(nil)
	if f.met.Swap(1<<32) < f.n {
		f.n = 0
	}
	if err == nil {
		l.store = s
		require.Equal(t, want, l.shows(), "%v", f.op)
		require.NoError(t, s.Close())
	} else {
		require.ErrorContains(t, err, syscall.EIO.Error())
		damaged := strings.HasSuffix(f.op.Name, ".snap") && f.op.Kind == memdisk.OpRead // unreadable parts are damage
		require.Equal(t, damaged, strings.Contains(err.Error(), "must not go on under its name"), "%v: %v", f.op, err)
	}
	require.Zero(t, l.files.Opened(), "%v", f.op)
	require.NoError(t, l.begin(), "%v", f.op)
	require.Equal(t, want, l.shows(), "%v", f.op)
	l.end()
	return err == nil
}

// TestFailedWriteLeavesNothingOpen: one write fails, of a process that creates a folder, opens one, or writes to it. No
// file stays open.
func TestFailedWriteLeavesNothingOpen(t *testing.T) {
	for _, h := range histories {
		for _, opening := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				last := nothing
				for n, reached := 1, new(true); *reached; n++ {
					l := newDiskHistory(t, memdisk.New(uint64(n)))
					if len(h.before) > 0 || !opening {
						require.NoError(t, l.begin())
						last = l.play(nothing, h.before)[0]
					}
					if opening {
						l.end()
						reached = l.meet(n, fails)
						if err := l.begin(); err != nil {
							require.ErrorIs(t, err, syscall.EIO)
							l.store = nil
						}
					} else {
						reached = l.meet(n, fails)
						l.play(last, h.steps)
					}
					if synctest.Wait(); l.store != nil {
						_ = l.store.Close()
					}
					require.Zero(t, l.files.Opened(), "%s: operation %d", h.name, n)
					l.end()
				}
			})
		}
	}
}

// TestFailedClosingOfASnapshot: a snapshot whose file could not be closed is not complete.
func TestFailedClosingOfASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newDiskHistory(t, memdisk.New(1))
		require.NoError(t, l.begin())
		sink, err := l.store.Snapshots.Create(1, 9, 1, raft.Configuration{}, 1, nil)
		require.NoError(t, err)
		l.files.HookAll(func(op memdisk.Op) error {
			if op.Kind == memdisk.OpClose {
				return syscall.EIO
			}
			return nil
		})
		require.ErrorIs(t, sink.Close(), syscall.EIO)
		l.end()
		require.NoError(t, l.begin())
		require.Equal(t, nothing, l.shows())
		l.end()
	})
}
