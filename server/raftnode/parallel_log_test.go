package raftnode

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// heldStore is a log store whose appends wait until the test releases them.
type heldStore struct {
	*raft.InmemStore
	calls chan int   // the number of entries of each append that has begun
	let   chan error // releases an append, which returns the error, or nil
}

func (s *heldStore) StoreLogs(logs []*raft.Log) error {
	s.calls <- len(logs)
	if err := <-s.let; err != nil {
		return err
	}
	return s.InmemStore.StoreLogs(logs)
}

// errNotCalled is the value of an error that no call has set.
var errNotCalled = errors.New("it was not called")

// newHeldLog returns a leader's log of n entries, over a store that holds back later appends.
func newHeldLog(t *testing.T, n uint64) (*parallelLog, *heldStore, *error) {
	store := &heldStore{raft.NewInmemStore(), make(chan int, 8), make(chan error, 8)}
	for i := range n {
		require.NoError(t, store.InmemStore.StoreLog(&raft.Log{Index: i + 1}))
	}
	failed := errNotCalled
	log := newParallelLog(store, 256<<20, func(err error) { failed = err })
	leads := true
	leading := func() bool { return leads }
	log.leads.Store(&leading)
	return log, store, &failed
}

func append1(t *testing.T, log *parallelLog, index uint64) {
	t.Helper()
	require.NoError(t, log.StoreLog(&raft.Log{Index: index, Data: []byte{byte(index)}}))
}

// waits starts call, and requires that it does not return yet. It returns the channel of the result.
func waits(t *testing.T, call func() error) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- call() }()
	synctest.Wait()
	require.Empty(t, done)
	return done
}

func TestLeaderAppendsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, failed := newHeldLog(t, 5)
		append1(t, log, 6)
		require.Equal(t, 1, <-store.calls)
		append1(t, log, 7)
		append1(t, log, 8)

		last, err := log.LastIndex()
		require.NoError(t, err)
		require.Equal(t, uint64(8), last)
		var read raft.Log
		require.NoError(t, log.GetLog(8, &read))
		require.Equal(t, []byte{8}, read.Data)
		require.NoError(t, log.awaitWritten(5), "entry 5 is on the disk")

		six, seven := waits(t, func() error { return log.awaitWritten(6) }), waits(t, func() error {
			return log.awaitWritten(7)
		})
		store.let <- nil
		require.NoError(t, <-six)
		require.Equal(t, 2, <-store.calls, "what came meanwhile is one append")
		require.Empty(t, seven)
		store.let <- nil
		require.NoError(t, <-seven)
		last, err = store.LastIndex()
		require.NoError(t, err)
		require.Equal(t, uint64(8), last)
		synctest.Wait()
		require.Equal(t, errNotCalled, *failed)
	})
}

// TestLeaderAppendsManyAtOnce: an append to an empty queue does not wait, even if it has more entries than the queue
// may hold.
func TestLeaderAppendsManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, _ := newHeldLog(t, 0)
		var many []*raft.Log
		for i := range uint64(recentLogs + 1) { // raft appends at most one more than it sends
			many = append(many, &raft.Log{Index: i + 1})
		}
		require.NoError(t, log.StoreLogs(many))
		require.Equal(t, len(many), <-store.calls)
		store.let <- nil
		require.NoError(t, log.flush())
	})
}

// TestStoreThatFails: an entry that a follower could not append, or cannot read, is not in the log, and its
// configuration is not in effect.
func TestStoreThatFails(t *testing.T) {
	f := newFaulty()
	log := newParallelLog(f, 1<<20, nil)
	log.configurations = newConfigurations("n1")
	for _, entry := range []*raft.Log{configurationAt(1, "n1"), {Index: 1, Type: raft.LogNoop}} {
		f.left = 0
		require.ErrorIs(t, log.StoreLog(entry), errBroken)
		require.Empty(t, log.configurations.ids())
		require.ErrorIs(t, log.GetLog(1, &raft.Log{}), raft.ErrLogNotFound)
	}
	require.NoError(t, f.LogStore.StoreLog(&raft.Log{Index: 1}))
	require.True(t, log.reaches(1))
	f.left = 0
	require.False(t, log.reaches(1))
	f.left = 0
	_, err := log.trailing(1000, log.sizes.limit, 0)
	require.ErrorIs(t, err, errBroken)
}

