package server

import (
	"fmt"

	"github.com/holdfast/holdfast/server/members"
)

// Descriptors that a node keeps for itself.
const (
	// nodeDescriptors are for the ports, a manifest, the snapshots that are written, sent and received, and Go's runtime.
	nodeDescriptors = 64
	// logDescriptors are for the log's segments, which stay open: 1 GiB that a member still needs, and 256 MiB until the
	// next snapshot, in segments of 4 MiB at least, as a batch of more has a segment of its own.
	logDescriptors = (1<<30 + 256<<20) / (4 << 20)
	// peerDescriptors are for the connections with one other node, in both directions.
	peerDescriptors = 16
	// strangerDescriptors are for connections on the peer port that have not authenticated.
	strangerDescriptors = 128
	// minDescriptors is the lowest limit with which a node starts.
	minDescriptors = 64
	// clientsDivisor: clients get at least the limit divided by it.
	clientsDivisor = 8

	// reserve is for as many members as there may be, since they come while clients are connected.
	reserve = nodeDescriptors + logDescriptors + (members.Max-1)*peerDescriptors + strangerDescriptors
)

// fitClients returns how many clients a node can have at a time: as many as wanted, or as the limit of open files leaves
// room for. The node's own reserve takes at most half of a low limit. refusals are connections that are open until they
// have been refused: they take from the clients' half, so that a flood of connections leaves the node its log and its
// peers. Go's runtime has raised the soft limit to the hard one.
func fitClients(wanted, refusals int, limit uint64) (int, error) {
	if limit < minDescriptors {
		return 0,
			fmt.Errorf("the limit of open files is %d, which is not enough: raise it (ulimit -n) to at least %d, better %d",
				limit, minDescriptors, wanted+reserve+refusals)
	}
	kept := min(reserve, limit/2) + uint64(refusals)
	return int(min(uint64(wanted), max(limit, kept+limit/clientsDivisor)-kept)), nil
}
