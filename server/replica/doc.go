// Package replica is one member of the cluster: it takes batches of commands from
// connections, has them applied in the one order that all members agree on,
// and answers them, whichever member leads and whoever dies meanwhile.
//
// It promises:
//   - a write that is acknowledged is on the disks of a majority, and was applied
//     once, although it may have been proposed several times over failovers;
//   - a read sees every write that was acknowledged before it began, on any node;
//   - an error row's outcome is true: "none" is said of a batch only that never was
//     handed to anybody who could propose it;
//   - leases are counted in cluster time, which only a leader's stamps advance,
//     and never faster than that leader's monotonic clock;
//   - when there is nothing to do nothing is written, and what waits is bounded;
//   - a batch that is much work takes turns with others: it does not hold them up;
//   - no reply becomes bytes before its size is known, and on the way between two nodes a
//     small one does not wait for a large one.
//
// It does not know what a command means (package fsm), how clients speak
// (server/frontend), what raft needs (server/raftnode), nor where connections between nodes and disks come from: these
// are values in [Config].
//
// # The way of a batch
//
//	Execute ─► queue of writes ─┬─► proposer ─► raft ─► state ─► fsm.Machine ─► sink ─► queue: replies
//	  (any node)                │    (leader)                        │
//	                            └─► link ═══► inbox ─► proposer      └─► inbound ═══► link ─► table
//	                             (follower)  (leader)
//
//	Execute ─► round ─► fsm.Machine.Read          on the leader
//	        └► table of reads ─► link ═══► inbound ─► round ─► fsm.Machine.Read ═══► link ─► table
//
// Batches wait in a [table]. The leadership says who takes them from there: the
// proposer, if this node leads, or the link to the leader. When that changes, the next one
// begins with the first batch that has no reply. So that is all a failover is: the
// same batches, with the same numbers, taken again.
//
// # Goroutines
//
// Run starts all but some of raftnode's, each once, and ends them with its context.
//
//	leadership.run         turns the node with raft: serves, follows, waits
//	proposer.run     makes log entries while this node leads
//	rounds.run       leadership checks for reads
//	ticker.run       looks at cluster time and has it stamped, while leading
//	sweeper.run      time limits of what waits
//	link.run         connects to the leader, and sends; one more per connection listens
//	inbox.run        accepts links; three more per link listen, send, and answer reads;
//	                 one more per open WAIT
//	raftnode         its own, see there; one of them calls state
//
// # Lock order
//
// Whoever holds a lock takes only locks to the right of it:
//
//	state.digesting ─► fsm.Machine ─► inbox.mu ─► table.mu
//	                               └► outbox.mu
//	link.mu ─► session.mu
//	        └► table.mu
//
// All others (inbound, rounds, watermark, gate, clock, addresses, health, and raftnode's) are
// leaves: nothing is locked, called or waited for under them. Events are told
// without any lock held.
//
// Start reading at [Replica.Execute], then table.go, helm.go, propose.go,
// machine.go, reads.go. DESIGN.md has the reasons.
package replica