// TestCompactionKeepsTheMembers: the deletion of the oldest entries keeps the configuration in effect. The deletion of
// the newest entries removes their configurations.
func TestCompactionKeepsTheMembers(t *testing.T) {
	store := raft.NewInmemStore()
	for i := uint64(10); i <= 60; i++ {
		require.NoError(t, store.StoreLog(&raft.Log{Index: i}))
	}
	log := newParallelLog(store, 1<<20, nil)
	log.configurations = newConfigurations("n1")
	log.configurations.appended([]*raft.Log{configurationAt(1, "n1"), configurationAt(50, "n1", "n2")})
	require.NoError(t, log.DeleteRange(10, 40))
	require.Equal(t, []string{"n1", "n2"}, log.configurations.ids())
	require.NoError(t, log.DeleteRange(45, 60))
	require.Equal(t, []string{"n1"}, log.configurations.ids())
}

// guarded is a store that requires that the log is locked during a call.
type guarded struct {
	*raft.InmemStore
	t   *testing.T
	log *parallelLog
}

func (g *guarded) FirstIndex() (uint64, error) {
	require.False(g.t, g.log.mu.TryLock())
	return g.InmemStore.FirstIndex()
}

func (g *guarded) LastIndex() (uint64, error) {
	require.False(g.t, g.log.mu.TryLock())
	return g.InmemStore.LastIndex()
}

// TestEndsOfTheLog: first and last index are read from store and queue under one lock. Otherwise an entry that moves
// from the queue to the store could be missed in both.
func TestEndsOfTheLog(t *testing.T) {
	store := &guarded{raft.NewInmemStore(), t, nil}
	store.log = newParallelLog(store, 1<<20, nil)
	require.NoError(t, store.log.StoreLog(&raft.Log{Index: 7}))
	for _, end := range []func() (uint64, error){store.log.FirstIndex, store.log.LastIndex} {
		index, err := end()
		require.NoError(t, err)
		require.Equal(t, uint64(7), index)
	}
}

// TestLogUsedTogether: the race detector checks concurrent calls, such as those of senders, of a snapshot, and of other
// leaders' requests.
func TestLogUsedTogether(t *testing.T) {
	log := newParallelLog(raft.NewInmemStore(), 1<<20, func(err error) { t.Error(err) })
	var leads atomic.Bool
	leading := leads.Load
	log.leads.Store(&leading)
	var all sync.WaitGroup
	for _, do := range []func(i uint64){
		func(i uint64) { // one of raft's goroutines
			leads.Store(i%50 < 40)
			require.NoError(t, log.StoreLog(&raft.Log{Index: i}))
			if i%5 == 0 {
				require.NoError(t, log.DeleteRange(i-min(i, 9), i-min(i, 4)))
			}
		},
		func(uint64) {
			for i := range uint64(recentLogs) {
				_ = log.GetLog(i, &raft.Log{})
			}
		},
		func(i uint64) { log.reaches(i) },
		func(uint64) { require.NoError(t, log.flush()) },
		func(uint64) {
			_, err := log.trailing(10, log.sizes.limit, 0)
			require.NoError(t, err)
		},
	} {
		all.Go(func() {
			for i := range uint64(300) {
				do(i + 1)
				runtime.Gosched()
			}
		})
	}
	all.Wait()
	require.NoError(t, log.flush())
}

// TestLeaderIsNotFarAhead: an append waits while the queue has as many entries as are kept in memory for reads.
func TestLeaderIsNotFarAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, _ := newHeldLog(t, 0)
		for i := range uint64(recentLogs) {
			append1(t, log, i+1)
		}
		next := waits(t, func() error { return log.StoreLog(&raft.Log{Index: recentLogs + 1}) })
		store.let <- nil
		require.NoError(t, <-next)
		store.let <- nil
		store.let <- nil
		require.NoError(t, log.flush())
	})
}

// TestFormerLeaderSettlesFirst: a former leader passes another leader's request to raft only after its own entries are
// on the disk, since raft might find the request's entries in the log. This holds however raft learns of the other
// leader.
func TestFormerLeaderSettlesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, _ := newHeldLog(t, 5)
		requests := make(chan raft.RPC, 1)
		filter := &rpcFilter{applier: &applier{}, log: log, requests: requests}
		append1(t, log, 6)
		require.Equal(t, 1, <-store.calls)
		req := &raft.AppendEntriesRequest{Term: 2, Entries: []*raft.Log{{Index: 6, Data: []byte{6}}}}
		handed := waits(t, func() error { filter.handle(t.Context(), req, nil); return nil })
		require.Empty(t, requests)
		store.let <- nil
		require.NoError(t, <-handed)
		require.Equal(t, raft.RPC{Command: req}, <-requests)
	})
}

