package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// spoiledFile writes content to a file in dir, and returns its path.
func spoiledFile(t *testing.T, dir string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, "spoiled.db")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

// damages calls try with copies of content that are damaged in many ways.
func damages(content []byte, stride int, try func(what string, at int, b []byte)) {
	rng := rand.New(rand.NewPCG(7, 8))
	for at := 0; at < len(content); at += 1 + rng.IntN(2*stride) {
		b := bytes.Clone(content)
		b[at] ^= 1 << rng.IntN(8)
		try("bit", at, b)
	}
	for at := 0; at < len(content); at += 4096 / 2 {
		try("cut", at, content[:at])
		for _, filler := range [][]byte{
			make([]byte, 512), bytes.Repeat([]byte{0xff}, 512), content[:512],
			content[4096 : 4096+512],
		} {
			b := bytes.Clone(content)
			copy(b[at:], filler)
			try("overwritten", at, b)
		}
	}
}

func TestDamagedStableStoreIsRefusedOrWhole(t *testing.T) {
	dir := memoryDir(t)
	path := filepath.Join(dir, stableName)
	require.NoError(t, createStable(vfs.OS{}, path))
	s, err := openStable(vfs.OS{}, path)
	require.NoError(t, err)
	for i := range uint64(50) {
		require.NoError(t, s.SetUint64([]byte("CurrentTerm"), i))
		require.NoError(t, s.SetUint64([]byte("LastVoteTerm"), i))
		require.NoError(t, s.Set([]byte("LastVoteCand"), []byte("n2")))
	}
	require.NoError(t, s.Close())
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	refused := 0
	damages(content, 20, func(what string, at int, b []byte) {
		s, err := openStable(vfs.OS{}, spoiledFile(t, dir, b))
		if err != nil {
			var damaged *damageError
			require.ErrorAs(t, err, &damaged, "%s at %d", what, at)
			refused++
			return
		}
		for _, key := range []string{"CurrentTerm", "LastVoteTerm"} {
			n, err := s.GetUint64([]byte(key))
			require.NoError(t, err)
			require.Equal(t, uint64(49), n, "%s at %d", what, at)
		}
		vote, err := s.Get([]byte("LastVoteCand"))
		require.NoError(t, err)
		require.Equal(t, "n2", string(vote))
		require.NoError(t, s.Close())
	})
	require.Greater(t, refused, 20)
}

func TestFailedStableWriteIsTheLast(t *testing.T) {
	_, err := unseal([]byte("k"), []byte("abc"))
	require.ErrorContains(t, err, "damaged", "shorter than a checksum")
	path := filepath.Join(memoryDir(t), stableName)
	require.NoError(t, createStable(vfs.OS{}, path))
	s, err := openStable(vfs.OS{}, path)
	require.NoError(t, err)
	require.NoError(t, s.Set([]byte("k"), []byte("three")))
	_, err = s.GetUint64([]byte("k"))
	require.ErrorContains(t, err, "it is not a number")
	require.NoError(t, s.db.Close())
	err = s.Set([]byte("k"), nil)
	require.Error(t, err)
	require.Equal(t, err, s.SetUint64([]byte("k"), 1))
	_, err = s.Get([]byte("k"))
	require.Error(t, err)
}

// TestForeignDatabasesAreRefused: a valid database with content that this program never writes is refused.
func TestForeignDatabasesAreRefused(t *testing.T) {
	put := func(bucket, key, value string) func(tx *bbolt.Tx) error {
		return func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte(bucket))
			return errors.Join(err, b.Put([]byte(key), []byte(value)))
		}
	}
	for want, change := range map[string]func(tx *bbolt.Tx) error{
		`a key "x" where none belongs`:     put(boltLogBucket, "x", ""),
		`a key "other" where none belongs`: put("other", "8 bytes.", ""),
		`the value of "vote" is damaged`:   put(boltConfBucket, "vote", "no checksum"),
		`a key "inner" where none belongs`: func(tx *bbolt.Tx) error {
			_, err := tx.Bucket([]byte(boltConfBucket)).CreateBucket([]byte("inner"))
			return err
		},
		"the head of page": func(tx *bbolt.Tx) error { // too much for one page, so that there is a branch
			for i := range 200 {
				if err := put(boltConfBucket, fmt.Sprint("key ", i), string(seal(fmt.Append(nil, "key ", i), make([]byte, 100))))(tx); err != nil {
					return err
				}
			}
			return nil
		},
		"list of free pages": nil,
	} {
		path := filepath.Join(memoryDir(t), stableName)
		require.NoError(t, createStable(vfs.OS{}, path))
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: change != nil})
		require.NoError(t, err)
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			if change == nil {
				return nil
			}
			return change(tx)
		}))
		require.NoError(t, db.Close())
		for range 2 { // the second would wait for the first if that had stayed open
			_, err = openStable(vfs.OS{}, path)
			require.True(t, isDamage(err), want)
			require.ErrorContains(t, err, want)
		}
	}
	path := filepath.Join(memoryDir(t), "text.db")
	require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("text "), 10000), 0o600))
	_, err := openStable(vfs.OS{}, path)
	require.ErrorContains(t, err, "its first meta page is damaged")
	_, err = openStable(vfs.OS{}, filepath.Join(memoryDir(t), "none.db"))
	require.ErrorContains(t, err, "it is missing")
}

// TestFailedVoteIsTheLast: after a failed write all writes fail, even if the disk works again, since its content is
// unknown.
func TestFailedVoteIsTheLast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	require.NoError(t, createStable(vfs.OS{}, path))
	s, err := openStable(vfs.OS{}, path)
	require.NoError(t, err)
	works := s.db
	defer func() { require.NoError(t, works.Close()) }()
	other := filepath.Join(t.TempDir(), "b.db")
	require.NoError(t, createStable(vfs.OS{}, other))
	closed, err := openStable(vfs.OS{}, other)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	s.db = closed.db
	err = s.Set([]byte("vote"), []byte("n1"))
	require.Error(t, err)
	_, failed := s.Get([]byte("vote"))
	require.Error(t, failed)
	require.False(t, isDamage(failed), "nothing was read: %v", failed)
	s.db = works
	require.Equal(t, err, s.Set([]byte("vote"), []byte("n1")))
	vote, err := s.Get([]byte("vote"))
	require.NoError(t, err)
	require.Empty(t, vote)
}
