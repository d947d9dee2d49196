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

// report is the arguments of a hook's call.
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
		require.Empty(t, reports, "the hanging call is reported once")
		require.Empty(t, returned, "a late call must not come back as an error")
		last, err := s.Log.LastIndex()
		require.NoError(t, err)
		require.Equal(t, uint64(1), last)

		faults.Clear()
		errs := []error{<-returned, <-returned}
		require.Contains(t, errs, error(nil), "the disk came back, and so does the call")
	})
}

// TestHanging: Hanging returns how long a call has waited for the disk, before the call returns. OnSync gets the
// duration of an append after it has returned.
func TestHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := store.NewFaults()
		var took []time.Duration
		s := open(t, store.Hooks{Faults: faults, OnSync: func(d time.Duration) { took = append(took, d) }})
		require.Zero(t, s.Hanging())
		faults.Inject(store.Fault{Op: store.OpStoreLogs, Hang: true})
		returned := make(chan error)
		go func() { returned <- s.Log.StoreLog(&raft.Log{Index: 2}) }()
		time.Sleep(2 * time.Second)
		require.Equal(t, 2*time.Second, s.Hanging())
		require.Len(t, took, 1)
		faults.Clear()
		require.NoError(t, <-returned)
		require.Zero(t, s.Hanging())
		require.Equal(t, []time.Duration{0, 2 * time.Second}, took)

		faults.Inject(store.Fault{Op: store.OpSet, Hang: true})
		go func() { returned <- s.Stable.SetUint64([]byte("term"), 2) }()
		time.Sleep(time.Second)
		require.Equal(t, time.Second, s.Hanging())
		go func() { returned <- s.Stable.SetUint64([]byte("term"), 3) }()
		time.Sleep(time.Second)
		require.Equal(t, 2*time.Second, s.Hanging(), "the oldest")
		faults.Clear()
		require.NoError(t, errors.Join(<-returned, <-returned))
		faults.Inject(store.Fault{Op: store.OpSnapshot, Hang: true})
		go func() { _, err := s.Snapshots.Create(1, 3, 1, raft.Configuration{}, 1, nil); returned <- err }()
		time.Sleep(time.Second)
		require.Zero(t, s.Hanging(), "no command waits for a snapshot")
		faults.Clear()
		require.NoError(t, <-returned)
		require.Len(t, took, 2)
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
		_, err := s.Snapshots.Create(1, 3, 1, raft.Configuration{}, 1, nil)
		require.ErrorIs(t, err, syscall.EIO)
		_, err = s.Snapshots.List()
		require.NoError(t, err, "the list needs no call to the disk")
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

// TestFirstErrorWins: of several faults, the first that was injected fails the call. If a call fails by itself, its
// error is returned, and not that of a late fault.
func TestFirstErrorWins(t *testing.T) {
	faults := store.NewFaults()
	s := open(t, store.Hooks{Faults: faults})
	sink, err := s.Snapshots.Create(1, 3, 1, raft.Configuration{}, 1, nil)
	require.NoError(t, err)
	faults.Inject(store.Fault{Err: syscall.EIO, Late: true})
	faults.Inject(store.Fault{Err: syscall.ENOSPC})
	require.ErrorIs(t, s.Stable.Set([]byte("k"), nil), syscall.EIO)
	_, err = s.Stable.Get([]byte("k"))
	require.ErrorIs(t, err, syscall.EIO)
	_, err = io.WriteString(sink, "state")
	require.ErrorIs(t, err, syscall.EIO)
	require.ErrorIs(t, s.Log.GetLog(7, new(raft.Log)), raft.ErrLogNotFound)
}

// TestStallsThatNobodyAsksFor: a store without hooks waits for the disk.
func TestStallsThatNobodyAsksFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := store.NewFaults()
		s := open(t, store.Hooks{Faults: faults})
		faults.Inject(store.Fault{Delay: 10 * store.DefaultDiskStallLimit})
		require.NoError(t, s.Stable.Set([]byte("k"), nil))
	})
}