// TestFlushEnds: flush does not wait for entries that are appended after its call, since a leader under load appends
// all the time.
func TestFlushEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, _ := newHeldLog(t, 5)
		append1(t, log, 6)
		require.Equal(t, 1, <-store.calls)
		append1(t, log, 7)
		flushed := waits(t, log.flush)
		append1(t, log, 8)
		store.let <- nil
		require.Equal(t, 2, <-store.calls)
		synctest.Wait()
		require.Empty(t, flushed, "the second is on its way")
		append1(t, log, 9)
		store.let <- nil
		require.NoError(t, <-flushed)
		store.let <- nil
	})
}

// over is the future of an operation that has ended.
type over struct{ err error }

func (o over) Error() error { return o.err }

// TestNodeWaitsForItsLog: a node has ended only after its log is written, since its store is closed then.
func TestNodeWaitsForItsLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, _ := newHeldLog(t, 5)
		append1(t, log, 6)
		require.Equal(t, 1, <-store.calls)
		append1(t, log, 7)
		n := &Node{log: log, transport: &transport{}, down: over{errBroken}}
		ended := waits(t, n.Wait)
		store.let <- nil
		require.Equal(t, 1, <-store.calls)
		synctest.Wait()
		require.Empty(t, ended)
		failed := errors.New("failed")
		store.let <- failed
		err := <-ended
		require.ErrorIs(t, err, failed)
		require.ErrorIs(t, err, errBroken)
	})
}

// TestFormerLeaderWithoutDisk: a request that arrives after the disk has failed is refused.
func TestFormerLeaderWithoutDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, _ := newHeldLog(t, 5)
		filter := &rpcFilter{applier: &applier{}, log: log, requests: make(chan raft.RPC, 1)}
		append1(t, log, 6)
		broken := errors.New("broken")
		store.let <- broken
		answer := make(chan raft.RPCResponse, 1)
		filter.pass(t.Context(), raft.RPC{Command: &raft.AppendEntriesRequest{}, RespChan: answer})
		require.ErrorIs(t, (<-answer).Error, broken)
		require.Empty(t, filter.requests)
	})
}

// TestCommitEndsWithTheRequest: a request commits no entry behind its own last one, since later entries in the log may
// be another leader's.
func TestCommitEndsWithTheRequest(t *testing.T) {
	log, _, _ := newHeldLog(t, 9)
	entries := []*raft.Log{{Index: 6}, {Index: 7}}
	for _, row := range []struct {
		req  raft.AppendEntriesRequest
		want uint64
	}{
		{raft.AppendEntriesRequest{PrevLogEntry: 5, Entries: entries, LeaderCommitIndex: 9}, 7},
		{raft.AppendEntriesRequest{PrevLogEntry: 5, Entries: entries, LeaderCommitIndex: 6}, 6},
		{raft.AppendEntriesRequest{PrevLogEntry: 5, LeaderCommitIndex: 9}, 5},
		{raft.AppendEntriesRequest{Entries: []*raft.Log{{Index: 1}}, LeaderCommitIndex: 9}, 1},
	} {
		filter := &rpcFilter{applier: &applier{}, log: log, requests: make(chan raft.RPC, 1)}
		filter.pass(t.Context(), raft.RPC{Command: &row.req})
		require.Equal(t, row.want, (<-filter.requests).Command.(*raft.AppendEntriesRequest).LeaderCommitIndex)
	}
}

