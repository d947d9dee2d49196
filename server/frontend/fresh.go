package frontend

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
)

// A node that has just started, or had no leader, applies entries of long ago before it is abreast of the
// others. Subscribers must not hear the messages of those entries: they were published before the
// subscription, and the client may have heard them on another node. So the first subscription since then
// waits for an entry of its own, which stands behind all that was acknowledged before. After that the node
// follows the leader closely, and subscriptions cost nothing.

// freshness is whether the node is abreast of the others.
type freshness struct {
	mu sync.Mutex
	// changes counts the changes of the leadership, upTo is the count for which the node is abreast.
	changes, upTo uint64
	// catching is full while an entry is waited for.
	catching chan struct{}
}

// changed notes that the node may be behind from now on.
func (f *freshness) changed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes++
}

// stale returns whether the node may be behind, and the count of changes.
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

// catchUp waits until the node is abreast of the others. The error is what a command that needs that is
// answered with.
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

// refusalOf is the answer to a command about subscriptions that needed the cluster; nil: there was no error.
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
