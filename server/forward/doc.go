// Package forward carries clients' batches from a follower to the leader, and the replies back.
//
// It promises:
//   - what is sent over a link is given to the leader's proposer in the order of sending, but for large batches, which
//     small ones pass, or the link breaks;
//   - after a broken link, or under another leader, every batch without a reply is sent again, in order;
//   - [Client.Follow] returns when no batch goes to the former leader any more;
//   - the leader knows which followers with a link subscribe to commit notifications; no other counts as subscribed;
//   - only the leader of the present term accepts links, one from each node;
//   - a census, a question about clients that the leader has every node answer, goes over the links that there are, and
//     an answer is the one of that link's follower;
//   - no reply becomes bytes before its size is known, and a small reply does not wait for a large one;
//   - what waits for one follower is bounded, however slowly that follower reads, and a connection that
//     takes nothing for a while is closed.
//
// The package does not know what a command means, which node leads, or where batches wait: the owner hands
// in [Batches] and functions.
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
//	Client.Run   connects to the leader, and sends; one more per connection listens, and one per question of a census
//	             that is being answered
//	Receiver.Run    accepts links; four more per link listen, send, answer reads, and have sources compiled;
//	             one more per open WAIT, and per read that takes long
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
// Receiver.mu is held while Take and Scan show batches: what they call must not call the Receiver.
// Peer.mu and outbox.mu are leaves.
//
// Start reading at messages.go, which draws the stream, then client.go, connection.go, receiver.go and
// peer.go. DESIGN.md has the reasons.
package forward