// TestAfterSnapshot: a request that begins before the end of a snapshot is changed to begin behind it.
func TestAfterSnapshot(t *testing.T) {
	const end = 10
	for _, row := range []struct{ prev, last, wantFirst, wantLast uint64 }{
		{10, 12, 11, 12},
		{10, 10, 0, 0},
		{7, 12, 11, 12},
		{7, 10, 0, 0},
		{7, 8, 0, 0},
		{11, 12, 12, 12}, // the log has the entry before, or the leader must go back
	} {
		req := &raft.AppendEntriesRequest{PrevLogEntry: row.prev, PrevLogTerm: 1}
		for i := row.prev + 1; i <= row.last; i++ {
			req.Entries = append(req.Entries, &raft.Log{Index: i})
		}
		afterSnapshot(req, end)
		var first, last uint64
		if n := len(req.Entries); n > 0 {
			first, last = req.Entries[0].Index, req.Entries[n-1].Index
		}
		require.Equal(t, []uint64{row.wantFirst, row.wantLast}, []uint64{first, last}, "%+v", row)
		want := map[bool][2]uint64{true: {row.prev, 1}}[row.prev > end]
		require.Equal(t, want, [2]uint64{req.PrevLogEntry, req.PrevLogTerm}, "%+v", row)
	}
}

// TestHowFarTheLogReaches: the log knows its first index, for entries in memory and for entries that are only on the
// disk.
func TestHowFarTheLogReaches(t *testing.T) {
	log, store, _ := newHeldLog(t, 100)
	require.NoError(t, log.DeleteRange(1, 40))
	require.False(t, log.reaches(40))
	require.True(t, log.reaches(41))
	require.True(t, log.reaches(100))
	require.NoError(t, log.DeleteRange(41, 100))
	require.False(t, log.reaches(100))
	require.NoError(t, store.InmemStore.StoreLog(&raft.Log{Index: 201}))
	require.False(t, log.reaches(200))
	require.True(t, log.reaches(201))

	log = newParallelLog(raft.NewInmemStore(), 1<<20, nil)
	for index := range uint64(100) {
		require.NoError(t, log.StoreLog(&raft.Log{Index: index + 1, Term: 1}))
	}
	require.NoError(t, log.DeleteRange(1, 40))
	for index := range uint64(110) {
		require.Equal(t, index > 40, log.reaches(index), "%d, beside recent ones in memory", index)
		var read raft.Log
		err := log.GetLog(index, &read)
		require.Equal(t, 40 < index && index <= 100, err == nil, "%d: %v", index, err)
		require.True(t, err != nil || read.Index == index, index)
	}
}

// TestFirstIndexOfAnEmptyStore: a node becomes a leader while a snapshot replaces its whole log. The log begins with
// the first entry in the queue.
func TestFirstIndexOfAnEmptyStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, _ := newHeldLog(t, 0)
		append1(t, log, 101)
		first, err := log.FirstIndex()
		require.NoError(t, err)
		require.Equal(t, uint64(101), first)
		store.let <- nil
	})
}

// TestDeletedHeadLeavesTheQueue: the entries before a snapshot can be deleted while newer ones are in the queue. A
// deletion of entries in the queue waits until they are written.
func TestDeletedHeadLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, _ := newHeldLog(t, 5)
		append1(t, log, 6)
		require.NoError(t, log.DeleteRange(1, 5))
		var read raft.Log
		require.NoError(t, log.GetLog(6, &read))
		require.ErrorIs(t, log.GetLog(5, &read), raft.ErrLogNotFound)
		deleted := waits(t, func() error { return log.DeleteRange(6, 6) })
		store.let <- nil
		require.NoError(t, <-deleted)
		require.ErrorIs(t, log.GetLog(6, &read), raft.ErrLogNotFound)
	})
}

// TestFailedAppendAhead: after a failed append its entries cannot be read, no caller gets a success, and the node ends.
func TestFailedAppendAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, failed := newHeldLog(t, 5)
		append1(t, log, 6)
		require.Equal(t, 1, <-store.calls)
		append1(t, log, 7)
		awaited := waits(t, func() error { return log.awaitWritten(6) })
		broken := errors.New("broken")
		store.let <- broken
		require.ErrorIs(t, <-awaited, broken)
		synctest.Wait()
		require.Empty(t, store.calls, "what came meanwhile would leave a gap")
		require.ErrorIs(t, *failed, broken)
		require.ErrorIs(t, log.StoreLog(&raft.Log{Index: 8}), broken)
		require.ErrorIs(t, log.DeleteRange(1, 5), broken)
		var read raft.Log
		require.NoError(t, log.GetLog(5, &read))
		for _, lost := range []uint64{6, 7} {
			require.ErrorIs(t, log.GetLog(lost, &read), raft.ErrLogNotFound)
		}
	})
}

