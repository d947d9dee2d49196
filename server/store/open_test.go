package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

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

func config(dir string) Config { return Config{DataDir: dir, Name: "n1"} }

func mustOpen(t testing.TB, c Config) *Store {
	t.Helper()
	return mustOpenOn(t, system(), c)
}

func mustOpenOn(t testing.TB, d Device, c Config) *Store {
	t.Helper()
	s, err := OpenOn(d, c)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func entries(from, to uint64) []*raft.Log {
	var logs []*raft.Log
	for i := from; i <= to; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: 1, Data: bytes.Repeat(fmt.Appendf(nil, "entry %d ", i), int(i%9))})
	}
	return logs
}

// requireEntries requires exactly the entries first to last, with their data.
func requireEntries(t testing.TB, s raft.LogStore, first, last uint64) {
	t.Helper()
	got, err := s.FirstIndex()
	require.NoError(t, err)
	require.Equal(t, first, got)
	got, err = s.LastIndex()
	require.NoError(t, err)
	require.Equal(t, last, got)
	for i := first; i <= last && last > 0; i++ {
		var l raft.Log
		require.NoError(t, s.GetLog(i, &l))
		want := entries(i, i)[0]
		require.Equal(t, want.Index, l.Index)
		require.Equal(t, string(want.Data), string(l.Data))
	}
}

func takeSnapshot(t testing.TB, s raft.SnapshotStore, index uint64, state string) {
	t.Helper()
	sink, err := s.Create(1, index, 1, raft.Configuration{Servers: []raft.Server{{ID: "n1"}}}, 1, nil)
	require.NoError(t, err)
	_, err = io.WriteString(sink, state)
	require.NoError(t, err)
	require.NoError(t, sink.Close())
	_, err = io.WriteString(sink, "more")
	require.ErrorIs(t, err, os.ErrClosed)
}

// fill gives s a log, a term, a vote and snapshots.
func fill(t testing.TB, s *Store) {
	t.Helper()
	require.NoError(t, s.Stable.SetUint64([]byte("CurrentTerm"), 7))
	require.NoError(t, s.Stable.Set([]byte("LastVoteCand"), []byte("n2")))
	require.NoError(t, s.Log.StoreLogs(entries(1, 30)))
	takeSnapshot(t, s.Snapshots, 10, "ten")
	takeSnapshot(t, s.Snapshots, 20, "twenty")
	require.NoError(t, s.Log.DeleteRange(1, 15))
	require.NoError(t, s.Log.StoreLogs(entries(31, 40)))
}

// requireFilled requires what fill has stored.
func requireFilled(t testing.TB, s *Store) {
	t.Helper()
	requireEntries(t, s.Log, 16, 40)
	term, err := s.Stable.GetUint64([]byte("CurrentTerm"))
	require.NoError(t, err)
	require.Equal(t, uint64(7), term)
	vote, err := s.Stable.Get([]byte("LastVoteCand"))
	require.NoError(t, err)
	require.Equal(t, "n2", string(vote))
	nothing, err := s.Stable.Get([]byte("never set"))
	require.NoError(t, err)
	require.Empty(t, nothing)
	list, err := s.Snapshots.List()
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, uint64(20), list[0].Index)
	for i, want := range []string{"twenty", "ten"} {
		meta, r, err := s.Snapshots.Open(list[i].ID)
		require.NoError(t, err)
		state, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.Equal(t, want, string(state))
		require.Equal(t, int64(len(want)), meta.Size)
		require.Equal(t, raft.ServerID("n1"), meta.Configuration.Servers[0].ID)
	}
}

func TestOpenAgainFindsEverything(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "made", "by", "open")
	s := mustOpen(t, config(dir))
	require.Equal(t, uint64(1), s.Lineage.Current()>>32)
	requireEntries(t, s.Log, 0, 0)
	require.True(t, s.Log.(raft.MonotonicLogStore).IsMonotonic())
	fill(t, s)
	requireFilled(t, s)
	for epoch := uint64(2); epoch < 5; epoch++ {
		require.NoError(t, s.Close())
		s = mustOpen(t, config(dir))
		require.Equal(t, epoch, s.Lineage.Current()>>32)
		requireFilled(t, s)
	}
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "others need not read locks and tokens")
}

