package wal

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// small makes segments of a few dozen entries.
var small = Options{SegmentSize: 4096}

// memoryDir returns a folder in memory, if there is one: these tests are about bytes and their order, and not about the
// speed of a disk.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "holdfast-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func create(t testing.TB, o Options) (*WAL, string) {
	t.Helper()
	dir := memoryDir(t)
	require.NoError(t, Create(vfs.OS{}, dir))
	return reopen(t, dir, o), dir
}

func reopen(t testing.TB, dir string, o Options) *WAL {
	t.Helper()
	w, err := Open(dir, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// crash ends w as if its process were killed: nothing is written any more.
func crash(w *WAL) {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.spares.close()
	w.broken = ErrClosed
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.closeSegments()
}

// entry returns an entry whose size depends on its index, and part of whose data is zeros.
func entry(index uint64) *raft.Log {
	data := append(fmt.Appendf(nil, "entry %d ", index), make([]byte, index*37%300)...)
	return &raft.Log{
		Index: index, Term: 1 + index/10, Type: raft.LogType(index % 2), Data: data,
		AppendedAt: time.Unix(0, int64(index)),
	}
}

func entries(from, to uint64) []*raft.Log {
	var logs []*raft.Log
	for i := from; i <= to; i++ {
		logs = append(logs, entry(i))
	}
	return logs
}

func store(t testing.TB, w *WAL, from, to uint64) {
	t.Helper()
	require.NoError(t, w.StoreLogs(entries(from, to)))
}

// requireRange requires exactly the entries first to last.
func requireRange(t testing.TB, w *WAL, first, last uint64) {
	t.Helper()
	got, err := w.FirstIndex()
	require.NoError(t, err)
	require.Equal(t, first, got)
	got, err = w.LastIndex()
	require.NoError(t, err)
	require.Equal(t, last, got)
	for i := first; i <= last && last > 0; i++ {
		var l raft.Log
		require.NoError(t, w.GetLog(i, &l))
		require.Equal(t, *entry(i), l)
	}
	for _, i := range []uint64{0, first - 1, last + 1} {
		if i < first || i > last || last == 0 {
			require.ErrorIs(t, w.GetLog(i, &raft.Log{}), raft.ErrLogNotFound)
		}
	}
}

func TestEntriesStay(t *testing.T) {
	var log bytes.Buffer
	small := small
	small.Logger = slog.New(slog.NewTextHandler(&log, nil))
	w, dir := create(t, small)
	requireRange(t, w, 0, 0)
	require.True(t, w.IsMonotonic())
	require.NoError(t, w.StoreLogs(nil))
	require.NoError(t, w.StoreLog(entry(1)))
	store(t, w, 2, 3)
	for i := uint64(4); i < 200; i += 7 {
		store(t, w, i, i+6)
	}
	requireRange(t, w, 1, 199)
	require.Greater(t, len(w.segments), 3)
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	require.ErrorIs(t, w.StoreLog(entry(200)), ErrClosed)
	require.ErrorIs(t, w.DeleteRange(1, 2), ErrClosed)
	require.ErrorIs(t, w.GetLog(1, &raft.Log{}), ErrClosed)
	_, err := w.FirstIndex()
	require.ErrorIs(t, err, ErrClosed)
	_, err = w.LastIndex()
	require.ErrorIs(t, err, ErrClosed)

	w = reopen(t, dir, small)
	requireRange(t, w, 1, 199)
	store(t, w, 200, 210)
	crash(w)
	w = reopen(t, dir, small)
	requireRange(t, w, 1, 210)
	require.Empty(t, log.String(), "no torn segment is logged")
}

func TestCreateDoesNotOverwrite(t *testing.T) {
	_, dir := create(t, small)
	require.ErrorContains(t, Create(vfs.OS{}, dir), "there is one")
	empty := memoryDir(t)
	require.ErrorIs(t, Create(blind{vfs.OS{}}, empty), syscall.EIO, "it is not known whether there is one")
	require.NoFileExists(t, filepath.Join(empty, manifestName))
	require.ErrorIs(t, Create(vfs.OS{}, filepath.Join(empty, "nowhere")), fs.ErrNotExist)
}

// blind is a file system that cannot tell which files exist.
type blind struct{ vfs.FS }

func (blind) Exists(string) (bool, error)          { return false, syscall.EIO }
func (blind) Holds(string, vfs.File) (bool, error) { return false, syscall.EIO }

func TestGapsAreRefused(t *testing.T) {
	w, _ := create(t, small)
	require.ErrorContains(t, w.StoreLog(&raft.Log{}), "entry 0")
	require.ErrorContains(t, w.StoreLogs([]*raft.Log{entry(5), entry(7)}), "entry 7 cannot follow entry 5")
	store(t, w, 5, 6)
	require.ErrorContains(t, w.StoreLog(entry(8)), "entry 8 cannot follow entry 6")
	require.ErrorContains(t, w.StoreLog(entry(6)), "entry 6 cannot follow entry 6")
	store(t, w, 7, 7)
	requireRange(t, w, 5, 7)
}

// TestAppendBeyondAllSizes: an append that is too large is refused, and later ones succeed.
func TestAppendBeyondAllSizes(t *testing.T) {
	w, _ := create(t, small)
	w.batch = bufferRoom + batchHeadSize + 1000
	store(t, w, 1, 1)
	large := &raft.Log{Index: 3, Data: make([]byte, 1000)}
	require.ErrorContains(t, w.StoreLogs([]*raft.Log{entry(2), large}), "2 entries have more than")
	store(t, w, 2, 2)
	requireRange(t, w, 1, 2)
}

func TestDeleteRange(t *testing.T) {
	for _, row := range []struct {
		name        string
		lo, hi      uint64
		first, last uint64
	}{
		{"before all", 1, 9, 10, 100},
		{"behind all", 101, 200, 10, 100},
		{"long before all", 1, 5, 10, 100},
		{"far behind all", 150, 200, 10, 100},
		{"nothing", 50, 49, 10, 100},
		{"one at the beginning", 10, 10, 11, 100},
		{"more than the beginning", 0, 60, 61, 100},
		{"all but the last", 10, 99, 100, 100},
		{"one at the end", 100, 100, 10, 99},
		{"more than the end", 40, 1000, 10, 39},
		{"all but the first", 11, 100, 10, 10},
		{"all", 10, 100, 0, 0},
		{"more than all", 1, 1000, 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, dir := create(t, small)
			for i := uint64(10); i < 100; i += 13 {
				store(t, w, i, i+12)
			}
			before := len(w.segments)
			require.NoError(t, w.DeleteRange(row.lo, row.hi))
			requireRange(t, w, row.first, row.last)
			requireNoMoreFiles(t, w, dir)
			crash(w)
			w = reopen(t, dir, small)
			requireRange(t, w, row.first, row.last)
			next := row.last + 1
			if row.last == 0 {
				next = 1000 // after a snapshot, an empty log continues at any index
				row.first = next
			}
			store(t, w, next, next+20)
			requireRange(t, w, row.first, next+20)
			require.NoError(t, w.Close())
			w = reopen(t, dir, small)
			requireRange(t, w, row.first, next+20)
			require.LessOrEqual(t, len(w.segments), before+3)
			requireNoMoreFiles(t, w, dir)
		})
	}
	w, _ := create(t, small)
	store(t, w, 1, 10)
	require.ErrorContains(t, w.DeleteRange(3, 5), "neither the beginning nor the end")
	requireRange(t, w, 1, 10)
}

func TestLargeEntriesGetASegmentOfTheirOwn(t *testing.T) {
	w, dir := create(t, small)
	store(t, w, 1, 3)
	big := &raft.Log{Index: 4, Data: bytes.Repeat([]byte("big"), 1<<20)}
	require.NoError(t, w.StoreLog(big))
	require.NoError(t, w.StoreLog(&raft.Log{Index: 5}))
	require.NoError(t, w.Close())
	w = reopen(t, dir, small)
	var l raft.Log
	require.NoError(t, w.GetLog(4, &l))
	require.Equal(t, big.Data, l.Data)
	require.NoError(t, w.GetLog(5, &l))
	require.NoError(t, w.GetLog(3, &l))
	require.Equal(t, entry(3).Data, l.Data)
	require.NoError(t, w.StoreLog(&raft.Log{Index: 6, Data: big.Data}))
	require.NoError(t, w.StoreLog(&raft.Log{Index: 7}))
	require.Less(t, cap(w.buf), len(big.Data), "the memory of a large batch is not kept")
}

// counting counts the bytes that are written to segments.
type counting struct {
	vfs.FS
	written *atomic.Int64
}

func (c counting) Open(name string, flag int) (vfs.File, error) {
	f, err := c.FS.Open(name, flag)
	if err != nil || filepath.Ext(name) != segmentSuffix {
		return f, err
	}
	return countedFile{f, c.written}, nil
}

type countedFile struct {
	vfs.File
	written *atomic.Int64
}

func (f countedFile) WriteAt(b []byte, at int64) (int, error) {
	f.written.Add(int64(len(b)))
	return f.File.WriteAt(b, at)
}

func (f countedFile) WriteDirect(b []byte, at int64) (int, error) { return f.WriteAt(b, at) }

// TestLargeBatchIsWrittenOnce: the space of a large batch is not filled with zeros first.
func TestLargeBatchIsWrittenOnce(t *testing.T) {
	const segment, size = 64 << 10, 30 << 10
	dir, stored, index := memoryDir(t), int64(0), uint64(0)
	written := new(atomic.Int64)
	require.NoError(t, Create(vfs.OS{}, dir))
	w := reopen(t, dir, Options{SegmentSize: segment, FS: counting{vfs.OS{}, written}})
	for range 40 {
		for _, n := range []int{size, 100} {
			index++
			require.NoError(t, w.StoreLog(&raft.Log{Index: index, Data: make([]byte, n)}))
		}
		stored += size + blockSize // a small append is a block
	}
	require.NoError(t, w.Close())
	require.Less(t, written.Load(), stored*5/4+2*segment)
	w = reopen(t, dir, Options{SegmentSize: segment})
	require.NoError(t, w.GetLog(index-1, new(raft.Log)))
}

// requireNoMoreFiles requires that there are only the files of the segments, and the prepared next one.
func requireNoMoreFiles(t testing.TB, w *WAL, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	require.NoError(t, err)
	require.LessOrEqual(t, len(files), len(w.segments)+1, "no file is left behind but the spare")
}

// TestSpaceIsInProportionToEntries: the space of entries of any size is in proportion to them, with and without small
// ones between.
func TestSpaceIsInProportionToEntries(t *testing.T) {
	const segment = 64 << 10
	for _, size := range []int{1 << 10, 20 << 10, 30 << 10, 34 << 10, 40 << 10, 64 << 10, 200 << 10} {
		for _, small := range []int{0, 1, 5} {
			w, _ := create(t, Options{SegmentSize: segment})
			stored, index := int64(0), uint64(0)
			for range 60 {
				for i := range 1 + small {
					n := 100
					if i == 0 {
						n = size
					}
					index++
					require.NoError(t, w.StoreLog(&raft.Log{Index: index, Data: make([]byte, n)}))
					stored += int64(n)
				}
			}
			taken := int64(0)
			for _, s := range w.segments {
				taken += s.info.Size
			}
			require.Less(t, taken, stored*8/5+2*segment, "entries of %d bytes, %d small ones between", size, small)
			require.LessOrEqual(t, len(w.segments), int(stored/(segment/4))+2, "files of entries of %d bytes", size)
			require.NoError(t, w.Close())
		}
	}
}

// TestAgainstAModel: random appends and deletions, as raft makes them and others, and crashes and restarts in between
// leave the entries of a model.
func TestAgainstAModel(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		o := Options{SegmentSize: 512 << rng.IntN(6)}
		w, dir := create(t, o)
		first, last := uint64(0), uint64(0)
		for range 300 {
			switch n := rng.IntN(20); {
			case n < 14:
				from := last + 1
				if last == 0 {
					from = 1 + rng.Uint64N(1000)
					first = from
				}
				last = from + rng.Uint64N(1+rng.Uint64N(30))
				store(t, w, from, last)
			case n == 14 && last > 0:
				hi := first + rng.Uint64N(last-first+1)
				require.NoError(t, w.DeleteRange(rng.Uint64N(first+1), hi))
				if first = hi + 1; first > last {
					first, last = 0, 0
				}
			case n == 15 && last > 0:
				lo := first + rng.Uint64N(last-first+1)
				require.NoError(t, w.DeleteRange(lo, last+rng.Uint64N(3)))
				if last = lo - 1; last < first {
					first, last = 0, 0
				}
			case n == 16:
				crash(w)
				w = reopen(t, dir, o)
			case n == 17:
				require.NoError(t, w.Close())
				w = reopen(t, dir, o)
			}
			requireNoMoreFiles(t, w, dir)
		}
		requireRange(t, w, first, last)
		crash(w)
		requireRange(t, reopen(t, dir, o), first, last)
	}
}

