package storetest

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/store"
	"github.com/holdfast/holdfast/server/store/internal/memdisk"
)

// diskHistory is a sequence of processes on one disk.
type diskHistory struct {
	t     *testing.T
	files *memdisk.Disk
	store *store.Store
	epoch uint64        // of the newest store that Open returned
	last  *func() error // closes the store that was opened last, of all forks
	mends bool          // see store.Config
}

func newDiskHistory(t *testing.T, files *memdisk.Disk) *diskHistory {
	l := &diskHistory{t: t, files: files, last: new(func() error)}
	t.Cleanup(func() {
		if *l.last != nil {
			_ = (*l.last)()
		}
	})
	return l
}

// fork returns a diskHistory that continues with a copy of the disk.
func (l *diskHistory) fork(seed uint64) *diskHistory {
	return &diskHistory{t: l.t, files: l.files.Clone(seed), epoch: l.epoch, last: l.last, mends: l.mends}
}

// begin starts a process.
func (l *diskHistory) begin() error {
	s, err := openOn(l.files.Boot(), store.Config{Mends: l.mends}, 1)
	if err != nil {
		return err
	}
	l.store, *l.last = s, s.Close
	settle()
	require.Greater(l.t, s.Lineage.Current(), l.epoch, "each process has an epoch of its own")
	l.epoch = s.Lineage.Current()
	return nil
}

// end kills the process.
func (l *diskHistory) end() {
	l.files.Kill()
	l.files.Hook(nil)
	if l.store != nil {
		_ = l.store.Close()
		l.store = nil
	}
}

// cut cuts the power.
func (l *diskHistory) cut(seed uint64) {
	l.files.PowerCut(seed)
	l.end()
}

// shows returns what a process finds: entries, the newest snapshot, a vote and the cluster.
func (l *diskHistory) shows() string {
	t, s := l.t, l.store
	first, err := s.Log.FirstIndex()
	require.NoError(t, err)
	last, err := s.Log.LastIndex()
	require.NoError(t, err)
	text := fmt.Sprintf("entries %d to %d", first, last)
	for i := first; i <= last && last > 0; i++ {
		var log raft.Log
		require.NoError(t, s.Log.GetLog(i, &log))
		require.Equal(t, string(logEntry(i).Data), string(log.Data))
	}
	list, err := s.Snapshots.List()
	require.NoError(t, err)
	if len(list) > 0 {
		_, r, err := s.Snapshots.Open(list[0].ID)
		require.NoError(t, err)
		state, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		text += fmt.Sprintf(", snapshot %d of %d bytes", list[0].Index, len(state))
	}
	vote, err := s.Stable.Get([]byte("vote"))
	require.NoError(t, err)
	text += ", vote " + string(vote)
	if id := s.Identity(); id.ClusterID != "" {
		text += ", cluster " + id.ClusterID
	}
	return text
}

// logEntry returns an entry whose size depends on its index.
func logEntry(index uint64) *raft.Log {
	return &raft.Log{Index: index, Term: 1, Data: bytes.Repeat(fmt.Appendf(nil, "entry %d ", index), int(index%29))}
}

func logEntries(from, to uint64) []*raft.Log {
	var logs []*raft.Log
	for i := from; i <= to; i++ {
		logs = append(logs, logEntry(i))
	}
	return logs
}

// step is one call of raft's, and what a process finds after the call.
type step struct {
	do   func(s *store.Store) error
	then string
}

func appends(from, to uint64, then string) step {
	return step{func(s *store.Store) error { return s.Log.StoreLogs(logEntries(from, to)) }, then}
}

func deletes(from, to uint64, then string) step {
	return step{func(s *store.Store) error { return s.Log.DeleteRange(from, to) }, then}
}

func votes(name, then string) step {
	return step{func(s *store.Store) error { return s.Stable.Set([]byte("vote"), []byte(name)) }, then}
}

func belongs(cluster, then string) step {
	return step{func(s *store.Store) error {
		return s.SetIdentity(func(id *store.Identity) { id.ClusterID = cluster })
	}, then}
}

// snapshots takes a snapshot of 600 bytes.
func snapshots(index uint64, then string) step {
	return step{func(s *store.Store) error {
		sink, err := s.Snapshots.Create(1, index, 1, raft.Configuration{}, 1, nil)
		if err != nil {
			return err
		}
		if _, err := sink.Write(make([]byte, 600)); err != nil {
			return err
		}
		return sink.Close()
	}, then}
}

