package wal

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/store/internal/record"
	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// copyDir returns a copy of dir as it is on the disk now.
func copyDir(t testing.TB, dir string) string {
	t.Helper()
	to := memoryDir(t)
	require.NoError(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

// torn returns what a power cut may leave of the append that changed before into after: some of the sectors that it
// wrote.
func torn(before, after []byte, keep func(sector int) bool) []byte {
	b := bytes.Clone(before)
	for at := 0; at < len(b); at += sectorSize {
		end := min(len(b), at+sectorSize)
		if !bytes.Equal(before[at:end], after[at:end]) && keep(at/sectorSize) {
			copy(b[at:end], after[at:end])
		}
	}
	return b
}

// tail returns the name and the content of the file that appends go to.
func tail(t *testing.T, w *WAL) (string, []byte) {
	t.Helper()
	name := filepath.Base(w.segments[len(w.segments)-1].file.Name())
	b, err := os.ReadFile(w.folder.Path(name))
	require.NoError(t, err)
	return name, b
}

// TestPowerCutInAnAppend: appends of many sizes are torn in many ways. Entries of earlier appends stay, and of the torn
// append all entries or none. The log can be appended to, even if a second power cut comes while Open erases the torn
// append.
func TestPowerCutInAnAppend(t *testing.T) {
	var log bytes.Buffer
	o := Options{SegmentSize: 16 << 10, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	rng := rand.New(rand.NewPCG(3, 4))
	rotated := 0
	for round := range 60 {
		w, dir := create(t, o)
		store(t, w, 1, 1+rng.Uint64N(20))
		_, last := w.bounds()
		name, before := tail(t, w)
		image := copyDir(t, dir)
		count := 1 + rng.Uint64N(25)
		store(t, w, last+1, last+count)
		if after, content := tail(t, w); after == name {
			for range 20 {
				lost := rng.IntN(100)
				b := torn(before, content, func(int) bool { return rng.IntN(100) >= lost })
				require.NoError(t, os.WriteFile(filepath.Join(image, name), b, 0o600))
				again := reopen(t, image, o)
				_, got := again.bounds()
				if bytes.Equal(b, content) {
					require.Equal(t, last+count, got)
				} else {
					require.Equal(t, last, got, "round %d", round)
				}
				requireRange(t, again, 1, got)
				// The writes of the recovery are torn, too.
				_, mended := tail(t, again)
				crash(again)
				b = torn(b, mended, func(int) bool { return rng.IntN(2) == 0 })
				require.NoError(t, os.WriteFile(filepath.Join(image, name), b, 0o600))
				again = reopen(t, image, o)
				requireRange(t, again, 1, got)
				store(t, again, got+1, got+3)
				crash(again)
				again = reopen(t, image, o)
				requireRange(t, again, 1, got+3)
				crash(again)
				require.NoError(t, os.RemoveAll(image))
				image = restore(t, dir, name, before)
			}
		} else {
			rotated++
		}
		crash(w)
	}
	require.Less(t, rotated, 40, "most appends stayed in their segment")
	require.Contains(t, log.String(), "erased an append that a crash interrupted")
}

// restore returns a copy of dir in which the file has that content.
func restore(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	image := copyDir(t, dir)
	require.NoError(t, os.WriteFile(filepath.Join(image, name), content, 0o600))
	return image
}

// spoiled opens dir while the file name has other content. Open must return a *DamageError that names this file, or
// find all entries. spoiled reports whether Open has refused.
func spoiled(t *testing.T, dir string, first, last uint64, name string, content []byte) (refused bool) {
	t.Helper()
	path := filepath.Join(dir, name)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, os.WriteFile(path, good, 0o600)) }()
	require.NoError(t, os.WriteFile(path, content, 0o600))
	manifest, err := os.ReadFile(filepath.Join(dir, manifestName))
	require.NoError(t, err)
	w, err := open(dir, small)
	if name != manifestName {
		require.NoError(t, os.WriteFile(filepath.Join(dir, manifestName), manifest, 0o600))
	}
	if err != nil {
		var damaged *DamageError
		require.ErrorAs(t, err, &damaged)
		require.Equal(t, path, damaged.Path, err)
		return true
	}
	defer w.closeSegments()
	requireRange(t, w, first, last)
	return false
}

// oldLog returns a log with full, truncated and partly deleted segments.
func oldLog(t *testing.T, closed bool) (dir string, first, last uint64) {
	t.Helper()
	w, dir := create(t, small)
	for i := uint64(1); i < 90; i += 9 {
		store(t, w, i, i+8)
	}
	require.NoError(t, w.DeleteRange(50, 90))
	require.NoError(t, w.DeleteRange(1, 20))
	store(t, w, 50, 60)
	store(t, w, 61, 61)
	store(t, w, 62, 70)
	if closed {
		require.NoError(t, w.Close())
	} else {
		crash(w)
	}
	return dir, 21, 70
}

func logFiles(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	m, err := loadManifest(vfs.OS{}, dir)
	require.NoError(t, err)
	files := make(map[string][]byte)
	for _, s := range m.Segments {
		files[segmentName(s.Number)] = nil
	}
	files[manifestName] = nil
	for name := range files {
		files[name], err = os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
	}
	return files
}

// TestFlippedBits: one flipped bit makes Open refuse the log, or changes no entry. Bits are tried a few bytes apart in
// every file, after a crash and after an orderly stop.
func TestFlippedBits(t *testing.T) {
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprintf("closed %v", closed), func(t *testing.T) {
			dir, first, last := oldLog(t, closed)
			rng := rand.New(rand.NewPCG(5, 6))
			refused, accepted := 0, 0
			for name, content := range logFiles(t, dir) {
				for at := 0; at < len(content); at += 1 + rng.IntN(8) {
					b := bytes.Clone(content)
					b[at] ^= 1 << rng.IntN(8)
					if spoiled(t, dir, first, last, name, b) {
						refused++
					} else {
						accepted++
					}
				}
			}
			t.Logf("%d refused, %d accepted", refused, accepted)
			require.Greater(t, refused, 500)
			require.Greater(t, accepted, 50, "behind a cut there is nothing that counts")
		})
	}
}

