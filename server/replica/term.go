package replica

import "sync/atomic"

// leaderTerm is one leadership of this node, from when it may serve until it ends.
type leaderTerm struct {
	term  uint64
	clock *clusterClock
	gone  chan struct{} // closed when the leadership is over

	// inFlight counts entries that were given to raft and are not applied yet.
	inFlight atomic.Int32
	landed   chan struct{} // inFlight fell
	// progress is when inFlight last fell, or rose from none; nanoseconds of Unix time.
	progress atomic.Int64
	wanted   atomic.Int64 // cluster time that an entry is wanted to reach
	stamped  int64        // the newest stamp proposed; the proposer's own
	version  byte         // the newest version proposed; the proposer's own
}
