package store

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// A snapshot is a file. It has a temporary name until it is complete and durable:
//
//	magic(8) size of meta(4) checksum of meta(4) meta, in JSON
//	state
//	size of state(8) checksum of state(4) magic(8)
//
// Raft's own file store is not used. It reports a snapshot before the names of its two files are durable, and after a
// failed write keeps the file open, which occupies space on a full disk.
const (
	snapshotMagic    = "HFSNAPS1"
	snapshotEndMagic = "HFSNAPE1"
	snapshotHead     = 16 // bytes before the description
	snapshotTail     = 20 // bytes after the state
	snapshotSuffix   = ".snap"
	snapshotRetain   = 2
	// snapshotSync is the number of bytes between two syncs, so that no sync takes as long as the watchdog's limit.
	snapshotSync    = 8 << 20
	snapshotMaxMeta = 1 << 20 // bytes
	// snapshotWrite is the number of bytes per write.
	snapshotWrite = 1 << 19
	// snapshotLeaves is the number of free bytes that a snapshot leaves to the log, two segments, or less on a disk of
	// less than snapshotShare times as many.
	snapshotLeaves = 32 << 20
	snapshotShare  = 8
)

// snapshots is a raft.SnapshotStore.
type snapshots struct {
	fs     vfs.FS
	dir    string
	logger *slog.Logger
	// completed is called when a snapshot is durable.
	completed func(index uint64) error
	// completing is a semaphore, held while a snapshot gets its name: raft may take one and install another at the same
	// time.
	completing chan struct{}

	mu   sync.Mutex
	list []*raft.SnapshotMeta // complete snapshots, newest first
}

// damagedSnapshot is a snapshot that Open found unreadable.
type damagedSnapshot struct {
	index uint64             // from the file's name, 0 if that is invalid
	meta  *raft.SnapshotMeta // nil if the description is damaged, too
	err   error
}

// openSnapshots reads and checks all snapshots in dir.
func openSnapshots(fs vfs.FS, dir string, logger *slog.Logger) (*snapshots, []damagedSnapshot, error) {
	names, err := fs.List(dir)
	if vfs.IsMissing(err) {
		return nil, nil, &damageError{path: dir, reason: "it is missing"}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list snapshots: %w", err)
	}
	s := &snapshots{
		fs: fs, dir: dir, logger: logger, completed: func(uint64) error { return nil }, completing: make(chan struct{}, 1),
	}
	var damaged []damagedSnapshot
	for _, name := range names {
		path := filepath.Join(dir, name)
		id, isSnapshot := strings.CutSuffix(name, snapshotSuffix)
		switch {
		case strings.HasSuffix(name, vfs.Unfinished):
			if err := errors.Join(fs.Remove(path), fs.SyncDir(dir)); err != nil {
				return nil, nil, fmt.Errorf("remove unfinished snapshot: %w", err)
			}
		case isSnapshot:
			meta, f, err := readSnapshot(fs, path, id)
			if err != nil {
				damaged = append(damaged, damagedSnapshot{index: indexOfID(id), meta: meta, err: err})
				continue
			}
			_ = f.Close()
			s.list = append(s.list, meta)
		}
	}
	s.sort()
	return s, damaged, nil
}

func (s *snapshots) path(id string) string { return filepath.Join(s.dir, id+snapshotSuffix) }

func (s *snapshots) sort() { slices.SortFunc(s.list, newestFirst) }

func newestFirst(a, b *raft.SnapshotMeta) int {
	if c := cmpUint(b.Term, a.Term); c != 0 {
		return c
	}
	if c := cmpUint(b.Index, a.Index); c != 0 {
		return c
	}
	return strings.Compare(b.ID, a.ID)
}

func cmpUint(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	default:
		return 0
	}
}

// indexOfID returns the index in an ID of the form term-index-time, or 0 if it is invalid.
func indexOfID(id string) uint64 {
	var term, index, at uint64
	if n, _ := fmt.Sscanf(id, "%d-%d-%d", &term, &index, &at); n < 2 {
		return 0
	}
	return index
}

// List returns the complete snapshots, newest first.
func (s *snapshots) List() ([]*raft.SnapshotMeta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*raft.SnapshotMeta
	for _, m := range s.list {
		c := *m
		list = append(list, &c)
	}
	return list, nil
}

// Open opens a snapshot after checking all of it.
func (s *snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	return readSnapshot(s.fs, s.path(id), id)
}

// stateReader reads the state in a snapshot's file.
type stateReader struct {
	io.Reader
	io.Closer
}

// readSnapshot opens and checks a snapshot. If only the state is damaged, it returns the description with the error.
func readSnapshot(fs vfs.FS, path, id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	f, err := fs.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, nil, fmt.Errorf("open snapshot: %w", err)
	}
	meta, offset, err := checkSnapshot(f)
	if err == nil && meta.ID != id {
		meta, err = nil, fmt.Errorf("it is snapshot %q under another name", meta.ID)
	}
	if errors.Is(err, errOtherFormat) {
		_ = f.Close()
		return nil, nil, fmt.Errorf("snapshot %s: %w", path, err)
	}
	if err != nil {
		_ = f.Close()
		return meta, nil, &damageError{path: path, reason: err.Error()}
	}
	state := bufio.NewReaderSize(io.NewSectionReader(f, offset, meta.Size), int(min(meta.Size, 1<<18)))
	return meta, stateReader{Reader: state, Closer: f}, nil
}

