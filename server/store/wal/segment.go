package wal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"

	"github.com/holdfast/holdfast/server/store/internal/record"
	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// A segment is a file of fixed size that is written sequentially. When the manifest first lists it, it has its head,
// its first batch, if any, and zeros up to the end.
//
//	head    magic(8) format(4) zero(4) number(8) first(8) size(8) checksum(4), padded to 64
//	batch   magic(4) length(4) first(8) count(4) zero(4) zero(4) checksum(4), then length bytes of records
//	batch…
//	zeros
//
// Numbers are little-endian, and batches begin at multiples of 8. A batch has the entries of one StoreLogs, written
// with one write and one sync. The checksum of a batch's head also covers the segment's number and the offset, so that
// a head is valid in one place only.
const (
	segmentMagic  = "HFSEGMT1"
	segmentFormat = 1
	headSize      = 64
	batchMagic    = 0x48464231 // "1BFH"
	batchHeadSize = 32
	sectorSize    = 512  // the least that a disk writes atomically
	blockSize     = 4096 // the largest page of the page cache on common systems
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// span is the place of a record in its file.
type span struct{ offset, size uint32 }

// segment is an open segment file with the places of its entries.
type segment struct {
	info    segmentInfo
	file    vfs.File
	spans   []span // of the entries from info.First on
	written int64  // offset of the next batch
	open    []byte // in the tail, content of the block that contains written
}

// last returns the index of the last entry, or info.First-1 if there is none.
func (s *segment) last() uint64 { return s.info.First + uint64(len(s.spans)) - 1 }

// add records a batch of size bytes that was written behind the others, and its records' spans. Requires WAL.mu if s is
// listed.
func (s *segment) add(size int, spans []span) {
	for _, at := range spans {
		s.spans = append(s.spans, span{offset: at.offset + uint32(s.written), size: at.size})
	}
	s.written += int64(size)
}

func appendHead(dst []byte, info segmentInfo) []byte {
	start := len(dst)
	dst = append(dst, segmentMagic...)
	dst = binary.LittleEndian.AppendUint32(dst, segmentFormat)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint64(dst, info.Number)
	dst = binary.LittleEndian.AppendUint64(dst, info.First)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(info.Size))
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
	return append(dst, make([]byte, start+headSize-len(dst))...)
}

// batchHead is a batch's decoded head.
type batchHead struct {
	length int // bytes of records
	first  uint64
	count  int
}

// putBatchHead encodes a head into the first bytes of b, which must be zeros.
func putBatchHead(b []byte, h batchHead, number uint64, offset int64) {
	binary.LittleEndian.PutUint32(b, batchMagic)
	binary.LittleEndian.PutUint32(b[4:], uint32(h.length))
	binary.LittleEndian.PutUint64(b[8:], h.first)
	binary.LittleEndian.PutUint32(b[16:], uint32(h.count))
	binary.LittleEndian.PutUint32(b[28:], batchChecksum(b, number, offset))
}

func batchChecksum(b []byte, number uint64, offset int64) uint32 {
	var place [16]byte
	binary.LittleEndian.PutUint64(place[:], number)
	binary.LittleEndian.PutUint64(place[8:], uint64(offset))
	return crc32.Update(crc32.Checksum(b[:28], castagnoli), castagnoli, place[:])
}

// readBatchHead decodes the head at offset of a file with content b. ok is false if there is no valid head.
func readBatchHead(b []byte, number uint64, offset int64) (h batchHead, ok bool) {
	if offset+batchHeadSize > int64(len(b)) {
		return h, false
	}
	b = b[offset:]
	if binary.LittleEndian.Uint32(b) != batchMagic || binary.LittleEndian.Uint32(b[28:]) != batchChecksum(b, number,
		offset) {
		return h, false
	}
	h.length = int(binary.LittleEndian.Uint32(b[4:]))
	h.first = binary.LittleEndian.Uint64(b[8:])
	h.count = int(binary.LittleEndian.Uint32(b[16:]))
	return h, h.length <= len(b)-batchHeadSize
}

