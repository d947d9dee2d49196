package store

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
	"github.com/holdfast/holdfast/server/store/wal"
)

// faulty is the machine's file system, and its nth call fails. A close that fails closes the file all the same. Calls
// on the log's files do not count: a goroutine of the log makes some of them, and the tests of package wal have each of
// them fail.
type faulty struct {
	vfs.OS
	mu     sync.Mutex // guards all below
	n, met int
	failed string
	opened int
}

var moment = regexp.MustCompile(`-\d{12,}`) // the time in the name of a snapshot

func (f *faulty) meet(call, name string) error {
	in := filepath.Dir(name)
	if call == "list" || call == "sync folder" {
		in = name
	}
	if filepath.Base(in) == walName {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.met++; f.met != f.n {
		return nil
	}
	f.failed = call + " " + moment.ReplaceAllString(filepath.Base(name), "")
	return syscall.EIO
}

func (f *faulty) count(opened int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened += opened
}

func (f *faulty) Open(name string, flag int) (vfs.File, error) {
	call := "open"
	if flag&os.O_CREATE != 0 {
		call = "create"
	}
	if err := f.meet(call, name); err != nil {
		return nil, err
	}
	file, err := f.OS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	f.count(1)
	return faultyFile{file, f}, nil
}

func (f *faulty) Mkdir(name string) error {
	return errors.Join(f.meet("mkdir", name), f.OS.Mkdir(name))
}

func (f *faulty) Rename(from, to string) error {
	if err := f.meet("rename", from); err != nil {
		return err
	}
	return f.OS.Rename(from, to)
}

func (f *faulty) Remove(name string) error {
	if err := f.meet("remove", name); err != nil {
		return err
	}
	return f.OS.Remove(name)
}

func (f *faulty) RemoveAll(name string) error {
	if err := f.meet("remove all", name); err != nil {
		return err
	}
	return f.OS.RemoveAll(name)
}

func (f *faulty) Exists(name string) (bool, error) {
	if err := f.meet("look for", name); err != nil {
		return false, err
	}
	return f.OS.Exists(name)
}

func (f *faulty) List(dir string) ([]string, error) {
	if err := f.meet("list", dir); err != nil {
		return nil, err
	}
	return f.OS.List(dir)
}

func (f *faulty) SyncDir(dir string) error {
	if err := f.meet("sync folder", dir); err != nil {
		return err
	}
	return f.OS.SyncDir(dir)
}

type faultyFile struct {
	vfs.File
	of *faulty
}

func (f faultyFile) ReadAt(b []byte, at int64) (int, error) {
	if err := f.of.meet("read", f.Name()); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, at)
}

func (f faultyFile) WriteAt(b []byte, at int64) (int, error) {
	if err := f.of.meet("write", f.Name()); err != nil {
		return 0, err
	}
	return f.File.WriteAt(b, at)
}

func (f faultyFile) WriteDirect(b []byte, at int64) (int, error) { return f.WriteAt(b, at) }

func (f faultyFile) Size() (int64, error) {
	if err := f.of.meet("measure", f.Name()); err != nil {
		return 0, err
	}
	return f.File.Size()
}

func (f faultyFile) Sync() error { return errors.Join(f.of.meet("sync", f.Name()), f.File.Sync()) }

func (f faultyFile) SyncData() error {
	return errors.Join(f.of.meet("sync", f.Name()), f.File.SyncData())
}

func (f faultyFile) Close() error {
	f.of.count(-1)
	return errors.Join(f.of.meet("close", f.Name()), f.File.Close())
}

// faultyCloser is a lock whose Close counts.
type faultyCloser struct {
	io.Closer
	of *faulty
}

func (c faultyCloser) Close() error {
	c.of.count(-1)
	return errors.Join(c.of.meet("free", "lock"), c.Closer.Close())
}

// faultyStable is a store of terms and votes whose calls count.
type faultyStable struct {
	StableStore
	of *faulty
}

