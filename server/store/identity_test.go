package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store/internal/memdisk"
	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// TestNodeIDIsMintedWithTheFolder: an ID is minted with its folder. An emptied folder gets another ID, even under the
// same name.
func TestNodeIDIsMintedWithTheFolder(t *testing.T) {
	c := config(memoryDir(t))
	s := mustOpen(t, c)
	first := s.Identity()
	require.Regexp(t, `^n1@[0-9a-f]{12}$`, first.ID)
	require.Empty(t, first.ClusterID)
	require.Contains(t, s.owner.id.CreatedBy, "holdfast", "the program, by its module")
	require.NoError(t, s.Close())
	s = mustOpen(t, c)
	require.Equal(t, first, s.Identity())
	require.NoError(t, s.Close())
	require.NoError(t, os.RemoveAll(c.DataDir))
	require.NotEqual(t, first.ID, mustOpen(t, c).Identity().ID)
}

// TestIdentityChanges: a change of the identity is there after each Open.
func TestIdentityChanges(t *testing.T) {
	c := config(memoryDir(t))
	s := mustOpen(t, c)
	want := s.Identity()
	want.ClusterID, want.Votes, want.Joins, want.Restored = "c1", true, true, true
	want.Founders = []members.Member{{ID: want.ID, Addr: "h:1", Voter: true}, {ID: "n2@2", Addr: "h:2", Voter: true}}
	require.NoError(t, s.SetIdentity(func(id *Identity) { *id = want }))
	require.Equal(t, want, s.Identity())
	for range 2 {
		require.NoError(t, s.Close())
		s = mustOpen(t, c)
		require.Equal(t, want, s.Identity())
	}
	require.NoError(t, s.Remove())
	require.NoError(t, s.Close())
	_, err := Open(c)
	require.ErrorIs(t, err, ErrRemoved)
	require.ErrorContains(t, err, want.ID)
}

// TestUnusedFolderMayBecomeAnotherNodes: a folder that no cluster can know may be opened under another name, so that a
// mistyped name at the first start does no harm. Another folder is refused.
func TestUnusedFolderMayBecomeAnotherNodes(t *testing.T) {
	c := config(memoryDir(t))
	s := mustOpen(t, c)
	require.NoError(t, s.Close())
	c.Name = "n2"
	s = mustOpen(t, c)
	require.Equal(t, "n2", members.Name(s.Identity().ID))
	require.NoError(t, s.SetIdentity(func(id *Identity) { id.Joins = true }))
	require.NoError(t, s.Close())
	c.Name = "n3"
	requireRefused(t, c, `belongs to node "n2", this node is "n3"`)
}

// TestRestoredFolderIsInUse: a restored folder is in use even before it belongs to a cluster, since it has a state.
func TestRestoredFolderIsInUse(t *testing.T) {
	c := config(memoryDir(t))
	made := Identity{Name: "n1", ID: "n1@5", Restored: true, Seed: "s"}
	require.NoError(t, Make(c, made, func(*Store) error { return nil }))
	id, err := loadIdentity(vfs.OS{}, c.DataDir)
	require.NoError(t, err)
	require.Equal(t, made, id.Identity)
	require.ErrorContains(t, Make(c, made, nil), `belongs to node "n1": use an empty one`)
	c.Name = "n2"
	requireRefused(t, c, `belongs to node "n1", this node is "n2"`)
}

