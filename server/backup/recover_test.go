package backup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/store"
)

const survivorID = "n2@0000000000aa"

// entryOf returns a log entry with commands, which was proposed in the term stamped.
func entryOf(index, term, stamped uint64, commands ...[]string) *raft.Log {
	var body []byte
	for _, words := range commands {
		body = protocoltest.AppendRequest(body, 0, words...)
	}
	w := protocol.NewEntry(nil, protocol.EntryVersion, int64(1000+index), 0, protocol.EntryLimits{})
	w.Add(protocol.Incarnation{Node: "n1", Epoch: 1}, index, index, body)
	return &raft.Log{
		Index: index, Term: term, Type: raft.LogCommand, Data: w.Bytes(),
		Extensions: binary.AppendUvarint(nil, stamped),
	}
}

func three() raft.Configuration {
	var c raft.Configuration
	for i := range 3 {
		id := fmt.Sprintf("n%d@0000000000aa", i+1)
		c.Servers = append(c.Servers, raft.Server{
			Suffrage: raft.Voter, ID: raft.ServerID(id),
			Address: raft.ServerAddress(fmt.Sprintf("10.0.0.%d:7379", i+1)),
		})
	}
	return c
}

// survivorFolder returns the folder of one of three nodes.
func survivorFolder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	id := store.Identity{
		Name: "n2", ID: survivorID, ClusterID: "old", Quarantine: &store.Quarantine{Cluster: "old", Index: 3},
	}
	require.NoError(t, store.Make(store.Config{DataDir: dir}, id, func(s *store.Store) error {
		require.NoError(t, s.Stable.SetUint64([]byte(currentTerm), 4))
		return s.Log.StoreLogs([]*raft.Log{
			{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(three())},
			entryOf(2, 2, 2, []string{"set", "lease", "x", "px", "20000"}, []string{"incr", "fence"}),
			{Index: 3, Term: 3, Type: raft.LogNoop},
			entryOf(4, 3, 2, []string{"set", "void", "x"}),
			entryOf(5, 3, 3, []string{"incr", "fence"}),
		})
	}))
	return dir
}

