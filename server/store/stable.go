package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"sync"
	"time"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// Our own keys, in addition to raft's.
const (
	keyLineage  = "holdfast.lineage"  // lineage, see package incarnation
	keySnapshot = "holdfast.snapshot" // index of the newest snapshot that was completed
)

// keyCreated is a key without a meaning, see [createStable].
const keyCreated = "created"

// stable is a raft.StableStore over raft-boltdb. Each value has a checksum, since a vote that changed or vanished could
// elect two leaders.
type stable struct {
	path string
	db   *raftboltdb.BoltStore

	mu     sync.Mutex // held for writing; guards broken
	broken error
}

// boltOptions returns options with which waiting for the file's lock fails: the folder is locked already.
func boltOptions(path string) raftboltdb.Options {
	return raftboltdb.Options{Path: path, BoltOptions: &bbolt.Options{
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
		Timeout:        time.Second,
	}}
}

// createStable makes an empty database, first under a temporary name, since bbolt cannot open one whose creation was
// interrupted. The caller must sync the folder.
func createStable(fs vfs.FS, path string) error {
	tmp := path + vfs.Unfinished
	if err := fs.RemoveAll(tmp); err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	db, err := raftboltdb.New(boltOptions(tmp))
	if err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	// The second transaction is for the second meta page: both must record that there is no list of free pages.
	err = errors.Join(db.Set([]byte(keyCreated), nil), db.Close())
	if err == nil {
		err = fs.Rename(tmp, path)
	}
	if err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	return nil
}

// openStable checks and opens a database. Opening commits a transaction, in which raft-boltdb creates its buckets. So
// what was read is on the disk, even if an earlier process died, or its sync failed, after a write.
func openStable(fs vfs.FS, path string) (s *stable, err error) {
	if err := checkStable(fs, path); err != nil {
		return nil, err
	}
	defer recoverAsDamage(path, &err)
	db, err := raftboltdb.New(boltOptions(path))
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	return &stable{path: path, db: db}, nil
}

// recoverAsDamage turns a panic caused by a damaged file into an error.
func recoverAsDamage(path string, err *error) {
	if p := recover(); p != nil {
		*err = &damageError{path: path, reason: fmt.Sprint(p)}
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal returns value preceded by a checksum of key and value.
func seal(key, value []byte) []byte {
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
	return append(binary.BigEndian.AppendUint32(nil, sum), value...)
}

func unseal(key, sealed []byte) ([]byte, error) {
	if len(sealed) < 4 || string(seal(key, sealed[4:])) != string(sealed) {
		return nil, fmt.Errorf("the value of %q is damaged", key)
	}
	return sealed[4:], nil
}

// Get returns the value of key, or nil if it was never set.
func (s *stable) Get(key []byte) (value []byte, err error) {
	defer recoverAsDamage(s.path, &err)
	sealed, err := s.db.Get(key)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", key, err)
	}
	value, err = unseal(key, sealed)
	if err != nil {
		return nil, &damageError{path: s.path, reason: err.Error()}
	}
	return value, nil
}

func (s *stable) Set(key, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	if err := s.db.Set(key, seal(key, value)); err != nil {
		s.broken = fmt.Errorf("write %q: %w", key, err)
	}
	return s.broken
}

func (s *stable) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

func (s *stable) GetUint64(key []byte) (uint64, error) {
	b, err := s.Get(key)
	switch {
	case err != nil || len(b) == 0:
		return 0, err
	case len(b) != 8:
		return 0, fmt.Errorf("read %q: it is not a number", key)
	default:
		return binary.BigEndian.Uint64(b), nil
	}
}

func (s *stable) Close() error { return s.db.Close() }

func isDamage(err error) bool {
	var damage *damageError
	return errors.As(err, &damage)
}

// damageError is the error for a file that has lost or changed acknowledged data.
type damageError struct{ path, reason string }

func (e *damageError) Error() string {
	return fmt.Sprintf("%s is damaged: %s", e.path, strings.ReplaceAll(e.reason, "\n", " "))
}