func TestReadersNeedNotWait(t *testing.T) {
	w, _ := create(t, small)
	store(t, w, 1, 50)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				first, err := w.FirstIndex()
				require.NoError(t, err)
				last, err := w.LastIndex()
				require.NoError(t, err)
				path, err := w.Gone()
				require.NoError(t, err)
				require.Empty(t, path)
				var l raft.Log
				for i := first; i <= last; i++ {
					if err := w.GetLog(i, &l); !errors.Is(err, raft.ErrLogNotFound) {
						require.NoError(t, err)
						require.Equal(t, i, l.Index)
					}
				}
			}
		})
	}
	for i := uint64(51); i < 400; i += 3 {
		var deleted sync.WaitGroup
		if i%9 == 0 {
			deleted.Go(func() { require.NoError(t, w.DeleteRange(0, i-20)) })
		}
		store(t, w, i, i+2) // concurrently with the deletion
		deleted.Wait()
	}
	close(stop)
	wg.Wait()
	requireRange(t, w, 377, 401)
}

// TestClosingTogether: a call during a Close takes effect, or returns ErrClosed.
func TestClosingTogether(t *testing.T) {
	w, dir := create(t, small)
	store(t, w, 1, 20)
	last := uint64(20)
	var all sync.WaitGroup
	for _, call := range []func() error{
		w.Close, w.Close,
		func() error {
			err := w.StoreLog(entry(21))
			if err == nil {
				last = 21
			}
			return err
		},
		func() error { return w.GetLog(20, &raft.Log{}) },
		func() error { _, err := w.LastIndex(); return err },
	} {
		all.Go(func() {
			if err := call(); !errors.Is(err, ErrClosed) {
				require.NoError(t, err)
			}
		})
	}
	all.Wait()
	requireRange(t, reopen(t, dir, small), 1, last)
}