func survive(t *testing.T, dir string) *Survivor {
	t.Helper()
	s, err := Survive(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestPreviewOfARecoveryChangesNothing(t *testing.T) {
	dir := survivorFolder(t)
	for range 2 {
		s := survive(t, dir)
		require.Equal(t, uint64(5), s.Log.Last)
		require.Equal(t, uint64(3), s.Log.Term)
		require.Zero(t, s.Log.Snapshot)
		require.Len(t, s.Log.Members.Members, 3)
		require.Equal(t, "10.0.0.2:7379", s.Addr())
		require.Equal(t, 2, s.Survey.Keys(), "without what was stamped for another term")
		require.Equal(t, int64(2), s.Survey.FenceKeys[0].Value)
		require.NoError(t, s.Close())
	}
	o, err := store.Open(store.Config{DataDir: dir, Name: "n2"})
	require.NoError(t, err)
	defer o.Close()
	require.Equal(t, "old", o.Identity().ClusterID)
	last, err := o.Log.LastIndex()
	require.NoError(t, err)
	require.Equal(t, uint64(5), last)
}

// requireRecovered requires that the folder, opened as serve does, has the recovered state.
func requireRecovered(t *testing.T, dir string) {
	t.Helper()
	id, m, s := opened(t, Restoration{DataDir: dir, Name: "n2", Addr: "10.0.0.2:7379"})
	defer s.Close()
	require.Equal(t, survivorID, id.ID)
	require.NotEqual(t, "old", id.ClusterID)
	require.True(t, id.Restored)
	require.Nil(t, id.Quarantine, "the cluster from which its state differed is another")
	require.Equal(t, &store.Beginning{
		Command: "recover", User: "ann", Host: "desk", At: id.Beginning.At, Cluster: "old",
		Node: survivorID, Index: 5,
	}, id.Beginning)
	survey := m.Survey(5)
	require.Equal(t, 2, survey.Keys())
	require.Equal(t, int64(60_000), survey.LongestMillis)
	require.GreaterOrEqual(t, survey.Fences, uint64(fsm.FenceJump))
	require.Equal(t, int64(2+1000), survey.FenceKeys[0].Value)
	require.Empty(t, survey.Nodes)
	last, err := s.Log.LastIndex()
	require.NoError(t, err)
	require.Zero(t, last, "the snapshot stands for all of the log")
	list, err := s.Snapshots.List()
	require.NoError(t, err)
	require.Equal(t, uint64(6), list[0].Index)
	require.Greater(t, list[0].Term, uint64(4))
}

var aRenewal = fsm.Renewal{
	MinLeaseMillis: 60_000, KeepLocks: true, AtMillis: time.Now().UnixMilli(),
	Raises: []fsm.Raise{{Pattern: "fence", By: 1000}},
}

func TestRecover(t *testing.T) {
	dir := survivorFolder(t)
	s := survive(t, dir)
	refusal := errors.New("not wanted")
	_, err := s.Recover(s.Addr(), aRenewal, func(fsm.Renewed) error { return refusal })
	require.ErrorIs(t, err, refusal)
	require.NoError(t, s.Close())
	s = survive(t, dir)
	require.Equal(t, "old", s.Identity.ClusterID, "a refusal changes nothing")
	s.User, s.Host = "ann", "desk"
	done, err := s.Recover(s.Addr(), aRenewal, nil)
	require.NoError(t, err)
	require.Equal(t, []int{1}, done.Raised)
	require.NoError(t, s.Close())
	requireRecovered(t, dir)
}

// TestRecoverIsBegunAgain shows that a recovery can be repeated after a kill at any of its steps.
func TestRecoverIsBegunAgain(t *testing.T) {
	steps := map[string]func(t *testing.T, s *Survivor){
		"said":    func(*testing.T, *Survivor) {},
		"in term": func(t *testing.T, s *Survivor) { require.NoError(t, s.folder.Stable.SetUint64([]byte(currentTerm), 5)) },
		"written": func(t *testing.T, s *Survivor) {
			_, err := s.machine.Renew(aRenewal)
			require.NoError(t, err)
			require.NoError(t, begin(s.folder.Store, alone(survivorID, s.Addr()), 6, 5, s.machine))
		},
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			dir := survivorFolder(t)
			s := survive(t, dir)
			require.NoError(t, s.folder.Begin("new", 6, store.Beginning{
				Command: "recover", User: "ann", Host: "desk",
				Cluster: "old", Node: survivorID, Index: 5,
			}))
			step(t, s)
			require.NoError(t, s.Close())
			_, err := store.Open(store.Config{DataDir: dir, Name: "n2"})
			require.ErrorContains(t, err, "run 'holdfast recover' again")
			s = survive(t, dir)
			require.Equal(t, name == "written", s.Begun)
			require.NoError(t, s.Close(), "a preview")
			s = survive(t, dir)
			s.User, s.Host = "ann", "desk"
			_, err = s.Recover("10.0.0.2:7379", aRenewal, nil)
			require.NoError(t, err)
			require.NoError(t, s.Close())
			requireRecovered(t, dir)
		})
	}
}

func TestWhatCannotBeRecovered(t *testing.T) {
	_, err := Survive(filepath.Join(t.TempDir(), "nowhere"))
	require.ErrorContains(t, err, "is no node's")
	c := store.Config{DataDir: filepath.Join(t.TempDir(), "fresh"), Name: "n1"}
	s, err := store.Open(c)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = Survive(c.DataDir)
	require.ErrorContains(t, err, "belongs to no cluster yet")
	dir := survivorFolder(t)
	s, err = store.Open(store.Config{DataDir: dir, Name: "n2"})
	require.NoError(t, err)
	_, err = Survive(dir)
	require.ErrorContains(t, err, "in use by another process")
	require.NoError(t, s.Remove())
	require.NoError(t, s.Close())
	_, err = Survive(dir)
	require.ErrorContains(t, err, "was removed")
}
