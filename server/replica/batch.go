package replica

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
)

// Batch is what a connection submits at a time: the data commands of a pipeline, in order. When the
// work fits the budget of an entry, all commands are applied in one entry, or read at one instant;
// else the rest follows in later entries.
type Batch struct {
	// Body holds the requests, as protocol.AppendRequest wrote them.
	Body []byte
	// Count is the number of requests in Body.
	Count int
	// Write is set when at least one request must go through the log. The other requests of the
	// batch then travel in the same entry, and a read sees the writes before it.
	Write bool
	// Hints are for those that schedule the batch.
	Hints protocol.Hints
	// Replies holds, after Execute returned nil, one reply per request.
	Replies []protocol.Value
	// Number is, after Execute returned nil for a write, what [Replica.AwaitApplied] wants to know.
	Number uint64
	// OnNumber, if not nil, is told each number under which a part of a batch with writes is proposed,
	// before that. It must be quick, and not call the replica.
	OnNumber func(number uint64)
}

// largeBatches lets batches in that are a good part of an entry: a few at a time, in the order of their
// arrival. Small batches pass those that wait here. In the queue a hundred large ones would stand before
// a small one, each with an entry of its own.
type largeBatches struct {
	room  *semaphore.Weighted // in bytes
	limit int64               // of room
	least int                 // the bytes from which a batch is large
}

// newLargeBatches has room for two entries: the present entry, and the next.
func newLargeBatches(entryBytes int) *largeBatches {
	limit := 2 * int64(entryBytes)
	return &largeBatches{room: semaphore.NewWeighted(limit), limit: limit, least: entryBytes / 16}
}

// enter waits until there is room for b, at the deadline at most. The caller calls leave when b is
// answered. The error is a row: b was not applied.
func (l *largeBatches) enter(b *Batch, deadline time.Time) (leave func(), err error) {
	if len(b.Body) < l.least {
		return func() {}, nil
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	size := min(int64(len(b.Body)), l.limit)
	if l.room.Acquire(ctx, size) != nil {
		return nil, protocol.ErrBusy
	}
	return func() { l.room.Release(size) }, nil
}

// errReroute never reaches a client: the batch is run again where it belongs.
var errReroute = forward.ErrElsewhere

// Answers to commands without a reply, beside protocol's rows.
var (
	errInternal = &protocol.Error{Prefix: "ERR", Text: "internal error, see this node's log"}
	errTooLarge = &protocol.Error{
		Prefix: "ERR",
		Text:   "the commands of this pipeline are too large to be applied together",
	}
)
