// Package raftnode runs a member's raft: hashicorp/raft with transport, log and stores, and with the guarantees below,
// which raft alone does not give.
//
// It promises:
//   - an entry that is applied to the [Machine] is on the disks of a majority, the leader's among them, although the
//     leader's disk and the followers' work at the same time;
//   - every node applies the same entries in the same order, and no entry whose term is not the term of the proposal;
//   - a round that is confirmed was confirmed by requests that were sent after the round began;
//   - the machine is never restored from a snapshot that is older than its state, except in quarantine;
//   - a follower whose log lacks the entries of its snapshot can follow any leader;
//   - a request to a follower, the entries in memory and the log behind a snapshot are bounded by bytes;
//   - a subscribed follower learns of a commit one hop after the leader has applied the entry;
//   - majorities are of the voters in the configuration in effect, the newest in this node's log; a member without a
//     vote confirms nothing and does not lead;
//   - a node in quarantine applies nothing, sends no state and is not nominated; its log is as good as any, and it
//     stores entries and votes;
//   - a leader whose process died is replaced without a timeout if a majority sees that the process is gone;
//   - a node that fails to store an entry calls [Config].Fail, and raft draws no conclusion from that entry.
//
// Entries are opaque to the package. Clients' requests, the decision to serve, connections and disks are the owner's,
// by [Config].
//
// # The path of an entry
//
//	Propose ─► raft ─┬─► parallelLog ─► disk                               leader
//	                 └─► transport ─► appender ═══╗         acks ◄─ answers
//	                                              ║
//	                   rpcFilter ◄─ serveAppends ◄╝                        follower
//	                       └─► raft ─► parallelLog ─► disk
//
//	raft ─► applier ─► Machine                                             every node
//
// # Goroutines
//
// [Node.Start] starts the first group, each once. The end of the context ends them.
//
//	rpcFilter.acceptAppends  takes other nodes' entries and heartbeats; one more per connection
//	rpcFilter.beat           hands raft heartbeats that were answered
//	rpcFilter.run            hands raft what else other nodes ask of it
//	fastFailover.run         asks around when the leader's process is gone; one more per node asked
//	applier.snapshotBySize           snapshots of large entries
//	commitNotifier.run       sends the commit index to subscribed followers; one more per other member
//	sendRemovalNotices       sends removed members a notice
//	electAlone               has a lone voter elected, and ends
//
//	pipeline.write           sends a member that is far away its requests
//	pipeline.receive         takes the answers; both end when raft has closed the pipeline and nothing is on its way
//	parallelLog.write        brings what a leader appended to the disk; ends when all is there
//	raft                     several; one of them calls the Machine, several call transport and parallelLog
//
// # Lock order
//
// rpcFilter.installing is held until raft accepts the request, which is when the previous one is done. A pipeline's
// lock is taken before those of acks and appender. All others (acks, configurations, parallelLog, appender,
// fastFailover, progress) are leaves: under them only raft's term and leader and the store's first and last index are
// read. Events are reported without a lock.
//
// Start reading at [Open], then node.go, transport.go, pipeline.go, rpc_filter.go, parallel_log.go, acks.go,
// configurations.go, change.go. Files use only files below them: open, what the owner calls, node, the parts, what
// parts share. DESIGN.md has the reasons.
package raftnode
