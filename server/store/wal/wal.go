package wal

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"sort"
	"strings"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/store/internal/record"
	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// DefaultSegmentSize is in bytes. It is small enough for a fast first start and for deleted entries to free their space
// soon, and large enough that new segments, which cost about three syncs, are rare.
const DefaultSegmentSize = 16 << 20

// ErrClosed is the error of all methods after Close.
var ErrClosed = errors.New("log is closed")

// Options configures [Open]. The zero value has the defaults.
type Options struct {
	SegmentSize int64 // in bytes; 0 means DefaultSegmentSize
	Logger      *slog.Logger
	FS          vfs.FS // nil means the operating system's
}

// fill sets the defaults.
func (o *Options) fill() {
	if o.SegmentSize == 0 {
		o.SegmentSize = DefaultSegmentSize
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
}

// WAL is a raft.LogStore without gaps.
type WAL struct {
	folder *vfs.Folder
	size   int64
	batch  int // maximal bytes of a batch
	logger *slog.Logger
	spares *spares

	writing sync.Mutex // held while the log is changed; guards buf, broken, ordered
	buf     []byte
	broken  error  // sticky: the error of a failed write
	ordered uint64 // number of the segment that spares is preparing

	mu       sync.RWMutex // guards the fields below; held for reading while a file is read
	manifest *manifest    // never changed, only replaced
	segments []*segment   // in the manifest's order
	closed   bool
}

var _ raft.MonotonicLogStore = (*WAL)(nil)

// Create makes an empty log in dir, which must exist and have no log.
func Create(fs vfs.FS, dir string) error {
	exists, err := fs.Exists(filepath.Join(dir, manifestName))
	if exists {
		return fmt.Errorf("create log: there is one in %s", dir)
	}
	if err != nil {
		return fmt.Errorf("create log: %w", err)
	}
	if err := (&manifest{Format: manifestFormat, NextSegment: 1}).save(vfs.NewFolder(fs, dir)); err != nil {
		return fmt.Errorf("create log: %w", err)
	}
	return nil
}

// Open opens a log, and reads and checks all valid entries. If acknowledged data is lost or changed, the error is a
// *DamageError.
func Open(dir string, o Options) (*WAL, error) {
	w, err := open(dir, o)
	if err != nil {
		return nil, err
	}
	w.spares = startSpares(w.folder, w.size, w.logger)
	w.orderSpare()
	return w, nil
}

func open(dir string, o Options) (*WAL, error) {
	o.fill()
	m, err := loadManifest(o.FS, dir)
	if err != nil {
		return nil, err
	}
	w := &WAL{
		folder: vfs.NewFolder(o.FS, dir), size: o.SegmentSize, batch: math.MaxInt32, logger: o.Logger, manifest: m,
	}
	if err := w.openSegments(); err != nil {
		w.closeSegments()
		return nil, err
	}
	err = w.proveManifest()
	if err == nil { // otherwise a power cut may bring back a manifest that lists them
		err = w.removeUnlisted()
	}
	if err != nil {
		w.closeSegments()
		return nil, err
	}
	return w, nil
}

func (w *WAL) openSegments() error {
	for i, info := range w.manifest.Segments {
		s, content, err := openSegment(w.folder, info)
		if err != nil {
			return err
		}
		w.segments = append(w.segments, s)
		if i < len(w.manifest.Segments)-1 {
			continue
		}
		if err := w.openTail(s, content); err != nil {
			return err
		}
	}
	if _, last := w.bounds(); w.manifest.Closed && last != w.manifest.Last {
		return &DamageError{
			Path:   w.folder.Path(manifestName),
			Reason: fmt.Sprintf("the log was closed with last entry %d, and ends with %d now", w.manifest.Last, last),
		}
	}
	return nil
}

// openTail erases an interrupted append, and makes sure that the rest of the tail is on the disk.
func (w *WAL) openTail(s *segment, content []byte) error {
	name := s.file.Name()
	cut, err := s.mend(content, name)
	if err != nil {
		return err
	}
	s.open = bytes.Clone(content[s.written/blockSize*blockSize : s.written])
	if w.manifest.Closed {
		if cut > 0 {
			return &DamageError{Path: name, Offset: s.written, Reason: "it was closed in order, and its end is damaged"}
		}
		return nil // everything was synced before Closed was written
	}
	if cut > 0 {
		w.logger.Warn("erased an append that a crash interrupted before it was acknowledged", "file", name, "bytes", cut)
	}
	return s.prove(content)
}

// proveManifest writes the manifest again, since it may have been read from the page cache alone, after a rename that a
// crash or an error kept from the disk.
func (w *WAL) proveManifest() error {
	opened := w.manifest.clone()
	opened.Closed, opened.Last = false, 0
	if err := opened.save(w.folder); err != nil {
		return err
	}
	w.manifest = opened
	return nil
}

// removeUnlisted deletes files that the manifest does not list, left by a crash or by spares.
func (w *WAL) removeUnlisted() error {
	names, err := w.folder.Names()
	if err != nil {
		return fmt.Errorf("list log segments: %w", err)
	}
	listed := make(map[string]bool)
	for _, s := range w.segments {
		listed[segmentName(s.info.Number)] = true
	}
	for _, name := range names {
		if !strings.HasSuffix(name, segmentSuffix) || listed[name] {
			continue
		}
		if err := w.folder.Remove(w.folder.Path(name)); err != nil {
			return fmt.Errorf("remove unused log segment: %w", err)
		}
	}
	return nil
}

// bounds requires w.mu, or that w is not shared.
func (w *WAL) bounds() (first, last uint64) {
	n := len(w.segments)
	if n == 0 || w.segments[n-1].last() < w.manifest.First {
		return 0, 0
	}
	return w.manifest.First, w.segments[n-1].last()
}

// IsMonotonic returns true, so that raft empties the log when it installs a snapshot, instead of leaving a gap.
func (w *WAL) IsMonotonic() bool { return true }

// FirstIndex returns the first index, or 0 if the log is empty.
func (w *WAL) FirstIndex() (uint64, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return 0, ErrClosed
	}
	first, _ := w.bounds()
	return first, nil
}

