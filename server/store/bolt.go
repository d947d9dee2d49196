package store

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/holdfast/holdfast/server/store/internal/record"
	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

const (
	boltLogBucket  = "logs" // raft-boltdb's names
	boltConfBucket = "conf"
)

// boltOptions: without NoFreelistSync an append went from 0.4 ms to 6–10 ms after
// a large log had been truncated. The folder is locked already, so that waiting for
// the file's lock means a bug.
func boltOptions(path string) raftboltdb.Options {
	return raftboltdb.Options{Path: path, BoltOptions: &bbolt.Options{
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
		Timeout:        time.Second,
	}}
}

// createBolt makes an empty database under another name first: bbolt cannot
// open a database whose making was interrupted. The caller syncs the folder.
func createBolt(fs vfs.FS, path string) error {
	tmp := path + vfs.Unfinished
	if err := fs.RemoveAll(tmp); err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	db, err := raftboltdb.New(boltOptions(tmp))
	if err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	// The second transaction makes both meta pages say that there is no list of free pages.
	err = errors.Join(db.Set([]byte("created"), nil), db.Close())
	if err == nil {
		err = fs.Rename(tmp, path)
	}
	if err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	return nil
}

// openBolt checks a database and opens the log in it.
func openBolt(fs vfs.FS, path string, visit func(bucket string, key, value []byte) error) (db *raftboltdb.BoltStore,
	err error,
) {
	if err := checkBolt(fs, path, visit); err != nil {
		return nil, err
	}
	if err := proveBolt(fs, path); err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	defer recoverAsDamage(path, &err)
	db, err = raftboltdb.New(boltOptions(path))
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	return db, nil
}

// proveBolt brings to the disk what checkBolt has read. bbolt writes the pages of a transaction, syncs
// them, writes a meta page that makes them count, and syncs that. So after a crash anything may be
// unsynced, and after a failed sync a meta page may be in memory alone, for ever: both are written again.
func proveBolt(fs vfs.FS, path string) error {
	f, err := fs.Open(path, os.O_RDWR)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	page := make([]byte, boltPageHead+boltMetaSize)
	at := int64(0)
	for id := range uint64(2) {
		if _, err := f.ReadAt(page, at); err != nil {
			return err
		}
		if _, err := f.WriteAt(page, at); err != nil {
			return err
		}
		at += int64(parseMeta(page, id).pageSize)
	}
	return f.SyncData()
}

// recoverAsDamage turns a panic over a file into an error.
func recoverAsDamage(path string, err *error) {
	if p := recover(); p != nil {
		*err = &damageError{path: path, reason: fmt.Sprint(p)}
	}
}

// boltLog is a raft.LogStore. Beyond raft-boltdb, entries have checksums, the log
// has no gaps, and after a failed write no more is taken.
type boltLog struct {
	path string
	db   *raftboltdb.BoltStore
	file os.FileInfo // of the database

	mu     sync.Mutex // held while the log is changed; guards broken
	broken error
}

var _ raft.MonotonicLogStore = (*boltLog)(nil)

// openBoltLog checks all entries.
func openBoltLog(fs vfs.FS, path string) (*boltLog, error) {
	db, err := openBolt(fs, path, func(bucket string, key, _ []byte) error {
		switch {
		case bucket == boltLogBucket && len(key) == 8, bucket == boltConfBucket:
			return nil
		default:
			return fmt.Errorf("it has a key %q where none belongs", key)
		}
	})
	if err != nil {
		return nil, err
	}
	l := &boltLog{path: path, db: db}
	if l.file, err = os.Stat(path); err == nil {
		err = l.check()
	}
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return l, nil
}

// Gone returns which file is not there any more under its name, "" if none is.
func (l *boltLog) Gone() (path string, err error) {
	if there, err := vfs.Named(l.path, l.file); there || err != nil {
		return "", err
	}
	return l.path, nil
}

func (l *boltLog) check() error {
	first, last, err := bounds(l.db)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	var log raft.Log
	for i := first; i <= last && last > 0; i++ {
		err := l.GetLog(i, &log)
		if errors.Is(err, raft.ErrLogNotFound) {
			return &damageError{path: l.path, reason: fmt.Sprintf("entry %d of %d to %d is missing", i, first, last)}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *boltLog) IsMonotonic() bool { return true }

func (l *boltLog) FirstIndex() (uint64, error) { return l.db.FirstIndex() }
func (l *boltLog) LastIndex() (uint64, error)  { return l.db.LastIndex() }

func (l *boltLog) GetLog(index uint64, log *raft.Log) (err error) {
	defer recoverAsDamage(l.path, &err)
	var outer raft.Log
	if err := l.db.GetLog(index, &outer); err != nil {
		if errors.Is(err, raft.ErrLogNotFound) || errors.Is(err, berrors.ErrDatabaseNotOpen) {
			return err
		}
		return &damageError{path: l.path, reason: fmt.Sprintf("entry %d: %v", index, err)}
	}
	if err := record.Decode(outer.Data, log); err != nil || log.Index != index || outer.Index != index {
		return &damageError{path: l.path, reason: fmt.Sprintf("entry %d is damaged", index)}
	}
	return nil
}

func (l *boltLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

func (l *boltLog) StoreLogs(logs []*raft.Log) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil || len(logs) == 0 {
		return l.broken
	}
	last, err := l.db.LastIndex()
	if err != nil {
		return l.fail(err)
	}
	sealed := make([]*raft.Log, len(logs))
	for i, log := range logs {
		if log.Index == 0 || (last != 0 || i > 0) && log.Index != last+1 {
			return fmt.Errorf("append log: entry %d cannot follow entry %d", log.Index, last)
		}
		last = log.Index
		sealed[i] = &raft.Log{Index: log.Index, Data: record.Append(nil, log)}
	}
	return l.fail(l.db.StoreLogs(sealed))
}

func (l *boltLog) DeleteRange(lo, hi uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return l.broken
	}
	first, last, err := bounds(l.db)
	if err != nil {
		return l.fail(err)
	}
	switch {
	case lo > hi || hi < first || lo > last:
		return nil
	case lo > first && hi < last:
		return fmt.Errorf("delete log entries %d to %d of %d to %d: neither the beginning nor the end", lo, hi, first, last)
	}
	return l.fail(l.db.DeleteRange(max(lo, first), min(hi, last)))
}

// fail makes err, unless nil, the answer to every write from here on: after a
// failed sync it is not known what is on the disk.
func (l *boltLog) fail(err error) error {
	if err != nil {
		l.broken = fmt.Errorf("write log: %w", err)
	}
	return l.broken
}

func (l *boltLog) Close() error { return l.db.Close() }
