// Package store is what a node keeps on its disk: raft's log, terms and votes,
// snapshots, and the identity of the folder.
//
// It promises:
//   - [Open] gives a Store whose contents were checked, or one line that names the file and
//     says what to do; a store never starts half, and never silently without something that was
//     acknowledged. The folder is locked, and belongs to one node, whose ID is minted with the folder, and to one
//     cluster at most;
//   - a change of the [Identity] is durable before [Store.SetIdentity] returns, and the identity that Open shows is
//     there after each power cut;
//   - [Store].Epoch is another number each time, durable before Open returns;
//   - a call on Log or Stable that does not come back in time is reported to [Hooks].OnStall,
//     a failing call to OnFault, each once; a late call is never turned into a failed call;
//   - a snapshot that arrives late takes back nothing that was acknowledged since.
//
// A snapshot that is missing may be mended by another member's state: see [Store.Missing]. Otherwise the package does
// not repair damage, and does not end the process (the hooks' owner does).
//
// The folder:
//
//	LOCK            locked while a process has the folder open; holds the pid
//	identity.json   format, the node's name and ID, cluster; see [Identity]
//	stable.db       raft's terms and votes, our incarnations: raft-boltdb, each value with a checksum
//	wal/            the log: package wal
//	snapshots/      one file each
//
// The layers of a call on the log: raft ► watchdog, injected faults (guard.go) ► package wal.
// Goroutines: package wal's; one per report to a hook. Locks: each type has a lock,
// held over the writes that the lock orders, and never while a hook is called.
//
// package server opens the store, package replica uses it; storetest is the same in memory. Start reading at
// [Open], then guard.go. DESIGN.md says why and what was measured.
package store