func TestFailedWriteIsTheLast(t *testing.T) {
	w, dir := create(t, small)
	store(t, w, 1, 5)
	require.NoError(t, w.segments[0].file.Close()) // writes fail now
	err := w.StoreLog(entry(6))
	require.ErrorIs(t, err, fs.ErrClosed)
	require.Equal(t, err, w.StoreLog(entry(6)), "it does not try again: what is on the disk is unknown")
	require.Equal(t, err, w.DeleteRange(1, 1))
	var damaged *DamageError
	require.NotErrorAs(t, w.GetLog(1, &raft.Log{}), &damaged, "what cannot be read is not damaged for that")
	require.ErrorIs(t, w.GetLog(1, &raft.Log{}), fs.ErrClosed)
	require.NoError(t, w.Close())
	w = reopen(t, dir, small)
	requireRange(t, w, 1, 5)
	store(t, w, 6, 6)
}

func TestFailedRotationIsTheLast(t *testing.T) {
	w, dir := create(t, small)
	store(t, w, 1, 5)
	moved := dir + ".moved"
	require.NoError(t, os.Rename(dir, moved))
	var err error
	last := uint64(5)
	for ; err == nil; last++ {
		err = w.StoreLog(entry(last + 1))
	}
	last--
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, err, w.StoreLog(entry(last+1)))
	require.NoError(t, os.Rename(moved, dir))
	require.NoError(t, w.Close())
	requireRange(t, reopen(t, dir, small), 1, last)
}

