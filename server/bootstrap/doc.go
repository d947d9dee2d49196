// Package bootstrap brings a node into a cluster: the node founds one together with the other nodes of its initial
// cluster, or asks a cluster to take it in; and afterwards it keeps the node's address and vote in the cluster up to
// date.
//
// It promises:
//   - a cluster is founded once: by one of the nodes of the initial cluster, when each of them has shown an empty
//     folder and the same initial cluster, and with the IDs of these folders. An emptied folder has no part in a
//     cluster that was founded before, whatever its name: the node says so and ends;
//   - a node can be killed between any two steps, and started again: what is on its disk leads on;
//   - a node with contacts joins if any node that it was told of belongs to a cluster. It founds one only with the
//     nodes of its initial cluster, and only when its contacts have said that they belong to none;
//   - a node asks to be taken in until it is, and is told why not in one line;
//   - a node that comes back at another address tells the others, who find it there at once, and has the cluster agree
//     on the address, so that all nodes can move at the same time as long as they find one another by an address given
//     at the start;
//   - a member whose newest snapshot is damaged at the start gets the state of another one before its raft is opened,
//     or waits for it, or ends with one line that says why no member has it;
//   - members that changed while a node was away are met as soon as it meets, or is met by, a member that knows them;
//   - a node that was removed learns so: from a node that has proved itself, and that knows a newer committed
//     configuration without the node.
//
// # Bootstrap
//
// All nodes of the initial cluster ask each other "introduce", again and again, and answer. There is no other message:
// what a node does follows from what is on the others' disks.
//
//	the founder (the smallest name)                    another node
//	all others are fresh, and agree ─► its identity:   a node belongs to a cluster that has this
//	cluster ID and founders, durable                   node's ID among its founders ─► the same identity
//	      └────────── "introduce" shows it ──────────────────┘
//	raft's first entry, of the founders                raft's first entry, of the founders
//
// A majority of the initial cluster does not suffice, although it would for raft: an empty folder may be an emptied
// one. Say that n1 and n2 found a cluster, and n3 is not there yet. If n1 loses its disk, and n2 is down for a while,
// then n1 and n3 are a majority, both are fresh, and would found another cluster. Locks that n2 knows of would be given
// away again. With all nodes, a single folder that is left prevents that. A cluster that is to begin with fewer nodes
// begins with one, which the others join.
//
// Raft's first entry is made of the founders whenever raft has none, so that a power cut between identity and
// entry does no harm.
//
// Folders that were restored from a backup with --initial-cluster show a digest of their state, the seed. If all have
// the same they found as above, with the restored state in the place of raft's first entry. If one alone has a seed, it
// founds alone, once all have answered, and the others join it. Else they wait, and say for what. A folder that was
// restored without --initial-cluster belongs to a cluster of its own from the start.
//
// Goroutines: [Node.EnterCluster] and [Node.WatchMembership] run on their callers', and have one for each node that
// they ask. Locks: Node.mu is a leaf.
//
// Package server runs it. Start reading at enter.go.
package bootstrap
