// Package wal stores raft's log in files of fixed size that are written sequentially, with one write and one fdatasync
// per append.
//
// It promises:
//   - an acknowledged append survives a crash or a power cut, complete and unchanged; an unacknowledged entry is kept
//     completely or not at all;
//   - a deletion, at the beginning or the end, is atomic;
//   - if a disk has lost or changed acknowledged data, Open, or later GetLog, returns a *[DamageError] that names the
//     file. The only exception, see [damage]: after a crash, but not after an orderly stop, a last append whose sectors
//     the disk has overwritten with zeros looks like an unfinished one;
//   - after a failed write all further changes fail, since the content of the disk is unknown.
//
// The disk is assumed to preserve the rest of a sector when part of it is written, and fdatasync to be honest. The log
// has no gaps: since IsMonotonic returns true, raft empties the log before it continues at another index. Damage is not
// repaired, since a node that has forgotten what it acknowledged must not take part again under the same name.
//
// One goroutine, started by Open and ended by Close, prepares the next segment. Lock order: WAL.writing before WAL.mu.
//
// package store opens the log. Start reading at [WAL.StoreLogs], then segment.go for the
// format and damage.go for recovery.
package wal
