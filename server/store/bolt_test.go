package store

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/store/internal/memdisk"
	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// spoiledFile writes content under a fresh name in dir.
func spoiledFile(t *testing.T, dir string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, "spoiled.db")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

// damages calls try with content changed in many ways.
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

func TestDamagedBoltLogIsRefusedOrWhole(t *testing.T) {
	protocoltest.SkipShort(t, "damage at every place")
	dir := memoryDir(t)
	path := filepath.Join(dir, boltLogName)
	require.NoError(t, createBolt(vfs.OS{}, path))
	l, err := openBoltLog(vfs.OS{}, path)
	require.NoError(t, err)
	const last = 300
	for i := uint64(1); i <= last; i += 20 { // fifteen transactions
		require.NoError(t, l.StoreLogs(entries(i, i+19)))
	}
	require.NoError(t, l.DeleteRange(1, 100))
	require.NoError(t, l.Close())
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	refused, accepted := 0, 0
	damages(content, len(content)/300, func(what string, at int, b []byte) {
		if bytes.Equal(b, content) {
			return
		}
		spoiled := spoiledFile(t, dir, b)
		l, err := openBoltLog(vfs.OS{}, spoiled)
		if err != nil {
			var damaged *damageError
			require.ErrorAs(t, err, &damaged, "%s at %d", what, at)
			require.Equal(t, spoiled, damaged.path)
			refused++
			return
		}
		accepted++
		requireEntries(t, l, 101, last)
		require.NoError(t, l.Close())
	})
	t.Logf("%d bytes: %d refused, %d accepted", len(content), refused, accepted)
	require.Greater(t, refused, 60)
	require.Greater(t, accepted, 100, "some pages are free")
}

func TestDamagedStableStoreIsRefusedOrWhole(t *testing.T) {
	dir := memoryDir(t)
	path := filepath.Join(dir, stableName)
	require.NoError(t, createBolt(vfs.OS{}, path))
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

func TestBoltLogBehavesAsTheWAL(t *testing.T) {
	path := filepath.Join(memoryDir(t), boltLogName)
	require.NoError(t, createBolt(vfs.OS{}, path))
	l, err := openBoltLog(vfs.OS{}, path)
	require.NoError(t, err)
	require.NoError(t, l.StoreLogs(nil))
	require.ErrorContains(t, l.StoreLog(&raft.Log{}), "entry 0")
	require.NoError(t, l.StoreLogs(entries(5, 20)))
	require.ErrorContains(t, l.StoreLogs(entries(22, 22)), "entry 22 cannot follow entry 20")
	require.ErrorContains(t, l.StoreLogs(entries(20, 20)), "cannot follow")
	require.ErrorContains(t, l.StoreLogs([]*raft.Log{{Index: 21}, {Index: 23}}), "cannot follow")
	require.ErrorContains(t, l.DeleteRange(7, 8), "neither the beginning nor the end")
	require.NoError(t, l.DeleteRange(1, 4))
	require.NoError(t, l.DeleteRange(30, 40))
	require.NoError(t, l.DeleteRange(9, 8))
	requireEntries(t, l, 5, 20)
	require.NoError(t, l.DeleteRange(1, 6))
	require.NoError(t, l.DeleteRange(19, 100))
	requireEntries(t, l, 7, 18)
	require.ErrorIs(t, l.GetLog(19, &raft.Log{}), raft.ErrLogNotFound)
	require.NoError(t, l.DeleteRange(7, 18))
	requireEntries(t, l, 0, 0)
	require.NoError(t, l.StoreLogs(entries(1000, 1005)))
	requireEntries(t, l, 1000, 1005)
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.GetLog(1000, &raft.Log{}), berrors.ErrDatabaseNotOpen, "it is not damaged")
	require.ErrorIs(t, l.check(), berrors.ErrDatabaseNotOpen, "it is not empty")
	err = l.StoreLogs(entries(1006, 1006))
	require.Error(t, err)
	require.Error(t, l.StoreLogs(entries(1006, 1006)))
	require.Error(t, l.DeleteRange(1000, 1001))
}

