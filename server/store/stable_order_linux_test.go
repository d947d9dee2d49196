package store

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// TestOrderOfATransaction: before a set returns, bbolt writes the pages of a transaction, syncs them, writes one meta
// page, and syncs that. The test makes syncs visible by having them fail: /dev/null accepts writes, and cannot be
// synced.
func TestOrderOfATransaction(t *testing.T) {
	size := int64(os.Getpagesize())
	for _, row := range []struct {
		name  string
		fails func(at int64) bool // syncs fail from the write at that offset on
		metas int                 // number of those that are written
	}{
		{"nothing fails", func(int64) bool { return false }, 1},
		{"the pages are not synced", func(at int64) bool { return at >= 2*size }, 0},
		{"the meta page is not synced", func(at int64) bool { return at < 2*size }, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := filepath.Join(memoryDir(t), stableName)
			require.NoError(t, createStable(vfs.OS{}, path))
			s, err := openStable(vfs.OS{}, path)
			require.NoError(t, err)
			null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
			require.NoError(t, err)
			defer null.Close()
			var offsets []int64
			file, writeAt := boltInternals(s)
			real := *writeAt
			*writeAt = func(b []byte, at int64) (int, error) {
				offsets = append(offsets, at)
				n, err := real(b, at)
				if row.fails(at) {
					err = errors.Join(err, syscall.Dup3(int(null.Fd()), int(file.Fd()), syscall.O_CLOEXEC))
				}
				return n, err
			}
			err = s.Set([]byte("LastVoteCand"), []byte("n2"))
			metas := 0
			for i, at := range offsets {
				if at < 2*size {
					metas++
					require.Equal(t, len(offsets)-1, i, "the meta page is last")
				}
			}
			require.Equal(t, row.metas, metas)
			require.Greater(t, len(offsets), metas, "pages")
			if row.name == "nothing fails" {
				require.NoError(t, err)
				require.NoError(t, s.Close())
				return
			}
			require.ErrorIs(t, err, syscall.EINVAL)
			require.Equal(t, err, s.Set([]byte("LastVoteCand"), []byte("n3")), "no other vote is stored")
		})
	}
}

// boltInternals returns bbolt's file and the function that it writes with. bbolt exports neither.
func boltInternals(s *stable) (*os.File, *func(b []byte, at int64) (int, error)) {
	db := reflect.ValueOf(s.db).Elem().FieldByName("conn").UnsafePointer()
	fields := reflect.NewAt(reflect.TypeFor[bbolt.DB](), db).Elem()
	file := fields.FieldByName("file").UnsafePointer()
	writeAt := fields.FieldByName("ops").FieldByName("writeAt").Addr().UnsafePointer()
	return (*os.File)(file), (*func(b []byte, at int64) (int, error))(writeAt)
}