// TestGuardWatchesEveryCall: any call that hangs is reported by its name.
func TestGuardWatchesEveryCall(t *testing.T) {
	create := func(s *store.Store) raft.SnapshotSink {
		sink, err := s.Snapshots.Create(1, 3, 1, raft.Configuration{}, 1, nil)
		require.NoError(t, err)
		return sink
	}
	for _, c := range []struct {
		op   store.Op
		call func(s *store.Store) func() // prepares, and returns the call
	}{
		{store.OpStoreLogs, func(s *store.Store) func() { return func() { _ = s.Log.StoreLog(&raft.Log{Index: 2}) } }},
		{store.OpStoreLogs, func(s *store.Store) func() {
			return func() { _ = s.Log.StoreLogs([]*raft.Log{{Index: 2}, {Index: 3}}) }
		}},
		{store.OpGetLog, func(s *store.Store) func() { return func() { _ = s.Log.GetLog(1, new(raft.Log)) } }},
		{store.OpDeleteRange, func(s *store.Store) func() { return func() { _ = s.Log.DeleteRange(1, 1) } }},
		{store.OpSet, func(s *store.Store) func() { return func() { _ = s.Stable.Set([]byte("k"), nil) } }},
		{store.OpSet, func(s *store.Store) func() { return func() { _ = s.Stable.SetUint64([]byte("k"), 5) } }},
		{store.OpGet, func(s *store.Store) func() { return func() { _, _ = s.Stable.Get([]byte("k")) } }},
		{store.OpGet, func(s *store.Store) func() { return func() { _, _ = s.Stable.GetUint64([]byte("k")) } }},
		{store.OpSnapshot, func(s *store.Store) func() { return func() { _ = create(s) } }},
		{store.OpSnapshot, func(s *store.Store) func() { return func() { _, _, _ = s.Snapshots.Open("1") } }},
		{store.OpSnapshot, func(s *store.Store) func() {
			sink := create(s)
			return func() {
				_, _ = io.WriteString(sink, "state")
			}
		}},
		{store.OpSnapshot, func(s *store.Store) func() { sink := create(s); return func() { _ = sink.Close() } }},
	} {
		synctest.Test(t, func(t *testing.T) {
			stalled, faults := make(chan store.Op, 1), store.NewFaults()
			s := open(t, store.Hooks{OnStall: func(op store.Op, _ time.Duration) { stalled <- op }, Faults: faults})
			hangs := c.call(s)
			faults.Inject(store.Fault{Hang: true})
			done := make(chan struct{})
			go func() { defer close(done); hangs() }()
			require.Equal(t, c.op, <-stalled)
			faults.Clear()
			<-done
		})
	}
}

func TestGuardPassesOnThatTheLogIsMonotonic(t *testing.T) {
	s := open(t, store.Hooks{})
	m, ok := s.Log.(raft.MonotonicLogStore)
	require.True(t, ok)
	require.True(t, m.IsMonotonic())
	for _, log := range []raft.LogStore{raft.NewInmemStore(), gapped{raft.NewInmemStore()}} {
		bare, err := store.New(store.Parts{Log: log, Snapshots: raft.NewDiscardSnapshotStore()}, store.Hooks{})
		require.NoError(t, err)
		require.False(t, bare.Log.(raft.MonotonicLogStore).IsMonotonic())
		require.Zero(t, bare.Identity(), "it has no folder")
		require.NoError(t, bare.Close())
	}
}

// gapped is a log that may have gaps.
type gapped struct{ raft.LogStore }

func (gapped) IsMonotonic() bool { return false }

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
		synctest.Wait()
		require.Len(t, returned, 1, "the other fault is on")
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
		faults.Inject(store.Fault{Op: store.OpGet, Err: syscall.EIO}) // of other calls
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
