// Package replica is a member of the cluster. A replica takes batches of commands from
// connections, has the batches applied in an order that all members agree on, and answers
// each batch, whichever member leads and whichever member dies meanwhile.
//
// It promises:
//   - a write that is acknowledged is on the disks of a majority, and was applied
//     once, although it may have been proposed several times over failovers;
//   - a read sees every write that was acknowledged before it began, on any node;
//   - an error row's outcome is true: "none" is only for requests that surely were not applied
//     and are not under way;
//   - reads and writes are confirmed by a majority of the voters that the log names at that instant;
//   - leases are counted in cluster time, which only a leader's stamps advance,
//     and never faster than that leader's monotonic clock;
//   - members capture equal states at the index of an entry that asks for it;
//   - a census, a question about clients that the leader has every node answer, leaves out no node that had any;
//   - a node in quarantine serves nobody, and hands a leadership over;
//   - when there is nothing to do nothing is written, and what waits is bounded;
//   - a batch that is much work takes turns with others, and holds up none;
//   - no reply becomes bytes before the size is known, and on the way between two nodes a
//     small reply does not wait for a large reply.
//
// The package does not know what a command means (package fsm), how clients speak (server/frontend), what raft
// needs (server/raftnode), how batches travel between nodes (server/forward), nor where connections
// and disks come from: these are values in [Config].
//
// # The way of a batch
//
//	Execute ─► queue of writes ─┬─► proposer ─► raftnode ─► state ─► fsm.Machine ─► sink ─► queue: replies
//	  (any node)                │    (leader)                                        │
//	                            └─► forward.Client ═══► forward.Receiver ─► proposer    └─► forward.Peer ═══► queue
//	                                 (follower)          (leader)
//
//	Execute ─► reader ─► round ─► fsm.Machine.Read          on the leader
//	                └─► queue of reads ─► forward.Client ═══► forward.Peer ─► reader ═══► queue
//
// Batches wait in a [queue]. The leadership says where they go from there: to the
// proposer, if this node leads, or over the link to the leader. When that changes, the next consumer begins
// with the first batch that has no reply. A failover is no more than that: the
// same batches, with the same numbers, taken again.
//
// # Goroutines
//
// Run starts all but some of raftnode's, each once. The end of Run's context ends them.
//
//	leadership.run   watches raft: makes this node serve, follow or wait
//	proposer.run     makes log entries while this node leads
//	rounds.run       leadership checks for reads
//	ticker.run       looks at cluster time and has it stamped, while leading
//	timeouts.run     time limits of what waits
//	waiting.run      clients that wait for keys, on nodes that are silent
//	sessions         three, see there
//	forward          several for each link, see there
//	raftnode         several, see there; one of them calls state, and raft's own tells of other members
//
// # Lock order
//
// A lock is held only while locks to its right are taken:
//
//	state.digesting ─► fsm.Machine ─► forward.Receiver ─► queue.mu
//	                               ├► forward's outbox
//	                               ├► sessions.Waiters, sessions.Renewer
//	                               └► what Config.OnStateEvents and the waiting clients take
//	forward.Client ─► queue.mu
//
// All others (rounds, watermark, gate, clock, addresses, health, and raftnode's) are
// leaves: nothing is locked, called or waited for under them. Events are told
// without any lock held.
//
// Start reading at [Replica.Execute], then queue.go, leadership.go, propose.go,
// machine.go, rounds.go, reads.go; open.go makes the parts, and parts.go says what each is handed. Files use only
// files below them, in this order: open, transfer, parts, what callers use, replica, the parts, what parts share.
// DESIGN.md has the reasons.
package replica
