package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/store/internal/memdisk"
	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// act is a change of a log. then returns the entries of the log after the change.
type act struct {
	do   func(w *WAL) error
	then func(entries []*raft.Log) []*raft.Log
}

// version returns entries that differ from those of other versions.
func version(from, to, v uint64) []*raft.Log {
	logs := entries(from, to)
	for _, l := range logs {
		l.Term += 100 * v
		l.Data = append(l.Data, bytes.Repeat([]byte{byte(v)}, int(v))...)
	}
	return logs
}

func appending(from, to, v uint64) act {
	return act{
		do:   func(w *WAL) error { return w.StoreLogs(version(from, to, v)) },
		then: func(old []*raft.Log) []*raft.Log { return append(old[:len(old):len(old)], version(from, to, v)...) },
	}
}

func deleting(lo, hi uint64) act {
	return act{
		do: func(w *WAL) error { return w.DeleteRange(lo, hi) },
		then: func(old []*raft.Log) []*raft.Log {
			var left []*raft.Log
			for _, l := range old {
				if l.Index < lo || l.Index > hi {
					left = append(left, l)
				}
			}
			return left
		},
	}
}

func closing() act {
	return act{do: (*WAL).Close, then: func(old []*raft.Log) []*raft.Log { return old }}
}

// filled returns the acts that make a log of several segments.
func filled() []act {
	var acts []act
	for i := uint64(1); i < 30; i += 9 {
		acts = append(acts, appending(i, i+8, 0))
	}
	return acts
}

// powerScenarios are interrupted at every operation of their last act.
var powerScenarios = []struct {
	name string
	acts []act
}{
	{"first append", []act{appending(7, 9, 0)}},
	{"append", []act{appending(1, 5, 0), appending(6, 9, 0)}},
	{"append within a sector", []act{appending(1, 5, 0), appending(6, 6, 0)}},
	{"append into a new segment", append(filled(), appending(37, 50, 0))},
	{"append more than a segment", []act{appending(1, 5, 0), appending(6, 60, 0)}},
	{"append behind more than a segment", []act{appending(1, 60, 0), appending(61, 63, 0)}},
	{"delete a head", append(filled(), deleting(1, 25))},
	{"delete a tail", append(filled(), deleting(15, 36))},
	{"append behind a deleted tail", append(filled(), deleting(15, 36), appending(15, 19, 1))},
	{"replace a tail in one segment", []act{appending(1, 9, 0), deleting(5, 9), appending(5, 6, 1)}},
	{"delete all", append(filled(), deleting(1, 36))},
	{"begin elsewhere", append(filled(), deleting(1, 36), appending(1000, 1004, 0))},
	{"close", append(filled(), closing())},
	{"close an empty log", []act{closing()}},
}

const powerDir = "log"

// opener opens logs, one at a time, and closes the last one when a test fails.
type opener struct {
	size int64 // of segments
	last *WAL
}

func newOpener(t *testing.T) *opener {
	o := &opener{size: small.SegmentSize}
	t.Cleanup(func() {
		if o.last != nil {
			_ = o.last.Close()
		}
	})
	return o
}

func (o *opener) open(d *memdisk.Disk) (*WAL, error) {
	w, err := Open(powerDir, Options{SegmentSize: o.size, FS: d.Boot()})
	o.last = w
	if err == nil {
		synctest.Wait() // until the next segment is prepared: operations then come in the same order each time
	}
	return w, err
}

// newPowerDisk returns a disk with an empty log.
func newPowerDisk(t *testing.T, seed uint64) *memdisk.Disk {
	t.Helper()
	d := memdisk.New(seed)
	fs := d.Boot()
	require.NoError(t, fs.Mkdir(powerDir))
	require.NoError(t, fs.SyncDir("."))
	require.NoError(t, Create(fs, powerDir))
	return d
}

// contents returns all entries of a log.
func contents(t *testing.T, w *WAL) []*raft.Log {
	t.Helper()
	first, err := w.FirstIndex()
	require.NoError(t, err)
	last, err := w.LastIndex()
	require.NoError(t, err)
	var logs []*raft.Log
	for i := first; i <= last && last > 0; i++ {
		l := new(raft.Log)
		require.NoError(t, w.GetLog(i, l))
		logs = append(logs, l)
	}
	return logs
}

