package frontend

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
)

// A node that has just started, or had no leader, first applies old entries. Subscribers must not get the messages of
// those entries: they were published before the subscription, and the client may have received them from another node.
// So the first subscription after such a time waits for an entry of its own, which follows all that was acknowledged
// before. Later subscriptions do not wait, since the node follows the leader closely.

// freshness records whether the node has caught up with the leader.
type freshness struct {
	mu sync.Mutex
	// changes counts the changes of the leadership. upTo is the count at which the node had caught up.
	changes, upTo uint64
	// catching is full while a caller of catchUp waits for an entry.
	catching chan struct{}
}

// changed records a change of the leadership, after which the node may be behind.
func (f *freshness) changed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes++
}

// stale reports whether the node may be behind, and returns the count of changes.
func (f *freshness) stale() (changes uint64, yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changes, f.changes != f.upTo
}

func (f *freshness) reached(changes uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.upTo = changes
}

// catchUp waits until the node has caught up. An error is the reply to the command.
func (s *Server) catchUp(ctx context.Context) *protocol.Error {
	if _, stale := s.fresh.stale(); !stale {
		return nil
	}
	select {
	case s.fresh.catching <- struct{}{}:
		defer func() { <-s.fresh.catching }()
	case <-ctx.Done():
		return protocol.ErrLoading
	}
	changes, stale := s.fresh.stale()
	if !stale {
		return nil
	}
	batch := replica.Batch{Body: protocol.AppendTransaction(nil, 0, nil, nil), Count: 1, Write: true}
	if err := s.backend.Execute(&batch); err != nil {
		return refusalOf(err)
	}
	if !s.backend.AwaitApplied(ctx, batch.Number) {
		return protocol.ErrLoading
	}
	s.fresh.reached(changes)
	return nil
}

// refusalOf converts an error of the cluster to the reply of a command about subscriptions. It returns nil for nil.
func refusalOf(err error) *protocol.Error {
	var known *protocol.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known) && known.Outcome == protocol.OutcomeNone:
		return known
	}
	return protocol.ErrLoading
}
