package store_test

import (
	"errors"
	"io"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/store"
	"github.com/holdfast/holdfast/server/store/storetest"
)

// open returns a store in memory with a log of one entry.
func open(t *testing.T, h store.Hooks) *store.Store {
	t.Helper()
	s, err := storetest.NewDisk().Open(store.Config{Hooks: h})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.NoError(t, s.Log.StoreLog(&raft.Log{Index: 1, Term: 1, Data: []byte("one")}))
	return s
}

// report is what a hook was told.
type report struct {
	op      store.Op
	elapsed time.Duration
	err     error
}

func TestWatchdogReportsACallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reports := make(chan report, 10)
		faults := store.NewFaults()
		s := open(t, store.Hooks{
			DiskStallLimit: 3 * time.Second,
			OnStall:        func(op store.Op, elapsed time.Duration) { reports <- report{op: op, elapsed: elapsed} },
			OnFault:        func(op store.Op, err error) { reports <- report{op: op, err: err} },
			Faults:         faults,
		})
		faults.Inject(store.Fault{Op: store.OpStoreLogs, Hang: true})
		returned := make(chan error, 2)
		go func() { returned <- s.Log.StoreLog(&raft.Log{Index: 2}) }()
		require.Equal(t, report{op: store.OpStoreLogs, elapsed: 3 * time.Second}, <-reports)
		go func() { returned <- s.Log.StoreLog(&raft.Log{Index: 3}) }()
		time.Sleep(time.Minute)
		require.Empty(t, reports, "it is told once")
		require.Empty(t, returned, "a late call must not come back as an error")
		last, err := s.Log.LastIndex()
		require.NoError(t, err)
		require.Equal(t, uint64(1), last)

		faults.Clear()
		errs := []error{<-returned, <-returned}
		require.Contains(t, errs, error(nil), "the disk came back, and so does the call")
	})
}

func TestWatchdogIgnoresCallsThatAreMerelySlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := store.NewFaults()
		s := open(t, store.Hooks{
			OnStall: func(op store.Op, elapsed time.Duration) { t.Errorf("%s stalled for %v", op, elapsed) },
			OnFault: func(op store.Op, err error) { t.Errorf("%s failed: %v", op, err) },
			Faults:  faults,
		})
		faults.Inject(store.Fault{Delay: store.DefaultDiskStallLimit - 1})
		for i := range 20 {
			require.NoError(t, s.Log.StoreLog(&raft.Log{Index: uint64(2 + i)}))
			require.NoError(t, s.Stable.Set([]byte("k"), []byte("v")))
		}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				var log raft.Log
				require.NoError(t, s.Log.GetLog(1, &log))
			})
		}
		wg.Wait()
	})
}

func TestFaultIsReportedOnceAndTheErrorPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reports := make(chan report, 10)
		faults := store.NewFaults()
		s := open(t, store.Hooks{
			OnFault: func(op store.Op, err error) { reports <- report{op: op, err: err} },
			Faults:  faults,
		})
		var log raft.Log
		require.ErrorIs(t, s.Log.GetLog(7, &log), raft.ErrLogNotFound)
		off := faults.Inject(store.Fault{Op: store.OpSnapshot, Err: syscall.EIO})
		_, err := s.Snapshots.List()
		require.ErrorIs(t, err, syscall.EIO)
		off()
		synctest.Wait()
		require.Empty(t, reports, "neither is a reason to stop")

		faults.Inject(store.Fault{Op: store.OpSet, Err: syscall.ENOSPC, Count: 2})
		require.ErrorIs(t, s.Stable.Set([]byte("k"), nil), syscall.ENOSPC)
		require.ErrorIs(t, s.Stable.SetUint64([]byte("k"), 1), syscall.ENOSPC)
		require.NoError(t, s.Stable.SetUint64([]byte("k"), 1), "the count ends the fault")
		synctest.Wait()
		require.Equal(t, report{op: store.OpSet, err: syscall.ENOSPC}, <-reports)
		require.Empty(t, reports)
	})
}

func TestCloseSilencesFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, store.Hooks{OnFault: func(op store.Op, err error) { t.Errorf("%s: %v", op, err) }})
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		require.Error(t, s.Stable.Set([]byte("k"), nil))
		synctest.Wait()
	})
}

func TestLateFaultHasItsEffect(t *testing.T) {
	faults := store.NewFaults()
	s := open(t, store.Hooks{Faults: faults})
	faults.Inject(store.Fault{Op: store.OpStoreLogs, Err: syscall.EIO, Late: true, Count: 1})
	faults.Inject(store.Fault{Op: store.OpDeleteRange, Err: syscall.EIO, Count: 1})
	require.ErrorIs(t, s.Log.StoreLog(&raft.Log{Index: 2}), syscall.EIO)
	require.ErrorIs(t, s.Log.DeleteRange(1, 1), syscall.EIO)
	var log raft.Log
	require.NoError(t, s.Log.GetLog(1, &log), "nothing was deleted")
	require.NoError(t, s.Log.GetLog(2, &log), "the entry was written before the error")
}

