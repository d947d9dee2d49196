package raftnode

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// unreadable is a store of one snapshot, which ends at 10.
type unreadable struct {
	raft.SnapshotStore
	id  string
	err error
}

func (u *unreadable) List() ([]*raft.SnapshotMeta, error) {
	return []*raft.SnapshotMeta{{ID: u.id, Index: 10}}, nil
}

func (u *unreadable) Open(string) (*raft.SnapshotMeta, io.ReadCloser, error) { return nil, nil, u.err }

// mended is what is done about a snapshot.
type mended struct {
	*mendedSnapshots
	told, taken, voids int
}

func mend(u *unreadable, leads bool, applied uint64) *mended {
	m := &mended{}
	m.mendedSnapshots = &mendedSnapshots{
		SnapshotStore: u, tell: func(Event) { m.told++ }, sends: func() bool { return leads }, applied: func() uint64 { return applied },
		take: func() { m.taken++ }, void: func() { m.voids++ },
	}
	return m
}

// A snapshot that stays unreadable is told of once a minute, and replaced once a second at most; another is told of at once.
func TestUnreadableSnapshotIsNoLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &unreadable{id: "first", err: errors.New("damaged")}
		m := mend(u, true, 11)
		for range 1500 { // 150 s
			_, _, err := m.Open(u.id)
			require.Equal(t, u.err, err)
			time.Sleep(100 * time.Millisecond)
		}
		require.Equal(t, 3, m.told)
		require.Equal(t, 150, m.taken)
		require.Zero(t, m.voids)
		u.id = "second"
		_, _, err := m.Open(u.id)
		require.Equal(t, u.err, err)
		require.Equal(t, 4, m.told)
	})
}

// When nothing was applied since the snapshot, there is an entry first. A follower, a snapshot that was replaced and a
// shortage of descriptors are no reason to do anything.
func TestWhatIsDoneAboutAnUnreadableSnapshot(t *testing.T) {
	damaged := errors.New("damaged")
	for _, row := range []struct {
		leads              bool
		applied            uint64
		id                 string
		err                error
		told, taken, voids int
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
		require.Equal(t, []int{row.told, row.taken, row.voids}, []int{m.told, m.taken, m.voids}, "%+v", row)
	}
}
