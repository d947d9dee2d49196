package store

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// mending returns the configuration of a node whose missing snapshot may be replaced by another member's state.
func mending(dir string) Config {
	c := config(dir)
	c.Mends = true
	return c
}

// aMember makes the folder of a member with the entries first to last of term 2, and snapshots at 10 and 20.
func aMember(t *testing.T, first, last uint64) (dir string) {
	t.Helper()
	dir = memoryDir(t)
	s := mustOpen(t, config(dir))
	require.NoError(t, s.SetIdentity(func(id *Identity) { id.ClusterID = "c1" }))
	require.NoError(t, s.Stable.SetUint64([]byte("CurrentTerm"), 3))
	require.NoError(t, s.Stable.SetUint64([]byte("LastVoteTerm"), 3))
	require.NoError(t, s.Stable.Set([]byte("LastVoteCand"), []byte("n2")))
	logs := entries(1, max(last, 20))
	for _, l := range logs {
		l.Term = 2
	}
	require.NoError(t, s.Log.StoreLogs(logs))
	for _, end := range []uint64{10, 20} {
		takeAt(t, s.Snapshots, end, 2)
	}
	require.NoError(t, s.Log.DeleteRange(1, first-1))
	if last < 20 {
		require.NoError(t, s.Log.(*guardedLog).log.DeleteRange(last+1, 20))
	}
	require.NoError(t, s.Close())
	return dir
}

func takeAt(t *testing.T, s raft.SnapshotStore, index, term uint64) {
	t.Helper()
	sink, err := s.Create(1, index, term, raft.Configuration{Servers: []raft.Server{{ID: "n1"}}}, 1, nil)
	require.NoError(t, err)
	_, err = io.WriteString(sink, "state")
	require.NoError(t, err)
	require.NoError(t, sink.Close())
}

// ending returns the files of the snapshot at an index.
func ending(t *testing.T, dir, index string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, snapshotName, "*-"+index+"-*"))
	require.NoError(t, err)
	return files
}

func damage(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	b[len(b)-snapshotTail-1] ^= 1 // of the state
	require.NoError(t, os.WriteFile(path, b, 0o600))
}

// state returns the state of another member, up to index.
func state(index, term uint64) (Snapshot, io.Reader) {
	const text = "another's state"
	return Snapshot{
		Index: index, Term: term, Bytes: int64(len(text)),
		Members: members.NewConfiguration(1, members.Member{ID: "n1"}, members.Member{ID: "n2"}),
	}, strings.NewReader(text)
}

// TestMend: which states replace a damaged newest snapshot, and which entries stay in the log.
func TestMend(t *testing.T) {
	for _, row := range []struct {
		name        string
		first, last uint64
		from        uint64 // the least index of a state
		index, term uint64 // of the state
		left, end   uint64 // of the log; 0: it is emptied
		raised      uint64 // raft's term afterwards; 0: as before
	}{
		{"up to the entry before the log", 16, 30, 15, 15, 2, 16, 30, 0},
		{"within the log", 16, 30, 15, 18, 2, 16, 30, 0},
		{"up to where the log ends", 16, 30, 15, 30, 2, 16, 30, 0},
		{"beyond the log", 16, 30, 15, 31, 2, 0, 0, 0},
		{"other entries within the log", 16, 30, 15, 25, 3, 0, 0, 0},
		{"of a later term than this node knows", 16, 30, 15, 40, 9, 0, 0, 9},
		{"the log begins behind the snapshot", 21, 30, 20, 22, 2, 21, 30, 0},
		{"the log is empty", 21, 20, 20, 20, 2, 0, 0, 0},
		{"the log ends before the snapshot did", 12, 15, 20, 20, 2, 0, 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := aMember(t, row.first, row.last)
			damage(t, ending(t, dir, "20")[0])
			requireRefused(t, config(dir), ending(t, dir, "20")[0], "is damaged", advice)
			s := mustOpen(t, mending(dir))
			missing := s.Missing()
			require.NotNil(t, missing)
			require.Equal(t, row.from, missing.From)
			require.ErrorContains(t, missing.Err, "is damaged")
			require.ErrorContains(t, missing.Err, advice)
			require.Len(t, missing.Known, 2, "the description of the damaged one is whole")
			require.Equal(t, uint64(20), missing.Known[0].Index)
			early, text := state(row.from-1, 2)
			require.ErrorContains(t, s.Mend(early, text), "is needed up to")
			require.NoError(t, s.Mend(state(row.index, row.term)))
			require.Nil(t, s.Missing())
			require.ErrorContains(t, s.Mend(state(row.index, row.term)), "none is missing")
			for range 2 {
				first, err := s.Log.FirstIndex()
				require.NoError(t, err)
				last, err := s.Log.LastIndex()
				require.NoError(t, err)
				require.Equal(t, [2]uint64{row.left, row.end}, [2]uint64{first, last})
				list, err := s.Snapshots.List()
				require.NoError(t, err)
				require.Equal(t, row.index, list[0].Index)
				meta, r, err := s.Snapshots.Open(list[0].ID)
				require.NoError(t, err)
				require.Len(t, meta.Configuration.Servers, 2)
				text, err := io.ReadAll(r)
				require.NoError(t, err)
				require.Equal(t, "another's state", string(text))
				require.NoError(t, r.Close())
				require.Equal(t, max(row.raised, 3), number(t, s, "CurrentTerm"))
				require.Equal(t, uint64(3), number(t, s, "LastVoteTerm"))
				vote, err := s.Stable.Get([]byte("LastVoteCand"))
				require.NoError(t, err)
				require.Equal(t, "n2", string(vote))
				require.NoError(t, s.Close())
				s = mustOpen(t, config(dir))
			}
			if row.index != 20 {
				require.Empty(t, ending(t, dir, "20"), "the damaged one is of no use to anybody")
			}
		})
	}
}