// fingerprint returns a text that differs between different logs.
func fingerprint(logs []*raft.Log) string {
	if len(logs) == 0 {
		return "no entries"
	}
	var b []byte
	for _, l := range logs {
		b = binary.AppendUvarint(b, l.Index)
		b = binary.AppendUvarint(b, l.Term)
		b = append(b, l.Data...)
	}
	return fmt.Sprintf("entries %d to %d, %08x", logs[0].Index, logs[len(logs)-1].Index, crc32.ChecksumIEEE(b))
}

// fault is called at one operation, and returns the operation's error.
type fault func(d *memdisk.Disk) error

func kills(d *memdisk.Disk) error { d.Kill(); return nil }
func fails(*memdisk.Disk) error   { return syscall.EIO }

func cuts(seed uint64) fault {
	return func(d *memdisk.Disk) error { d.PowerCut(seed); return nil }
}

// firstFaults has the first faults, by name. The next faults happen in the Open that follows.
var firstFaults = map[string]struct {
	first fault
	next  []fault
}{"killed": {kills, []fault{fails, cuts(1), cuts(6), cuts(16)}}, "failed": {fails, nil}, "cut": {
	cuts(1),
	[]fault{fails},
}}

// at has f called at the nth operation from now on. reached is set then.
func at(d *memdisk.Disk, n int, f fault) (reached *bool) {
	reached = new(bool)
	var met atomic.Int64 // the next segment is prepared concurrently
	d.Hook(func(op memdisk.Op) error {
		if op.Kind == memdisk.OpOpen || met.Add(1) != int64(n) {
			return nil
		}
		*reached = true
		return f(d)
	})
	return reached
}

// crashed closes w after its process was killed, or a write has failed.
func crashed(d *memdisk.Disk, w *WAL) {
	d.Kill()
	_ = w.Close()
	d.Hook(nil)
}

// TestPowerCutAfterACrash: a process dies in any operation, or the operation fails. Entries that the next process finds
// in its log, and so may acknowledge, survive each later power cut.
func TestPowerCutAfterACrash(t *testing.T) {
	protocoltest.SkipShort(t, "a power cut at every write")
	for _, row := range powerScenarios {
		for name, f := range firstFaults {
			for _, size := range []int64{small.SegmentSize, 64 << 10} { // most appends begin a segment, or none does
				t.Run(fmt.Sprintf("%s, %s, %d", row.name, name, size), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { cutEverywhere(t, size, row.acts, f.first, f.next) })
				})
			}
		}
	}
}

func cutEverywhere(t *testing.T, size int64, acts []act, first fault, next []fault) {
	t.Helper()
	o := newOpener(t)
	o.size = size
	for n, reached := 1, true; reached; n++ {
		d := newPowerDisk(t, uint64(n))
		var before, after []*raft.Log
		reached, before, after = played(t, o, d, acts, n, first)
		requireKept(t, o, d, n, before, after, next)
		require.True(t, reached || n > 1)
	}
}

// TestFailedWriteLeavesNothingOpen: whichever write fails, no file of the log stays open after Close.
func TestFailedWriteLeavesNothingOpen(t *testing.T) {
	for _, row := range powerScenarios {
		synctest.Test(t, func(t *testing.T) {
			o := newOpener(t)
			for n, reached := 1, true; reached; n++ {
				reached, _, _ = played(t, o, newPowerDisk(t, uint64(n)), row.acts, n, fails)
			}
		})
	}
}

// played performs all acts, with f at the nth operation of the last one. The log then has the entries from before or
// from after that act.
func played(t *testing.T, o *opener, d *memdisk.Disk, acts []act, n int, f fault) (reached bool, before,
	after []*raft.Log,
) {
	t.Helper()
	w, err := o.open(d)
	require.NoError(t, err)
	last := len(acts) - 1
	for _, a := range acts[:last] {
		require.NoError(t, a.do(w))
		requireTidy(t, d, w)
		before = a.then(before)
	}
	met := at(d, n, f)
	after = acts[last].then(before)
	err = acts[last].do(w)
	synctest.Wait()
	switch {
	case err == nil:
		before = after // it was acknowledged
	case errors.Is(err, syscall.EIO):
		require.Error(t, w.StoreLogs(nil), "no write after a failed one")
		_ = w.Close()
		require.Zero(t, d.Opened())
	}
	crashed(d, w)
	return *met, before, after
}

// requireTidy requires that the segments and the prepared next segment exist and are open, and that there are no other
// files.
func requireTidy(t *testing.T, d *memdisk.Disk, w *WAL) {
	t.Helper()
	synctest.Wait()
	require.Len(t, w.spares.ready, 1)
	require.Equal(t, len(w.segments)+1, d.Opened())
	want := []string{manifestName, segmentName(w.ordered)}
	for _, s := range w.segments {
		want = append(want, segmentName(s.info.Number))
	}
	names, err := w.folder.Names()
	require.NoError(t, err)
	require.ElementsMatch(t, want, names)
}

