package wal

import (
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/store/internal/record"
	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// StoreLog calls StoreLogs with a single entry.
func (w *WAL) StoreLog(log *raft.Log) error { return w.StoreLogs([]*raft.Log{log}) }

// StoreLogs appends logs with one write and one sync. The entries must follow the last entry and each other. After a
// failed write or sync all further appends fail, since only opening the log again can find out what is on the disk.
func (w *WAL) StoreLogs(logs []*raft.Log) error {
	w.writing.Lock()
	defer w.writing.Unlock()
	if w.broken != nil {
		return w.broken
	}
	if len(logs) == 0 {
		return nil
	}
	if err := w.checkOrder(logs); err != nil {
		return err
	}
	size, spans, err := w.encode(logs)
	if err != nil {
		return err
	}
	s := w.tail(logs[0].Index, size)
	if s == nil {
		if err := w.rotate(logs[0].Index, size, spans); err != nil {
			return w.fail(err)
		}
		return nil
	}
	if err := w.write(s, size, len(spans), 0); err != nil {
		return w.fail(fmt.Errorf("write log: %w", err))
	}
	if err := s.file.SyncData(); err != nil {
		return w.fail(fmt.Errorf("sync log: %w", err))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.add(size, spans)
	return nil
}

// bufferRoom is the free space in the buffer before a batch, for up to a block of existing content of the batch's first
// block. In a new segment its head, which precedes the batch, begins a block of the buffer, as direct I/O requires.
const bufferRoom = blockSize + headSize

// write writes the batch in the buffer behind bufferRoom, of size bytes and count entries, as whole blocks: the
// existing content of the first block precedes it, and zeros follow up to the end of the last block, or, if until is
// not 0, with direct I/O up to that offset. The kernel would first read a partly written block that is not in the page
// cache.
func (w *WAL) write(s *segment, size, count int, until int64) error {
	if size > 0 {
		head := batchHead{length: size - batchHeadSize, first: s.last() + 1, count: count}
		putBatchHead(w.buf[bufferRoom:], head, s.info.Number, s.written)
	}
	from := bufferRoom - len(s.open)
	copy(w.buf[from:], s.open)
	end := s.written + int64(size)
	write := s.file.WriteDirect
	if until == 0 {
		until, write = min((end+blockSize-1)/blockSize*blockSize, s.info.Size), s.file.WriteAt
	}
	w.buf = append(w.buf, make([]byte, until-end)...)
	if _, err := write(w.buf[from:], s.written-int64(len(s.open))); err != nil {
		return err
	}
	last := bufferRoom + size
	s.open = append(s.open[:0], w.buf[last-int(end%blockSize):last]...)
	return nil
}

// fail makes all further changes fail with err.
func (w *WAL) fail(err error) error {
	w.broken = err
	return err
}

func (w *WAL) checkOrder(logs []*raft.Log) error {
	_, last := w.bounds() // writing is held: the bounds stay
	for i, l := range logs {
		if l.Index == 0 || (last != 0 || i > 0) && l.Index != last+1 {
			return fmt.Errorf("append log: entry %d cannot follow entry %d", l.Index, last)
		}
		last = l.Index
	}
	return nil
}

// encode encodes logs as a batch in the buffer, behind bufferRoom, except for the batch's head. It returns the size of
// the batch and the spans of the records within it.
func (w *WAL) encode(logs []*raft.Log) (size int, spans []span, err error) {
	const keep = 1 << 20 // a larger buffer is not kept for the next batch
	bound := bufferRoom + batchHeadSize
	for _, l := range logs {
		bound += record.Bound(l)
	}
	if bound > w.batch {
		return 0, nil, fmt.Errorf("append log: %d entries have more than %d bytes together", len(logs), w.batch)
	}
	if cap(w.buf) > keep {
		w.buf = nil
	}
	if cap(w.buf) < bound { // includes room for the zeros behind the batch, since growing later would copy it
		zeros := blockSize
		if w.isLarge(bound) {
			zeros += int(w.size / largeRoom)
		}
		w.buf = make([]byte, 0, bound+zeros)
	}
	buf := append(w.buf[:0], make([]byte, bufferRoom+batchHeadSize)...)
	spans = make([]span, len(logs))
	for i, l := range logs {
		at := len(buf)
		buf = record.Append(buf, l)
		spans[i] = span{offset: uint32(at - bufferRoom), size: uint32(len(buf) - at)}
	}
	w.buf = buf
	return len(buf) - bufferRoom, spans, nil
}

const (
	// largeFrom is the fraction of a usual segment from which on a batch is large.
	largeFrom = 4
	// largeRoom is the fraction of a usual segment that is left free behind a large batch. Without it, small batches
	// between two large ones would begin a segment, too.
	largeRoom = 16
)

// tail returns the segment for a batch of size bytes that begins with entry index, or nil if it needs a new one.
func (w *WAL) tail(index uint64, size int) *segment {
	if n := len(w.segments); n > 0 {
		if s := w.segments[n-1]; s.last()+1 == index && s.written+int64(size) <= s.info.Size {
			return s
		}
	}
	return nil
}

// rotate begins a segment with the batch in the buffer, of size bytes, which begins with entry index. Requires
// w.writing.
func (w *WAL) rotate(index uint64, size int, spans []span) error {
	next := w.manifest.clone()
	if n := len(w.segments); n > 0 {
		if s := w.segments[n-1]; len(s.spans) == 0 {
			next.Segments = next.Segments[:n-1] // an empty one that deleteTail made, and too small
		} else {
			next.Segments[n-1].Last = s.last()
		}
	}
	if _, last := w.bounds(); last == 0 {
		next.First = index
	}
	before := w.segments
	err := w.grow(next, index, size, spans)
	if err == nil {
		w.removeFiles(w.unlisted(before))
	}
	return err
}

// grow adds a segment that begins with entry index to next, and replaces the manifest by next. If size is not 0, the
// segment has the batch in the buffer. It is listed only when it is durable with the batch, so that no crash tears the
// batch. Requires w.writing.
func (w *WAL) grow(next *manifest, index uint64, size int, spans []span) error {
	file, info, until, err := w.newFile(size)
	if err != nil {
		return err
	}
	info.First = index
	s := &segment{info: info, file: file, written: headSize, open: appendHead(nil, info)}
	if err = w.write(s, size, len(spans), until); err == nil {
		err = file.Sync()
	}
	if err != nil {
		_ = file.Close()
		_ = w.folder.Remove(file.Name()) // the disk may be full
		return fmt.Errorf("write log segment: %w", err)
	}
	s.add(size, spans)
	next.Segments = append(next.Segments, info)
	next.NextSegment = max(next.NextSegment, info.Number+1)
	if err := w.replace(next, append(w.kept(next), s)); err != nil {
		_ = file.Close()
		return err
	}
	if info.Number == w.ordered {
		w.orderSpare()
	}
	return nil
}

// isLarge reports whether a batch of size bytes that does not fit into the tail gets a segment of a size for it.
func (w *WAL) isLarge(size int) bool { return int64(size) > w.size/largeFrom }

// newFile returns a file for a batch of that size, with its number and size: the spare, which is full of zeros, or, for
// a large batch, an empty file, which must be written until the offset: zeros would be written in vain, and much of the
// spare could be left over.
func (w *WAL) newFile(size int) (file vfs.File, info segmentInfo, until int64, err error) {
	if w.isLarge(size) {
		info.Number = max(w.ordered+1, w.manifest.NextSegment)
		info.Size = (headSize + int64(size) + w.size/largeRoom + blockSize - 1) / blockSize * blockSize
		file, err = createSegment(w.folder, info.Number)
		return file, info, info.Size, err
	}
	sp := w.spares.take()
	if sp.err != nil {
		// The file is created again under the same number, since space may have been freed.
		sp.file, sp.err = makeZeros(w.folder, sp.number, w.size, nil)
	}
	return sp.file, segmentInfo{Number: sp.number, Size: w.size}, 0, sp.err
}

func (w *WAL) orderSpare() {
	w.ordered = max(w.ordered+1, w.manifest.NextSegment)
	w.spares.order(w.ordered)
}

// kept returns the open segments that next lists, with next's info. It changes copies, since readers use the old ones.
func (w *WAL) kept(next *manifest) []*segment {
	var kept []*segment
	for _, s := range w.segments {
		for _, info := range next.Segments {
			if info.Number != s.info.Number {
				continue
			}
			c := *s
			c.info = info
			if info.Last != 0 {
				c.spans = c.spans[:info.Last-info.First+1]
			}
			kept = append(kept, &c)
		}
	}
	return kept
}

// replace replaces the manifest by next, on the disk and then in memory. Requires w.writing.
func (w *WAL) replace(next *manifest, segments []*segment) error {
	if err := next.save(w.folder); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.manifest, w.segments = next, segments
	return nil
}

// DeleteRange removes the entries lo to hi, which must be the beginning or the end of the log. It is atomic: after a
// crash either all of them exist, or none.
func (w *WAL) DeleteRange(lo, hi uint64) error {
	unlisted, err := w.deleteRange(lo, hi)
	w.removeFiles(unlisted) // appends need not wait for this
	return err
}

// deleteRange removes the entries from the manifest, and returns the segments that it no longer lists.
func (w *WAL) deleteRange(lo, hi uint64) ([]*segment, error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	if w.broken != nil {
		return nil, w.broken
	}
	first, last := w.bounds()
	if lo > hi || hi < first || lo > last {
		return nil, nil
	}
	before := w.segments
	var err error
	switch {
	case lo <= first && hi >= last:
		next := w.manifest.clone()
		next.First, next.Segments = 0, nil
		err = w.replace(next, nil)
	case lo <= first:
		err = w.deleteHead(hi + 1)
	case hi >= last:
		err = w.deleteTail(lo - 1)
	default:
		return nil, fmt.Errorf("delete log entries %d to %d of %d to %d: neither the beginning nor the end", lo, hi, first,
			last)
	}
	if err != nil {
		return nil, w.fail(err)
	}
	return w.unlisted(before), nil
}

// deleteHead makes newFirst, which must exist, the first entry.
func (w *WAL) deleteHead(newFirst uint64) error {
	next := w.manifest.clone()
	next.First = newFirst
	for i, s := range w.segments {
		if s.last() >= newFirst {
			next.Segments = next.Segments[i:]
			break
		}
	}
	return w.replace(next, w.kept(next))
}

// deleteTail makes newLast, which must exist, the last entry, and begins a new segment. Later entries remain in
// newLast's segment, but are invalid.
func (w *WAL) deleteTail(newLast uint64) error {
	next := w.manifest.clone()
	for i, s := range w.segments {
		if s.last() >= newLast {
			next.Segments = next.Segments[:i+1]
			next.Segments[i].Last = newLast
			break
		}
	}
	w.buf = append(w.buf[:0], make([]byte, bufferRoom)...)
	return w.grow(next, newLast+1, 0, nil)
}

// unlisted returns the segments of before that are no longer listed. Requires w.writing.
func (w *WAL) unlisted(before []*segment) []*segment {
	listed := make(map[uint64]bool)
	for _, s := range w.segments {
		listed[s.info.Number] = true
	}
	var gone []*segment
	for _, s := range before {
		if !listed[s.info.Number] {
			gone = append(gone, s)
		}
	}
	return gone
}

// removeFiles closes and deletes segments that are no longer listed. They have no readers, since those hold WAL.mu,
// which was locked to replace the list. After a crash, Open deletes the files.
func (w *WAL) removeFiles(gone []*segment) {
	for _, s := range gone {
		_ = s.file.Close()
		_ = w.folder.Remove(s.file.Name())
	}
}
