package backup

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

// restoration returns a Restoration into a folder that does not exist.
func restoration(t *testing.T) Restoration {
	return Restoration{
		DataDir: filepath.Join(t.TempDir(), "data"), Name: "n1", Addr: "10.0.0.1:7379",
		User: "ann", Host: "desk",
		Renewal: fsm.Renewal{MinLeaseMillis: 60_000, AtMillis: time.Now().UnixMilli()},
	}
}

// opened opens a restored folder, and returns its identity, its state and its store.
func opened(t *testing.T, o Restoration) (store.Identity, fsm.Machine, *store.Store) {
	t.Helper()
	s, err := store.Open(store.Config{DataDir: o.DataDir, Name: o.Name})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	list, err := s.Snapshots.List()
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, alone(s.Identity().ID, o.Addr), list[0].Configuration)
	require.LessOrEqual(t, list[0].ConfigurationIndex, list[0].Index)
	term, err := s.Stable.GetUint64([]byte(currentTerm))
	require.NoError(t, err)
	require.Equal(t, list[0].Term, term, "entries to come have no smaller term than the snapshot")
	_, stream, err := s.Snapshots.Open(list[0].ID)
	require.NoError(t, err)
	defer stream.Close()
	m := fsm.New()
	require.NoError(t, m.Restore(stream))
	return s.Identity(), m, s
}

func TestRestoreMakesAClusterOfItsOwn(t *testing.T) {
	state := stateOf(t, []string{"incr", "fence"}, []string{"set", "lease", "x", "px", "5000"})
	file, _ := fileOf(t, state)
	o := restoration(t)
	done, err := Restore(bytes.NewReader(file), o)
	require.NoError(t, err)
	require.Equal(t, 1, done.Renewed.Extended)
	id, m, s := opened(t, o)
	at := id.Beginning.At
	require.WithinDuration(t, time.Now(), at, time.Minute)
	require.Equal(t, store.Identity{
		Name: "n1", ID: done.NodeID, ClusterID: done.ClusterID, Restored: true,
		Beginning: &store.Beginning{
			Command: "restore", User: "ann", Host: "desk", At: at, Cluster: someMeta.ClusterID, Node: someMeta.NodeID,
			Index: someMeta.Index,
		},
	}, id)
	require.Equal(t, "n1", members.Name(id.ID))
	require.NotEqual(t, someMeta.NodeID, id.ID)
	require.NotEqual(t, someMeta.ClusterID, id.ClusterID)
	survey := m.Survey(0)
	require.Equal(t, 2, survey.Keys())
	require.Empty(t, survey.Nodes)
	require.Equal(t, int64(60_000), survey.LongestMillis)
	require.Equal(t, uint64(done.Renewed.Jump), survey.Fences)
	list, err := s.Snapshots.List()
	require.NoError(t, err)
	require.Equal(t, someMeta.Index, list[0].Index)
	require.NoError(t, s.Close())

	_, err = Restore(bytes.NewReader(file), o)
	require.ErrorContains(t, err, "use an empty one")
	again := restoration(t)
	other, err := Restore(bytes.NewReader(file), again)
	require.NoError(t, err)
	require.NotEqual(t, done.ClusterID, other.ClusterID, "two restores are two clusters")
	require.NotEqual(t, done.NodeID, other.NodeID)
}