// TestOpenAfterKill: a copy of a folder that is in use, as a killed process leaves it, has everything when it is
// opened.
func TestOpenAfterKill(t *testing.T) {
	dir, image := memoryDir(t), memoryDir(t)
	s := mustOpen(t, config(dir))
	fill(t, s)
	require.NoError(t, os.CopyFS(image, os.DirFS(dir)))
	s = mustOpen(t, config(image))
	requireFilled(t, s)
	require.NoError(t, s.Log.StoreLogs(entries(41, 50)))
}

func TestFolderIsForOneProcess(t *testing.T) {
	dir := memoryDir(t)
	s := mustOpen(t, config(dir))
	_, err := Open(config(dir))
	require.ErrorContains(t, err, fmt.Sprintf("data folder %s is in use by another process (pid %d)", dir, os.Getpid()))
	require.NoError(t, s.Close())
	mustOpen(t, config(dir))
}

// requireRefused requires that Open fails with one line that has all of want, and leaves nothing locked or open.
func requireRefused(t *testing.T, c Config, want ...string) {
	t.Helper()
	for range 2 { // the second would say "in use" if the first had kept the lock
		_, err := Open(c)
		require.Error(t, err)
		for _, w := range want {
			require.ErrorContains(t, err, w)
		}
		require.NotContains(t, err.Error(), "\n")
	}
}

func TestFoldersOfOthersAreRefused(t *testing.T) {
	dir := memoryDir(t)
	s := mustOpen(t, config(dir))
	fill(t, s)
	require.NoError(t, s.SetIdentity(func(id *Identity) { id.ClusterID = "c1" }))
	require.NoError(t, s.Close())
	c := config(dir)
	c.Name = "n2"
	requireRefused(t, c, `belongs to node "n1", this node is "n2"`)
	requireFilled(t, mustOpen(t, config(dir)))
}

func TestIdentityIsChecked(t *testing.T) {
	dir := memoryDir(t)
	s := mustOpen(t, config(dir))
	fill(t, s)
	require.NoError(t, s.Close())
	path := filepath.Join(dir, identityName)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	change := func(f func(*identity)) []byte {
		var id identity
		require.NoError(t, json.Unmarshal(good, &id))
		f(&id)
		text, err := json.Marshal(id)
		require.NoError(t, err)
		return text
	}
	for want, text := range map[string][]byte{
		"has format 2, this release knows format 1":        change(func(id *identity) { id.Format = 2 }),
		"format 0 does not exist":                          change(func(id *identity) { id.Format = 0 }),
		`state "reddy" does not exist`:                     change(func(id *identity) { id.State = "reddy" }),
		`"n2@0" does not begin with its name`:              change(func(id *identity) { id.ID = "n2@0" }),
		"was being filled, and is not whole":               change(func(id *identity) { id.State = stateFilling }),
		"empty it, and start the node with --join":         change(func(id *identity) { id.State = stateRemoved }),
		`ID "" does not begin with its name ""`:            change(func(id *identity) { id.Name, id.ID = "", "" }),
		"identity.json is damaged: unexpected":             good[:len(good)/2],
		"identity.json is damaged: json: cannot unmarshal": []byte(`{"format":1,"node":5,"state":"ready"}`),
	} {
		require.NoError(t, os.WriteFile(path, text, 0o600))
		requireRefused(t, config(dir), want)
	}
	require.NoError(t, os.WriteFile(path, good, 0o600))
	requireFilled(t, mustOpen(t, config(dir)))
}

// TestLostPiecesAreNoticed: a node does not start if a part of its folder is missing, since it would keep its name
// without what it has acknowledged.
func TestLostPiecesAreNoticed(t *testing.T) {
	dir := memoryDir(t)
	s := mustOpen(t, config(dir))
	fill(t, s)
	require.NoError(t, s.Close())
	for _, piece := range []string{
		identityName, stableName, snapshotName, walName, walName + "/MANIFEST", walName + "/0000000000000001.seg",
	} {
		t.Run(piece, func(t *testing.T) {
			path := filepath.Join(dir, piece)
			require.NoError(t, os.Rename(path, path+".away"))
			requireRefused(t, config(dir), filepath.Join(dir, strings.Split(piece, "/")[0]), "missing", advice)
			require.NoError(t, os.Rename(path+".away", path))
		})
	}
	requireFilled(t, mustOpen(t, config(dir)))
}

