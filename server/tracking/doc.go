// Package tracking remembers which clients of one node may have which keys in a cache of their own, and
// tells the clients when a key changes: CLIENT TRACKING.
//
// The package promises:
//   - a client that has read a key at some index of the log is told of the first change behind that index,
//     whichever node answered the read, if [Client.Read] was called before the read went out;
//   - what a client is told leaves behind the replies of the commands under way ([Client.Begin] to
//     [Client.Settle]), also to another connection: a client never stores a reply behind the message that
//     makes the reply stale;
//   - when the table or a queue is full, a client is told of more keys than have changed, never of fewer;
//   - the node's log is never held up: [Table.Events] looks up and queues.
//
// A [Table] is fed by the state machine's events, on the goroutine that applies entries. Messages are taken
// to the clients by a goroutine that runs while there are messages. A [Client] belongs to one connection.
//
// Locks: Table.mu guards the table and the queue, Client.mu what is held back. Neither is held while the
// other is taken, nor while a [Target] is called.
//
// DESIGN.md has the argument why no change is missed.
package tracking
