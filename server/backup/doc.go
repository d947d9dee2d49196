// Package backup is the copy of a cluster's state in a file: how a node makes the copy while it serves, how the
// file is read, how a data folder is made of the file; and how the folder of a last survivor is made another
// cluster's.
//
// It promises:
//   - a file holds the state at one index of the log. Every write that was acknowledged before [Meta.TakenAt] is in
//     it, on any node, unless the backup was asked for as stale;
//   - a [Reader] gives out bytes of the state only after their checksum was proved, and [io.EOF] only after the
//     whole file was. A file that was cut off, damaged, or written by a newer release is an error of one line;
//   - no file, whatever is in it, makes the reader panic or take more memory than a block;
//   - a [Stream] holds the state of one instant and a few chunks, and ends with its client, by its idle time-out, or
//     by its time limit.
//
// The file:
//
//	8 bytes   "HFBACKUP"
//	4 bytes   version of the format
//	blocks    kind(1) length(4) checksum(4) body
//	          one 'M': the [Meta], in JSON
//	          any number of 'S': the stream of package fsm's snapshot, in pieces
//	          one 'E': length of the state(8), number of blocks before(8), SHA-256 of all bytes before this block(32)
//
// Numbers are little-endian. The checksum of a block is CRC-32C of kind, length and body. A body has 1 MiB at most.
//
// The package does not know what is in the state, but through package fsm. Connections are package frontend's.
//
// Goroutines: one for each open [Stream], which ends with the stream. Locks: [Streams] and [Stream] have one each,
// leaves.
//
// Start reading at format.go, then reader.go and stream.go. DESIGN.md has the reasons.
package backup