// openSegment opens a listed segment, and reads and checks it up to info.Last, or, in the tail (info.Last is 0), up to
// the first incomplete batch.
func openSegment(folder *vfs.Folder, info segmentInfo) (s *segment, content []byte, err error) {
	name := folder.Path(segmentName(info.Number))
	file, err := folder.Open(name, os.O_RDWR)
	if vfs.IsMissing(err) {
		return nil, nil, &DamageError{Path: name, Reason: "it is missing"}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open log segment: %w", err)
	}
	s = &segment{info: info, file: file, written: headSize}
	content, err = s.content(name)
	if err == nil {
		err = s.scan(content, name)
	}
	if err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	return s, content, nil
}

// content reads the file, and checks its size and head.
func (s *segment) content(name string) ([]byte, error) {
	size, err := s.file.Size()
	if err != nil {
		return nil, fmt.Errorf("read log segment: %w", err)
	}
	if size != s.info.Size {
		return nil, &DamageError{Path: name, Reason: fmt.Sprintf("it has %d bytes instead of %d", size, s.info.Size)}
	}
	b := make([]byte, s.info.Size)
	if _, err := s.file.ReadAt(b, 0); err != nil {
		return nil, fmt.Errorf("read log segment: %w", err)
	}
	if string(b[:headSize]) != string(appendHead(nil, s.info)) {
		return nil, &DamageError{Path: name, Reason: "its head is wrong"}
	}
	return b, nil
}

// scan finds the entries up to info.Last, or, in the tail, up to the first incomplete batch.
func (s *segment) scan(b []byte, name string) error {
	for {
		if s.info.Last != 0 && s.last() >= s.info.Last {
			s.spans = s.spans[:s.info.Last-s.info.First+1] // a batch may have deleted entries behind info.Last
			return nil
		}
		if h, ok := readBatchHead(b, s.info.Number, s.written); ok && h.first == s.last()+1 && s.addBatch(b, h) {
			continue
		}
		if s.info.Last != 0 {
			return &DamageError{Path: name, Offset: s.written, Reason: fmt.Sprintf("entry %d is damaged, of %d to %d", s.last()+
				1, s.info.First, s.info.Last)}
		}
		return nil
	}
}

// addBatch checks and records the batch at s.written. It returns false if a record is damaged.
func (s *segment) addBatch(b []byte, h batchHead) bool {
	known := len(s.spans)
	offset := s.written + batchHeadSize
	end := offset + int64(h.length)
	for range h.count {
		size, err := record.Check(b[offset:end])
		if err != nil {
			s.spans = s.spans[:known]
			return false
		}
		s.spans = append(s.spans, span{offset: uint32(offset), size: uint32(size)})
		offset += int64(size)
	}
	if offset != end {
		s.spans = s.spans[:known]
		return false
	}
	s.written = end
	return true
}

// mend checks that only zeros follow the last complete batch of the tail. It erases an interrupted append, which was
// never acknowledged, from b, and returns an error for anything else.
func (s *segment) mend(b []byte, name string) (cut int64, err error) {
	end := int64(len(b))
	for end > s.written && b[end-1] == 0 {
		end--
	}
	if end == s.written {
		return 0, nil
	}
	if reason := damage(b, s.info.Number, s.written, end); reason != "" {
		return 0, &DamageError{Path: name, Offset: s.written, Reason: reason}
	}
	clear(b[s.written:end])
	return end - s.written, nil
}

// prove writes b, the whole tail, and syncs it. The last batch may be complete in the page cache only, if its process
// died before the sync or the sync failed. After a failed sync another may succeed without writing anything, so
// everything is written again, including the zeros: otherwise erased data could reappear and look like damage.
func (s *segment) prove(b []byte) error {
	_, err := s.file.WriteAt(b, 0)
	if err == nil {
		err = s.file.SyncData()
	}
	if err != nil {
		return fmt.Errorf("write end of log again: %w", err)
	}
	return nil
}
