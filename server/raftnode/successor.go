package raftnode

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/members"
)

const (
	// successorLag is how many entries a voter may still have to apply when it is asked to lead. An entry may hold
	// thousands of commands.
	successorLag = 16
	// askAgain is the pause before a voter that lags is asked again.
	askAgain = 50 * time.Millisecond
)

// Successor waits until the voter of that ID, or, without an ID, any other voter, has applied nearly all that this leader
// has applied, or had when Successor was called, and returns whom raft is to hand over to: a node that was started a
// moment ago has the log, and would lead for seconds without serving anybody. Raft chooses, "", if no ID was asked for and
// none of those that answer lags. An error says how far a voter has come when ctx ends.
func (n *Node) Successor(ctx context.Context, id string) (string, error) {
	target := n.applier.index.Load()
	for {
		ready, lags := n.candidates(ctx, id, target)
		switch {
		case len(lags) == 0 || n.raft.State() != raft.Leader:
			return id, nil
		case len(ready) > 0:
			return slices.Min(ready), nil
		}
		timer := time.NewTimer(askAgain)
		select {
		case <-timer.C:
		case <-n.stopped:
			timer.Stop()
			return id, nil
		case <-ctx.Done():
			timer.Stop()
			return "", fmt.Errorf("%s has applied the log up to %d of %d: %w", members.Name(lags[0].id), lags[0].applied, n.applier.index.Load(), ctx.Err())
		}
	}
}

// candidates asks the voter of that ID, or all others, how much they have applied. Those that do not answer within a
// quarter of the election timeout are left out.
func (n *Node) candidates(ctx context.Context, id string, target uint64) (ready []string, lags []candidate) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.config.ElectionTimeout/4)
	defer cancel()
	own := proposal{candidate: n.failover.candidate()}
	var mu sync.Mutex
	var asks sync.WaitGroup
	for _, m := range n.Configuration().Members {
		if !m.Voter || m.ID == n.config.ID || id != "" && m.ID != id {
			continue
		}
		asks.Go(func() {
			c, _, err := n.failover.send(ctx, m.ID, own)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
			case c.tells && c.applied < target && c.applied+successorLag < own.applied:
				lags = append(lags, c)
			default:
				ready = append(ready, c.id)
			}
		})
	}
	asks.Wait()
	return ready, lags
}
