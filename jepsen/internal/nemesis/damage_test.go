package nemesis

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/store"
)

const entries = 40

// killed returns the folder of a store that is still open. A copy of it is the folder of a killed node: unlocked, and
// not closed.
func killed(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "n1")
	s, err := store.Open(store.Config{DataDir: dir, Name: "n1"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	for i := range uint64(entries) {
		data := bytes.Repeat([]byte{byte(i + 1)}, 300)
		require.NoError(t, s.Log.StoreLogs([]*raft.Log{{Index: i + 1, Term: 3, Data: data}}))
	}
	require.NoError(t, s.Stable.SetUint64([]byte("CurrentTerm"), 3))
	sink, err := s.Snapshots.Create(1, 5, 3, raft.Configuration{}, 1, nil)
	require.NoError(t, err)
	_, err = io.WriteString(sink, strings.Repeat("state ", 100))
	require.NoError(t, err)
	require.NoError(t, sink.Close())
	return dir
}

// contents reads a whole store; an error is the store's refusal.
func contents(dir string) (text string, err error) {
	s, err := store.Open(store.Config{DataDir: dir, Name: "n1"})
	if err != nil {
		return "", err
	}
	defer s.Close()
	last, err := s.Log.LastIndex()
	if err != nil {
		return "", err
	}
	for i := uint64(1); i <= last; i++ {
		var l raft.Log
		if err := s.Log.GetLog(i, &l); err != nil {
			return "", err
		}
		text += fmt.Sprintf("%d %d %x\n", l.Index, l.Term, l.Data)
	}
	term, err := s.Stable.GetUint64([]byte("CurrentTerm"))
	if err != nil {
		return "", err
	}
	metas, err := s.Snapshots.List()
	if err != nil || len(metas) != 1 {
		return "", fmt.Errorf("%d snapshots: %w", len(metas), err)
	}
	_, r, err := s.Snapshots.Open(metas[0].ID)
	if err != nil {
		return "", err
	}
	defer r.Close()
	state, err := io.ReadAll(r)
	return text + fmt.Sprintf("term %d state %s", term, state), err
}

func TestTornStoresComeBackWhole(t *testing.T) {
	protocoltest.SkipShort(t, "starts servers")
	hit := damageMany(t, "store-torn", func(got string, err error, whole, what string) {
		require.NoError(t, err, what)
		require.Equal(t, whole, got, what)
	})
	require.Len(t, hit, 3, "the log, the terms and a snapshot are torn: %v", hit)
}

func TestFlippedStoresRefuseOrDoWithout(t *testing.T) {
	protocoltest.SkipShort(t, "starts servers")
	refused := 0
	hit := damageMany(t, "store-flipped", func(got string, err error, whole, what string) {
		if err != nil {
			refused++
			return
		}
		require.Equal(t, whole, got, what)
	})
	require.Len(t, hit, 3, "the log, the terms and a snapshot are hit: %v", hit)
	require.Positive(t, refused)
}

// damageMany damages copies of a store in many ways, judges the outcome of each, and counts which files were hit.
func damageMany(t *testing.T, fault string, judge func(got string, err error, whole,
	what string),
) map[string]int {
	t.Helper()
	dir := killed(t)
	work := filepath.Join(t.TempDir(), "n1")
	require.NoError(t, copyTree(work, dir))
	whole, err := contents(work)
	require.NoError(t, err)
	require.Contains(t, whole, fmt.Sprintf("\n%d 3 ", entries))
	hit := map[string]int{}
	for seed := range uint64(16) {
		require.NoError(t, copyTree(work, dir))
		what, err := damage(work, fault, rand.New(rand.NewPCG(seed, 2)))
		require.NoError(t, err)
		words := strings.Fields(what)
		hit[words[len(words)-1]]++
		got, err := contents(work)
		judge(got, err, whole, what)
	}
	return hit
}

func TestDamageHitsOnlyWhatItMay(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "wal", "1.seg")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	// This is a segment whose last frame ends in zero bytes, with capacity to grow.
	written := append(make([]byte, 0, 4096),
		"headheadbody\x03\x00\x00\x00\x07\x00\x00\x00body\x03\x00\x00\x00\x00\x00\x00\x00"...)
	segment := append(written, make([]byte, 1000)...)
	require.NoError(t, os.WriteFile(path, segment, 0o644))

	what, err := damage(dir, "store-torn", rand.New(rand.NewPCG(1, 2)))
	require.NoError(t, err)
	require.Contains(t, what, "wal/1.seg")
	torn := []byte(protocoltest.ReadFile(t, path))
	require.Equal(t, segment[:len(written)], torn[:len(written)], "what was synced is untouched")
	require.NotEqual(t, segment, torn)

	require.NoError(t, os.WriteFile(path, segment, 0o644))
	_, err = damage(dir, "store-flipped", rand.New(rand.NewPCG(1, 2)))
	require.NoError(t, err)
	flipped := protocoltest.ReadFile(t, path)
	different := 0
	for i := range flipped {
		if flipped[i] != segment[i] {
			different++
			require.Less(t, i, len(written))
		}
	}
	require.Equal(t, 1, different)

	_, ok, err := corruptSnapshot(dir)
	require.NoError(t, err)
	require.False(t, ok, "there is no snapshot")
	snapshot := filepath.Join(dir, "1.snap")
	require.NoError(t, os.WriteFile(snapshot, []byte("state"), 0o644))
	back, ok, err := corruptSnapshot(dir)
	require.NoError(t, err)
	require.True(t, ok)
	content := func() string {
		return protocoltest.ReadFile(t, snapshot)
	}
	require.Equal(t, "st`te", content())
	require.NoError(t, back())
	require.Equal(t, "state", content())
	require.NoError(t, os.Remove(snapshot))
	require.NoError(t, back(), "the member has taken another snapshot, and removed the corrupted one")

	_, err = damage(t.TempDir(), "store-torn", rand.New(rand.NewPCG(1, 2)))
	require.ErrorContains(t, err, "no log in")
}