// TestSizesInMemory: the sizes of the newest entries are counted in blocks, so that no entry is read to know its size.
func TestSizesInMemory(t *testing.T) {
	log := newParallelLog(raft.NewInmemStore(), 64*1024, nil) // a block is 1 KiB
	add := func(from, to uint64) {
		for i := from; i <= to; i++ {
			require.NoError(t, log.StoreLog(&raft.Log{Index: i, Data: make([]byte, 256-entryBytes)}))
		}
	}
	newest := func(last uint64) [2]uint64 {
		first, bytes := log.sizes.newest(last, log.sizes.limit)
		return [2]uint64{first, uint64(bytes)}
	}
	require.Equal(t, [2]uint64{1, 0}, newest(0))
	add(1, 200)
	require.Len(t, log.sizes.blocks, 50)
	require.Equal(t, [2]uint64{1, 200 * 256}, newest(200))
	add(201, 400)
	require.Len(t, log.sizes.blocks, 100)
	require.Equal(t, [2]uint64{145, 256 * 256}, newest(400))
	add(297, 300) // they replace others
	require.Equal(t, [2]uint64{45, 256 * 256}, newest(300))
}

// TestTrailingEntries: how many of the newest entries fill a number of bytes, for entries that were appended, that
// replaced others, or that are from before a restart.
func TestTrailingEntries(t *testing.T) {
	const limit = 64 * 1024 // a block is 1 KiB
	store := raft.NewInmemStore()
	add := func(l raft.LogStore, from, to uint64, bytes int) {
		for i := from; i <= to; i++ {
			require.NoError(t, l.StoreLog(&raft.Log{Index: i, Data: make([]byte, bytes-entryBytes)}))
		}
	}
	trailing := func(l *parallelLog, most uint64) uint64 {
		n, err := l.trailing(most, l.sizes.limit, 0)
		require.NoError(t, err)
		return n
	}
	log := newParallelLog(store, limit, nil)
	require.Equal(t, uint64(1), trailing(log, 1000), "an empty log")
	add(log, 1, 20, 1024)
	require.Equal(t, uint64(20), trailing(log, 1000))
	require.Equal(t, uint64(7), trailing(log, 7))
	add(log, 21, 200, 1024)
	require.Equal(t, uint64(64), trailing(log, 1000))
	add(log, 201, 201, limit)
	require.Equal(t, uint64(1), trailing(log, 1000), "a large one goes alone")
	require.NoError(t, log.DeleteRange(150, 201))
	add(log, 150, 159, 1024)
	require.Equal(t, uint64(64), trailing(log, 1000), "the large entry was deleted")

	lagging := func(needed uint64) uint64 {
		n, err := log.trailing(7, log.sizes.limit, needed)
		require.NoError(t, err)
		return n
	}
	require.Equal(t, uint64(100), lagging(60), "a member needs them")
	require.Equal(t, uint64(7), lagging(156), "a small lag keeps as many entries as none")
	require.Equal(t, uint64(7), lagging(159), "no member lags")
	add(log, 160, 159+laggingTimes*64, 1024)
	require.Len(t, log.sizes.blocks, maxBlocks)
	require.Equal(t, uint64(laggingTimes*64), lagging(160))
	require.Equal(t, uint64(7), lagging(159-64), "too far")
	require.NoError(t, log.DeleteRange(160, 159+laggingTimes*64))

	log = newParallelLog(store, limit, nil)
	require.Equal(t, uint64(64), trailing(log, 1000), "nothing is known")
	require.Equal(t, uint64(7), trailing(log, 7))
	add(log, 160, 169, 1024)
	require.Equal(t, uint64(64), trailing(log, 1000), "some is known")
	require.NoError(t, log.DeleteRange(1, 140))
	require.Equal(t, uint64(29), trailing(newParallelLog(store, limit, nil), 1000), "the log begins there")
}

// TestFollowerAppendsBehindWhatIsOnItsWay: a former leader appends as a follower only after the store has what it
// appended as a leader, since the store accepts no gap.
func TestFollowerAppendsBehindWhatIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, _ := newHeldLog(t, 5)
		append1(t, log, 6)
		require.Equal(t, 1, <-store.calls)
		follows := func() bool { return false }
		log.leads.Store(&follows)
		done := waits(t, func() error { return log.StoreLog(&raft.Log{Index: 7}) })
		require.Empty(t, store.calls)
		store.let <- nil
		require.Equal(t, 1, <-store.calls)
		store.let <- nil
		require.NoError(t, <-done)
	})
}