// TestFailedClosing: Close returns an error if the index of the last entry cannot be recorded.
func TestFailedClosing(t *testing.T) {
	w, dir := create(t, small)
	store(t, w, 1, 5)
	require.NoError(t, os.Rename(dir, dir+".moved"))
	require.ErrorIs(t, w.Close(), fs.ErrNotExist)
	require.NoError(t, os.Rename(dir+".moved", dir))
	requireRange(t, reopen(t, dir, small), 1, 5)
}

func TestSparesSurviveAFullDisk(t *testing.T) {
	w, dir := create(t, small)
	store(t, w, 1, 5)
	sp := w.spares.take()
	require.NoError(t, sp.file.Close())
	require.NoError(t, os.Remove(sp.file.Name()))
	w.spares.ready <- spare{number: sp.number, err: errors.New("no space left on device")}
	for i := uint64(6); len(w.segments) < 3; i++ {
		require.NoError(t, w.StoreLog(entry(i)), "a segment is made when it is needed")
	}
	require.NoError(t, w.Close())
	reopen(t, dir, small)
}

// TestGone: Gone returns the path of the newest segment or of the manifest if the open file is not there. If the disk
// returns an error, so does Gone, without a path.
func TestGone(t *testing.T) {
	w, dir := create(t, small)
	for n := range uint64(2) {
		path, err := w.Gone()
		require.NoError(t, err)
		require.Empty(t, path)
		name := filepath.Join(dir, manifestName)
		if n > 0 {
			name = w.segments[len(w.segments)-1].file.Name()
		}
		require.NoError(t, os.Rename(name, name+".kept"))
		path, err = w.Gone()
		require.NoError(t, err)
		require.Equal(t, name, path)
		require.NoError(t, os.Rename(name+".kept", name))
		sees := w.folder // the next segment may be prepared meanwhile
		w.folder = vfs.NewFolder(blind{sees.FS}, dir)
		path, err = w.Gone()
		require.ErrorIs(t, err, syscall.EIO)
		require.Empty(t, path)
		w.folder = sees
		store(t, w, 100*n+1, 100*n+100)
	}
}

