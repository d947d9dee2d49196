// Package audit writes down what happened to locks, a JSON line each, and reads that again: who held a lock at an
// instant.
//
// It promises:
//   - Each line of the log's has the cluster, the index of the entry and the place in the entry, by which the same line
//     of two nodes, and of one that applied an entry twice, is known as one: [Read] returns it once.
//   - [Log.Events] never waits for the disk, for a pipe or for the node's log. Lines without room are dropped, and a
//     line counts them.
//   - The files together take no more than [Config.Bytes] unless they cannot be renamed, and nobody but the user of the
//     process may read them.
//
// A [Log] has one goroutine, which writes. It ends with [Log.Close]. mu is held while lines are
// encoded and copied in memory; no write happens meanwhile, and clients.mu alone is locked under it.
//
// Start reading at log.go: what waits to be written; then line.go, file.go and read.go. DESIGN.md says why every node
// writes every event.
package audit