// LastIndex returns the last index, or 0 if the log is empty.
func (w *WAL) LastIndex() (uint64, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return 0, ErrClosed
	}
	_, last := w.bounds()
	return last, nil
}

// GetLog reads and checks an entry.
func (w *WAL) GetLog(index uint64, log *raft.Log) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return ErrClosed
	}
	if first, last := w.bounds(); index < first || index > last || last == 0 {
		return raft.ErrLogNotFound
	}
	// The last segment that begins at or before index.
	i := sort.Search(len(w.segments), func(i int) bool { return w.segments[i].info.First > index }) - 1
	s := w.segments[i]
	at := s.spans[index-s.info.First]
	b := make([]byte, at.size)
	if _, err := s.file.ReadAt(b, int64(at.offset)); err != nil {
		return fmt.Errorf("read log entry %d: %w", index, err)
	}
	if err := record.Decode(b, log); err != nil || log.Index != index {
		return &DamageError{Path: s.file.Name(), Offset: int64(at.offset), Reason: fmt.Sprintf("entry %d is damaged", index)}
	}
	return nil
}

// Gone returns the path of the newest segment, or of the manifest if there is none, if that file was removed or
// replaced, and else "".
func (w *WAL) Gone() (path string, err error) {
	w.mu.RLock() // the segment stays listed, and is not removed
	defer w.mu.RUnlock()
	path = w.folder.Path(manifestName)
	there := false
	if n := len(w.segments); n > 0 {
		path = w.segments[n-1].file.Name()
		there, err = w.folder.Holds(path, w.segments[n-1].file)
	} else {
		there, err = w.folder.Exists(path)
	}
	if there || err != nil {
		return "", err
	}
	return path, nil
}

// Close stops the background work and closes the files.
func (w *WAL) Close() error {
	w.writing.Lock()
	defer w.writing.Unlock()
	if w.broken == ErrClosed {
		return nil
	}
	w.spares.close()
	var err error
	if w.broken == nil {
		closing := w.manifest.clone()
		closing.Closed = true
		_, closing.Last = w.bounds()
		err = closing.save(w.folder)
	}
	w.broken = ErrClosed
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.closeSegments()
	return err
}

func (w *WAL) closeSegments() {
	for _, s := range w.segments {
		_ = s.file.Close()
	}
}