func TestMissingPieces(t *testing.T) {
	dir := memoryDir(t)
	_, err := Open(dir, small)
	var damaged *DamageError
	require.ErrorAs(t, err, &damaged)
	require.ErrorContains(t, err, "MANIFEST is damaged: it is missing")

	w, dir := create(t, small)
	for i := uint64(1); i <= 110; i += 10 {
		store(t, w, i, i+9)
	}
	crash(w)
	files, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	require.NoError(t, err)
	for _, s := range w.segments {
		name := s.file.Name()
		require.NoError(t, os.Rename(name, name+".moved"))
		_, err := Open(dir, small)
		require.ErrorAs(t, err, &damaged)
		require.Equal(t, name, damaged.Path)
		require.ErrorContains(t, err, "it is missing")
		require.NoError(t, os.Rename(name+".moved", name))
	}
	require.Greater(t, len(files), 1)
	requireRange(t, reopen(t, dir, small), 1, 110)
}

func TestNewerFormatIsRefused(t *testing.T) {
	_, dir := create(t, small)
	m, err := loadManifest(vfs.OS{}, dir)
	require.NoError(t, err)
	m.Format = 2
	require.NoError(t, m.save(vfs.NewFolder(vfs.OS{}, dir)))
	_, err = Open(dir, small)
	require.ErrorContains(t, err, "format 2, this release reads 1")
	var damaged *DamageError
	require.NotErrorAs(t, err, &damaged)

	text := []byte(`{"Format":1,"NextSegment":"one"}` + "\n") // with the right checksum
	text = fmt.Appendf(text, "%08x\n", crc32.Checksum(text, castagnoli))
	require.NoError(t, os.WriteFile(filepath.Join(dir, manifestName), text, 0o600))
	_, err = Open(dir, small)
	require.ErrorAs(t, err, &damaged)
	require.ErrorContains(t, err, "cannot unmarshal string")
}