// errOtherFormat is the error for a snapshot whose two ends name another format, which is no damage.
var errOtherFormat = errors.New(
	"it has a format that this release does not know: use the release that wrote it, or a newer one")

// otherFormat reports whether a file of all bytes, which begins with head, is a snapshot of another format.
func otherFormat(f vfs.File, head []byte, all int64) bool {
	tail := make([]byte, snapshotTail)
	if all < snapshotHead+snapshotTail {
		return false
	}
	_, _ = f.ReadAt(tail, all-snapshotTail) // unread bytes stay zero, which is no end
	const version = len(snapshotMagic) - 1
	begin, end := head[:len(snapshotMagic)], tail[snapshotTail-len(snapshotEndMagic):]
	return string(begin[:version]) == snapshotMagic[:version] && string(end[:version]) == snapshotEndMagic[:version] &&
		begin[version] == end[version] && begin[version] != snapshotMagic[version]
}

// checkSnapshot checks f and returns its description and the offset of the state. It returns an intact description even
// with an error.
func checkSnapshot(f vfs.File) (*raft.SnapshotMeta, int64, error) {
	all, err := f.Size()
	if err != nil {
		return nil, 0, err
	}
	head := make([]byte, snapshotHead)
	_, err = f.ReadAt(head, 0)
	if err == nil && otherFormat(f, head, all) {
		return nil, 0, errOtherFormat
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	if err != nil || string(head[:8]) != snapshotMagic {
		return nil, 0, errors.New("it does not begin as a snapshot does")
	}
	offset := snapshotHead + int64(binary.LittleEndian.Uint32(head[8:]))
	size := all - snapshotTail - offset
	if offset > snapshotHead+snapshotMaxMeta || size < 0 {
		return nil, 0, errors.New("its sizes are impossible")
	}
	text := make([]byte, offset-snapshotHead)
	if _, err := f.ReadAt(text, snapshotHead); err != nil {
		return nil, 0, err
	}
	meta := &raft.SnapshotMeta{}
	if crc32.Checksum(text, castagnoli) != binary.LittleEndian.Uint32(head[12:]) || json.Unmarshal(text, meta) != nil {
		return nil, 0, errors.New("its description is damaged")
	}
	meta.Size = size
	tail := make([]byte, snapshotTail)
	if _, err := f.ReadAt(tail, offset+size); err != nil {
		return meta, 0, err
	}
	if string(tail[12:]) != snapshotEndMagic || binary.LittleEndian.Uint64(tail) != uint64(size) {
		return meta, 0, errors.New("its end is missing")
	}
	sum := crc32.New(castagnoli)
	if _, err := io.Copy(sum, io.NewSectionReader(f, offset, size)); err != nil {
		return meta, 0, err
	}
	if sum.Sum32() != binary.LittleEndian.Uint32(tail[8:]) {
		return meta, 0, errors.New("its state is damaged")
	}
	return meta, offset, nil
}

// Create begins a snapshot.
func (s *snapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport,
) (raft.SnapshotSink, error) {
	meta := &raft.SnapshotMeta{
		Version: version, ID: fmt.Sprintf("%d-%d-%d", term, index, time.Now().UnixMilli()),
		Index: index, Term: term, Configuration: configuration, ConfigurationIndex: configurationIndex,
	}
	text, err := json.Marshal(meta)
	if err != nil || len(text) > snapshotMaxMeta {
		return nil, fmt.Errorf("create snapshot: describe it in %d bytes: %w", len(text), err)
	}
	f, err := s.fs.Open(s.path(meta.ID)+vfs.Unfinished, os.O_CREATE|os.O_RDWR|os.O_TRUNC)
	if err != nil {
		return nil, fmt.Errorf("create snapshot: %w", err)
	}
	k := &snapshotSink{
		store: s, meta: meta, file: f, buffer: make([]byte, 0, snapshotWrite), sum: crc32.New(castagnoli),
	}
	head := append([]byte(nil), snapshotMagic...)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(text)))
	head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(text, castagnoli))
	if _, err := k.append(append(head, text...)); err != nil {
		return nil, k.abandon(fmt.Errorf("create snapshot: %w", err))
	}
	return k, nil
}

// prove makes the name of a snapshot durable, whose content was synced before. It gives the file its name again, since
// after a failed sync of the folder another may succeed without writing the name. A snapshot that a crash in between
// removes was never complete.
func (s *snapshots) prove(id string) error {
	path := s.path(id)
	err := s.fs.Rename(path, path+vfs.Unfinished)
	if err == nil {
		err = s.fs.Rename(path+vfs.Unfinished, path)
	}
	if err == nil {
		err = s.fs.SyncDir(s.dir)
	}
	if err != nil {
		return fmt.Errorf("name snapshot again: %w", err)
	}
	return nil
}

