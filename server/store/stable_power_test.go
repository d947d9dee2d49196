package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast/holdfast/server/store/internal/memdisk"
	"github.com/holdfast/holdfast/server/store/internal/stabletest"
	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// TestStableStore: bbolt's file keeps the contract of a stable store. bbolt runs on a real file. Each of its
// transactions is repeated on a disk in memory with a page cache, in the order that TestOrderOfATransaction checks.
func TestStableStore(t *testing.T) {
	dir := memoryDir(t)
	stabletest.Require(t, stabletest.Kind{
		Create: func(p *memdisk.Process) error {
			path := filepath.Join(dir, "new.db")
			if err := createStable(vfs.OS{}, path); err != nil {
				return err
			}
			content, err := os.ReadFile(path)
			return errors.Join(err, carryOver(p, nil, content), p.SyncDir("."))
		},
		Open: func(p *memdisk.Process) (stabletest.Store, error) {
			return openMirrored(p, filepath.Join(dir, "real.db"))
		},
	})
}

// mirrored is a stable store on a real file whose transactions are repeated on a disk in memory.
type mirrored struct {
	*stable
	process *memdisk.Process
	content []byte // of the disk in memory
	broken  error  // the first error of that disk
}

// openMirrored opens what is on the disk in memory, as openStable does.
func openMirrored(p *memdisk.Process, real string) (*mirrored, error) {
	if err := checkStable(p, stableName); err != nil {
		return nil, err
	}
	content, err := vfs.ReadFile(p, stableName)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(real, content, 0o600); err != nil {
		return nil, err
	}
	s, err := openStable(vfs.OS{}, real)
	if err != nil {
		return nil, err
	}
	m := &mirrored{stable: s, process: p, content: content}
	return m, m.mirror() // the transaction in which raft-boltdb creates its buckets, even if they exist
}

func (m *mirrored) Set(key, value []byte) error {
	if m.broken != nil {
		return m.broken
	}
	if err := m.stable.Set(key, value); err != nil {
		return err
	}
	m.broken = m.mirror()
	return m.broken
}

func (m *mirrored) SetUint64(key []byte, value uint64) error {
	return m.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

func (m *mirrored) mirror() error {
	after, err := os.ReadFile(m.path)
	if err != nil {
		return err
	}
	before := m.content
	m.content = after
	return carryOver(m.process, before, after)
}

// carryOver changes a file from before to after as bbolt does: it grows the file, and syncs it; writes pages, and syncs
// them; writes a meta page, and syncs that.
func carryOver(p *memdisk.Process, before, after []byte) error {
	f, err := p.Open(stableName, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Close()
	size := os.Getpagesize()
	if len(after) > len(before) {
		if _, err := f.WriteAt(make([]byte, len(after)-len(before)), int64(len(before))); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		before = append(bytes.Clone(before), make([]byte, len(after)-len(before))...)
	}
	for _, part := range [][2]int{{2 * size, len(after)}, {0, 2 * size}} {
		for at := part[0]; at < part[1]; at += size {
			page := after[at : at+size]
			if bytes.Equal(page, before[at:at+size]) {
				continue
			}
			if _, err := f.WriteAt(page, int64(at)); err != nil {
				return err
			}
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return nil
}
