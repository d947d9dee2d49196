package raftnode

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/members"
)

// TransferTo has a voter lead in the place of this node: the voter of that ID, or, without an ID, the voter with the
// longest log. It gets what it lacks of the log, and is told to stand for election. TransferTo returns when gone is
// closed, and otherwise after three election timeouts at most; an error says why the voter was not told, or did not
// answer. The caller proposes nothing meanwhile, so that the voter's log stays the longest.
//
// Raft's own transfer is not used. A second one to a node that does not answer never ends, and as long as a transfer
// goes on raft refuses entries, in later terms, too: hashicorp/raft#696.
func (n *Node) TransferTo(ctx context.Context, id string, gone <-chan struct{}) error {
	if err := n.hold(ctx); err != nil {
		return err
	}
	defer n.release()
	term, leading := n.Leading()
	if others := n.votersByLog(term); id == "" && len(others) > 0 {
		id = others[0].ID
	}
	switch m, ok := n.Configuration().Find(id); {
	case !ok:
		return fmt.Errorf("%s: %w", id, ErrNotMember)
	case !m.Voter:
		return fmt.Errorf("%s: %w", id, ErrNotVoter)
	case id == n.config.ID || !leading:
		return nil
	}
	if has, err := n.catchUp(ctx, term, raft.ServerID(id), gone); !has {
		return err
	}
	return n.nominate(ctx, id, gone)
}

// catchUp waits until a voter has this leader's log, for an election timeout at most. If the leadership ends before,
// has is false, and there is no error.
func (n *Node) catchUp(ctx context.Context, term uint64, id raft.ServerID, gone <-chan struct{}) (has bool, err error) {
	last := n.Last()
	reached := n.acks.awaitPeer(id, term, last)
	defer reached.End()
	timer := time.NewTimer(n.config.ElectionTimeout)
	defer timer.Stop()
	select {
	case <-reached.Done():
		return true, nil
	case <-gone:
		return false, nil
	case <-n.stopped:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-timer.C:
		return false, fmt.Errorf("%s has the log up to %d of %d", members.Name(string(id)), n.acks.agreed(id, term), last)
	}
}

// nominate has a voter stand for election, and waits until gone says that this node leads no more, for two election
// timeouts at most.
func (n *Node) nominate(ctx context.Context, id string, gone <-chan struct{}) error {
	answer := make(chan error, 1)
	go func() { answer <- n.transport.nominate(id) }() // ends after an election timeout
	timer := time.NewTimer(2 * n.config.ElectionTimeout)
	defer timer.Stop()
	for {
		select {
		case err := <-answer:
			if err != nil {
				return fmt.Errorf("nominate %s: %w", members.Name(id), err)
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-gone:
			return nil
		case <-n.stopped:
			return nil
		case <-timer.C:
			return nil
		}
	}
}

// GiveUp has the other voters stand for election, the one with the longest log first, until gone says that this node
// leads term no more. It returns the names of those that were asked.
//
// Heartbeats keep a leadership that commits nothing: small packets pass where large ones are lost, and a small one
// behind a large one waits for good. [Node.TransferTo] waits until the other has the whole log, which is just what
// does not happen. What was not committed, the nodes that took it send to the next leader.
func (n *Node) GiveUp(term uint64, gone <-chan struct{}) (asked []string) {
	for _, m := range n.votersByLog(term) {
		asked = append(asked, m.Name())
		_ = n.nominate(context.Background(), m.ID, gone) // gone says whether it was elected
		select {
		case <-gone:
			return asked
		case <-n.stopped:
			return asked
		default:
		}
	}
	return asked
}

// votersByLog returns the other voters, the one with the longest log first, as far as this leader of term knows.
func (n *Node) votersByLog(term uint64) []members.Member {
	matches := n.acks.matches(term)
	others := slices.DeleteFunc(slices.Clone(n.Configuration().Members), func(m members.Member) bool {
		return !m.Voter || m.ID == n.config.ID
	})
	slices.SortStableFunc(others, func(a, b members.Member) int { return cmp.Compare(matches[b.ID], matches[a.ID]) })
	return others
}

// ReplayLag is how many entries a node that serves or leads soon may still have to apply. An entry may hold thousands
// of commands; and the state machine does not get every entry, so 0 would be too few.
const ReplayLag = 16

// askAgain is how often voters that lag are asked.
const askAgain = 50 * time.Millisecond

// Successor waits until a voter can serve soon after it is elected, and returns its ID for [Node.TransferTo]. A node
// that was started a moment ago has the log, must still apply it, and would lead for seconds without serving anybody.
// So the voter of that ID, or, without an ID, any other voter, must have applied nearly all that this leader has
// applied, or had applied when Successor was called. Of several the one with the longest log is taken. If no voter
// answers, the result is id. An error says how far a voter has come when ctx ends.
func (n *Node) Successor(ctx context.Context, id string) (string, error) {
	target := n.applier.index.Load()
	var ready, lags []candidate
	n.until(ctx, askAgain, func() bool {
		ready, lags = n.candidates(ctx, id, target)
		return len(ready) > 0 || len(lags) == 0 || n.raft.State() != raft.Leader
	})
	switch {
	case len(ready) > 0:
		best := ready[0]
		for _, c := range ready {
			if c.moreUpToDate(best) {
				best = c
			}
		}
		return best.id, nil
	case len(lags) > 0 && ctx.Err() != nil && n.raft.State() == raft.Leader:
		return "", fmt.Errorf("%s has applied the log up to %d of %d: %w", members.Name(lags[0].id), lags[0].applied,
			n.applier.index.Load(), ctx.Err())
	}
	return id, nil // no voter answers, or this node leads no more, or ends
}

// candidates asks the voter of that ID, or all others, how much they have applied. Those that do not answer within a
// quarter of the election timeout are left out.
func (n *Node) candidates(ctx context.Context, id string, target uint64) (ready, lags []candidate) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.config.ElectionTimeout/4)
	defer cancel()
	of := n.Configuration().Members
	if id != "" {
		m, _ := n.Configuration().Find(id)
		of = []members.Member{m}
	}
	own := n.failover.candidate()
	n.failover.poll(ctx, of, proposal{candidate: own}, func(c candidate, _ bool) {
		if c.applied < target && (c.applied+ReplayLag < own.applied || c.applied == 0) { // 0: in quarantine
			lags = append(lags, c)
		} else {
			ready = append(ready, c)
		}
	})
	return ready, lags
}
