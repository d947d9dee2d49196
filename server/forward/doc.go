// Package forward carries clients' batches from a follower to the leader, and the replies back.
//
// It promises:
//   - the proposer gets a link's batches in the order of sending, except that small batches pass large ones, or
//     the link breaks;
//   - after a link has broken or the leader has changed, every batch without a reply is sent again, in order;
//   - once [Client.Follow] has returned, no batch is sent to the former leader;
//   - a follower is subscribed to commit notifications only while it has a link;
//   - only the leader of the present term accepts links, one from each node;
//   - no reply is encoded before its size is known, and a small reply does not wait for a large one;
//   - the queue of one follower is bounded, however slowly the follower reads, and a connection whose other end reads
//     nothing for a while is closed.
//
// The package does not interpret commands, elect leaders or own the queues of batches: the owner passes in [Batches]
// and functions.
//
// # The way of a batch
//
//	follower                                      leader
//	Batches ─► Client: connection.send ═══► Peer.listen ─┬─► Receiver ─► the proposer, by Take
//	                                                     └─► reads: Peer.answerReads ─┐
//	Batches ◄─ Client: connection.listen ◄═══ Peer.send ◄─ outbox ◄─ Peer.Reply ──────┘
//
// # Goroutines
//
//	Client.Run    connects to the leader, and sends; another one per connection listens, and one per inquiry answers
//	Receiver.Run  accepts links; four more per link listen, send, answer reads and compile sources; one more per open
//	              WAIT and per long read
//
// All of them end with the context of Run.
//
// # Lock order
//
// A lock is held only while locks to its right are taken:
//
//	Client.mu ─► connection.mu
//	         └─► the locks of Batches
//
// Receiver.mu is held while Take and Scan call their arguments, which must not call the Receiver. Peer.mu and outbox.mu
// are leaves.
//
// Start reading at messages.go, which draws the stream, then client.go, connection.go, receiver.go and
// peer.go. DESIGN.md has the reasons.
package forward