// counts is an Observer.
type counts struct {
	mu      sync.Mutex
	calls   map[store.Op]int
	failed  int
	entries int
	bytes   int
	elapsed time.Duration
}

func (c *counts) Observe(op store.Op, elapsed time.Duration, entries, bytes int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = make(map[store.Op]int)
	}
	c.calls[op]++
	c.entries += entries
	c.bytes += bytes
	c.elapsed += elapsed
	if err != nil {
		c.failed++
	}
}

func TestObserverSeesEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, faults := &counts{}, store.NewFaults()
		s := open(t, store.Hooks{Observer: seen, Faults: faults})
		faults.Inject(store.Fault{Delay: time.Second, Count: 1})
		require.NoError(t, s.Log.StoreLogs([]*raft.Log{{Index: 2, Data: []byte("two")}, {Index: 3, Data: []byte("three")}}))
		var log raft.Log
		require.Error(t, s.Log.GetLog(9, &log))
		require.NoError(t, s.Log.DeleteRange(1, 1))
		require.NoError(t, s.Stable.SetUint64([]byte("n"), 5))
		n, err := s.Stable.GetUint64([]byte("n"))
		require.NoError(t, err)
		require.Equal(t, uint64(5), n)
		sink, err := s.Snapshots.Create(1, 3, 1, raft.Configuration{}, 1, nil)
		require.NoError(t, err)
		_, err = io.WriteString(sink, "state")
		require.NoError(t, err)
		require.NoError(t, sink.Close())
		require.Equal(t, map[store.Op]int{
			store.OpStoreLogs: 2, store.OpGetLog: 1, store.OpDeleteRange: 1, store.OpSet: 1, store.OpGet: 1, store.OpSnapshot: 3,
		}, seen.calls)
		require.Equal(t, 3, seen.entries)
		require.Equal(t, len("one")+len("two")+len("three"), seen.bytes)
		require.Equal(t, 1, seen.failed)
		require.Equal(t, time.Second, seen.elapsed)
	})
}

func TestGuardPassesOnThatTheLogIsMonotonic(t *testing.T) {
	s := open(t, store.Hooks{})
	m, ok := s.Log.(raft.MonotonicLogStore)
	require.True(t, ok)
	require.True(t, m.IsMonotonic())
	bare, err := store.New(store.Parts{Log: raft.NewInmemStore(), Snapshots: raft.NewDiscardSnapshotStore()}, store.Hooks{})
	require.NoError(t, err)
	require.False(t, bare.Log.(raft.MonotonicLogStore).IsMonotonic())
	require.NoError(t, bare.Close())
}

func TestSwitchingAFaultOffLetsItsCallsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := store.NewFaults()
		s := open(t, store.Hooks{Faults: faults})
		off := faults.Inject(store.Fault{Op: store.OpGetLog, Hang: true, Count: 1})
		slow := faults.Inject(store.Fault{Op: store.OpSet, Delay: time.Hour})
		returned := make(chan error, 2)
		go func() {
			var log raft.Log
			returned <- s.Log.GetLog(1, &log)
		}()
		go func() { returned <- s.Stable.Set(nil, nil) }()
		synctest.Wait()
		require.Empty(t, returned)
		begun := time.Now()
		off()
		off()
		slow()
		require.NoError(t, errors.Join(<-returned, <-returned))
		require.Equal(t, begun, time.Now())
	})
}

func TestTornAppendLeavesATruePrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storetest.NewDisk()
		faults := store.NewFaults()
		s, err := disk.Open(store.Config{Hooks: store.Hooks{Faults: faults}})
		require.NoError(t, err)
		defer disk.Crash()
		died, release := make(chan struct{}), make(chan struct{})
		faults.Inject(store.Fault{Torn: func() { close(died); <-release; runtime.Goexit() }})
		require.NoError(t, s.Log.StoreLog(&raft.Log{Index: 1, Term: 1}), "one of several entries is waited for")
		go func() {
			_ = s.Log.StoreLogs([]*raft.Log{{Index: 2, Term: 1}, {Index: 3, Term: 1}, {Index: 4, Term: 1}})
			t.Error("a torn append returned")
		}()
		<-died
		last, err := s.Log.LastIndex()
		require.NoError(t, err)
		require.Equal(t, uint64(2), last)
		close(release)
	})
}

func TestTornAppendComesThoughEntriesComeOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := store.NewFaults()
		s := open(t, store.Hooks{Faults: faults})
		died := make(chan struct{})
		faults.Inject(store.Fault{Torn: func() { close(died); runtime.Goexit() }})
		go func() {
			for i := uint64(2); i < 1000; i++ {
				_ = s.Log.StoreLog(&raft.Log{Index: i, Term: 1})
			}
			t.Error("no append was torn")
		}()
		<-died
		last, err := s.Log.LastIndex()
		require.NoError(t, err)
		require.Less(t, last, uint64(100))
	})
}