// TestConfigurationIsOnTheDiskFirst: a configuration and all entries before it are on the disk before raft uses it,
// since under it this node alone may be a majority.
func TestConfigurationIsOnTheDiskFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, _ := newHeldLog(t, 5)
		log.configurations, _ = watched()
		append1(t, log, 6)
		require.Equal(t, 1, <-store.calls)
		stored := waits(t, func() error { return log.StoreLog(configurationAt(7, "n1")) })
		require.Empty(t, log.configurations.ids())
		store.let <- nil
		require.Equal(t, 1, <-store.calls)
		synctest.Wait()
		require.Empty(t, stored)
		require.Empty(t, log.configurations.ids())
		store.let <- nil
		require.NoError(t, <-stored)
		require.Equal(t, []string{"n1"}, log.configurations.ids())
	})
}

// TestFirstIndexIsTheStores: while entries are in the queue, the first index of the log is that of the store.
func TestFirstIndexIsTheStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, _ := newHeldLog(t, 3)
		append1(t, log, 4)
		first, err := log.FirstIndex()
		require.NoError(t, err)
		require.EqualValues(t, 1, first)
		store.let <- nil
	})
}

// TestMonotonicAsTheStore: raft empties the log after a snapshot if the store requires it, but not while ReplaceState
// keeps the log.
func TestMonotonicAsTheStore(t *testing.T) {
	require.False(t, newParallelLog(raft.NewInmemStore(), 1, nil).IsMonotonic())
	log := newParallelLog(monotonicStore{raft.NewInmemStore(), true}, 1, nil)
	require.True(t, log.IsMonotonic())
	log.keeps.Store(true)
	require.False(t, log.IsMonotonic())
	require.False(t, newParallelLog(monotonicStore{raft.NewInmemStore(), false}, 1, nil).IsMonotonic())
}

type monotonicStore struct {
	raft.LogStore
	is bool
}

func (s monotonicStore) IsMonotonic() bool { return s.is }

// TestLogThatEndsIsNotWaitedFor: an append that waits for room in the queue returns the error with which the node ends.
func TestLogThatEndsIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, failed := newHeldLog(t, 0)
		for i := range uint64(recentLogs) {
			append1(t, log, i+1)
		}
		full := waits(t, func() error { return log.StoreLog(&raft.Log{Index: recentLogs + 1}) })
		cause := errors.New("its members are lost")
		require.ErrorIs(t, log.end(cause), cause)
		require.ErrorIs(t, <-full, cause)
		require.ErrorIs(t, *failed, cause)
		store.let <- nil
		store.let <- nil
	})
}

// TestCommittedEntriesAreNotDeleted: only entries that a snapshot has, and a tail that is not committed, can be
// deleted. Any other deletion ends the node, and deletes nothing.
func TestCommittedEntriesAreNotDeleted(t *testing.T) {
	for name, row := range map[string]struct {
		lo, hi              uint64
		committed, snapshot uint64
		refused             bool
	}{
		"a tail":                                 {lo: 8, hi: 10, committed: 7},
		"a tail right behind the snapshot":       {lo: 6, hi: 10, committed: 5, snapshot: 5},
		"the whole log, none known committed":    {lo: 3, hi: 10},
		"what a snapshot has":                    {lo: 3, hi: 5, committed: 9, snapshot: 6},
		"the log, when a snapshot is installed":  {lo: 3, hi: 10, committed: 12, snapshot: 12},
		"entries of a snapshot, deleted in part": {lo: 2, hi: 5, committed: 9, snapshot: 6},
		"the newest committed entry":             {lo: 7, hi: 10, committed: 7, refused: true},
		"the first behind the snapshot":          {lo: 3, hi: 10, committed: 3, snapshot: 2, refused: true},
		"entries within the snapshot":            {lo: 4, hi: 10, committed: 6, snapshot: 6, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			store := raft.NewInmemStore()
			for i := uint64(3); i <= 10; i++ {
				require.NoError(t, store.StoreLog(&raft.Log{Index: i}))
			}
			var failed error
			log := newParallelLog(store, 256<<20, func(err error) { failed = err })
			bounds := func() (uint64, uint64, error) { return row.committed, row.snapshot, nil }
			log.bounds.Store(&bounds)
			err := log.DeleteRange(row.lo, row.hi)
			var read raft.Log
			if !row.refused {
				require.NoError(t, err)
				require.NoError(t, failed)
				require.ErrorIs(t, store.GetLog(row.hi, &read), raft.ErrLogNotFound)
				return
			}
			require.ErrorContains(t, failed, fmt.Sprintf("log entries %d to %d are committed", row.lo, row.committed))
			require.Equal(t, failed, err)
			require.NoError(t, store.GetLog(row.lo, &read))
			require.Equal(t, failed, log.StoreLog(&raft.Log{Index: 11}), "the log takes no more")
		})
	}
}

