package wal

import (
	"fmt"

	"github.com/holdfast/holdfast/server/store/internal/record"
)

// DamageError says that the disk lost or changed what had been acknowledged.
type DamageError struct {
	Path   string
	Offset int64 // in bytes; 0 for the whole file
	Reason string
}

func (e *DamageError) Error() string {
	if e.Offset > 0 {
		return fmt.Sprintf("log file %s is damaged at byte %d: %s", e.Path, e.Offset, e.Reason)
	}
	return fmt.Sprintf("log file %s is damaged: %s", e.Path, e.Reason)
}

// damage tells an append that a crash interrupted from an append that was whole once.
// b is all of the tail's file; from start on there is no whole batch, from end on nothing
// but zeros. The result is "" for an interrupted append, else what is wrong.
//
// Before an append nothing but zeros follows start, and all before is synced. An
// append is the write of a batch, and the next append begins after the sync. So
// what an interrupted append leaves is some sectors of a batch, the others
// still being zeros; and a batch's bytes on the disk have no zeros the size
// of a sector (records are masked), nor has the head with the checksum. Therefore:
//
//   - a batch's head further on was written after this batch was synced: damage;
//   - so was anything behind the end that this batch's head gives;
//   - if no sector of the batch is zero, the batch was written whole, and has changed since: damage;
//   - the same for the batch's head, if the head is what is wrong.
//
// What is left is called interrupted. A sector of the last batch that the disk
// itself has overwritten with zeros since is so mistaken for a sector that was never written;
// only the manifest's Closed tells these apart, after an orderly stop.
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

// hasZeroSector looks for a sector whose part between from and to is all zeros.
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
