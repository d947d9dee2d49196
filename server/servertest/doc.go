// Package servertest runs whole clusters in virtual time, for the tests of
// package server: real replicas on real hashicorp/raft, the real peer port with
// its handshake, real connections to clients; only the network, the disks and the clocks are
// simulated, and can be made to misbehave.
//
// It promises that inside a testing/synctest bubble nothing waits in real time,
// that a crashed node leaves only its disk behind, that every node has the timeouts
// and limits that an operator gets who sets no flag, and that all goroutines have ended
// when the test ends. It does not promise that two runs are alike: raft draws its
// timeouts from a source that cannot be seeded.
//
// Package server listens on sockets and opens folders. So the nodes are those of package replicatest, and
// their clients' side is put together here as server.New does it.
//
// # Transcripts
//
// [Play] plays a story of a cluster. A line is a comment, a word from the list
// below, or a command that a client sends:
//
//	a@n1 SET k v          client a, connected to node n1, sends a command. It keeps its connection
//	                      as long as it names the same node. Words may be Go strings in double quotes
//	a@n1!3 GET k          it speaks RESP3
//	a@n2 PTTL k ~ 10..20  a number from 10 to 20 is printed so: for what depends on how long an election takes
//
// What is answered stands below the line, indented, as redis-cli prints it; why
// there is no answer, in brackets. The words:
//
//	cluster 3             a cluster of three fresh nodes n1, n2, n3. Whoever was elected, n1 leads when a
//	                      minute has passed. Options: command=2.5s trailing=16384 snapshot-entries=65536
//	                      max-memory=10kb max-memory.n2=20kb
//	pipeline a@n1 { A ; B }   several commands in one write
//	async a@n1 A          a command whose reply is not waited for
//	await a [1s..2s]      the reply to it, which must come that long after the command; 0s: is it there?
//	raw a@n1 A            a reply as the bytes that came
//	advance 5s            time passes
//	leader [n1]           waits until a node leads, and prints whether it is n1
//	lead n1               has n1 take over from whoever leads
//	transfer              has the leader hand over to whom raft chooses
//	partition n1 n2       nothing passes between these nodes and the others. Clients reach all
//	one-way n1 n2         nothing passes from n1 to n2
//	heal                  the network is whole again
//	crash n1 n2           kill -9: their memory is gone, and their connections; "all" is all
//	restart n1 n2         new processes on the same disks
//	stop n1               SIGTERM
//	snapshot n1           a node takes a snapshot and cuts its log
//	installed n1          how many snapshots it has started from, other nodes' or its own
//	wall-clock n1 +1h     its wall clock jumps
//	rate n1 1.1           its monotonic clock runs faster
//	disk n1 hang|error|ok what happens to appends on its disk, until it crashes
//	deaths n1             why it ended by itself
//	state [n1 n2]         all keys, and that these nodes (all that run) have the same state
//	log                   how many entries have been written since this was asked last
//
// A node may also be called "leader". Which node leads after an election is a matter of chance, so
// a transcript either does not depend on it or uses lead.
//
// Start reading at [New]; then server/testdata, which is what it is for.
package servertest
