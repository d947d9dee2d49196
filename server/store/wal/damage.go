package wal

import (
	"fmt"

	"github.com/holdfast/holdfast/server/store/internal/record"
)

// DamageError is the error for acknowledged data that the disk has lost or changed.
type DamageError struct {
	Path   string
	Offset int64 // in bytes, 0 for the whole file
	Reason string
}

func (e *DamageError) Error() string {
	if e.Offset > 0 {
		return fmt.Sprintf("log file %s is damaged at byte %d: %s", e.Path, e.Offset, e.Reason)
	}
	return fmt.Sprintf("log file %s is damaged: %s", e.Path, e.Reason)
}

// damage distinguishes an append that a crash interrupted from one that was complete and has changed since. b is the
// tail's whole file. At start there is no complete batch, and from end on there are only zeros. It returns "" for an
// interrupted append, and else what is wrong.
//
// An append writes one batch, and the next one begins after the sync. So an interrupted append leaves some sectors of a
// batch, and zeros in the others. No sector of a batch is all zeros, since records are masked and the head has a
// checksum. Therefore these are damage:
//
//   - the head of a later batch, which was written after this batch was synced;
//   - anything behind the end that this batch's head gives, for the same reason;
//   - a batch without a sector of zeros, which was written completely;
//   - a wrong head without a sector of zeros.
//
// Everything else counts as interrupted, even a sector of the last batch that the disk has since overwritten with
// zeros. Only the manifest's Closed reveals that, after an orderly stop.
func damage(b []byte, number uint64, start, end int64) string {
	for at := start + record.Alignment; at < end; at += record.Alignment {
		if _, ok := readBatchHead(b, number, at); ok {
			return fmt.Sprintf("acknowledged entries follow at byte %d", at)
		}
	}
	h, ok := readBatchHead(b, number, start)
	if !ok {
		if hasZeroSector(b, start, start+batchHeadSize) {
			return ""
		}
		return "the head of the last append is damaged"
	}
	behind := start + batchHeadSize + int64(h.length)
	switch {
	case behind < end:
		return fmt.Sprintf("something stands behind the last append, after byte %d", behind)
	case hasZeroSector(b, start, behind):
		return ""
	default:
		return "the last append is damaged"
	}
}

// hasZeroSector reports whether, in the range of b from from to to, the bytes of some sector are all zeros.
func hasZeroSector(b []byte, from, to int64) bool {
	to = min(to, int64(len(b)))
	for from < to {
		next := min(to, (from/sectorSize+1)*sectorSize)
		if allZero(b[from:next]) {
			return true
		}
		from = next
	}
	return false
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