// snapshotSink is a raft.SnapshotSink.
type snapshotSink struct {
	store    *snapshots
	meta     *raft.SnapshotMeta
	file     vfs.File
	buffer   []byte // bytes to be written at offset
	offset   int64
	sum      hash.Hash32
	unsynced int
	done     bool // closed, cancelled or failed
}

func (k *snapshotSink) ID() string { return k.meta.ID }

func (k *snapshotSink) Write(b []byte) (int, error) {
	if k.done {
		return 0, fmt.Errorf("write snapshot: %w", os.ErrClosed)
	}
	n, err := k.append(b)
	_, _ = k.sum.Write(b[:n])
	k.meta.Size += int64(n)
	if k.unsynced += n; err == nil && k.unsynced >= snapshotSync {
		k.unsynced = 0
		if err = k.file.Sync(); err == nil {
			err = k.store.checkRoom()
		}
	}
	if err != nil {
		return n, k.abandon(fmt.Errorf("write snapshot: %w", err))
	}
	return n, nil
}

// checkRoom returns an error if the free bytes are for the log: the node ends when an append fails, while a snapshot is
// taken again.
func (s *snapshots) checkRoom() error {
	free, total := s.fs.Space(s.dir)
	if leaves := min(snapshotLeaves, total/snapshotShare); free < leaves {
		return fmt.Errorf("%w: the last %d bytes are for the log", syscall.ENOSPC, leaves)
	}
	return nil
}

// append appends b to the buffer, and writes the buffer whenever it is full, past the page cache, since few snapshots
// are read again.
func (k *snapshotSink) append(b []byte) (n int, err error) {
	for err == nil && n < len(b) {
		added := min(len(b)-n, cap(k.buffer)-len(k.buffer))
		k.buffer = append(k.buffer, b[n:n+added]...)
		n += added
		if len(k.buffer) == cap(k.buffer) {
			_, err = k.file.WriteDirect(k.buffer, k.offset)
			k.offset += int64(len(k.buffer))
			k.buffer = k.buffer[:0]
		}
	}
	return n, err
}

// abandon removes the unfinished file and returns err.
func (k *snapshotSink) abandon(err error) error {
	k.done = true
	_ = k.file.Close()
	_ = k.store.fs.Remove(k.file.Name())
	return err
}

func (k *snapshotSink) Cancel() error {
	if k.done {
		return nil
	}
	return k.abandon(nil)
}

// Close completes the snapshot durably. It fails after a failed write.
func (k *snapshotSink) Close() error {
	if k.done {
		return fmt.Errorf("complete snapshot: %w", os.ErrClosed)
	}
	tail := binary.LittleEndian.AppendUint64(nil, uint64(k.meta.Size))
	tail = binary.LittleEndian.AppendUint32(tail, k.sum.Sum32())
	tail = append(tail, snapshotEndMagic...)
	_, err := k.file.WriteAt(append(k.buffer, tail...), k.offset)
	if err == nil {
		err = k.file.Sync()
	}
	if err != nil {
		return k.abandon(fmt.Errorf("complete snapshot: %w", err))
	}
	k.done = true
	err = k.file.Close()
	if err == nil {
		err = k.store.complete(k.meta)
	}
	if err != nil {
		return fmt.Errorf("complete snapshot: %w", err)
	}
	return nil
}

// complete gives a finished snapshot its name, and lists it.
func (s *snapshots) complete(meta *raft.SnapshotMeta) error {
	// Snapshots are completed one at a time: a failed sync of the folder would drop the names of both, and a snapshot
	// that has its name but is not listed would be deleted.
	s.completing <- struct{}{}
	defer func() { <-s.completing }()
	path := s.path(meta.ID)
	err := s.fs.Rename(path+vfs.Unfinished, path)
	if err == nil {
		err = s.fs.SyncDir(s.dir)
	}
	if err == nil {
		err = s.completed(meta.Index)
	}
	if err != nil {
		return err
	}
	s.enter(meta)
	s.deleteUnlisted()
	return nil
}

// enter adds a new snapshot to the list.
func (s *snapshots) enter(meta *raft.SnapshotMeta) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, meta)
	s.sort()
	s.list = s.list[:min(len(s.list), snapshotRetain)]
}

// deleteUnlisted deletes the files of snapshots that List does not return: old and damaged ones.
func (s *snapshots) deleteUnlisted() {
	list, _ := s.List() // never fails
	names, _ := s.fs.List(s.dir)
	for _, name := range names {
		id, isSnapshot := strings.CutSuffix(name, snapshotSuffix)
		if !isSnapshot || slices.ContainsFunc(list, func(m *raft.SnapshotMeta) bool { return m.ID == id }) {
			continue
		}
		if err := s.fs.Remove(filepath.Join(s.dir, name)); err != nil {
			s.logger.Warn("cannot delete an old snapshot", "file", name, "error", err)
		}
	}
}