// TestRestoredTogether shows that folders that were restored from one file in the same way have the same seed, and no
// cluster yet. When their cluster is bootstrapped, all of them begin with the same snapshot, which has all of them as
// members.
func TestRestoredTogether(t *testing.T) {
	file, _ := fileOf(t, stateOf(t, []string{"incr", "fence"}, []string{"set", "lease", "x", "px", "5000"}))
	fileOfLess, _ := fileOf(t, stateOf(t, []string{"incr", "fence"}))
	at := time.Now().UnixMilli()
	restored := func(file []byte, change func(*Restoration)) (*store.Store, Restored) {
		o := restoration(t)
		o.Together, o.Renewal.AtMillis = true, at
		change(&o)
		done, err := Restore(bytes.NewReader(file), o)
		require.NoError(t, err)
		require.Empty(t, done.ClusterID)
		_, _, s := opened(t, o)
		return s, done
	}
	one, _ := restored(file, func(*Restoration) {})
	two, other := restored(file, func(o *Restoration) { o.Name, o.Addr = "n2", "10.0.0.2:7379" })
	less, _ := restored(fileOfLess, func(*Restoration) {})
	dropping, _ := restored(file, func(o *Restoration) { o.Renewal.DropLeases = true })
	later, _ := restored(file, func(o *Restoration) { o.Renewal.AtMillis++ })
	require.NotEmpty(t, one.Identity().Seed)
	require.Equal(t, one.Identity().Seed, two.Identity().Seed)
	require.NotEqual(t, one.Identity().ID, two.Identity().ID)
	require.NotEqual(t, one.Identity().Seed, less.Identity().Seed)
	require.NotEqual(t, one.Identity().Seed, dropping.Identity().Seed)
	require.NotEqual(t, one.Identity().Seed, later.Identity().Seed)

	require.NoError(t, Found(two))
	require.NotEmpty(t, two.Identity().Seed, "the cluster is to be founded yet")
	seed := two.Identity().Seed
	founders := []members.Member{
		{ID: other.NodeID, Addr: "10.0.0.2:7379", Voter: true},
		{ID: one.Identity().ID, Addr: "10.0.0.1:7379", Voter: true},
	}
	for range 2 { // the second time as if killed before the identity was written
		require.NoError(t, two.SetIdentity(func(id *store.Identity) {
			id.ClusterID, id.Founders, id.Seed = "c", founders,
				seed
		}))
		require.NoError(t, Found(two))
		require.Empty(t, two.Identity().Seed)
		list, err := two.Snapshots.List()
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.Equal(t, someMeta.Index+1, list[0].Index)
		require.Equal(t, list[1].Term, list[0].Term)
		require.Equal(t, append(alone(founders[1].ID, founders[1].Addr).Servers,
			alone(founders[0].ID, founders[0].Addr).Servers...), list[0].Configuration.Servers)
		var states []string
		for _, meta := range list {
			_, stream, err := two.Snapshots.Open(meta.ID)
			require.NoError(t, err)
			state, err := io.ReadAll(stream)
			require.NoError(t, err)
			require.NoError(t, stream.Close())
			states = append(states, string(state))
		}
		require.Equal(t, states[1], states[0])
	}
}

func TestRestoreThatIsRefusedWritesNothing(t *testing.T) {
	whole, _ := fileOf(t, stateOf(t, []string{"incr", "fence"}))
	newer := bytes.Clone(whole)
	newer[len(magic)]++
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for _, bad := range [][]byte{newer, flipped, whole[:len(whole)-1], nil, []byte("no backup")} {
		o := restoration(t)
		_, err := Restore(bytes.NewReader(bad), o)
		require.Error(t, err)
		require.NoDirExists(t, o.DataDir)
	}
	refusal := errors.New("not wanted")
	o := restoration(t)
	o.Begins = func(Report, fsm.Renewed) error { return refusal }
	_, err := Restore(bytes.NewReader(whole), o)
	require.ErrorIs(t, err, refusal)
	require.NoDirExists(t, o.DataDir)

	o = restoration(t)
	require.NoError(t, os.Mkdir(o.DataDir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(o.DataDir, "photos"), nil, 0o600))
	_, err = Restore(bytes.NewReader(whole), o)
	require.ErrorContains(t, err, "is not empty")
}

// TestRestoreHalfWay shows that a node does not open a folder that a killed restore has left, and that another restore
// replaces it.
func TestRestoreHalfWay(t *testing.T) {
	file, _ := fileOf(t, stateOf(t, []string{"incr", "fence"}))
	o := restoration(t)
	failed, first := errors.New("failed"), filepath.Join(t.TempDir(), "first")
	err := store.Make(store.Config{DataDir: first}, store.Identity{Name: "n1", ClusterID: "c"},
		func(s *store.Store) error {
			require.NoError(t, s.Stable.SetUint64([]byte(currentTerm), 99))
			sink, err := s.Snapshots.Create(1, 500, 99, alone("n1", "x:1"), 500, nil)
			require.NoError(t, err)
			_, err = io.WriteString(sink, "half")
			require.NoError(t, err)
			require.NoError(t, os.CopyFS(o.DataDir, os.DirFS(first))) // what a kill leaves at this time
			return failed
		})
	require.ErrorIs(t, err, failed)
	_, err = store.Open(store.Config{DataDir: o.DataDir, Name: "n1"})
	require.ErrorContains(t, err, "is not whole")
	done, err := Restore(bytes.NewReader(file), o)
	require.NoError(t, err)
	id, m, _ := opened(t, o)
	require.Equal(t, done.ClusterID, id.ClusterID)
	require.Equal(t, 1, m.Survey(0).Keys())
}
