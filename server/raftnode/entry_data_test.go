package raftnode

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"weak"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// strippedLog returns a log with an entry of each size. All are on the disk, and none is in memory.
func strippedLog(t *testing.T, term uint64, sizes ...int) *parallelLog {
	t.Helper()
	store := raft.NewInmemStore()
	for i, size := range sizes {
		require.NoError(t, store.StoreLog(&raft.Log{
			Index: uint64(i + 1), Term: term, Data: make([]byte, size),
			Extensions: []byte{7},
		}))
	}
	return newParallelLog(store, 256<<20, nil)
}

// given returns the log's entries as raft reads them.
func given(t *testing.T, log *parallelLog, n int) (entries []*raft.Log) {
	t.Helper()
	for i := range n {
		e := new(raft.Log)
		require.NoError(t, log.GetLog(uint64(i+1), e))
		entries = append(entries, e)
	}
	return entries
}

func dataBytes(entries []*raft.Log) (n int) {
	for _, e := range entries {
		n += len(e.Data)
	}
	return n
}

// TestLaggingFollowerCostsOnePiece: of the entries for a lagging follower, only one request and the entry behind it
// have their data in memory.
func TestLaggingFollowerCostsOnePiece(t *testing.T) {
	sizes := slices.Repeat([]int{strippedOver + 1, appendGather / 2, strippedOver, appendGather + 1}, maxAppend/4)
	log := strippedLog(t, 7, sizes...)
	entries := given(t, log, len(sizes))
	require.LessOrEqual(t, dataBytes(entries), appendGather, "the data of raft's entries is bounded")
	args := &raft.AppendEntriesRequest{Term: 7, Entries: entries}
	var sent []int
	for rest := args; rest != nil; {
		piece, others, err := cutAppend(rest, log)
		require.NoError(t, err)
		for _, e := range piece.Entries {
			sent = append(sent, len(e.Data))
			require.Equal(t, []byte{7}, e.Extensions)
			require.Equal(t, uint64(len(sent)), e.Index)
			require.Equal(t, uint64(7), e.Term)
		}
		if rest = others; rest != nil {
			require.LessOrEqual(t, dataBytes(rest.Entries[1:]), appendGather, "the data of unsent entries is bounded")
			n := len(piece.Entries)
			require.NotSame(t, &piece.Entries[:n+1][n], &rest.Entries[0], "sent entries are not retained")
		}
	}
	require.Equal(t, sizes, sent)
	require.LessOrEqual(t, dataBytes(args.Entries), appendGather, "raft's request stays as it is")
}

// TestWholeEntries: an entry that is small, or no command, is read with its data.
func TestWholeEntries(t *testing.T) {
	log := strippedLog(t, 7, 0, strippedOver, strippedOver+1)
	require.NoError(t, log.store.StoreLog(&raft.Log{
		Index: 4, Term: 7, Type: raft.LogConfiguration,
		Data: make([]byte, strippedOver+1),
	}))
	for i, e := range given(t, log, 4) {
		require.Equal(t, i == 2, log.isStripped(e))
		whole, err := log.withData(e)
		require.NoError(t, err)
		require.Len(t, whole.Data, []int{0, strippedOver, strippedOver + 1, strippedOver + 1}[i])
	}
}

// TestReadAheadIsBounded: the bytes that raft reads ahead of the state machine are bounded, for entries of any size.
func TestReadAheadIsBounded(t *testing.T) {
	const ahead, most = 4096, 33 << 20 // entries of raft's read-ahead; bytes
	for _, size := range []int{100, strippedAheadOver, strippedAheadOver + 1, strippedOver, strippedOver + 1} {
		applied := uint64(10)
		log := strippedLog(t, 7)
		log.applied = func() uint64 { return applied }
		log.store = endless{size}
		held := 0
		for i := range uint64(ahead) {
			e := new(raft.Log)
			require.NoError(t, log.GetLog(applied+1+i, e))
			held += len(e.Data)
			if i < wholeAhead {
				require.Equal(t, size > strippedOver, log.isStripped(e), "entry %d of %d bytes", i, size)
			}
		}
		require.LessOrEqual(t, held, most, "entries of %d bytes", size)
	}
}

// endless is a log of entries of one size, without an end.
type endless struct{ size int }