func number(t *testing.T, s *Store, key string) uint64 {
	t.Helper()
	n, err := s.Stable.GetUint64([]byte(key))
	require.NoError(t, err)
	return n
}

// TestMendFails: a state that is truncated or invalid changes nothing, and the snapshot stays missing.
func TestMendFails(t *testing.T) {
	dir := aMember(t, 16, 30)
	damage(t, ending(t, dir, "20")[0])
	c, faults := mending(dir), NewFaults()
	c.Hooks.Faults = faults
	s := mustOpen(t, c)
	requireUnchanged := func() {
		t.Helper()
		require.NotNil(t, s.Missing())
		files, err := os.ReadDir(filepath.Join(dir, snapshotName))
		require.NoError(t, err)
		require.Len(t, files, 2)
		require.Equal(t, uint64(3), number(t, s, "CurrentTerm"))
	}
	snapshot, text := state(40, 9)
	require.ErrorContains(t, s.Mend(snapshot, io.MultiReader(text, iotest.ErrReader(errors.New("cut off")))), "cut off")
	requireUnchanged()
	cut := io.MultiReader(strings.NewReader("another"), iotest.ErrReader(errors.New("cut off")))
	require.ErrorContains(t, s.Mend(snapshot, cut), "cut off")
	requireUnchanged()
	for _, wrong := range []string{"another", "another's states"} {
		require.ErrorContains(t, s.Mend(snapshot, strings.NewReader(wrong)), "bytes instead of 15")
		requireUnchanged()
	}
	for _, change := range []func(*Snapshot){
		func(s *Snapshot) { s.Term = 0 },
		func(s *Snapshot) { s.Bytes = -1 },
		func(s *Snapshot) { s.Members.Index = 41 },
		func(s *Snapshot) { s.Members.Members = nil },
	} {
		snapshot, text := state(40, 9)
		change(&snapshot)
		require.ErrorContains(t, s.Mend(snapshot, text), "makes no sense")
		requireUnchanged()
	}
	for _, op := range []Op{OpSnapshot, OpGet, OpSet, OpDeleteRange} {
		faults.Inject(Fault{Op: op, Err: syscall.EIO, Count: 1})
		require.ErrorIs(t, s.Mend(state(40, 9)), syscall.EIO)
		require.NotNil(t, s.Missing())
	}
	require.NoError(t, s.Mend(state(41, 9)))
}

// TestVanishedSnapshotIsMended: a snapshot is also replaced if an operator, or a check of the file system, has deleted
// the damaged file.
func TestVanishedSnapshotIsMended(t *testing.T) {
	for _, end := range []uint64{30, 20} {
		dir := aMember(t, 16+5*(30-end)/10, end)
		require.NoError(t, os.Remove(ending(t, dir, "20")[0]))
		s := mustOpen(t, mending(dir))
		require.ErrorContains(t, s.Missing().Err, "a snapshot is missing")
		require.Len(t, s.Missing().Known, 1)
		require.NoError(t, s.Mend(state(22, 2)))
	}
}

