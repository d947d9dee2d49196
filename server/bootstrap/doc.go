// Package bootstrap brings a node into a cluster: the node founds one together with the other nodes of its initial
// cluster, or joins an existing one. Afterwards it keeps the node's address and vote in the cluster up to date.
//
// It promises:
//   - a cluster is founded once, by one node of the initial cluster, after all of them have shown an empty folder and
//     the same initial cluster, and with the IDs of these folders. An emptied folder cannot enter a cluster that was
//     founded before, whatever its name: the node reports the reason and ends;
//   - a node can be killed between any two steps and started again: it continues with the state on its disk;
//   - a node with contacts joins if any of the nodes that it knows belongs to a cluster. It founds one only with the
//     nodes of its initial cluster, and only after its contacts have answered that they belong to none;
//   - a node repeats its request to join until it succeeds, and gets the reason of a refusal in one line;
//   - a node that restarts at another address announces it to the other nodes, which use it at once, and then has it
//     committed, so that all nodes can move at the same time if each can reach another by an address in its flags;
//   - a member whose newest snapshot is damaged at the start gets the state of another member before its raft is
//     opened, or waits for it, or ends with the reason why no member has it in one line;
//   - a node that was away learns of new members from the first member that it exchanges identities with;
//   - a removed node learns of its removal from an authenticated node with a newer committed configuration.
//
// # Bootstrap
//
// All nodes of the initial cluster repeatedly send each other "introduce" and answer. There is no other message: each
// step follows from the contents of all nodes' disks.
//
//	the founder (the smallest name)                    another node
//	all others are fresh, and agree ─► its identity:   a node belongs to a cluster that has this
//	cluster ID and founders, durable                   node's ID among its founders ─► the same identity
//	      └────────── "introduce" shows it ──────────────────┘
//	raft's first entry, of the founders                raft's first entry, of the founders
//
// A majority of the initial cluster does not suffice, although it would for raft, as an empty folder may be an emptied
// one. Suppose that n1 and n2 have founded a cluster without n3. If n1 loses its disk while n2 is down, n1 and n3 are a
// majority with empty folders, and would found a second cluster, which grants locks of the first one again. If all
// nodes are needed, a single surviving folder prevents that. A cluster can start with fewer nodes by starting with one,
// which the others join.
//
// Whenever raft has no first entry, it is derived from the founders, so that a power cut between identity and entry is
// harmless.
//
// Folders that were restored from a backup with --initial-cluster show a digest of their state, the seed. If all have
// the same seed, they found the cluster as above, with the restored state in place of raft's first entry. If only one
// has a seed, it founds the cluster alone once all have answered, and the others join it. Otherwise they wait, and log
// the reason. A folder that was restored without --initial-cluster belongs to a cluster of its own from the start.
//
// Goroutines: [Node.EnterCluster] and [Node.WatchMembership] run on their callers' goroutines, and start one for each
// node that they ask. Locks: Node.mu is a leaf.
//
// Package server runs it. Start reading at enter.go.
package bootstrap
