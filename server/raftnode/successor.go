package raftnode

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/members"
)

// ReplayLag is how many entries a node that serves or leads soon may still have to apply. An entry may hold thousands
// of commands; and the state machine does not get every entry, so 0 would be too few.
const ReplayLag = 16

// askAgain is how often voters that lag are asked.
const askAgain = 50 * time.Millisecond

// Successor waits until a voter can serve soon after it is elected, and returns whom raft is to hand over to. A node
// that was started a moment ago has the log, must still apply it, and would lead for seconds without serving anybody.
// So the voter of that ID, or, without an ID, any other voter, must have applied nearly all that this leader has
// applied, or had applied when Successor was called. If no voter that answers lags, the result is id: without an ID
// raft chooses. An error says how far a voter has come when ctx ends.
func (n *Node) Successor(ctx context.Context, id string) (string, error) {
	target := n.applier.index.Load()
	var ready []string
	var lags []candidate
	n.until(ctx, askAgain, func() bool {
		ready, lags = n.candidates(ctx, id, target)
		return len(ready) > 0 || len(lags) == 0 || n.raft.State() != raft.Leader
	})
	switch {
	case len(lags) == 0:
		return id, nil
	case len(ready) > 0:
		return slices.Min(ready), nil
	case ctx.Err() != nil && n.raft.State() == raft.Leader:
		return "", fmt.Errorf("%s has applied the log up to %d of %d: %w", members.Name(lags[0].id), lags[0].applied,
			n.applier.index.Load(), ctx.Err())
	}
	return id, nil // this node leads no more, or ends
}

// candidates asks the voter of that ID, or all others, how much they have applied. Those that do not answer within a
// quarter of the election timeout are left out.
func (n *Node) candidates(ctx context.Context, id string, target uint64) (ready []string, lags []candidate) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.config.ElectionTimeout/4)
	defer cancel()
	of := n.Configuration().Members
	if id != "" {
		m, _ := n.Configuration().Find(id)
		of = []members.Member{m}
	}
	own := n.failover.candidate()
	n.failover.poll(ctx, of, proposal{candidate: own}, func(c candidate, _ bool) {
		if c.appliedKnown && c.applied < target && (c.applied+ReplayLag < own.applied || c.applied == 0) { // 0: in quarantine
			lags = append(lags, c)
		} else {
			ready = append(ready, c.id)
		}
	})
	return ready, lags
}