// TestEveryByteCounts: after a crash, each flipped bit up to the end of the last entry makes Open refuse the log, even
// in the last append, whose end is not recorded.
func TestEveryByteCounts(t *testing.T) {
	w, dir := create(t, small)
	store(t, w, 1, 2)
	last := w.segments[0].written
	store(t, w, 3, 3)
	end := w.segments[0].written
	crash(w)
	name := segmentName(1)
	content := logFiles(t, dir)[name]
	for bit := range 8 * end {
		b := bytes.Clone(content)
		b[bit/8] ^= 1 << (bit % 8)
		require.True(t, spoiled(t, dir, 1, 3, name, b), "bit %d", bit)
	}
	for at, reason := range map[int64]string{
		headSize + 1:              "acknowledged entries follow at byte",
		last + 8:                  "the head of the last append is damaged",
		last + batchHeadSize + 12: "the last append is damaged",
	} {
		b := bytes.Clone(content)
		b[at] ^= 1
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		_, err := open(dir, small)
		require.ErrorContains(t, err, reason)
	}
	require.NotEmpty(t, damage(bytes.Repeat([]byte{1}, 100), 1, 80, 100), "there is no room for a head")
}

// TestShortAndOverwrittenFiles: a file of another length is refused. If sectors or pages are overwritten with zeros,
// ones or other parts of the file, Open refuses the log, or no entry has changed.
func TestShortAndOverwrittenFiles(t *testing.T) {
	dir, first, last := oldLog(t, true)
	for name, content := range logFiles(t, dir) {
		for n := 0; n < len(content); n += 61 {
			require.True(t, spoiled(t, dir, first, last, name, content[:n]), "%s cut at %d", name, n)
		}
		require.True(t, spoiled(t, dir, first, last, name, append(bytes.Clone(content), 0)))
		for _, size := range []int{sectorSize, 4096} {
			for at := 0; at+size <= len(content); at += size {
				for _, filler := range [][]byte{
					make([]byte, size), bytes.Repeat([]byte{0xff}, size), content[len(content)-size:],
					content[:size],
				} {
					b := bytes.Clone(content)
					copy(b[at:], filler)
					spoiled(t, dir, first, last, name, b)
				}
			}
		}
	}
}

// TestZeroedSectorsAfterACrash: zeros in the middle are damage. Only in the last append can they come from a power cut
// before the acknowledgement.
func TestZeroedSectorsAfterACrash(t *testing.T) {
	w, dir := create(t, Options{SegmentSize: 64 << 10})
	for i := uint64(1); i <= 40; i++ {
		store(t, w, i, i)
	}
	lastAt := w.segments[0].spans[39].offset - batchHeadSize
	crash(w)
	name := segmentName(1)
	content := logFiles(t, dir)[name]
	for at := sectorSize; at < int(lastAt)-sectorSize; at += sectorSize {
		b := bytes.Clone(content)
		clear(b[at : at+sectorSize])
		require.True(t, spoiled(t, dir, 1, 40, name, b), "at %d", at)
	}
	clear(content[lastAt:])
	require.False(t, spoiled(t, dir, 1, 39, name, content))
}

func TestSwappedSegmentsAreRefused(t *testing.T) {
	dir, first, last := oldLog(t, true)
	files := logFiles(t, dir)
	for name := range files {
		for other, content := range files {
			if name != other && name != manifestName && other != manifestName {
				require.True(t, spoiled(t, dir, first, last, name, content))
			}
		}
	}
}

