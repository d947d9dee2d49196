package server

import "fmt"

// What a node must be able to open whatever its clients do.
const (
	// nodeDescriptors are its ports, its log's segments, a manifest, the snapshots that are
	// written, sent and received, and what the runtime has.
	nodeDescriptors = 64
	// peerDescriptors are the connections to one other node and from it.
	peerDescriptors = 16
	// strangerDescriptors are the connections on the peer port that have not shown who they are.
	strangerDescriptors = 128
	// leastDescriptors are so few that a node would be of no use.
	leastDescriptors = 64
)

// fitClients returns how many clients a node can have at a time: as many as are wanted, unless the
// limit of open files leaves no room for them beside what the node itself needs, which is kept from
// half of a low limit. Go's runtime has raised the limit as far as it may be.
func fitClients(wanted, nodes, turnedAway int, limit uint64) (int, error) {
	if limit < leastDescriptors {
		return 0, fmt.Errorf("the limit of open files is %d, which is not enough: raise it (ulimit -n) to at least %d, better %d",
			limit, leastDescriptors, wanted+reserve(nodes, turnedAway))
	}
	kept := min(uint64(reserve(nodes, turnedAway)), limit/2)
	return int(min(uint64(wanted), limit-kept)), nil
}

func reserve(nodes, turnedAway int) int {
	return nodeDescriptors + (nodes-1)*peerDescriptors + strangerDescriptors + turnedAway
}