// TestOpenForRecovery: only the folders of members are opened. Other folders are not changed.
func TestOpenForRecovery(t *testing.T) {
	c := config(memoryDir(t))
	_, err := OpenForRecovery(c.DataDir)
	require.ErrorContains(t, err, "is no node's")
	s := mustOpen(t, c)
	_, err = OpenForRecovery(c.DataDir)
	require.ErrorContains(t, err, "belongs to no cluster yet")
	fill(t, s)
	require.NoError(t, s.SetIdentity(func(id *Identity) { id.ClusterID = "c1" }))
	_, err = OpenForRecovery(c.DataDir)
	require.ErrorContains(t, err, "in use by another process")
	require.NoError(t, s.Close())
	path := filepath.Join(c.DataDir, identityName)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	for want, change := range map[string]func(*identity){
		"belongs to a node that was removed from its cluster": func(id *identity) { id.State = stateRemoved },
		"was restored and never started":                      func(id *identity) { id.Seed = "s" },
		"belongs to no cluster yet: nothing is in it":         func(id *identity) { id.State = stateCreating },
		"belongs to no cluster yet":                           func(id *identity) { id.Joins = true },
		"was being filled":                                    func(id *identity) { id.State = stateFilling },
		"is damaged":                                          func(id *identity) { id.State = "reddy" },
	} {
		id := &identity{}
		require.NoError(t, json.Unmarshal(good, id))
		change(id)
		require.NoError(t, id.save(vfs.OS{}, c.DataDir))
		r, err := OpenForRecovery(c.DataDir)
		require.ErrorContains(t, err, want)
		require.Nil(t, r)
	}
	require.NoError(t, os.WriteFile(path, good, 0o600))
	r, err := OpenForRecovery(c.DataDir)
	require.NoError(t, err)
	requireFilled(t, r.Store)
	require.Zero(t, r.Index)
	require.NoError(t, r.Close())
	requireFilled(t, mustOpen(t, c))
}

// unlisted is a store whose snapshots cannot be listed.
type unlisted struct{ raft.SnapshotStore }

func (unlisted) List() ([]*raft.SnapshotMeta, error) { return nil, syscall.EIO }

// TestRecovery: a recovery that has begun can only be completed. It leaves nothing of the former cluster in the
// identity.
func TestRecovery(t *testing.T) {
	c := config(memoryDir(t))
	s := mustOpen(t, c)
	was := s.Identity()
	was.ClusterID, was.Votes, was.Founders = "c1", true, []members.Member{{ID: was.ID, Addr: "h:1", Voter: true}}
	require.NoError(t, s.SetIdentity(func(id *Identity) { *id = was }))
	require.NoError(t, s.Close())

	beginning := Beginning{Command: "recover", Cluster: "c1", Node: was.ID, Index: 9}
	want := Identity{Name: "n1", ID: was.ID, ClusterID: "c2", Restored: true, Beginning: &beginning}
	r, err := OpenForRecovery(c.DataDir)
	require.NoError(t, err)
	require.NoError(t, r.Begin("c2", 10, beginning))
	for range 2 {
		require.Equal(t, uint64(10), r.Index)
		require.Equal(t, want, r.Identity())
		require.ErrorContains(t, r.End(), "the snapshot is missing")
		require.NoError(t, r.Close())
		requireRefused(t, c, "is being recovered, and is not whole: run 'holdfast recover' again")
		r, err = OpenForRecovery(c.DataDir)
		require.NoError(t, err)
	}
	takeSnapshot(t, r.Snapshots, 9, "nine")
	require.ErrorContains(t, r.End(), "the snapshot is missing")
	takeSnapshot(t, r.Snapshots, 10, "ten")
	snapshots := r.Snapshots
	r.Snapshots = unlisted{snapshots}
	require.ErrorIs(t, r.End(), syscall.EIO)
	r.Snapshots = snapshots
	require.NoError(t, r.End())
	require.NoError(t, r.Close())
	require.Equal(t, want, mustOpen(t, c).Identity())
	id, err := loadIdentity(vfs.OS{}, c.DataDir)
	require.NoError(t, err)
	require.Zero(t, id.Recovery)
}

