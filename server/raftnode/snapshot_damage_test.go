package raftnode

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

// unreadable is a store of one snapshot, which ends at index 10. Open returns err.
type unreadable struct {
	raft.SnapshotStore
	id  string
	err error
}

func (u *unreadable) List() ([]*raft.SnapshotMeta, error) {
	return []*raft.SnapshotMeta{{ID: u.id, Index: 10}}, nil
}

func (u *unreadable) Open(string) (*raft.SnapshotMeta, io.ReadCloser, error) { return nil, nil, u.err }

// mended counts the reactions to a snapshot that cannot be read.
type mended struct {
	*mendedSnapshots
	reports, taken, voids int
}

func mend(u *unreadable, leads bool, applied uint64) *mended {
	m := &mended{}
	m.mendedSnapshots = &mendedSnapshots{
		keeps:         func() bool { return false },
		SnapshotStore: u, tell: func(Event) { m.reports++ }, sends: func() bool { return leads }, applied: func() uint64 {
			return applied
		},
		take: func() { m.taken++ }, void: func() { m.voids++ },
	}
	return m
}

// TestUnreadableSnapshotIsNoLoop: a snapshot that stays unreadable is reported once a minute, and replaced once a
// second at most. Another one is reported at once.
func TestUnreadableSnapshotIsNoLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &unreadable{id: "first", err: errors.New("damaged")}
		m := mend(u, true, 11)
		for range 1500 { // 150 s
			_, _, err := m.Open(u.id)
			require.Equal(t, u.err, err)
			time.Sleep(100 * time.Millisecond)
		}
		require.Equal(t, 3, m.reports)
		require.Equal(t, 150, m.taken)
		require.Zero(t, m.voids)
		u.id = "second"
		_, _, err := m.Open(u.id)
		require.Equal(t, u.err, err)
		require.Equal(t, 4, m.reports)
	})
}

// TestUnreadableSnapshotForTwo: the race detector checks concurrent calls of Open, since raft sends each follower its
// own snapshot.
func TestUnreadableSnapshotForTwo(t *testing.T) {
	m := mend(&unreadable{id: "s", err: errors.New("damaged")}, true, 11)
	var reports, taken atomic.Int32
	m.tell, m.take = func(Event) { reports.Add(1) }, func() { taken.Add(1) }
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for range 100 {
				_, _, err := m.Open("s")
				require.Error(t, err)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, reports.Load())
	require.Positive(t, taken.Load())
}

// TestWhatIsDoneAboutAnUnreadableSnapshot: if nothing was applied since the snapshot, a void entry is proposed first. A
// snapshot that was replaced is only reported. On a follower, or without free descriptors, nothing is done.
func TestWhatIsDoneAboutAnUnreadableSnapshot(t *testing.T) {
	damaged := errors.New("damaged")
	for _, row := range []struct {
		leads                 bool
		applied               uint64
		id                    string
		err                   error
		reports, taken, voids int
	}{
		{true, 11, "s", damaged, 1, 1, 0},
		{true, 10, "s", damaged, 1, 0, 1},
		{true, 11, "replaced", damaged, 1, 0, 0},
		{false, 11, "s", damaged, 0, 0, 0},
		{true, 11, "s", nil, 0, 0, 0},
		{true, 11, "s", fmt.Errorf("open: %w", syscall.EMFILE), 0, 0, 0},
		{true, 11, "s", fmt.Errorf("open: %w", syscall.ENFILE), 0, 0, 0},
	} {
		m := mend(&unreadable{id: "s", err: row.err}, row.leads, row.applied)
		_, _, err := m.Open(row.id)
		require.Equal(t, row.err, err)
		require.Equal(t, []int{row.reports, row.taken, row.voids}, []int{m.reports, m.taken, m.voids}, "%+v", row)
	}
}

// TestStoredConfigurations: of the configurations that can be read from a folder, the newest counts. One that only the
// log has may not be committed.
func TestStoredConfigurations(t *testing.T) {
	conf := func(ids ...string) (c raft.Configuration) {
		for _, id := range ids {
			c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id + ":1")})
		}
		return c
	}
	described := []store.Snapshot{
		{Index: 20, Term: 2, Members: store.MembersFromRaft(conf("n1", "n2"), 12)},
		{Index: 10, Term: 1, Members: store.MembersFromRaft(conf("n1"), 1)},
	}
	founders := []members.Member{{ID: "n9", Addr: "n9:1"}}
	log := raft.NewInmemStore()
	for i := uint64(11); i <= 30; i++ {
		entry := &raft.Log{Index: i, Term: i / 10}
		switch i {
		case 12:
			entry.Type, entry.Data = raft.LogConfiguration, raft.EncodeConfiguration(conf("n1", "n2"))
		case 30:
			entry.Type, entry.Data = raft.LogConfiguration, raft.EncodeConfiguration(conf("n1", "n2", "n3"))
		}
		require.NoError(t, log.StoreLog(entry))
	}
	short := raft.NewInmemStore() // its configuration is older than the newest snapshot's
	require.NoError(t, short.StoreLog(configurationAt(5, "n1", "n2", "n3", "n4")))
	for _, row := range []struct {
		log               raft.LogStore
		described         []store.Snapshot
		committed, newest uint64
		of, most          int
		lastTerm          uint64
	}{
		{log, described, 12, 30, 2, 3, 3},
		{log, described[1:], 1, 30, 1, 3, 3},
		{raft.NewInmemStore(), described, 12, 12, 2, 2, 2},
		{short, described, 12, 12, 2, 2, 2},
		{log, nil, 0, 30, 1, 3, 3},
		{raft.NewInmemStore(), nil, 0, 0, 1, 1, 0},
	} {
		committed, newest, lastTerm, err := StoredConfigurations(row.log, row.described, founders)
		require.NoError(t, err)
		require.Equal(t, [2]uint64{row.committed, row.newest}, [2]uint64{committed.Index, newest.Index})
		require.Equal(t, row.lastTerm, lastTerm)
		require.Equal(t, [2]int{row.of, row.most}, [2]int{len(committed.Members), len(newest.Members)})
		require.Equal(t, row.described == nil, committed.Has("n9"))
	}
}
