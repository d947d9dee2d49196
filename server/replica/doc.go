// Package replica is a member of the cluster. A replica gets batches of commands from connections, has them applied in
// an order that all members agree on, and returns the replies of each batch, whichever member leads and whichever dies
// meanwhile.
//
// It promises:
//   - an acknowledged write is on the disks of a majority, and was applied once, even if failovers have had it proposed
//     several times;
//   - a read on any node has every write that was acknowledged before the read began;
//   - an error row's outcome is true: "none" is only for requests that surely were not and will not be applied;
//   - a majority of the voters that the log has at that instant confirms each read and write;
//   - leases are counted in cluster time, which only a leader's stamps advance, never faster than its monotonic clock;
//   - members have equal captures of the state at the index of an entry that asks for one;
//   - a census, a question about clients that the leader has every node answer, leaves out no node that has any;
//   - a node in quarantine serves nobody, and transfers its leadership;
//   - an idle cluster writes nothing, and all queues are bounded;
//   - a batch with much work takes turns with others, and delays none for long;
//   - a reply is encoded only after its size is known, and between two nodes no small reply waits for a large one.
//
// The package does not know what a command means (package fsm), how clients speak (server/frontend), what raft needs
// (server/raftnode), how batches travel between nodes (server/forward), or where connections and disks come from: these
// are values in [Config].
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
// Batches wait in a [queue]. Its consumer is the proposer if this node leads, and otherwise the link to the leader. At
// a failover the next consumer takes all batches without a reply again, with the same numbers.
//
// # Goroutines
//
// Run starts all but some of raftnode's, each once. The end of Run's context ends them.
//
//	leadership.run   watches raft: makes this node serve, follow or wait
//	proposer.run     makes log entries while this node leads
//	rounds.run       leadership checks for reads
//	ticker.run       requests stamps of cluster time while this node leads
//	watchDisk        whether disks are nearly full
//	timeouts.run     time limits of batches and proposals
//	askOthers        now and then, one at a time, for leadership and timeouts: has another voter lead
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
// All others (rounds, watermark, gate, clock, addresses, health, and raftnode's) are leaves: nothing is locked, called
// or waited for under them. Events are emitted without any lock held.
//
// Start reading at [Replica.Execute], then queue.go, leadership.go, propose.go, machine.go, rounds.go, reads.go.
// open.go creates the parts, and parts.go has the functions that each gets. A file uses only files after it in this
// order: open, transfer, parts, the files of exported calls, replica, the parts, and what the parts share. DESIGN.md
// has the reasons.
package replica
