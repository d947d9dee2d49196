// Package wal keeps raft's log in files of fixed size that are written from front
// to end: one write and one fdatasync per append.
//
// It promises:
//   - an append that was acknowledged is there after a crash or a power cut, whole and
//     unchanged; an entry that was not is there whole, or not at all;
//   - a deletion is one step, at the beginning as at the end;
//   - if a disk lost or changed anything that counts, Open says so with a *[DamageError] that
//     names the file, and GetLog says so when damage happens later. The only damage that
//     escapes is described at [damage]: after a crash, not after an orderly stop, a last append whose
//     sectors the disk itself overwrote with zeros looks like a batch that never finished;
//   - after a failed write no more is taken, since it is not known what is on the disk.
//
// The disk is assumed to leave the rest of a sector as it was when part of the sector is written,
// and fdatasync to mean it. The log has no gaps: raft has to empty the log before going on
// elsewhere, and does, as IsMonotonic says so. Damage is not repaired: a node that
// forgot what it acknowledged must not take part again under the same name.
//
// Goroutines: one, started by Open, ended by Close: it prepares the next segment. Lock
// order: WAL.writing before WAL.mu.
//
// package store opens the log. Start reading at [WAL.StoreLogs], then segment.go for the
// format and damage.go for recovery.
package wal