// TestLossOfAProvedSnapshotIsNoticed: a crash came after the completion of a snapshot from a leader, and before its
// index was recorded. Open syncs the snapshot and records it. So a later loss is noticed, although the older snapshot
// and the log have no gap.
func TestLossOfAProvedSnapshotIsNoticed(t *testing.T) {
	c := config(memoryDir(t))
	s := mustOpen(t, c)
	require.NoError(t, s.Log.StoreLogs(entries(1, 15)))
	takeSnapshot(t, s.Snapshots, 10, "ten")
	takeSnapshot(t, s.Snapshots, 20, "twenty")
	list, err := s.Snapshots.List()
	require.NoError(t, err)
	require.NoError(t, s.Stable.SetUint64([]byte(keySnapshot), 10))
	require.NoError(t, s.Close())
	require.NoError(t, mustOpen(t, c).Close())
	files, err := filepath.Glob(filepath.Join(c.DataDir, snapshotName, list[0].ID+"*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.Remove(files[0]))
	requireRefused(t, c, "snapshot")
}

// TestGapBehindTheSnapshotIsNoticed: entries that are neither in a snapshot nor in the log are lost, whatever was
// recorded of snapshots.
func TestGapBehindTheSnapshotIsNoticed(t *testing.T) {
	c := config(memoryDir(t))
	s := mustOpen(t, c)
	require.NoError(t, s.Log.StoreLogs(entries(1, 20)))
	takeSnapshot(t, s.Snapshots, 5, "five")
	require.NoError(t, s.Log.(*guardedLog).log.DeleteRange(1, 6))
	require.NoError(t, s.Close())
	requireRefused(t, c, "the newest there has index 5, the log has entries 7 to 20", advice)
}

// TestInterruptedCreationIsBegunAgain: a folder whose creation was interrupted is created again. No Open has returned
// it, so nothing is lost.
func TestInterruptedCreationIsBegunAgain(t *testing.T) {
	for missing := range 4 {
		dir := memoryDir(t)
		s := mustOpen(t, config(dir))
		require.NoError(t, s.Close())
		id, err := loadIdentity(vfs.OS{}, dir)
		require.NoError(t, err)
		id.State = stateCreating
		require.NoError(t, id.save(vfs.OS{}, dir))
		parts := []string{snapshotName, stableName, walName}
		for _, part := range parts[:missing] {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, part)))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, stableName+".tmp"), []byte("half"), 0o600))
		s = mustOpen(t, config(dir))
		require.Equal(t, uint64(1), s.Lineage.Current()>>32)
		fill(t, s)
		requireFilled(t, s)
		require.NoError(t, s.Close())
	}
}

