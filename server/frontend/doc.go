// Package frontend is the part of a node that clients talk to: listeners, connections, dispatch, and the commands that
// a node answers by itself.
//
// The package promises:
//   - the commands of one connection take effect in the order sent, and are answered in that order;
//   - a pipeline, all complete commands that have arrived, goes to the cluster as one
//     [replica.Batch] and is answered with one write;
//   - no input makes the package panic, recurse, or hold more memory than the [Limits] allow;
//   - the memory of all clients together is bounded; if it is exceeded, the largest connection is closed;
//   - clients that have not authenticated cannot shut out others for good;
//   - a client that does not read its replies is disconnected, and never delays other clients;
//   - messages that are posted to a client are written in order, between two pipelines, and posting never blocks;
//   - an idle connection costs the smallest stack of a goroutine, a few hundred bytes, and no buffer.
//
// The package does not know what a data command means: it encodes data commands by the command table, and passes them
// to a [Backend]. It has no replicated state. The state of a connection (name, database, protocol version, the queue of
// MULTI, the marks of watched keys) ends with the connection.
//
// Packages below: discovery replies who leads and which nodes there are; metrics counts and times; observe remembers
// slow commands and shows commands to monitors.
//
// Goroutines: [Server.Serve] starts one for each connection, and waits for all of them. A command that blocks, such as
// WAIT, and a write that stalls have a second goroutine while they last.
//
// A connection consists of parts that do not refer back to it: the stream of bytes in both directions (input.go,
// output.go) over a socket (socket.go), with the outbox of messages (outbox.go); the profile that other goroutines read
// (profile.go); the identity and limits of its user (users.go, limits.go); the transaction and the watched keys
// (multi.go, watch.go); and what the client's cache tracks (tracking.go).
//
// A message that is no reply, such as that of a subscription, reaches a client by [outbox.Post], which any goroutine
// may call with a [push.Message]. The connection's own goroutine writes it: after the replies of the running batch, or
// at once if the connection is idle. So a message that a client's own command causes follows the reply. Monitors
// (monitor.go, observe) get each command by a message at its dispatch.
//
// A command that may wait has a pending reply (pending.go). [conn.send] creates it before the command runs, since the
// reply may come at any time and from any goroutine. [conn.addBlockedReply] parks the connection if the reply has not
// come. A parked connection has no further goroutine and, without input, no buffer. Messages are still written. Input
// is kept up to MaxQueryBytes, and served after the reply. The end of the input or of the node ends the connection at
// once.
//
// Lock commands (lock_commands.go, locks.go) have the number of the connection in the log. A wait with NOTIFY has a
// ticket, but does not park the connection; its end is a message. A grant after a wait is returned if the connection
// ends before the grant was written.
//
// Locks: observe.Monitors.mu comes first. Server.mu guards the set of connections, profile.mu the state that CLIENT
// LIST shows, outbox.mu the messages and the pending replies. None is held during a call that blocks. Server.mu may be
// held while profile.mu or outbox.mu is taken, never the reverse.
//
// Start reading at conn.go (the state of a connection) and serve.go (the loop), then dispatch.go (the way of a
// command), then batch.go (how a pipeline becomes a batch). Bytes arrive in input.go and leave in output.go. DESIGN.md
// has the decisions and their reasons.
package frontend
