// Package server makes a node of its parts: the client side (server/frontend), the
// replica of the state machine (server/replica), the port between nodes
// (server/peer) and the disk (server/store).
//
//	clients ─► frontend ─► replica ──────► fsm.Machine
//	                        │     │
//	                    forward  raftnode  batches between nodes; raft, with what is around raft
//	                        │     │   │
//	                        ▼     ▼   ▼
//	                        peer    store  handed down as interfaces
//
// The package promises:
//   - New returns a node with open ports and folder, or one error with everything closed again;
//   - Run shuts down in order when its context ends: clients are drained, leadership is handed
//     over, files are closed;
//   - a node whose disk hangs or fails answers the commands in flight and ends at once, so that
//     another node can lead.
//
// The store and raftnode detect faults of the disk. fatal.go decides that they end the node.
//
// Package lifecycle starts the following goroutines and ends them in order. After a fatal disk failure Run awaits none
// of them, as each may hang forever:
//
//	peers    peer.Peers.Run   ends with the node's context, after the replica
//	replica  replica.Run      ends by Shutdown
//	clients  frontend.Serve   ends first
//
// Start reading at config.go and server.go; then the doc.go of frontend, replica and forward.
package server