// requireKept opens the log in several ways, and requires that the entries that it shows stay.
func requireKept(t *testing.T, o *opener, d *memdisk.Disk, n int, before, after []*raft.Log, next []fault) {
	t.Helper()
	seen := requireEither(t, o, d.Clone(1), before, after)
	for seed := range uint64(3) {
		c := d.Clone(seed)
		requireSeen(t, o, c, seen, seed)
		requireGrows(t, o, d.Clone(seed), seen, seed)
	}
	for _, f := range next {
		for k := 1; ; k++ {
			c, before, after := d.Clone(uint64(n+k)), before, after
			reached := at(c, k, f)
			if w, err := o.open(c); err == nil && c.Running() {
				shown := contents(t, w)
				crashed(c, w)
				c.PowerCut(uint64(k))
				before, after = shown, shown
			} else if err == nil {
				crashed(c, w)
			} else if c.Running() {
				synctest.Wait()
				require.Zero(t, c.Opened(), "what could not be opened is closed")
			}
			c.Hook(nil)
			found := requireEither(t, o, c, before, after)
			requireGrows(t, o, c, found, uint64(k))
			if !*reached {
				break
			}
		}
	}
}

// requireEither opens the log, requires one of two contents, and kills the process.
func requireEither(t *testing.T, o *opener, d *memdisk.Disk, before, after []*raft.Log) []*raft.Log {
	t.Helper()
	w, err := o.open(d)
	require.NoError(t, err)
	found := contents(t, w)
	require.Contains(t, []string{fingerprint(before), fingerprint(after)}, fingerprint(found))
	crashed(d, w)
	return found
}

// requireSeen opens the log, requires its entries, and cuts the power, several times.
func requireSeen(t *testing.T, o *opener, d *memdisk.Disk, want []*raft.Log, seed uint64) {
	t.Helper()
	for range 2 {
		w, err := o.open(d)
		require.NoError(t, err)
		require.Equal(t, fingerprint(want), fingerprint(contents(t, w)))
		d.PowerCut(seed)
		crashed(d, w)
	}
}

// requireGrows opens the log, requires its entries, appends others, and cuts the power, several times.
func requireGrows(t *testing.T, o *opener, d *memdisk.Disk, want []*raft.Log, seed uint64) {
	t.Helper()
	for range 2 {
		w, err := o.open(d)
		require.NoError(t, err)
		require.Equal(t, fingerprint(want), fingerprint(contents(t, w)))
		next := uint64(5000)
		if len(want) > 0 {
			next = want[len(want)-1].Index + 1
		}
		more := version(next, next+1, 2)
		require.NoError(t, w.StoreLogs(more))
		want = append(want[:len(want):len(want)], more...)
		d.PowerCut(seed)
		crashed(d, w)
	}
}

// TestWhatWasErasedStaysErased: a power cut tears an append, the erasing of its remains fails, and the power is cut
// again in an append over the same place. The second append must not contain remains of the first, which would look
// like damage.
func TestWhatWasErasedStaysErased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpener(t)
		o.size = 32 << 10
		for seed := range uint64(100) {
			d := newPowerDisk(t, seed)
			acts := []act{appending(1, 5, 0), appending(6, 60, 0)}
			_, before, whole := played(t, o, d, acts, 2, cuts(4+5*seed))
			at(d, 1+int(seed%2), fails) // the write, or its sync
			_, err := o.open(d)
			require.ErrorIs(t, err, syscall.EIO)
			d.Hook(nil)
			w, err := o.open(d)
			require.NoError(t, err)
			if len(contents(t, w)) == len(whole) {
				crashed(d, w) // the cut came too late
				continue
			}
			at(d, 2, cuts(4+5*(seed+1000)))
			require.Error(t, w.StoreLogs(version(6, 60, 1)))
			crashed(d, w)
			requireEither(t, o, d, before, append(before[:5:5], version(6, 60, 1)...))
		}
	})
}