func (s faultyStable) Get(key []byte) ([]byte, error) {
	if err := s.of.meet("get", string(key)); err != nil {
		return nil, err
	}
	return s.StableStore.Get(key)
}

func (s faultyStable) GetUint64(key []byte) (uint64, error) {
	if err := s.of.meet("get", string(key)); err != nil {
		return 0, err
	}
	return s.StableStore.GetUint64(key)
}

func (s faultyStable) Set(key, value []byte) error {
	if err := s.of.meet("set", string(key)); err != nil {
		return err
	}
	return s.StableStore.Set(key, value)
}

func (s faultyStable) SetUint64(key []byte, value uint64) error {
	if err := s.of.meet("set", string(key)); err != nil {
		return err
	}
	return s.StableStore.SetUint64(key, value)
}

func (s faultyStable) Close() error {
	s.of.count(-1)
	return errors.Join(s.of.meet("free", "stable store"), s.StableStore.Close())
}

// small is the machine's device with small segments, which are quick to make and to copy.
func small() Device {
	d := system()
	d.SegmentSize = 64 << 10
	return d
}

// device returns a device on this file system.
func (f *faulty) device() Device {
	d := small()
	d.FS = f
	d.CreateStable = func(path string) error { return createStable(f, path) }
	d.Lock = func(dir string) (io.Closer, error) {
		if err := f.meet("lock", "folder"); err != nil {
			return nil, err
		}
		lock, err := lockDir(dir)
		if err != nil {
			return nil, err
		}
		f.count(1)
		return faultyCloser{lock, f}, nil
	}
	d.OpenStable = func(path string) (StableStore, error) {
		s, err := openStable(f, path)
		if err != nil {
			return nil, err
		}
		f.count(1)
		return faultyStable{s, f}, nil
	}
	return d
}