// nothing is what a process finds in a new folder.
const nothing = "entries 0 to 0, vote "

// histories are interrupted at every operation of their steps.
var histories = []struct {
	name   string
	before []step
	steps  []step
}{
	{"vote", nil, []step{votes("n1", "entries 0 to 0, vote n1"), votes("n2", "entries 0 to 0, vote n2")}},
	{"found a cluster", nil, []step{
		belongs("c1", "entries 0 to 0, vote , cluster c1"), appends(1, 1, "entries 1 to 1, vote , cluster c1"),
	}},
	{"take a snapshot", []step{appends(1, 30, "entries 1 to 30, vote ")}, []step{
		snapshots(20, "entries 1 to 30, snapshot 20 of 600 bytes, vote "),
		deletes(1, 20, "entries 21 to 30, snapshot 20 of 600 bytes, vote "),
	}},
	{"install a snapshot", []step{appends(1, 10, "entries 1 to 10, vote ")}, []step{
		snapshots(50, "entries 0 to 0, snapshot 50 of 600 bytes, vote "), // Open empties the log
		deletes(1, 10, "entries 0 to 0, snapshot 50 of 600 bytes, vote "),
		appends(51, 53, "entries 51 to 53, snapshot 50 of 600 bytes, vote "),
	}},
	{"take a third snapshot", []step{
		appends(1, 30, "entries 1 to 30, vote "),
		snapshots(10, "entries 1 to 30, snapshot 10 of 600 bytes, vote "),
		snapshots(20, "entries 1 to 30, snapshot 20 of 600 bytes, vote "),
		deletes(1, 15, "entries 16 to 30, snapshot 20 of 600 bytes, vote "),
	}, []step{
		snapshots(30, "entries 16 to 30, snapshot 30 of 600 bytes, vote "),
		deletes(1, 25, "entries 26 to 30, snapshot 30 of 600 bytes, vote "),
	}},
}

// fault is called at one operation, and returns the operation's error.
type fault func(*memdisk.Disk) error

func kills(d *memdisk.Disk) error { d.Kill(); return nil }
func fails(*memdisk.Disk) error   { return syscall.EIO }
func cuts(d *memdisk.Disk) error  { d.PowerCut(1); return nil }

// firstFaults has the first faults, by name. The next faults happen in the Open that follows.
var firstFaults = map[string]struct {
	first fault
	next  []fault
}{"killed": {kills, []fault{fails, cuts}}, "failed": {fails, nil}, "cut": {cuts, []fault{fails}}}

// settle waits until the next segment is prepared, and not longer: each second the store checks its files, which is
// slow.
func settle() { time.Sleep(time.Second / 2) }

// meet has f called at the nth operation from now on. reached is set then.
func (l *diskHistory) meet(n int, f fault) (reached *bool) { return l.meetInOrder(uint64(n), n, f) }

// meetInOrder is meet with a seed for the order of concurrent operations. Each operation takes a random time, also
// those that prepare the next segment.
func (l *diskHistory) meetInOrder(order uint64, n int, f fault) (reached *bool) {
	reached = new(bool)
	var met atomic.Int64
	takes := times(order)
	l.files.Hook(func(op memdisk.Op) error {
		if filepath.Base(op.Name) != "stable.db" { // its store holds a mutex, and a sleep would stop virtual time
			time.Sleep(takes())
		}
		if op.Kind == memdisk.OpOpen || met.Add(1) != int64(n) {
			return nil
		}
		*reached = true
		return f(l.files)
	})
	return reached
}

// times returns a function that draws the durations of operations. Some are much longer than others.
func times(seed uint64) func() time.Duration {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 3))
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(rng.ExpFloat64() * float64(time.Millisecond<<rng.IntN(6)))
	}
}

// play performs steps until one fails. It returns what the next process may find.
func (l *diskHistory) play(last string, steps []step) (allowed []string) {
	for _, s := range steps {
		if s.do(l.store) != nil {
			return []string{last, s.then}
		}
		settle()
		last = s.then
	}
	return []string{last}
}

