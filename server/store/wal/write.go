package wal

import (
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/store/internal/record"
	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// StoreLog is StoreLogs of a single entry.
func (w *WAL) StoreLog(log *raft.Log) error { return w.StoreLogs([]*raft.Log{log}) }

// StoreLogs appends logs with one write and one sync. The entries must follow the last
// entry and each other. After a failed write or sync the log takes no more: what
// is on the disk can then only be found out by opening the log again.
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
	batch, spans, err := w.encode(logs)
	if err != nil {
		return err
	}
	s, err := w.room(logs[0].Index, int64(len(batch)))
	if err != nil {
		return w.fail(err)
	}
	head := batchHead{length: len(batch) - batchHeadSize, first: logs[0].Index, count: len(logs)}
	putBatchHead(batch, head, s.info.Number, s.written)
	if err := w.writeBlocks(s, len(batch)); err != nil {
		return w.fail(fmt.Errorf("write log: %w", err))
	}
	if err := s.file.SyncData(); err != nil {
		return w.fail(fmt.Errorf("sync log: %w", err))
	}
	for i := range spans {
		spans[i].offset += uint32(s.written)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.spans = append(s.spans, spans...)
	s.written += int64(len(batch))
	return nil
}

// writeBlocks writes the batch of n bytes, which stands in the buffer behind room for
// a block, as whole blocks: behind what the first of them holds already, and
// with the zeros that are there anyway up to the end of the last. The kernel would first read a block that is
// written in part and is not remembered.
func (w *WAL) writeBlocks(s *segment, n int) error {
	from := blockSize - len(s.open)
	copy(w.buf[from:], s.open)
	end := s.written + int64(n)
	whole := min((end+blockSize-1)/blockSize*blockSize, s.info.Size)
	w.buf = append(w.buf, make([]byte, whole-end)...)
	if _, err := s.file.WriteAt(w.buf[from:], s.written-int64(len(s.open))); err != nil {
		return err
	}
	last := blockSize + n
	s.open = append(s.open[:0], w.buf[last-int(end%blockSize):last]...)
	return nil
}

// fail makes err the answer to everything from here on.
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

// encode returns a batch whose head is still to be filled in, and where the
// records lie in the batch. The batch is valid until the next call; the buffer has room for a block before it.
func (w *WAL) encode(logs []*raft.Log) ([]byte, []span, error) {
	const keep = 1 << 20 // a larger buffer is not kept for the next batch
	if cap(w.buf) > keep {
		w.buf = nil
	}
	buf := append(w.buf[:0], make([]byte, blockSize+batchHeadSize)...)
	spans := make([]span, len(logs))
	for i, l := range logs {
		at := len(buf)
		buf = record.Append(buf, l)
		if len(buf) > w.batch {
			return nil, nil, fmt.Errorf("append log: %d entries have more than %d bytes together", len(logs), w.batch)
		}
		spans[i] = span{offset: uint32(at - blockSize), size: uint32(len(buf) - at)}
	}
	w.buf = buf
	return buf[blockSize:], spans, nil
}

// largeRoom says what part of a segment is left free behind a large batch, for the small batches that
// come between two of that kind: else each of these would begin a segment too.
const largeRoom = 16

// room returns the tail if need bytes fit, else a new segment. Requires w.writing.
func (w *WAL) room(index uint64, need int64) (*segment, error) {
	next := w.manifest.clone()
	_, last := w.bounds()
	n := len(w.segments)
	if n > 0 {
		s := w.segments[n-1]
		if s.last()+1 == index && s.written+need <= s.info.Size {
			return s, nil
		}
		if len(s.spans) == 0 {
			next.Segments = next.Segments[:n-1] // a crash came between making and first use, or the segment is too small
		} else {
			next.Segments[n-1].Last = s.last()
		}
	}
	if last == 0 {
		next.First = index
	}
	before := w.segments
	s, err := w.grow(next, index, need)
	if err == nil {
		w.removeFiles(w.unlisted(before))
	}
	return s, err
}

// grow adds a segment to next, which begins with entry index and has room for
// need bytes, and puts next in force. Requires w.writing.
func (w *WAL) grow(next *manifest, index uint64, need int64) (*segment, error) {
	file, number, size, err := w.newFile(need + headSize)
	if err != nil {
		return nil, err
	}
	s := &segment{
		info:    segmentInfo{Number: number, First: index, Size: size},
		file:    file,
		written: headSize,
	}
	s.open = appendHead(nil, s.info)
	if _, err = file.WriteAt(s.open, 0); err == nil {
		err = file.SyncData()
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("write head of log segment: %w", err)
	}
	next.Segments = append(next.Segments, s.info)
	next.NextSegment = max(next.NextSegment, number+1)
	if err := w.replace(next, append(w.kept(next), s)); err != nil {
		_ = file.Close()
		return nil, err
	}
	if number == w.ordered {
		w.orderSpare()
	}
	return s, nil
}

// newFile returns a file of zeros with room for need bytes: the spare, or, for what would fill most
// of that, a file of about the batch's size, so that large entries take no more space than needed.
func (w *WAL) newFile(need int64) (file vfs.File, number uint64, size int64, err error) {
	if need > w.size/2 {
		number = max(w.ordered+1, w.manifest.NextSegment)
		size = (need + w.size/largeRoom + blockSize - 1) / blockSize * blockSize
		file, err = makeZeros(w.folder, number, size, nil)
		return file, number, size, err
	}
	sp := w.spares.take()
	if sp.err != nil {
		// Made anew, under the same number: space may have become free.
		sp.file, sp.err = makeZeros(w.folder, sp.number, w.size, nil)
	}
	return sp.file, sp.number, w.size, sp.err
}

func (w *WAL) orderSpare() {
	w.ordered = max(w.ordered+1, w.manifest.NextSegment)
	w.spares.order(w.ordered)
}

// kept are the open segments that next still lists, with what next says of them. The info
// is changed in copies, as readers use the old segments.
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

// replace puts next in force: on the disk, then here. Requires w.writing.
func (w *WAL) replace(next *manifest, segments []*segment) error {
	if err := next.save(w.folder); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.manifest, w.segments = next, segments
	return nil
}

// DeleteRange removes entries lo to hi, which must be the beginning or the end
// of the log. The deletion is one step: after a crash either all entries are there, or none.
func (w *WAL) DeleteRange(lo, hi uint64) error {
	unlisted, err := w.deleteRange(lo, hi)
	w.removeFiles(unlisted) // appends need not wait for this
	return err
}

// deleteRange returns the segments that are no longer part of the log.
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

// deleteHead makes newFirst, which exists, the first entry.
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

// deleteTail makes newLast, which exists, the last entry. What follows newLast in its
// segment stays there, void; a new segment is begun.
func (w *WAL) deleteTail(newLast uint64) error {
	next := w.manifest.clone()
	for i, s := range w.segments {
		if s.last() >= newLast {
			next.Segments = next.Segments[:i+1]
			next.Segments[i].Last = newLast
			break
		}
	}
	_, err := w.grow(next, newLast+1, 0)
	return err
}

// unlisted are the segments of before that are no longer part of the log. Requires w.writing.
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

// removeFiles closes and deletes segments that are no longer listed. Their readers hold
// WAL.mu, and had let go when the list was replaced. No harm is done if a crash
// comes before: Open deletes them.
func (w *WAL) removeFiles(gone []*segment) {
	for _, s := range gone {
		_ = s.file.Close()
		_ = w.folder.Remove(s.file.Name())
	}
}
