// Package frontend is the side of a Holdfast node that clients see: listeners,
// connections, dispatch, and the commands that a node answers by itself.
//
// It promises:
//   - the commands of one connection take effect in the order sent, and are answered in that order;
//   - a pipeline, all complete commands that have arrived, goes to the cluster as one
//     [replica.Batch] and is answered with one write;
//   - nothing a client sends makes it panic, recurse, or hold more than the [Limits] allow;
//   - all clients together hold no more than that allows, whatever they do: the one that holds most is cut off;
//   - clients that have not said who they are cannot shut others out for good;
//   - a client that does not read its replies is cut off, and never holds anybody else up;
//   - an idle connection costs a goroutine's smallest stack and a few hundred bytes, no buffer.
//
// It does not know what a data command means: those are encoded as the table's
// row says and handed to a [Backend]. It keeps no replicated state; what a
// connection has of its own (name, database, protocol version, MULTI's queue,
// the marks of watched keys) dies with the connection.
//
// Goroutines: one a connection, started by [Server.Serve], which waits for
// them all. Beside these only WAIT starts one, for as long as it blocks, to see
// the client go away.
//
// Locks: Server.mu guards the set of connections, conn.mu guards what CLIENT
// LIST shows of a connection. Neither is held while calling anything that
// blocks; Server.mu may be held while taking conn.mu, never the reverse.
//
// Start reading at conn.go (the loop), then dispatch.go (the checks), then
// batch.go (how a pipeline becomes a batch and its replies become bytes).
// DESIGN.md has what was decided and why.
package frontend