// with opens a folder, calls do, and closes the folder.
func with(d Device, c Config, do func(s *Store) error) error {
	s, err := OpenOn(d, c)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

// snapshotOf takes a snapshot of size bytes.
func snapshotOf(s *Store, index uint64, size int) error { return snapshotWith(s, index, size, "n1") }

// snapshotWith takes a snapshot whose member has that name.
func snapshotWith(s *Store, index uint64, size int, name raft.ServerID) error {
	sink, err := s.Snapshots.Create(1, index, 1, raft.Configuration{Servers: []raft.Server{{ID: name}}}, 1, nil)
	if err != nil {
		return err
	}
	if _, err := sink.Write(make([]byte, size)); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func unused(t *testing.T, c Config) { require.NoError(t, mustOpenOn(t, small(), c).Close()) }

// joined makes the folder of a member, whose log begins behind the older of two snapshots.
func joined(t *testing.T, c Config) {
	s := mustOpenOn(t, small(), c)
	require.NoError(t, s.SetIdentity(func(id *Identity) { id.ClusterID = "c1" }))
	require.NoError(t, s.Stable.SetUint64([]byte(currentTerm), 3))
	require.NoError(t, s.Log.StoreLogs(entries(1, 30)))
	require.NoError(t, errors.Join(snapshotOf(s, 10, 1), snapshotOf(s, 20, 1), s.Log.DeleteRange(1, 15), s.Close()))
}

// restores makes a folder, unless it was made before.
func restores(d Device, c Config) error {
	err := MakeOn(d, c, Identity{Name: c.Name, ClusterID: "c2"}, func(s *Store) error { return snapshotOf(s, 10, 1) })
	if err != nil && strings.Contains(err.Error(), "belongs to node") {
		return nil
	}
	return err
}

// shows returns what a process finds.
func shows(t *testing.T, c Config) string {
	s, err := OpenOn(small(), c)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	first, last, err := bounds(s.Log)
	require.NoError(t, err)
	list, err := s.Snapshots.List()
	require.NoError(t, err)
	newest := uint64(0)
	if len(list) > 0 {
		newest = list[0].Index
	}
	return fmt.Sprintf("entries %d to %d, snapshot %d, cluster %s", first, last, newest, s.Identity().ClusterID)
}

// common has the calls of each process whose failures have no effect: a reserved descriptor is for later, and a file
// that was read to its end is not needed any more.
var common = map[string]int{
	"open identity.json": 4, "close identity.json": 4, "close stable.db": 1,
}

// old has the further ones of a process that finds an identity, and takes a snapshot.
var old = map[string]int{"close identity.json": 1, "list snapshots": 1}

// processes has what a process does in a folder, by name.
var processes = map[string]struct {
	before     func(t *testing.T, c Config)
	do         func(d Device, c Config) error
	shows      string         // what the next process finds
	overlooked map[string]int // beside common
}{
	"a new folder": {
		do:    func(d Device, c Config) error { return with(d, c, func(*Store) error { return nil }) },
		shows: "entries 0 to 0, snapshot 0, cluster ", overlooked: map[string]int{},
	},
	"a member": {
		before: func(t *testing.T, c Config) {
			s := mustOpenOn(t, small(), c)
			require.NoError(t, s.Log.StoreLogs(entries(1, 30)))
			require.NoError(t, errors.Join(snapshotOf(s, 5, 1), snapshotOf(s, 10, 1)))
			require.NoError(t, s.Stable.SetUint64([]byte(keySnapshot), 5)) // a crash came before the later one was recorded
			require.NoError(t, s.Close())
			left := filepath.Join(c.DataDir, snapshotName, "1-15-9.snap.tmp")
			require.NoError(t, os.WriteFile(left, []byte("half"), 0o600))
		},
		do: func(d Device, c Config) error {
			return with(d, c, func(s *Store) error {
				if err := s.SetIdentity(func(id *Identity) { id.ClusterID = "c1" }); err != nil {
					return err
				}
				list, err := s.Snapshots.List()
				if err != nil {
					return err
				}
				_, r, err := s.Snapshots.Open(list[0].ID)
				if err != nil {
					return err
				}
				if err := r.Close(); err != nil {
					return err
				}
				if list[0].Index != 20 { // otherwise it was taken before
					sink, err := s.Snapshots.Create(1, 19, 1, raft.Configuration{}, 1, nil)
					if err != nil {
						return err
					}
					if err := errors.Join(sink.Cancel(), snapshotOf(s, 20, 1<<18)); err != nil {
						return err
					}
				}
				return errors.Join(s.Log.DeleteRange(1, 15), s.Proved())
			})
		},
		shows: "entries 16 to 30, snapshot 20, cluster c1",
		overlooked: map[string]int{ // only the newest snapshot is needed, and its end is read twice
			"open 1-10.snap": 1, "measure 1-10.snap": 1, "read 1-10.snap": 6, "close 1-10.snap": 1,
			"open 1-5.snap": 1, "measure 1-5.snap": 1, "read 1-5.snap": 5, "close 1-5.snap": 1,
			"close 1-19.snap.tmp": 1, "remove 1-19.snap.tmp": 1, "close identity.json": 1,
			"list snapshots": 1, "remove 1-5.snap": 1,
		},
	},
	"made": {
		do: restores, shows: "entries 0 to 0, snapshot 10, cluster c2",
		overlooked: map[string]int{"list snapshots": 1},
	},
	"made over unused": {
		before: unused, do: restores, shows: "entries 0 to 0, snapshot 10, cluster c2", overlooked: old,
	},
	"made again": {
		before: func(t *testing.T, c Config) {
			unused(t, c)
			id, err := loadIdentity(vfs.OS{}, c.DataDir)
			require.NoError(t, err)
			id.State = stateFilling
			require.NoError(t, id.save(vfs.OS{}, c.DataDir))
		},
		do: restores, shows: "entries 0 to 0, snapshot 10, cluster c2", overlooked: old,
	},
	"recovered": {
		before: joined,
		do: func(d Device, c Config) error {
			r, err := openForRecovery(d, c.DataDir)
			if err != nil {
				return err
			}
			do := func() error {
				if err := r.Begin("c2", 40, Beginning{}); err != nil {
					return err
				}
				if err := snapshotOf(r.Store, 40, 1); err != nil {
					return err
				}
				return r.End()
			}
			return errors.Join(do(), r.Close())
		},
		shows: "entries 0 to 0, snapshot 40, cluster c2",
		overlooked: map[string]int{
			"open 1-10.snap": 1, "measure 1-10.snap": 1, "read 1-10.snap": 5, "close 1-10.snap": 1,
			"read 1-20.snap": 1, "close 1-20.snap": 1, "close identity.json": 2,
			"list snapshots": 1, "remove 1-10.snap": 1,
		},
	},
	"mended": {
		before: func(t *testing.T, c Config) {
			joined(t, c)
			damage(t, ending(t, c.DataDir, "20")[0])
		},
		do: func(d Device, c Config) error {
			return with(d, c, func(s *Store) error {
				if s.Missing() == nil {
					return nil // it was mended before
				}
				meta, text := state(40, 9)
				return s.Mend(meta, text)
			})
		},
		shows: "entries 0 to 0, snapshot 40, cluster c1",
		overlooked: map[string]int{
			"measure 1-10.snap": 1, "read 1-10.snap": 5, "close 1-10.snap": 1,
			"measure 1-20.snap": 1, "read 1-20.snap": 5, "close 1-20.snap": 1, "close identity.json": 1,
			"list snapshots": 1, "remove 1-20.snap": 1,
		},
	},
}

// requireReported has each call of a process to the disk, or to the store of terms and votes, fail once. The process
// must get the error, unless the failure has no effect. Nothing stays open, and the next process can continue.
func requireReported(t *testing.T, names ...string) {
	for _, name := range names {
		process := processes[name]
		t.Run(name, func(t *testing.T) {
			dir := memoryDir(t)
			if process.before != nil {
				synctest.Test(t, func(t *testing.T) { process.before(t, config(dir)) })
			}
			reported, overlooked := 0, make(map[string]int)
			for n, reached := 1, true; reached; n++ {
				synctest.Test(t, func(t *testing.T) {
					c := config(filepath.Join(memoryDir(t), "data"))
					c.Mends = true
					if process.before != nil {
						require.NoError(t, os.CopyFS(c.DataDir, os.DirFS(dir)))
					}
					f := &faulty{n: n}
					err := process.do(f.device(), c)
					reached = f.failed != ""
					require.Zero(t, f.opened, f.failed)
					switch {
					case err != nil:
						require.ErrorContains(t, err, syscall.EIO.Error())
						reported++
						require.NoError(t, process.do(small(), c), "%s: again", f.failed)
					case reached:
						overlooked[f.failed]++
					}
					require.Equal(t, process.shows, shows(t, c), f.failed)
				})
			}
			for call, times := range common {
				if overlooked[call] -= times; overlooked[call] == 0 {
					delete(overlooked, call)
				}
			}
			require.Greater(t, reported, 20)
			require.Equal(t, process.overlooked, overlooked)
		})
	}
}

func TestNoFailureOfAMakingIsOverlooked(t *testing.T) {
	requireReported(t, "a new folder", "made", "made over unused", "made again")
}

func TestNoFailureOfAMemberIsOverlooked(t *testing.T)   { requireReported(t, "a member") }
func TestNoFailureOfARecoveryIsOverlooked(t *testing.T) { requireReported(t, "recovered") }
func TestNoFailureOfAMendingIsOverlooked(t *testing.T)  { requireReported(t, "mended") }

// TestNoFailureOfALargeSnapshotIsOverlooked: a failed call leaves nothing open, and no snapshot that looks complete.
func TestNoFailureOfALargeSnapshotIsOverlooked(t *testing.T) {
	name := raft.ServerID(strings.Repeat("n", snapshotMaxMeta/2)) // larger than a buffer
	reported := 0
	for n, reached := 1, true; reached; n++ {
		f, dir := &faulty{n: n}, memoryDir(t)
		s, _, err := openSnapshots(vfs.OS{}, dir, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		s.fs = f
		err = snapshotWith(&Store{Snapshots: s}, 10, snapshotSync+1, name)
		reached = f.failed != ""
		require.Zero(t, f.opened, f.failed)
		if err != nil {
			require.ErrorIs(t, err, syscall.EIO)
			require.Empty(t, s.list)
			reported++
		} else {
			require.True(t, !reached || strings.HasPrefix(f.failed, "list "), f.failed)
		}
	}
	require.Greater(t, reported, 8)
}

// TestAlarmOfACallThatEnded: an alarm that fires just when its call has returned has no effect.
func TestAlarmOfACallThatEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(Hooks{OnStall: func(op Op, elapsed time.Duration) { t.Errorf("%s stalled for %v", op, elapsed) }})
		w := g.begin(OpSet)
		time.Sleep(g.tickEvery() / 2)
		g.end(w)
		g.tick(w)
		time.Sleep(10 * DefaultDiskStallLimit)
		require.Zero(t, w.ticks.Load(), "the alarm is not rearmed")
	})
}