func TestDamagedSnapshots(t *testing.T) {
	newest := func(dir string) string {
		files, err := filepath.Glob(filepath.Join(dir, snapshotName, "1-20-*.snap"))
		require.NoError(t, err)
		require.Len(t, files, 1)
		return files[0]
	}
	start := func(t *testing.T, deleted uint64) string {
		dir := memoryDir(t)
		s := mustOpen(t, config(dir))
		require.NoError(t, s.Log.StoreLogs(entries(1, 30)))
		takeSnapshot(t, s.Snapshots, 10, "ten")
		takeSnapshot(t, s.Snapshots, 20, "twenty")
		require.NoError(t, s.Log.DeleteRange(1, deleted))
		require.NoError(t, s.Close())
		return dir
	}
	spoil := func(t *testing.T, path string) {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		b[len(b)/2] ^= 1
		require.NoError(t, os.WriteFile(path, b, 0o600))
	}
	t.Run("an older one and the log have it all", func(t *testing.T) {
		dir := start(t, 10)
		spoil(t, newest(dir))
		var out bytes.Buffer
		c := config(dir)
		c.Logger = slog.New(slog.NewTextHandler(&out, nil))
		s := mustOpen(t, c)
		require.Contains(t, out.String(), "ignored a damaged snapshot")
		list, err := s.Snapshots.List()
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, uint64(10), list[0].Index)
		takeSnapshot(t, s.Snapshots, 15, "x")
		noted, err := s.Stable.GetUint64([]byte(keySnapshot))
		require.NoError(t, err)
		require.Equal(t, uint64(20), noted, "the furthest that was ever completed")
		takeSnapshot(t, s.Snapshots, 25, "x")
		require.NotContains(t, out.String(), "cannot delete")
		_, err = os.Stat(newest25(dir))
		require.NoError(t, err)
		files, err := os.ReadDir(filepath.Join(dir, snapshotName))
		require.NoError(t, err)
		require.Len(t, files, 2, "the damaged one is deleted when it is of no use to anybody")
	})
	t.Run("the log goes on behind it", func(t *testing.T) {
		dir := start(t, 15)
		spoil(t, newest(dir))
		requireRefused(t, config(dir), newest(dir), "is damaged", advice)
	})
	t.Run("the log is empty", func(t *testing.T) {
		dir := start(t, 30)
		spoil(t, newest(dir))
		requireRefused(t, config(dir), newest(dir), advice)
	})
	t.Run("it was not noted, and the log ends before it", func(t *testing.T) {
		dir := start(t, 10)
		s := mustOpen(t, config(dir))
		require.NoError(t, s.Stable.SetUint64([]byte(keySnapshot), 10))
		require.NoError(t, s.Log.DeleteRange(20, 30))
		require.NoError(t, s.Close())
		spoil(t, newest(dir))
		requireRefused(t, config(dir), newest(dir), advice)
	})
	t.Run("one of another format is among them", func(t *testing.T) {
		dir := start(t, 30)
		b, err := os.ReadFile(newest(dir))
		require.NoError(t, err)
		b[len(snapshotMagic)-1]++
		b[len(b)-1]++
		require.NoError(t, os.WriteFile(newest(dir), b, 0o600))
		for _, name := range []string{"1-10-9.snap", "1-25-9.snap"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, snapshotName, name), nil, 0o600))
		}
		requireRefused(t, config(dir), newest(dir), "use the release that wrote it")
	})
	t.Run("it vanished", func(t *testing.T) {
		dir := start(t, 15)
		require.NoError(t, os.Remove(newest(dir)))
		requireRefused(t, config(dir), "the newest there has index 10, the log has entries 16 to 30")
	})
	t.Run("it vanished, and the log is empty", func(t *testing.T) {
		dir := start(t, 30)
		require.NoError(t, os.Remove(newest(dir)))
		requireRefused(t, config(dir), "a snapshot of index 20 was completed")
	})
	t.Run("all is there", func(t *testing.T) {
		var out bytes.Buffer
		c := config(start(t, 30))
		c.Logger = slog.New(slog.NewTextHandler(&out, nil))
		mustOpen(t, c)
		require.NotContains(t, out.String(), "damaged")
	})
}

func newest25(dir string) string {
	files, _ := filepath.Glob(filepath.Join(dir, snapshotName, "1-25-*.snap"))
	return files[0]
}

