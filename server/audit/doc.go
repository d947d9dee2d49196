// Package audit writes the changes of locks to files, as JSON lines, and reads the files: who held a lock at an
// instant.
//
// It promises:
//   - A line of the log has an ID of the cluster, the index of the entry and the number of the line in the entry. Lines
//     of several nodes, or of a node that applied an entry twice, are the same line if they have the same ID: [Read]
//     returns it once.
//   - [Log.Changes] never waits for the disk, for a pipe or for the node's log. If the buffer is full, lines are
//     dropped, and a line counts them.
//   - The files together take no more than [Config.Bytes] unless they cannot be renamed, and only the user of the
//     process may read them.
//
// A [Log] has one goroutine, which writes until [Log.Close]. mu is held while lines are encoded into the buffer, and
// not while the buffer is written. Only clients.mu is locked under mu.
//
// Start reading at log.go, which has the buffer; then line.go, file.go and read.go. DESIGN.md says why every node
// writes every change.
package audit