// stubborn is a file system that removes nothing.
type stubborn struct{ vfs.FS }

func (stubborn) Remove(string) error { return syscall.EIO }

// TestUnlistedSegmentThatStays: Open fails if it cannot remove a segment that the manifest does not list.
func TestUnlistedSegmentThatStays(t *testing.T) {
	w, dir := create(t, small)
	store(t, w, 1, 3)
	require.NoError(t, w.Close())
	left := filepath.Join(dir, segmentName(9))
	require.NoError(t, os.WriteFile(left, nil, 0o600))
	_, err := Open(dir, Options{SegmentSize: small.SegmentSize, FS: stubborn{vfs.OS{}}})
	require.ErrorContains(t, err, "remove unused log segment: "+syscall.EIO.Error())
	requireRange(t, reopen(t, dir, small), 1, 3)
	require.NoFileExists(t, left)
}

// TestSegmentWithoutEntries: if an append was interrupted after it had added its segment, the log is as empty as
// before.
func TestSegmentWithoutEntries(t *testing.T) {
	w, dir := create(t, small)
	w.writing.Lock()
	next := w.manifest.clone()
	next.First, w.buf = 7, make([]byte, bufferRoom)
	require.NoError(t, w.grow(next, 7, 0, nil))
	w.writing.Unlock()
	requireRange(t, w, 0, 0)
	crash(w)
	w = reopen(t, dir, small)
	requireRange(t, w, 0, 0)
	store(t, w, 1000, 1001)
	requireRange(t, w, 1000, 1001)
}

// TestUsualSegments: segments have the default size if none is given.
func TestUsualSegments(t *testing.T) {
	w, _ := create(t, Options{})
	store(t, w, 1, 1)
	require.EqualValues(t, DefaultSegmentSize, w.segments[0].info.Size)
}

func TestImpossibleManifestsAreRefused(t *testing.T) {
	good := manifest{Format: 1, NextSegment: 9, First: 5, Segments: []segmentInfo{
		{1, 3, 10, 4096},
		{2, 11, 20, 4096},
		{3, 21, 0, 4096},
	}}
	for want, spoil := range map[string]func(*manifest){
		"impossible end": func(m *manifest) { m.Segments[2].Last = 30 },
		"gap":            func(m *manifest) { m.Segments[1].First = 12 },
		"is impossible":  func(m *manifest) { m.Segments[0].Number = 9 },
		"first segment":  func(m *manifest) { m.First = 11 },
		"segment 1 is":   func(m *manifest) { m.Segments[0].First = 0 },
		"segment 2 is":   func(m *manifest) { m.Segments[1].Size = headSize - 1 },
		"segment 2 has":  func(m *manifest) { m.Segments[1].Last, m.Segments[2].First = 10, 11 },
		"first entry":    func(m *manifest) { m.First = 2 },
	} {
		m := good.clone()
		require.Empty(t, m.inconsistency())
		spoil(m)
		require.Contains(t, m.inconsistency(), want)
		dir := memoryDir(t)
		require.NoError(t, m.save(vfs.NewFolder(vfs.OS{}, dir)))
		_, err := Open(dir, small)
		require.ErrorContains(t, err, want)
	}
}