// TestBoltLogTakesAnEntryOnce: of several appends of the same entry at one time one is taken.
func TestBoltLogTakesAnEntryOnce(t *testing.T) {
	path := filepath.Join(memoryDir(t), boltLogName)
	require.NoError(t, createBolt(vfs.OS{}, path))
	l, err := openBoltLog(vfs.OS{}, path)
	require.NoError(t, err)
	for index := uint64(1); index <= 30; index++ {
		var taken atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if l.StoreLogs(entries(index, index)) == nil {
					taken.Add(1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, taken.Load())
	}
	require.NoError(t, l.Close())
}

func TestFailedStableWriteIsTheLast(t *testing.T) {
	_, err := unseal([]byte("k"), []byte("abc"))
	require.ErrorContains(t, err, "damaged", "shorter than a checksum")
	path := filepath.Join(memoryDir(t), stableName)
	require.NoError(t, createBolt(vfs.OS{}, path))
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

func TestBoltFilesWithForeignContentsAreRefused(t *testing.T) {
	dir := memoryDir(t)
	path := filepath.Join(dir, stableName)
	require.NoError(t, createBolt(vfs.OS{}, path))
	l, err := openBoltLog(vfs.OS{}, path)
	require.NoError(t, err)
	require.NoError(t, l.StoreLogs(entries(1, 3)))
	require.NoError(t, l.Close())
	_, err = openStable(vfs.OS{}, path)
	require.ErrorContains(t, err, "where none belongs")

	path = filepath.Join(dir, "text.db")
	require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("text "), 10000), 0o600))
	_, err = openStable(vfs.OS{}, path)
	require.ErrorContains(t, err, "its first meta page is damaged")
	_, err = openStable(vfs.OS{}, filepath.Join(dir, "none.db"))
	require.ErrorContains(t, err, "it is missing")
}

// TestDatabaseIsProvedToBeOnTheDisk: the sync of a meta page failed, so that it is in memory alone, and clean.
func TestDatabaseIsProvedToBeOnTheDisk(t *testing.T) {
	real := filepath.Join(t.TempDir(), "a.db")
	require.NoError(t, createBolt(vfs.OS{}, real))
	content, err := os.ReadFile(real)
	require.NoError(t, err)
	require.Error(t, proveBolt(memdisk.New(7).Boot(), "none.db"))
	for page := range int64(2) {
		disk := memdisk.New(7)
		fs := disk.Boot()
		f, err := fs.Open("a.db", os.O_CREATE|os.O_RDWR)
		require.NoError(t, err)
		_, err = f.WriteAt(make([]byte, len(content)), 0)
		require.NoError(t, err)
		require.NoError(t, errors.Join(f.Sync(), fs.SyncDir(".")))
		_, err = f.WriteAt(content, 0)
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		size := int64(os.Getpagesize())
		meta := bytes.Clone(content[page*size : page*size+512])
		meta[boltPageHead+50]++ // another transaction
		_, err = f.WriteAt(meta, page*size)
		require.NoError(t, err)
		disk.Hook(func(memdisk.Op) error { return syscall.EIO })
		require.Error(t, f.Sync())
		disk.Hook(nil)
		shown, err := vfs.ReadFile(fs, "a.db")
		require.NoError(t, err)
		require.NoError(t, proveBolt(fs, "a.db"))
		disk.PowerCut(0)
		kept, err := vfs.ReadFile(disk.Boot(), "a.db")
		require.NoError(t, err)
		require.Equal(t, shown, kept)
	}
}

// TestBoltEntryInAnothersPlace: each entry says where it belongs, and is nobody else's.
func TestBoltEntryInAnothersPlace(t *testing.T) {
	path := filepath.Join(memoryDir(t), boltLogName)
	require.NoError(t, createBolt(vfs.OS{}, path))
	l, err := openBoltLog(vfs.OS{}, path)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	require.NoError(t, l.StoreLogs(entries(1, 2)))
	var first raft.Log
	require.NoError(t, l.db.GetLog(1, &first))
	require.NoError(t, l.db.StoreLog(&raft.Log{Index: 2, Data: first.Data}))
	require.NoError(t, l.GetLog(1, &raft.Log{}))
	require.ErrorContains(t, l.GetLog(2, &raft.Log{}), "entry 2 is damaged")
	require.NoError(t, l.db.StoreLog(&raft.Log{Index: 3, Data: []byte("of no form")}))
	require.ErrorContains(t, l.GetLog(3, &raft.Log{Index: 3}), "entry 3 is damaged", "whatever the caller had read before")
}

