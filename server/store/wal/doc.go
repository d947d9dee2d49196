// Package wal keeps raft's log in files of fixed size that are written from front
// to end: one write and one fdatasync per append.
//
// It promises:
//   - an append that was acknowledged is there after a crash or a power cut, whole and
//     unchanged; one that was not is there whole, or not at all;
//   - a deletion is one step, at the beginning as at the end;
//   - if a disk lost or changed anything that counts, Open says so with a *[DamageError] that
//     names the file, and GetLog says so when it happens later. The one case it cannot
//     tell is described at [damage]: after a crash, not after an orderly stop, a last append whose
//     sectors the disk itself overwrote with zeros looks like one that never finished;
//   - after a failed write it takes no more, since nobody knows what is on the disk.
//
// It assumes that a disk which writes part of a sector leaves the rest of it as it was,
// and that fdatasync means it. It has no gaps: raft has to empty the log before it goes on
// elsewhere, and does, as IsMonotonic tells it to. It does not repair damage: a node that
// forgot what it acknowledged must not take part again under its name.
//
// Goroutines: one, started by Open, ended by Close: it prepares the next segment. Lock
// order: WAL.writing before WAL.mu.
//
// package store opens it. Start reading at [WAL.StoreLogs], then segment.go for the
// format and damage.go for recovery.
package wal
