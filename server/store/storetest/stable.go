package storetest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"sync"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// stable is a store of terms and votes: an append-only file, with one record and one sync per value.
//
//	length(4) checksum(4) key and value in JSON
type stable struct {
	file vfs.File

	mu     sync.Mutex // guards all below
	values map[string][]byte
	end    int64
	broken error
}

type stableRecord struct{ Key, Value []byte }

func createStable(fs vfs.FS, path string) error {
	f, err := fs.Open(path, os.O_CREATE|os.O_RDWR|os.O_TRUNC)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return f.Sync()
}

// openStable opens the file. It writes and syncs the records that it has read before it uses them, as they may have
// been in the page cache only.
func openStable(fs vfs.FS, path string) (*stable, error) {
	f, err := fs.Open(path, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	s := &stable{file: f, values: make(map[string][]byte)}
	content, err := vfs.ReadFile(fs, path)
	if err == nil {
		s.end = s.read(content)
		_, err = f.WriteAt(content[:s.end], 0)
	}
	if err == nil {
		err = f.SyncData()
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("open stable store: %w", err)
	}
	return s, nil
}

// read reads the records into values, and returns the end of the last complete one.
func (s *stable) read(content []byte) (end int64) {
	for b := content; len(b) >= 8; {
		length, sum := int(binary.LittleEndian.Uint32(b)), binary.LittleEndian.Uint32(b[4:])
		if b = b[8:]; length == 0 || length > len(b) || crc32.ChecksumIEEE(b[:length]) != sum {
			break
		}
		var r stableRecord
		if json.Unmarshal(b[:length], &r) != nil {
			break
		}
		s.values[string(r.Key)] = r.Value
		b = b[length:]
		end = int64(len(content) - len(b))
	}
	return end
}

func (s *stable) Set(key, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	text, err := json.Marshal(stableRecord{key, value})
	if err != nil {
		return err
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(text))
	b = append(b, text...)
	if _, err = s.file.WriteAt(b, s.end); err == nil {
		err = s.file.SyncData()
	}
	if err != nil {
		s.broken = fmt.Errorf("write %q: %w", key, err)
		return s.broken
	}
	s.end += int64(len(b))
	s.values[string(key)] = bytes.Clone(value)
	return nil
}

func (s *stable) Get(key []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.values[string(key)]), s.broken
}

func (s *stable) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

func (s *stable) GetUint64(key []byte) (uint64, error) {
	b, err := s.Get(key)
	if err != nil || len(b) == 0 {
		return 0, err
	}
	return binary.BigEndian.Uint64(b), nil
}

func (s *stable) Close() error { return s.file.Close() }