func (l endless) FirstIndex() (uint64, error)      { return 1, nil }
func (l endless) LastIndex() (uint64, error)       { return math.MaxUint64, nil }
func (l endless) StoreLog(*raft.Log) error         { return nil }
func (l endless) StoreLogs([]*raft.Log) error      { return nil }
func (l endless) DeleteRange(uint64, uint64) error { return nil }
func (l endless) GetLog(index uint64, log *raft.Log) error {
	*log = raft.Log{Index: index, Term: 7, Data: make([]byte, l.size), Extensions: []byte{7}}
	return nil
}

// TestStrippedDataIsLetGo: the data of a stripped entry is freed, even if the store has read the entry into one piece
// of memory.
func TestStrippedDataIsLetGo(t *testing.T) {
	disk := &inOnePiece{InmemStore: raft.NewInmemStore()}
	large := raft.Log{Index: 1, Term: 7, Data: make([]byte, strippedOver+1), Extensions: []byte{7}}
	require.NoError(t, disk.StoreLog(&large))
	log, e := newParallelLog(disk, 256<<20, nil), new(raft.Log)
	require.NoError(t, log.GetLog(1, e))
	require.True(t, log.isStripped(e))
	runtime.GC()
	require.Nil(t, disk.read.Value())
	require.Equal(t, []byte{7}, e.Extensions)
}

// inOnePiece is a store that reads an entry into one piece of memory, as the log on disk does.
type inOnePiece struct {
	*raft.InmemStore
	read weak.Pointer[byte] // the newest piece
}

func (s *inOnePiece) GetLog(index uint64, log *raft.Log) error {
	if err := s.InmemStore.GetLog(index, log); err != nil {
		return err
	}
	piece := slices.Concat(log.Data, log.Extensions)
	s.read = weak.Make(&piece[0])
	n := len(log.Data)
	log.Data, log.Extensions = piece[:n:n], piece[n:]
	return nil
}

// TestReplacedEntryIsNotSent: if an entry was replaced after raft had read it, the other entry's data is not sent in
// its place.
func TestReplacedEntryIsNotSent(t *testing.T) {
	log := strippedLog(t, 7, 10, strippedOver+1)
	args := &raft.AppendEntriesRequest{Term: 7, Entries: given(t, log, 2)}
	require.NoError(t, log.DeleteRange(2, 2))
	_, _, err := cutAppend(args, log)
	require.ErrorIs(t, err, raft.ErrLogNotFound)
	require.NoError(t, log.store.StoreLog(&raft.Log{Index: 2, Term: 8, Data: make([]byte, strippedOver+1)}))
	_, _, err = cutAppend(args, log)
	require.ErrorContains(t, err, "another, of term 8")
}

// TestRecentEntriesAreBoundedByBytes: recent entries are in memory up to a number of bytes. Entries that are not on the
// disk yet are always in memory.
func TestRecentEntriesAreBoundedByBytes(t *testing.T) {
	const size = recentBytes / 4
	held := func(log *parallelLog) (indices []uint64) {
		for _, e := range log.recent {
			if e != nil {
				indices = append(indices, e.Index)
			}
		}
		slices.Sort(indices)
		return indices
	}
	entry := func(index uint64, size int) *raft.Log { return &raft.Log{Index: index, Data: make([]byte, size)} }

	log := strippedLog(t, 0)
	for i := range uint64(6) {
		require.NoError(t, log.StoreLogs([]*raft.Log{entry(2*i+1, size), entry(2*i+2, 10)}))
	}
	require.Equal(t, []uint64{6, 7, 8, 9, 10, 11, 12}, held(log))
	require.NoError(t, log.StoreLogs([]*raft.Log{entry(13, 10), entry(14, 5*size)}))
	require.Equal(t, []uint64{14}, held(log), "the newest stays")
	for i := range uint64(2 * recentLogs) {
		require.NoError(t, log.StoreLog(entry(15+i, 10)))
	}
	require.Len(t, held(log), recentLogs)
	require.NoError(t, log.StoreLog(entry(1000, 10)))
	require.Equal(t, []uint64{1000}, held(log), "a snapshot has taken the place of the others")

	ahead, store, _ := newHeldLog(t, 0)
	for i := range uint64(6) {
		require.NoError(t, ahead.StoreLog(entry(i+1, size)))
	}
	require.Len(t, held(ahead), 6, "only memory has them")
	for range 6 {
		store.let <- nil
	}
	require.NoError(t, ahead.flush())
	require.NoError(t, ahead.StoreLog(entry(7, 10)))
	require.Equal(t, []uint64{4, 5, 6, 7}, held(ahead))
	store.let <- nil
	require.NoError(t, ahead.flush())
}