// TestEverySnapshotByteCounts: a snapshot with any flipped bit, or of any smaller length, is damaged.
func TestEverySnapshotByteCounts(t *testing.T) {
	dir := memoryDir(t)
	s, _, err := openSnapshots(vfs.OS{}, dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	takeSnapshot(t, s, 10, "some state")
	path := s.path(s.list[0].ID)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	disk := &faulty{} // counts open files
	try := func(b []byte, reason string) {
		require.NoError(t, os.WriteFile(path, b, 0o600))
		again, damaged, err := openSnapshots(disk, dir, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		require.Zero(t, disk.opened)
		require.Empty(t, again.list)
		require.Len(t, damaged, 1)
		require.Equal(t, uint64(10), damaged[0].index)
		require.True(t, isDamage(damaged[0].err))
		require.ErrorContains(t, damaged[0].err, reason)
	}
	state := snapshotHead + int(binary.LittleEndian.Uint32(good[8:]))
	reasons := []struct {
		until  int
		reason string
	}{
		{8, "it does not begin as a snapshot does"},
		{12, "its "},
		{state, "its description is damaged"},
		{len(good) - snapshotTail, "its state is damaged"},
		{len(good) - 12, "its end is missing"},
		{len(good) - 8, "its state is damaged"},
		{len(good), "its end is missing"},
	}
	row := 0
	for bit := range 8 * len(good) {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		if bit/8 >= reasons[row].until {
			row++
		}
		try(b, reasons[row].reason)
	}
	for n := range len(good) {
		reason := "its end is missing"
		switch {
		case n < snapshotHead:
			reason = "it does not begin as a snapshot does"
		case n < state+snapshotTail:
			reason = "its sizes are impossible"
		}
		try(good[:n], reason)
	}
	try(append(bytes.Clone(good), 0), "its end is missing")
	long := append(bytes.Clone(good), make([]byte, 2*snapshotMaxMeta)...)
	binary.LittleEndian.PutUint32(long[8:], snapshotMaxMeta+1)
	try(long, "its sizes are impossible")
	other := bytes.Clone(good) // both ends have another format
	end := len(other) - len(snapshotEndMagic)
	other[len(snapshotMagic)-1]++
	other[len(other)-1]++
	require.NoError(t, os.WriteFile(path, other, 0o600))
	_, damaged, err := openSnapshots(disk, dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.ErrorIs(t, damaged[0].err, errOtherFormat)
	require.Zero(t, disk.opened)
	for i := range len(snapshotMagic) {
		for _, at := range []int{i, end + i} {
			b := bytes.Clone(other)
			b[at] ^= 0x40
			try(b, "it does not begin as a snapshot does")
		}
	}
	// The file is too short for both ends.
	try(append(bytes.Clone(other[:snapshotHead]), other[end:]...), "it does not begin as a snapshot does")
	require.NoError(t, os.WriteFile(path, good, 0o600))
	require.NoError(t, os.Rename(path, strings.Replace(path, "1-10-", "1-11-", 1)))
	_, damaged, err = openSnapshots(vfs.OS{}, dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.Len(t, damaged, 1, "another's name")
	require.Nil(t, damaged[0].meta, "it says nothing of what is missing")
}

// TestEndedSnapshotCannotEndAnother: two snapshots of the same instant have the same name. Another Cancel of the first
// does not end the second.
func TestEndedSnapshotCannotEndAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, err := openSnapshots(vfs.OS{}, memoryDir(t), slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		first, err := s.Create(1, 5, 1, raft.Configuration{}, 1, nil)
		require.NoError(t, err)
		require.NoError(t, first.Cancel())
		second, err := s.Create(1, 5, 1, raft.Configuration{}, 1, nil)
		require.NoError(t, err)
		require.NoError(t, first.Cancel())
		require.NoError(t, second.Close())
	})
}

func TestUnfinishedSnapshotsLeaveNothing(t *testing.T) {
	dir := memoryDir(t)
	s, _, err := openSnapshots(vfs.OS{}, dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	create := func() raft.SnapshotSink {
		sink, err := s.Create(1, 5, 1, raft.Configuration{}, 1, nil)
		require.NoError(t, err)
		_, err = sink.Write(make([]byte, 100))
		require.NoError(t, err)
		return sink
	}
	requireFiles := func(n int) {
		t.Helper()
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, files, n)
	}
	cancelled := create()
	requireFiles(1)
	require.NoError(t, cancelled.Cancel())
	require.NoError(t, cancelled.Cancel())
	_, err = cancelled.Write([]byte("more"))
	require.Error(t, err)
	require.Error(t, cancelled.Close())
	requireFiles(0)

	failing := create() // as on a full disk
	require.NoError(t, failing.(*snapshotSink).file.Close())
	_, err = failing.Write(make([]byte, 1<<20))
	require.Error(t, err)
	requireFiles(0)
	_, err = failing.Write(nil)
	require.Error(t, err)
	require.Error(t, failing.Close(), "it must not look complete")
	require.NoError(t, failing.Cancel())

	late := create()
	require.NoError(t, late.(*snapshotSink).file.Close())
	require.Error(t, late.Close())
	requireFiles(0)

	s.completed = func(uint64) error { return errors.New("disk") }
	require.ErrorContains(t, create().Close(), "disk")
	s.completed = func(uint64) error { return nil }

	_ = create()
	_, _, err = openSnapshots(vfs.OS{}, dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	requireFiles(1) // the one whose completion could not be recorded
}

func TestLargeSnapshotIsSyncedOnTheWay(t *testing.T) {
	dir := memoryDir(t)
	s, _, err := openSnapshots(vfs.OS{}, dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	sink, err := s.Create(1, 5, 1, raft.Configuration{}, 1, nil)
	require.NoError(t, err)
	chunk := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	for i := range 2*snapshotSync/len(chunk) + 1 {
		_, err := sink.Write(chunk)
		require.NoError(t, err)
		require.Equal(t, (i+1)*len(chunk)%snapshotSync, sink.(*snapshotSink).unsynced, "a sync takes its time")
	}
	require.NoError(t, sink.Close())
	meta, r, err := s.Open(s.list[0].ID)
	require.NoError(t, err)
	n, err := io.Copy(io.Discard, r)
	require.NoError(t, err)
	require.Equal(t, meta.Size, n)
	require.NoError(t, r.Close())
}

// concurrentMkdir is a file system on which another process creates each folder just before this one does.
type concurrentMkdir struct{ vfs.OS }

func (c concurrentMkdir) Mkdir(name string) error {
	if err := c.OS.Mkdir(name); err != nil {
		return err
	}
	return c.OS.Mkdir(name)
}

func TestNodesMakeTheFolderAboveTheirsAtTheSameTime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data", "n1")
	require.NoError(t, makeFolder(concurrentMkdir{}, dir))
	require.DirExists(t, dir)
}

// forbidden is a file system on which no folder can be synced.
type forbidden struct{ vfs.OS }

func (forbidden) SyncDir(string) error { return os.ErrPermission }

// TestFolderBelowAnothersOwn: a folder that exists, and that this node may not sync, was made by somebody else and is
// accepted. A folder that the node makes, and cannot sync, is removed.
func TestFolderBelowAnothersOwn(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, makeFolder(forbidden{}, dir))
	require.ErrorIs(t, makeFolder(forbidden{}, filepath.Join(dir, "data")), os.ErrPermission)
	require.NoDirExists(t, filepath.Join(dir, "data"))
}

// TestSnapshotOfTooManyMembers: a snapshot whose description is too large to be read fails at once.
func TestSnapshotOfTooManyMembers(t *testing.T) {
	s := mustOpen(t, config(memoryDir(t)))
	require.Error(t, snapshotWith(s, 10, 1, raft.ServerID(strings.Repeat("n", snapshotMaxMeta))))
	require.NoError(t, snapshotWith(s, 10, 1, raft.ServerID(strings.Repeat("n", snapshotMaxMeta/2))))
}

// TestFolderThatCannotBeLocked: a folder is refused if something else is in the place of its lock. Nothing keeps that
// open.
func TestFolderThatCannotBeLocked(t *testing.T) {
	c := config(memoryDir(t))
	lock := filepath.Join(c.DataDir, lockName)
	require.NoError(t, os.Mkdir(lock, 0o700))
	requireRefused(t, c, "lock data folder", "is a directory")
	require.NoError(t, os.Remove(lock))
	require.NoError(t, syscall.Mkfifo(lock, 0o600)) // a pipe has no size
	requireRefused(t, c, "lock data folder")
}

// TestForeignFileAmongSnapshots: a file that is no snapshot is not reported as damage, and is not removed.
func TestForeignFileAmongSnapshots(t *testing.T) {
	dir := memoryDir(t)
	foreign := filepath.Join(dir, "README")
	require.NoError(t, os.WriteFile(foreign, nil, 0o600))
	s, damaged, err := openSnapshots(vfs.OS{}, dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.Empty(t, damaged)
	takeSnapshot(t, s, 5, "five")
	require.FileExists(t, foreign)
}

// TestNewestSnapshotIsTheLatestTaken: of the snapshots at one index, the newest is the one that was taken last.
func TestNewestSnapshotIsTheLatestTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, err := openSnapshots(vfs.OS{}, memoryDir(t), slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		takeSnapshot(t, s, 5, "early")
		time.Sleep(time.Millisecond)
		takeSnapshot(t, s, 5, "late")
		again, _, err := openSnapshots(vfs.OS{}, s.dir, s.logger)
		require.NoError(t, err)
		require.Equal(t, s.list, again.list)
		require.Len(t, s.list, 2)
		require.Greater(t, s.list[0].ID, s.list[1].ID)
	})
}

// TestNewestSnapshotIsOfTheLatestTerm: the newest snapshot is of the latest term, and of those it has the highest
// index.
func TestNewestSnapshotIsOfTheLatestTerm(t *testing.T) {
	s, _, err := openSnapshots(vfs.OS{}, memoryDir(t), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	for _, end := range []position{{9, 2}, {5, 3}, {7, 3}, {8, 2}} {
		takeAt(t, s, end.index, end.term)
		again, _, err := openSnapshots(vfs.OS{}, s.dir, s.logger)
		require.NoError(t, err)
		require.Equal(t, s.list, again.list)
	}
	require.Equal(t, []uint64{7, 5}, []uint64{s.list[0].Index, s.list[1].Index})
}

// noting records what a folder had at its last sync before its identity was written.
type noting struct {
	vfs.OS
	dir            string
	synced, before []string
	written        int // number of identities that were written
}

func (n *noting) SyncDir(dir string) (err error) {
	if dir == n.dir {
		n.synced, err = n.List(dir)
	}
	return errors.Join(err, n.OS.SyncDir(dir))
}

func (n *noting) Rename(from, to string) error {
	if filepath.Base(to) == identityName {
		n.before = n.synced
		n.written++
	}
	return n.OS.Rename(from, to)
}

// TestPartsAreSyncedBeforeTheFolderIsReady: a folder whose identity says that it is ready has all of its parts after a
// power cut.
func TestPartsAreSyncedBeforeTheFolderIsReady(t *testing.T) {
	c := config(memoryDir(t))
	fs := &noting{dir: c.DataDir}
	require.NoError(t, with(deviceOn(fs), c, func(*Store) error { return nil }))
	require.Subset(t, fs.before, []string{stableName, snapshotName, walName})
}

// TestIdentityIsProved: the identity that Open reads may not be on the disk yet, so Open writes it again.
func TestIdentityIsProved(t *testing.T) {
	c := config(memoryDir(t))
	requireWritten := func(times int) {
		t.Helper()
		fs := &noting{dir: c.DataDir}
		require.NoError(t, with(deviceOn(fs), c, func(*Store) error { return nil }))
		require.Equal(t, times, fs.written)
	}
	requireWritten(2) // "creating" and "ready"
	requireWritten(1)
}

// undying is a file system on which nothing can be removed once on is set.
type undying struct {
	vfs.OS
	on atomic.Bool
}

func (u *undying) Remove(name string) error {
	if u.on.Load() {
		return os.ErrPermission
	}
	return u.OS.Remove(name)
}

func (u *undying) RemoveAll(name string) error {
	if u.on.Load() {
		return os.ErrPermission
	}
	return u.OS.RemoveAll(name)
}

// TestWhatCannotBeDeleted: an old snapshot that cannot be deleted is logged. What Make cannot delete after an error is
// in its error.
func TestWhatCannotBeDeleted(t *testing.T) {
	var out bytes.Buffer
	fs := new(undying)
	s, _, err := openSnapshots(fs, t.TempDir(), slog.New(slog.NewTextHandler(&out, nil)))
	require.NoError(t, err)
	s.completed = func(uint64) error { return nil }
	fs.on.Store(true)
	for index := range uint64(snapshotRetain) {
		takeSnapshot(t, s, index+1, "x")
	}
	require.Empty(t, out.String())
	takeSnapshot(t, s, snapshotRetain+1, "x")
	require.Contains(t, out.String(), "cannot delete an old snapshot")

	c, failed := config(filepath.Join(memoryDir(t), "made")), errors.New("no more room")
	fs = new(undying)
	err = MakeOn(deviceOn(fs), c, Identity{Name: "n1"}, func(*Store) error {
		fs.on.Store(true)
		return failed
	})
	require.ErrorIs(t, err, failed)
	require.ErrorContains(t, err, "empty data folder: ")
}

// unclosed is a lock whose Close fails.
type unclosed struct{ io.Closer }

func (u unclosed) Close() error { return errors.Join(syscall.EIO, u.Closer.Close()) }

// TestUnfinishedFolderThatCannotBeFreed: if Make fails, and then cannot unlock the folder, it returns both errors.
func TestUnfinishedFolderThatCannotBeFreed(t *testing.T) {
	failed, d := errors.New("no more room"), system()
	c := config(memoryDir(t))
	err := MakeOn(d, c, Identity{Name: "n1"}, func(*Store) error { return failed })
	require.ErrorIs(t, err, failed)
	require.NotErrorIs(t, err, syscall.EIO)
	locks := 0
	d.Lock = func(dir string) (io.Closer, error) {
		lock, err := lockDir(dir)
		if locks++; locks == 2 {
			return unclosed{lock}, err
		}
		return lock, err
	}
	err = MakeOn(d, c, Identity{Name: "n1"}, func(*Store) error { return failed })
	require.ErrorIs(t, err, failed)
	require.ErrorIs(t, err, syscall.EIO)
}