func TestMake(t *testing.T) {
	c := config(filepath.Join(memoryDir(t), "made"))
	failed := errors.New("no more room")
	err := Make(c, Identity{Name: "n1", ClusterID: "c1"}, func(s *Store) error {
		takeSnapshot(t, s.Snapshots, 10, "ten")
		return failed
	})
	require.ErrorIs(t, err, failed)
	left, err := os.ReadDir(c.DataDir)
	require.NoError(t, err)
	require.Len(t, left, 1, "the lock")
	require.NoError(t, Make(c, Identity{Name: "n1", ClusterID: "c1", Restored: true}, func(s *Store) error {
		require.ErrorContains(t, Make(c, Identity{Name: "n1"}, nil), "in use by another process", "the folder stays as it is")
		takeSnapshot(t, s.Snapshots, 10, "ten")
		return s.Stable.SetUint64([]byte("CurrentTerm"), 7)
	}))
	for epoch := range uint64(2) {
		s := mustOpen(t, c)
		id := s.Identity()
		require.Equal(t, Identity{Name: "n1", ID: id.ID, ClusterID: "c1", Restored: true}, id)
		require.NotEmpty(t, id.ID)
		require.Equal(t, epoch+1, s.Lineage.Current()>>32)
		list, err := s.Snapshots.List()
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.NoError(t, s.Close())
	}
	require.ErrorContains(t, Make(c, Identity{Name: "n1"}, nil), `belongs to node "n1": use an empty one`)
	other := c
	other.DataDir += "2"
	require.NoError(t, os.Mkdir(other.DataDir, 0o700))
	for _, name := range []string{"photos", "photos" + vfs.Unfinished, stableName} {
		path := filepath.Join(other.DataDir, name)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.ErrorContains(t, Make(other, Identity{Name: "n1"}, nil), fmt.Sprintf("is not empty, %s is there", name))
		require.NoError(t, os.Remove(path))
	}
	other.DataDir += "3" // like the root of a file system
	require.NoError(t, os.MkdirAll(filepath.Join(other.DataDir, "lost+found"), 0o700))
	require.NoError(t, Make(other, Identity{Name: "n1"}, func(*Store) error { return nil }))
	s := mustOpen(t, c)
	require.ErrorContains(t, Make(c, Identity{Name: "n1"}, nil), fmt.Sprintf("in use by another process (pid %d)",
		os.Getpid()))
	require.NoError(t, s.Close())
}

// TestFailedIdentityIsTheLast: after a failed write all changes of the identity fail, even if the disk works again,
// since it is unknown which identity is on the disk.
func TestFailedIdentityIsTheLast(t *testing.T) {
	disk := memdisk.New(7)
	o := &owner{fs: disk.Boot(), dir: ".", id: identity{Format: identityFormat, Identity: Identity{Name: "n1", ID: "n1"}}}
	require.NoError(t, o.set(func(id *identity) { id.Votes = true }))
	disk.Hook(func(memdisk.Op) error { return syscall.EIO })
	err := o.set(func(id *identity) { id.Votes = false })
	require.ErrorIs(t, err, syscall.EIO)
	disk.Hook(nil)
	require.Equal(t, err, o.set(func(id *identity) { id.Joins = true }))
	require.True(t, o.id.Votes)
	require.False(t, o.id.Joins)
}

// beside makes the calls concurrently, each of them several times.
func beside(calls ...func(i uint64)) {
	var all sync.WaitGroup
	for _, call := range calls {
		all.Go(func() {
			for i := range uint64(20) {
				call(i)
			}
		})
	}
	all.Wait()
}

// TestCallsBesideEachOther: raft, the node and its hooks call the store concurrently, on a disk that works and on one
// that does not.
func TestCallsBesideEachOther(t *testing.T) {
	c := config(memoryDir(t))
	c.Hooks.Faults = NewFaults()
	s := mustOpen(t, c)
	require.NoError(t, s.Log.StoreLogs(entries(1, 50)))
	sets := func(i uint64) { require.NoError(t, s.Stable.SetUint64([]byte("k"), i)) }
	changes := func(uint64) { require.NoError(t, s.SetIdentity(func(id *Identity) { id.JoinedAt++ })) }
	injects := func(uint64) { c.Hooks.Faults.Inject(Fault{Op: OpSnapshot, Delay: 1, Count: 1})() }
	beside(
		sets, sets, changes, changes, injects, injects,
		func(uint64) { s.Hanging() },
		func(uint64) { _ = s.Identity() },
		func(uint64) {
			_, err := s.Snapshots.List()
			require.NoError(t, err)
		},
		func(i uint64) { takeSnapshot(t, s.Snapshots, i+1, "state") },
		func(i uint64) { require.NoError(t, s.Log.DeleteRange(i+1, i+1)) },
		func(i uint64) { require.NoError(t, s.Log.StoreLogs(entries(51+i, 51+i))) },
	)
	require.Equal(t, uint64(40), s.Identity().JoinedAt)
	requireEntries(t, s.Log, 21, 70)

	require.NoError(t, s.Stable.(*guardedStable).stable.(*stable).Close())
	require.NoError(t, s.Log.(*guardedLog).log.(io.Closer).Close())
	sets = func(i uint64) { require.Error(t, s.Stable.SetUint64([]byte("k"), i)) }
	beside(
		sets, sets,
		func(i uint64) { require.Error(t, s.Log.DeleteRange(30, 70)) },
		func(i uint64) { require.Error(t, s.Log.StoreLogs(entries(71, 71))) },
	)
}