// TestNotMended: a snapshot is not replaced if it is not damaged, or if no other member can have its state.
func TestNotMended(t *testing.T) {
	otherFormat := func(t *testing.T, path string) {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		b[len(snapshotMagic)-1], b[len(b)-1] = '2', '2'
		require.NoError(t, os.WriteFile(path, b, 0o600))
	}
	for name, row := range map[string]struct {
		spoil func(*testing.T, string)
		id    func(*Identity)
		want  string
	}{
		"a format of a newer release": {otherFormat, nil, "use the release that wrote it"},
		"one end of it says so": {func(t *testing.T, path string) {
			otherFormat(t, path)
			b, _ := os.ReadFile(path)
			b[len(b)-1] = '1'
			require.NoError(t, os.WriteFile(path, b, 0o600))
		}, nil, ""},
		"it cannot be opened": {func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.Symlink(path, path))
		}, nil, "open snapshot"},
		"it belongs to no cluster":  {damage, func(id *Identity) { id.ClusterID = "" }, advice},
		"it joins":                  {damage, func(id *Identity) { id.Joins = true }, advice},
		"it has to found a cluster": {damage, func(id *Identity) { id.Seed = "seed" }, advice},
	} {
		t.Run(name, func(t *testing.T) {
			dir := aMember(t, 16, 30)
			if row.id != nil {
				id, err := loadIdentity(vfs.OS{}, dir)
				require.NoError(t, err)
				row.id(&id.Identity)
				require.NoError(t, id.save(vfs.OS{}, dir))
			}
			row.spoil(t, ending(t, dir, "20")[0])
			if row.want == "" {
				require.NotNil(t, mustOpen(t, mending(dir)).Missing())
				return
			}
			requireRefused(t, mending(dir), row.want)
		})
	}
}

// TestOlderSnapshotServes: no snapshot is missing while an older one and the log have all entries.
func TestOlderSnapshotServes(t *testing.T) {
	dir := aMember(t, 11, 30)
	path := ending(t, dir, "20")[0]
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, bytes.Clone(b[:len(b)/2]), 0o600))
	s := mustOpen(t, mending(dir))
	require.Nil(t, s.Missing())
	list, err := s.Snapshots.List()
	require.NoError(t, err)
	require.Equal(t, uint64(10), list[0].Index)
}

// TestNothingIsDeletedWhereAStateIsMissing: while a snapshot is missing, the log is not emptied, since it is not
// decided yet what happens to the folder.
func TestNothingIsDeletedWhereAStateIsMissing(t *testing.T) {
	for _, missing := range []*Missing{nil, {}} {
		log, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
		require.NoError(t, log.StoreLogs(entries(1, 9)))
		sink, err := snapshots.Create(1, 20, 1, raft.Configuration{}, 1, nil)
		require.NoError(t, err)
		require.NoError(t, sink.Close())
		_, err = New(Parts{Log: log, Stable: log, Snapshots: snapshots, missing: missing}, Hooks{})
		require.NoError(t, err)
		last, err := log.LastIndex()
		require.NoError(t, err)
		require.Equal(t, missing == nil, last == 0)
	}
}

// TestSpool: Spool keeps a state in a file until it is closed. A file that a killed process has left, or that is not
// whole, is removed.
func TestSpool(t *testing.T) {
	dir := memoryDir(t)
	spools := func() []string {
		found, err := filepath.Glob(filepath.Join(dir, snapshotName, "spool*"))
		require.NoError(t, err)
		return found
	}
	s, err := Open(config(dir))
	require.NoError(t, err)
	for _, size := range []int64{4, 6} {
		_, err = s.Spool(strings.NewReader("state"), size)
		require.ErrorContains(t, err, "it has not the")
	}
	_, err = s.Spool(iotest.ErrReader(errors.New("cut off")), 5)
	require.ErrorContains(t, err, "cut off")
	require.Empty(t, spools())
	kept, err := s.Spool(strings.NewReader("state"), 5)
	require.NoError(t, err)
	text, err := io.ReadAll(kept)
	require.NoError(t, err)
	require.Equal(t, "state", string(text))
	require.Len(t, spools(), 1)
	require.NoError(t, kept.Close())
	require.Empty(t, spools())
	_, err = s.Spool(strings.NewReader("state"), 5) // the process is killed
	require.NoError(t, err)
	require.NoError(t, s.Close())
	s, err = Open(config(dir))
	require.NoError(t, err)
	require.Empty(t, spools())
	require.NoError(t, s.Close())
}