// TestPowerCutAfterACrash: a process dies in any operation, or the operation fails. What the next process finds
// survives each later power cut.
func TestPowerCutAfterACrash(t *testing.T) {
	protocoltest.SkipShort(t, "a power cut at every write")
	for _, h := range histories {
		for name, f := range firstFaults {
			t.Run(h.name+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					for n := 1; ; n++ {
						l := newDiskHistory(t, memdisk.New(uint64(n)))
						require.NoError(t, l.begin())
						last := l.play(nothing, h.before)
						require.Len(t, last, 1)
						reached := l.meet(n, f.first)
						allowed := l.play(last[0], h.steps)
						l.end()
						l.requireKept(allowed, f.next)
						if !*reached {
							return
						}
					}
				})
			})
		}
	}
}

// TestPowerCutAfterACrashInTheFirstOpen: as TestPowerCutAfterACrash, while a folder is created.
func TestPowerCutAfterACrashInTheFirstOpen(t *testing.T) {
	protocoltest.SkipShort(t, "a power cut at every write")
	for name, f := range firstFaults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for n := 1; ; n++ {
					l := newDiskHistory(t, memdisk.New(uint64(n)))
					reached := l.meet(n, f.first)
					_ = l.begin()
					l.end()
					l.requireKept([]string{nothing}, f.next)
					if !*reached {
						return
					}
				}
			})
		})
	}
}

// requireKept continues from l in many ways. A process must find one of allowed, and later ones must find the same.
func (l *diskHistory) requireKept(allowed []string, next []fault) {
	for seed := range uint64(2) {
		seen := l.fork(seed)
		seen.requireSeen("", allowed, seed)
		grown := l.fork(seed)
		grown.requireGrows(allowed, seed)
	}
	for _, f := range next {
		for k := 1; ; k++ {
			again := l.fork(uint64(k))
			reached := again.meet(k, f)
			found := ""
			if again.begin() == nil && again.files.Running() {
				found = again.shows()
				again.cut(uint64(k))
			}
			again.end()
			again.requireSeen(found, allowed, uint64(k))
			if !*reached {
				break
			}
		}
	}
}

// requireSeen starts processes that must find what was found before, or one of allowed, and cuts the power after each.
func (l *diskHistory) requireSeen(found string, allowed []string, seed uint64) {
	for range 2 {
		require.NoError(l.t, l.begin())
		shown := l.shows()
		if found != "" {
			require.Equal(l.t, found, shown)
		}
		require.Contains(l.t, allowed, shown)
		found = shown
		l.cut(seed)
	}
}

// requireGrows writes before the power is cut, and requires that this stays, too.
func (l *diskHistory) requireGrows(allowed []string, seed uint64) {
	require.NoError(l.t, l.begin())
	require.Contains(l.t, allowed, l.shows())
	for i := range uint64(2) {
		last, err := l.store.Log.LastIndex()
		require.NoError(l.t, err)
		if list, err := l.store.Snapshots.List(); err == nil && last == 0 && len(list) > 0 {
			last = list[0].Index
		}
		require.NoError(l.t, l.store.Log.StoreLogs(logEntries(last+1, last+2)))
		require.NoError(l.t, l.store.Stable.Set([]byte("vote"), fmt.Append(nil, "n", i+5)))
		shown := l.shows()
		l.cut(seed)
		require.NoError(l.t, l.begin())
		require.Equal(l.t, shown, l.shows())
	}
	l.end()
}

// TestSnapshotsAtOnce: one snapshot is taken while another is installed. Each completed one survives a power cut, even
// if an operation of the other has failed.
func TestSnapshotsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for order := range uint64(200) {
			l := newDiskHistory(t, memdisk.New(order))
			require.NoError(t, l.begin())
			l.meetInOrder(order, 1+int(order)%20, fails) // in some orders nothing fails
			var completed [2]uint64                      // indexes
			var both sync.WaitGroup
			for i := range completed {
				both.Go(func() {
					if index := uint64(10 * (i + 1)); snapshots(index, "").do(l.store) == nil {
						completed[i] = index
					}
				})
			}
			both.Wait()
			newest := max(completed[0], completed[1])
			l.cut(order)
			require.NoError(t, l.begin())
			list, err := l.store.Snapshots.List()
			require.NoError(t, err)
			if newest > 0 {
				require.NotEmpty(t, list)
				require.GreaterOrEqual(t, list[0].Index, newest)
			}
			l.end()
		}
	})
}