// TestFailedVoteIsTheLast: after a failed write the disk's content is unknown, also when the disk
// works again.
func TestFailedVoteIsTheLast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	require.NoError(t, createBolt(vfs.OS{}, path))
	s, err := openStable(vfs.OS{}, path)
	require.NoError(t, err)
	works := s.db
	defer func() { require.NoError(t, works.Close()) }()
	other := filepath.Join(t.TempDir(), "b.db")
	require.NoError(t, createBolt(vfs.OS{}, other))
	s.db, err = openBolt(vfs.OS{}, other, func(string, []byte, []byte) error { return nil })
	require.NoError(t, err)
	require.NoError(t, s.db.Close())
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

// TestFailedAppendIsTheLast: neither an append nor a deletion is taken after a write that failed, also when the disk
// works again.
func TestFailedAppendIsTheLast(t *testing.T) {
	for what, write := range map[string]func(l *boltLog) error{
		"append":   func(l *boltLog) error { return l.StoreLogs(entries(6, 7)) },
		"deletion": func(l *boltLog) error { return l.DeleteRange(1, 2) },
	} {
		t.Run(what, func(t *testing.T) {
			path, other := filepath.Join(memoryDir(t), "a.db"), filepath.Join(memoryDir(t), "b.db")
			require.NoError(t, createBolt(vfs.OS{}, path))
			require.NoError(t, createBolt(vfs.OS{}, other))
			l, err := openBoltLog(vfs.OS{}, path)
			require.NoError(t, err)
			require.NoError(t, l.StoreLogs(entries(1, 5)))
			works := l.db
			l.db, err = openBolt(vfs.OS{}, other, func(string, []byte, []byte) error { return nil })
			require.NoError(t, err)
			require.NoError(t, l.db.Close())
			err = write(l)
			require.Error(t, err)
			l.db = works
			require.Equal(t, err, l.StoreLogs(entries(6, 6)))
			require.Equal(t, err, l.DeleteRange(1, 2))
			requireEntries(t, l, 1, 5)
			require.NoError(t, l.Close())
		})
	}
}

// TestBoltLogIsLookedThrough: what this program never writes is refused, though the database is whole.
func TestBoltLogIsLookedThrough(t *testing.T) {
	for want, change := range map[string]func(b *bbolt.Bucket) error{
		`a key "x" where none belongs`: func(b *bbolt.Bucket) error { return b.Put([]byte("x"), nil) },
		"entry 2 of 1 to 3 is missing": func(b *bbolt.Bucket) error { return b.Delete([]byte("\x00\x00\x00\x00\x00\x00\x00\x02")) },
		`bucket "inner" is damaged`: func(b *bbolt.Bucket) error {
			_, err := b.CreateBucket([]byte("inner"))
			return err
		},
		"entry 2: ": func(b *bbolt.Bucket) error { // raft's encoding never begins with this byte
			return b.Put([]byte("\x00\x00\x00\x00\x00\x00\x00\x02"), []byte("\xc1"))
		},
		`a key "8 bytes." where none belongs`: func(b *bbolt.Bucket) error {
			other, err := b.Tx().CreateBucket([]byte("other"))
			return errors.Join(err, other.Put([]byte("8 bytes."), nil))
		},
		"list of free pages": nil,
	} {
		path := filepath.Join(memoryDir(t), boltLogName)
		require.NoError(t, createBolt(vfs.OS{}, path))
		l, err := openBoltLog(vfs.OS{}, path)
		require.NoError(t, err)
		require.NoError(t, l.StoreLogs(entries(1, 3)))
		require.NoError(t, l.Close())
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: change != nil})
		require.NoError(t, err)
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			if change == nil {
				return nil
			}
			return change(tx.Bucket([]byte(boltLogBucket)))
		}))
		require.NoError(t, db.Close())
		for range 2 { // the second would wait for the first if that had stayed open
			_, err = openBoltLog(vfs.OS{}, path)
			require.True(t, isDamage(err), want)
			require.ErrorContains(t, err, want)
		}
	}
}