// TestFullDiskUnderALargeBatch: a batch for which the disk has no room leaves no file there.
func TestFullDiskUnderALargeBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpener(t)
		d := newPowerDisk(t, 1)
		w, err := o.open(d)
		require.NoError(t, err)
		require.NoError(t, w.StoreLogs(version(1, 5, 0)))
		synctest.Wait()
		before, err := w.folder.Names()
		require.NoError(t, err)
		d.Hook(func(op memdisk.Op) error {
			if op.Kind == memdisk.OpWrite {
				return syscall.ENOSPC
			}
			return nil
		})
		require.ErrorIs(t, w.StoreLogs(version(6, 60, 0)), syscall.ENOSPC)
		d.Hook(nil)
		after, err := w.folder.Names()
		require.NoError(t, err)
		require.Equal(t, before, after)
		crashed(d, w)
		requireGrows(t, o, d, version(1, 5, 0), 1)
	})
}

// TestFullDiskIsLoggedBeforeTheNextSegment: if there is no room for the next segment, that is logged while the log can
// still append. When room was made, appends succeed.
func TestFullDiskIsLoggedBeforeTheNextSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := newPowerDisk(t, 1)
		d.Hook(func(op memdisk.Op) error {
			if op.Kind == memdisk.OpWrite && strings.HasSuffix(op.Name, segmentSuffix) {
				return syscall.ENOSPC
			}
			return nil
		})
		w, err := Open(powerDir, Options{
			SegmentSize: small.SegmentSize, FS: d.Boot(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		require.NoError(t, err)
		synctest.Wait()
		require.Contains(t, log.String(), syscall.ENOSPC.Error())
		d.Hook(nil)
		log.Reset()
		require.NoError(t, w.StoreLogs(version(1, 5, 0)))
		require.NoError(t, w.Close())
		require.Empty(t, log.String(), "no failure")
	})
}

// TestSpareIsWhole: a segment is not prepared if one of its operations failed, even if the next ones would succeed.
func TestSpareIsWhole(t *testing.T) {
	for failing := range 10 {
		d := memdisk.New(7)
		fs, n := d.Boot(), -1
		d.Hook(func(memdisk.Op) error {
			if n++; n == failing {
				return syscall.EIO
			}
			return nil
		})
		f, err := makeZeros(vfs.NewFolder(fs, "."), 1, 3*zeroStep, nil)
		if n < failing {
			require.NoError(t, err)
			require.NoError(t, f.Close())
			continue
		}
		require.ErrorIs(t, err, syscall.EIO, "operation %d", failing)
		names, err := fs.List(".")
		require.NoError(t, err)
		require.Empty(t, names)
	}
}

// TestChangeBesideASpare: the sync of the folder for the next segment fails while the log changes. The acknowledged
// change survives a power cut.
func TestChangeBesideASpare(t *testing.T) {
	for _, change := range []act{deleting(1, 9), deleting(5, 9), appending(10, 60, 0)} {
		synctest.Test(t, func(t *testing.T) {
			o := newOpener(t)
			for seed := range uint64(20) {
				d := newPowerDisk(t, seed)
				w, err := o.open(d)
				require.NoError(t, err)
				require.NoError(t, w.StoreLogs(entries(1, 9)))
				require.NoError(t, w.Close())
				beside := make(chan struct{})
				var syncs atomic.Int64
				d.Hook(func(op memdisk.Op) error {
					if op.Kind != memdisk.OpSyncDir {
						return nil
					}
					switch syncs.Add(1) {
					case 2: // for the next segment; the first is Open's
						select {
						case <-beside:
						case <-time.After(time.Second):
						}
						return syscall.EIO
					case 3:
						close(beside)
						time.Sleep(time.Second)
					}
					return nil
				})
				w, err = o.open(d)
				require.NoError(t, err)
				require.NoError(t, change.do(w))
				d.PowerCut(seed)
				crashed(d, w)
				w, err = o.open(d)
				require.NoError(t, err)
				require.Equal(t, fingerprint(change.then(entries(1, 9))), fingerprint(contents(t, w)))
				crashed(d, w)
			}
		})
	}
}

// TestSpareIsNotTakenUpAgain: a file whose name may not be on the disk, and which cannot be removed, is not used again.
func TestSpareIsNotTakenUpAgain(t *testing.T) {
	d := memdisk.New(7)
	folder := vfs.NewFolder(d.Boot(), ".")
	d.Hook(func(op memdisk.Op) error {
		if op.Kind == memdisk.OpSyncDir || op.Kind == memdisk.OpRemove {
			return syscall.EIO
		}
		return nil
	})
	_, err := makeZeros(folder, 1, zeroStep, nil)
	require.ErrorIs(t, err, syscall.EIO)
	d.Hook(nil)
	_, err = makeZeros(folder, 1, zeroStep, nil)
	require.ErrorIs(t, err, fs.ErrExist)
}
