package server

import (
	"fmt"

	"github.com/holdfast/holdfast/server/members"
)

// Descriptors that a node keeps for itself.
const (
	// nodeDescriptors are for the ports, the log's segments, a manifest, the snapshots that are
	// written, sent and received, and Go's runtime.
	nodeDescriptors = 64
	// peerDescriptors are for the connections with one other node, in both directions.
	peerDescriptors = 16
	// strangerDescriptors are for connections on the peer port that have not authenticated.
	strangerDescriptors = 128
	// minDescriptors is the lowest limit with which a node starts.
	minDescriptors = 64
)

// fitClients returns how many clients a node can have at a time: as many as wanted, or as the limit
// of open files leaves room for. The node's own reserve takes at most half of a low limit. refusals
// are connections that are open until they have been refused. Go's runtime has raised the soft limit to the hard one.
func fitClients(wanted, refusals int, limit uint64) (int, error) {
	if limit < minDescriptors {
		return 0,
			fmt.Errorf("the limit of open files is %d, which is not enough: raise it (ulimit -n) to at least %d, better %d",
				limit, minDescriptors, wanted+reserve(refusals))
	}
	kept := min(uint64(reserve(refusals)), limit/2)
	return int(min(uint64(wanted), limit-kept)), nil
}

// reserve is for as many members as there may be, since they come while clients are connected.
func reserve(refusals int) int {
	return nodeDescriptors + (members.Max-1)*peerDescriptors + strangerDescriptors + refusals
}
