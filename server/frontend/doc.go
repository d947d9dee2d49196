// Package frontend is the side of a Holdfast node that clients see: listeners,
// connections, dispatch, and the commands that a node answers by itself.
//
// The package promises:
//   - the commands of one connection take effect in the order sent, and are answered in that order;
//   - a pipeline, all complete commands that have arrived, goes to the cluster as one
//     [replica.Batch] and is answered with one write;
//   - no input makes the package panic, recurse, or hold more memory than the [Limits] allow;
//   - the memory of all clients together is bounded, and beyond the bound the connection that
//     holds most is cut off;
//   - clients that have not authenticated cannot shut out others for good;
//   - a client that does not read its replies is cut off, and never delays other clients;
//   - messages that are posted to a client leave in order, between two pipelines, and posting never blocks;
//   - an idle connection costs the smallest stack of a goroutine, a few hundred bytes, and no buffer.
//
// The package does not know what a data command means: data commands are encoded by the command
// table and handed to a [Backend]. The package keeps no replicated state. What belongs to a
// connection (name, database, protocol version, the queue of MULTI, the marks of watched keys)
// ends with the connection.
//
// Rooms below: discovery answers who leads and which nodes there are; metrics counts, times and shows figures;
// observe remembers slow commands and shows commands to monitors.
//
// Goroutines: [Server.Serve] starts one for each connection, and waits for all of them. Two things
// start a second goroutine for a connection, for as long as they last: a command that blocks, such as
// WAIT, and a write that stalls.
//
// A connection consists of parts that do not point back to it: the stream of bytes both ways (input.go, output.go) over
// a socket (socket.go), with the outbox of messages (outbox.go); the profile that other goroutines may see
// (profile.go); the identity and limits of its user (users.go, limits.go); the transaction and the watched keys
// (multi.go, watch.go); and what the client's cache tracks (tracking.go).
//
// Messages that no command asked for, such as what subscribers get, reach a client by [outbox.Post]
// (outbox.go), which any goroutine may call with a [push.Message]. The connection's own goroutine writes the
// messages: behind the replies of the batch in flight, or at once when the connection is idle. A message
// that a command's handler causes for its own client therefore stands behind the command's reply.
//
// Monitors (monitor.go, observe) are shown each command by a message, when dispatch takes the command up.
//
// A command that is answered later than executed parks the connection (pending.go): [conn.send] makes the pending reply
// before the command is executed, since the reply may come at any time and from any goroutine, and
// [conn.addBlockedReply] parks the connection if the reply is not there yet.
//
// A parked connection has no goroutine beside its own and, unless input has come, no buffer. Messages leave
// meanwhile. Input is kept up to MaxQueryBytes and served behind the reply. The end of the input ends the
// connection at once, as does the end of the node.
//
// Lock commands (lock_commands.go, locks.go) take the number of the connection along. A wait with NOTIFY has a
// ticket beside the connection, and its end is a message. A grant that the client waited for, and that was
// not written before the connection ended, is given back.
//
// Locks: observe.Monitors.mu comes first. Server.mu guards the set of connections, profile.mu guards what CLIENT
// LIST shows of a connection, outbox.mu guards the messages and the pending replies. None is held while calling
// anything that blocks. Server.mu may be held while taking profile.mu or outbox.mu, never the reverse.
//
// Start reading at conn.go (all that a connection has) and serve.go (the loop), then dispatch.go (the way of a
// command), then batch.go (how a pipeline becomes a batch). Bytes arrive in input.go and leave in output.go. DESIGN.md
// has the decisions and their reasons.
package frontend