// stateless is a state machine without a state.
type stateless struct{}

func (stateless) Apply(*raft.Log) any                 { return nil }
func (stateless) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.ErrUnsupported }
func (stateless) Restore(r io.ReadCloser) error       { return r.Close() }

// TestSnapshotCountsAsCommitted: the entries of a snapshot count as committed, even before a leader has sent a commit
// index.
func TestSnapshotCountsAsCommitted(t *testing.T) {
	store, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	address, transport := raft.NewInmemTransport("n1")
	conf := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: address}, {ID: "n2", Address: "n2"}}}
	sink, err := snapshots.Create(raft.SnapshotVersionMax, 10, 3, conf, 1, transport)
	require.NoError(t, err)
	require.NoError(t, sink.Close())
	config := raft.DefaultConfig()
	config.LocalID, config.Logger = "n1", hclog.NewNullLogger()
	opened, err := raft.NewRaft(config, stateless{}, store, store, snapshots, transport)
	require.NoError(t, err)
	n := &Node{raft: opened, config: Config{Snapshots: snapshots}}
	committed, snapshot, err := n.bounds()
	require.NoError(t, opened.Shutdown().Error())
	require.NoError(t, err)
	require.Equal(t, uint64(10), committed)
	require.Equal(t, uint64(10), snapshot)
}

// TestNothingIsDeletedUnknowing: if the end of the newest snapshot is unknown, nothing is deleted, and the node does
// not end.
func TestNothingIsDeletedUnknowing(t *testing.T) {
	store := raft.NewInmemStore()
	require.NoError(t, store.StoreLog(&raft.Log{Index: 1}))
	log := newParallelLog(store, 256<<20, func(error) { require.Fail(t, "it ended") })
	broken := errors.New("broken")
	bounds := func() (uint64, uint64, error) { return 1, 0, broken }
	log.bounds.Store(&bounds)
	require.ErrorIs(t, log.DeleteRange(1, 1), broken)
	require.NoError(t, store.GetLog(1, &raft.Log{}))
}

// TestSnapshotIsNotContradicted: a leader that has another entry than this node's snapshot at the snapshot's end ends
// the node. A request of a former leader, or one that does not include that entry, does not.
func TestSnapshotIsNotContradicted(t *testing.T) {
	const current = 7
	end := &raft.SnapshotMeta{Index: 10, Term: 5}
	for name, row := range map[string]struct {
		term, prev, prevTerm uint64
		entries              []*raft.Log
		refused              bool
	}{
		"before, the same": {term: 7, prev: 10, prevTerm: 5, entries: []*raft.Log{{Index: 11, Term: 6}}},
		"among them, the same": {term: 7, prev: 8, prevTerm: 4, entries: []*raft.Log{
			{Index: 9, Term: 4},
			{Index: 10, Term: 5},
		}},
		"neither":           {term: 7, prev: 7, prevTerm: 4, entries: []*raft.Log{{Index: 8, Term: 4}}},
		"a former leader's": {term: 6, prev: 10, prevTerm: 6},
		"before, another":   {term: 7, prev: 10, prevTerm: 6, refused: true},
		"among them, another": {term: 7, prev: 8, prevTerm: 4, entries: []*raft.Log{
			{Index: 9, Term: 4},
			{Index: 10, Term: 6},
		}, refused: true},
		"a newer leader's another": {term: 8, prev: 10, prevTerm: 6, refused: true},
	} {
		var failed error
		log := newParallelLog(raft.NewInmemStore(), 256<<20, func(err error) { failed = err })
		err := log.contradicted(&raft.AppendEntriesRequest{
			Term: row.term, PrevLogEntry: row.prev, PrevLogTerm: row.prevTerm,
			Entries: row.entries,
		}, end, current)
		require.Equal(t, row.refused, err != nil, name)
		require.Equal(t, failed, err, name)
	}
}