// narrow is the machine's file system with another number of free bytes.
type narrow struct {
	vfs.OS
	free, total uint64
}

func (n *narrow) Space(string) (free, total uint64) { return n.free, n.total }

// TestSnapshotsLeaveRoomToTheLog: a snapshot that would use the last free bytes fails, and frees its own, since an
// append that fails ends the node.
func TestSnapshotsLeaveRoomToTheLog(t *testing.T) {
	for _, test := range []struct {
		free, total uint64
		size        int
		fits        bool
	}{
		{snapshotLeaves, 1 << 40, 2 * snapshotSync, true},
		{snapshotLeaves - 1, 1 << 40, 2 * snapshotSync, false},
		{0, 1 << 40, snapshotSync / 2, true}, // a snapshot that is small enough is not checked
		{1 << 20, snapshotShare << 20, 2 * snapshotSync, true},
		{0, 0, 2 * snapshotSync, true}, // unknown
	} {
		dir := memoryDir(t)
		s, _, err := openSnapshots(vfs.OS{}, dir, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		s.fs = &narrow{free: test.free, total: test.total}
		err = snapshotWith(&Store{Snapshots: s}, 10, test.size, "n1")
		if test.fits {
			require.NoError(t, err, test)
			continue
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
		names, err := s.fs.List(dir)
		require.NoError(t, err)
		require.Empty(t, names)
	}
}

// TestSpaceIsReported: OnSpace is called each second, and each time that a segment's bytes were appended to the log.
func TestSpaceIsReported(t *testing.T) {
	reported := make(chan [2]uint64, 100)
	s, err := Open(Config{DataDir: memoryDir(t), Name: "n1", Hooks: Hooks{OnSpace: func(free, total uint64) {
		reported <- [2]uint64{free, total}
	}}})
	require.NoError(t, err)
	defer s.Close()
	if free, total := (vfs.OS{}).Space(t.TempDir()); total == 0 {
		require.Zero(t, free)
		t.Skip("this system does not report free space")
	}
	first := <-reported
	require.LessOrEqual(t, first[0], first[1])
	require.NotZero(t, first[1])

	space := 0
	log := &guardedLog{guard: newGuard(Hooks{}), log: raft.NewInmemStore()}
	log.guard.space = func() { space++ }
	for i := range uint64(9) {
		require.NoError(t, log.StoreLog(&raft.Log{Index: i + 1, Data: make([]byte, wal.DefaultSegmentSize/4)}))
	}
	require.Equal(t, 2, space)
}