// TestBareStoresBesideEachOther: only the stores' own locks order these calls. The race detector finds missing ones.
func TestBareStoresBesideEachOther(t *testing.T) {
	s, _, err := openSnapshots(vfs.OS{}, memoryDir(t), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	beside(
		func(i uint64) { s.enter(&raft.SnapshotMeta{Index: i + 1}) },
		func(uint64) {
			_, err := s.List()
			require.NoError(t, err)
		},
	)
}

// TestEndsReachedAtOnce: if two snapshots are completed at the same time, the higher index is recorded.
func TestEndsReachedAtOnce(t *testing.T) {
	rounds := make([]completed, 50_000)
	var ready atomic.Int64
	var both sync.WaitGroup
	for end := range uint64(2) {
		both.Go(func() {
			for i := range rounds {
				ready.Add(1)
				for spins := 0; ready.Load() < 2*int64(i+1); spins++ {
					if spins > 100 {
						runtime.Gosched()
					}
				}
				for range uint64(i) % (97 + end) { // varies which of the two is first
				}
				rounds[i].reach(end + 1)
			}
		})
	}
	both.Wait()
	for i := range rounds {
		require.EqualValues(t, 2, rounds[i].end.Load())
	}
}

// TestUnreadableLogIsNotBelieved: a log whose bounds cannot be read does not count as empty.
func TestUnreadableLogIsNotBelieved(t *testing.T) {
	for _, fails := range []string{"first", "last"} {
		s := mustOpen(t, config(memoryDir(t)))
		f := &folder{stable: s.Stable.(*guardedStable).stable.(*stable), snapshots: &snapshots{}, log: unbounded{fails: fails}}
		missing, err := f.checkContinuity(nil)
		require.ErrorIs(t, err, syscall.EIO)
		require.Nil(t, missing)
	}
}

// unbounded is a log of which one bound cannot be read.
type unbounded struct {
	logStore
	fails string
}

func (u unbounded) of(bound string) (uint64, error) {
	if u.fails == bound {
		return 0, syscall.EIO
	}
	return 0, nil
}

func (u unbounded) FirstIndex() (uint64, error) { return u.of("first") }
func (u unbounded) LastIndex() (uint64, error)  { return u.of("last") }

// TestLineage: a start without a proof stays in the lineage until a later start is proved. Then all earlier ones are
// removed.
func TestLineage(t *testing.T) {
	c := config(memoryDir(t))
	var all []uint64
	open := func(length int) *Store {
		s := mustOpen(t, c)
		require.Len(t, s.Lineage, length)
		require.NotContains(t, all, s.Lineage.Current())
		all = append(all, s.Lineage.Current())
		require.Equal(t, uint64(len(all)), s.Lineage.Current()>>32)
		require.Equal(t, all[len(all)-length:], []uint64(s.Lineage))
		return s
	}
	require.NoError(t, open(1).Close())
	s := open(2)
	require.NoError(t, s.Proved())
	require.NoError(t, s.Close())
	require.NoError(t, open(2).Close())
	s = open(3)
	require.NoError(t, s.Proved())
	require.NoError(t, s.Close())
	require.NoError(t, open(2).Close())
}

// TestRandomOfAStart: the random number of a start, which the device draws, distinguishes it from a start of a copied
// folder.
func TestRandomOfAStart(t *testing.T) {
	d := system()
	d.Random = func() uint32 { return 12345 }
	require.NoError(t, with(d, config(memoryDir(t)), func(s *Store) error {
		require.Equal(t, incarnation.Lineage{1<<32 | 12345}, s.Lineage)
		return nil
	}))
	require.NotEqual(t, [3]uint32{}, [3]uint32{randomNumber(), randomNumber(), randomNumber()})
}

// TestQuarantineOfAnotherCluster: a quarantine is for the cluster that it names, and for no other.
func TestQuarantineOfAnotherCluster(t *testing.T) {
	id := Identity{Name: "n1", ClusterID: "c1"}
	require.False(t, id.InQuarantine())
	for cluster, want := range map[string]bool{"c1": true, "c0": false} {
		id.Quarantine = &Quarantine{Cluster: cluster}
		require.Equal(t, want, id.InQuarantine(), cluster)
	}
}
