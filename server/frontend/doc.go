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
//   - an idle connection costs the smallest stack of a goroutine, a few hundred bytes, and no buffer.
//
// The package does not know what a data command means: data commands are encoded by the command
// table and handed to a [Backend]. The package keeps no replicated state. What belongs to a
// connection (name, database, protocol version, the queue of MULTI, the marks of watched keys)
// ends with the connection.
//
// Goroutines: [Server.Serve] starts one for each connection, and waits for all of them. Two things
// start a second goroutine for a connection, for as long as they last: a command that blocks, such as
// WAIT, and a write that stalls.
//
// Locks: Server.mu guards the set of connections, conn.mu guards what CLIENT LIST shows of a
// connection. Neither is held while calling anything that blocks. Server.mu may be held while
// taking conn.mu, never the reverse.
//
// Start reading at conn.go (the loop), then dispatch.go (the checks), then batch.go (how a
// pipeline becomes a batch). Bytes arrive in input.go and leave in output.go. DESIGN.md has the
// decisions and their reasons.
package frontend
