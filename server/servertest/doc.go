// Package servertest runs whole clusters in virtual time, for the tests of
// package server: real replicas on real hashicorp/raft, the real peer port with
// its handshake, real connections to clients; only the network, the disks and the clocks are
// simulated, and can be made to misbehave.
//
// The package promises that inside a testing/synctest bubble nothing waits in real time,
// that a crashed node leaves only a disk behind, that every node has the timeouts
// and limits that an operator gets without flags, and that all goroutines have ended
// when the test ends. The package does not promise that two runs are alike: goroutines
// interleave at will. replicatest.Seed draws raft's timeouts.
//
// Package server listens on sockets and opens folders. So the nodes come from package replicatest, and
// the clients' side is put together here as in server.New.
//
// # Transcripts
//
// [Play] plays a story of a cluster. A line is a comment, a word from the list
// below, or a command that a client sends:
//
//	a@n1 SET k v          client a, connected to node n1, sends a command. The client keeps the connection
//	                      until it names another node. Words may be Go strings in double quotes
//	a@n1!3 GET k          the client speaks RESP3
//	a@sentinel:n1 PING    a client of the port for Sentinel's clients
//	a@n2 PTTL k ~ 10..20  a number from 10 to 20 is printed so: for what depends on how long an election takes
//
// What is answered stands below the line, indented, as redis-cli prints it; why
// there is no answer, in brackets. The words:
//
//	cluster 3             a cluster of three fresh nodes n1, n2, n3. Whichever node was elected, n1 leads when a
//	                      minute has passed. Options: command=2.5s trailing=16384
//	                      max-memory=10kb max-memory.n2=20kb mode=cluster
//	pipeline a@n1 { A ; B }   several commands in one write
//	async a@n1 A          a command whose reply is not waited for
//	await a [1s..2s]      the reply to it, which must come that long after the command; 0s: is there a reply?
//	hang-up a             the client closes its connection, also while it waits for a reply
//	hear a                what the client has got beside replies, such as messages that it has subscribed to
//	raw a@n1 A            a reply as the bytes that came
//	advance 5s            time passes
//	leader [n1]           waits until a node leads, and prints whether n1 leads
//	lead n1               has n1 take over from the leader
//	transfer              has the leader hand over to a node of raft's choice
//	partition n1 n2       nothing passes between these nodes and the others. Clients reach all
//	one-way n1 n2         nothing passes from n1 to n2
//	heal                  the network is whole again
//	crash n1 n2           kill -9: their memory is gone, and their connections; "all" is all
//	restart n1 n2         new processes on the same disks
//	stop n1               SIGTERM
//	snapshot n1           a node takes a snapshot and cuts the log
//	installed n1          how many snapshots the node has started from, other nodes' or own
//	wall-clock n1 +1h     the wall clock jumps
//	disk n1 hang|error|ok what happens to appends on the disk, until a crash
//	deaths n1             why the node ended by itself
//	state [n1 n2]         all keys, and that these nodes (all that run) have the same state
//	log                   how many entries have been written since the last such line
//
// A node may also be called "leader". Which node leads after an election is a matter of chance, so
// a transcript either does not depend on the choice or uses lead.
//
// Start reading at [New]; then server/testdata, the transcripts of this package's users.
package servertest
