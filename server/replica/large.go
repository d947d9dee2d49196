package replica

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/holdfast/holdfast/protocol"
)

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