// TestRestoredOldFilesAreRefused: after an orderly stop, an older copy of the last segment is refused.
func TestRestoredOldFilesAreRefused(t *testing.T) {
	w, dir := create(t, small)
	store(t, w, 1, 5)
	name, older := tail(t, w)
	store(t, w, 6, 6)
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), older, 0o600))
	_, err := Open(dir, small)
	require.ErrorContains(t, err, "the log was closed with last entry 6, and ends with 5 now")
}

func TestDamageWhileOpenIsNoticed(t *testing.T) {
	w, dir := create(t, small)
	store(t, w, 1, 5)
	name, content := tail(t, w)
	at := w.segments[0].spans[2]
	content[at.offset+at.size/2] ^= 1
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(content, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	var damaged *DamageError
	require.ErrorAs(t, w.GetLog(3, &raft.Log{Index: 3}), &damaged, "nor is another's index taken for this one's")
	require.ErrorContains(t, damaged, fmt.Sprintf("%s is damaged at byte %d: entry 3 is damaged", name, at.offset))
	require.NoError(t, w.GetLog(2, &raft.Log{}))
}

// TestZeroedSectorOfTwoBatches: zeros over the end of one acknowledged batch and the head of the next one do not count
// as a torn append, wherever the first batch begins.
func TestZeroedSectorOfTwoBatches(t *testing.T) {
	for _, together := range []bool{false, true} {
		w, dir := create(t, small)
		var starts []int64
		for i := uint64(1); ; i++ {
			start := int64(headSize)
			if len(w.segments) > 0 {
				start = w.segments[0].written
			}
			starts = append(starts, start)
			store(t, w, i, i)
			require.Len(t, w.segments, 1, "there is no such place")
			end := w.segments[0].written
			sector := start / sectorSize
			inside := start%sectorSize > 8 && start%sectorSize+batchHeadSize <= sectorSize && end > (sector+1)*sectorSize+16
			if i > 3 && inside && (starts[i-2]/sectorSize == sector) == together {
				crash(w)
				name := segmentName(1)
				content := logFiles(t, dir)[name]
				clear(content[sector*sectorSize : (sector+1)*sectorSize])
				require.True(t, spoiled(t, dir, 1, i, name, content))
				break
			}
		}
	}
}

// TestGoldenLog: a log that an earlier release has written can be opened, since the format must not change.
func TestGoldenLog(t *testing.T) {
	dir := memoryDir(t)
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/golden")))
	w := reopen(t, dir, Options{SegmentSize: 1024})
	requireRange(t, w, 3, 21)
	store(t, w, 22, 25)
	require.NoError(t, w.Close())
	requireRange(t, reopen(t, dir, small), 3, 25)
}

// TestBatchOfOtherLength: a batch is not whole if its records end before its length or after it.
func TestBatchOfOtherLength(t *testing.T) {
	records := record.Append(nil, entry(1))
	b := append(make([]byte, headSize+batchHeadSize), records...)
	b = append(b, make([]byte, 64)...)
	for more, whole := range map[int]bool{-8: false, 0: true, 8: false} {
		s := segment{info: segmentInfo{First: 1}, written: headSize}
		require.Equal(t, whole, s.addBatch(b, batchHead{length: len(records) + more, first: 1, count: 1}))
		require.Equal(t, whole, len(s.spans) == 1)
		require.Equal(t, whole, s.written > headSize)
	}
}

// TestBatchOfOtherEntries: a batch is not whole if it does not continue the one before.
func TestBatchOfOtherEntries(t *testing.T) {
	records := record.Append(nil, entry(2))
	b := append(make([]byte, headSize+batchHeadSize), records...)
	putBatchHead(b[headSize:], batchHead{length: len(records), first: 2, count: 1}, 7, headSize)
	for first, whole := range map[uint64]bool{1: false, 2: true} {
		s := segment{info: segmentInfo{Number: 7, First: first}, written: headSize}
		require.NoError(t, s.scan(b, "name"))
		require.Equal(t, whole, len(s.spans) == 1)
	}
}

// TestEntryInAnothersPlace: a whole entry in the place of another one is damage.
func TestEntryInAnothersPlace(t *testing.T) {
	w, dir := create(t, small)
	require.NoError(t, w.StoreLogs([]*raft.Log{{Index: 1, Data: []byte("one")}, {Index: 2, Data: []byte("two")}}))
	name, content := tail(t, w)
	from, to := w.segments[0].spans[0], w.segments[0].spans[1]
	require.Equal(t, from.size, to.size)
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(content[from.offset:from.offset+from.size], int64(to.offset))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, w.GetLog(1, &raft.Log{}))
	require.ErrorContains(t, w.GetLog(2, &raft.Log{}), "entry 2 is damaged")
}
