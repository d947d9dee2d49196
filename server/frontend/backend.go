package frontend

import (
	"context"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/server/replica"
)

// Backend is the cluster, as a connection sees it. [replica.Replica] is one.
type Backend interface {
	// Execute runs a batch. It returns nil and a reply for each request, or an error for all of
	// them: a *protocol.Error is sent to the client as it is. After a nil error nothing keeps the batch's Body; after an
	// error something may, so the caller must not reuse it. Replies never share memory with Body.
	Execute(u *replica.Batch) error
	// Status is the node's view of the cluster.
	Status() replica.Status
	// Stats counts what the node's copy of the state holds, for INFO.
	Stats() fsm.Stats
	// AwaitApplied waits until the node's copy of the state has the write of that number (Batch.Number), or for as long as
	// a command may take.
	AwaitApplied(ctx context.Context, number uint64)
	// WaitReplicated waits until n other nodes have everything that was acknowledged up to now, the
	// timeout has passed (0: none) or ctx has ended, and returns how many have.
	WaitReplicated(ctx context.Context, n int, timeout time.Duration) int
}
