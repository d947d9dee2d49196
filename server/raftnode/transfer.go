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

// TransferTo transfers the leadership to the voter id, or, if id is empty, to the voter with the longest log. It waits
// until the voter has this leader's log, tells it to start an election, and returns when gone is closed, or with an
// error within three election timeouts. The caller must propose nothing meanwhile, so that the voter's log is complete.
//
// Raft's own transfer is not used. A second one to a node that does not answer never ends, and during a transfer raft
// refuses entries, even in later terms (hashicorp/raft#696).
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

// catchUp waits until a voter has this leader's log, for up to an election timeout. If the leadership ends first, has
// is false and the error nil.
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
		return false, fmt.Errorf("%s has the log up to %d of %d", members.Name(string(id)), n.acks.matchOf(id, term),
			last)
	}
}

// nominate tells a voter to start an election, and waits until gone is closed, for up to two election timeouts.
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

// GiveUp tells the other voters to start an election, the one with the longest log first, until gone is closed because
// this node no longer leads term. It returns the names of the voters told.
//
// It is for a leadership that commits nothing and that heartbeats prolong, since small packets pass where large ones
// are lost. [Node.TransferTo] would wait in vain for a voter to have the whole log. Uncommitted requests are sent to
// the next leader by the nodes that received them.
func (n *Node) GiveUp(term uint64, gone <-chan struct{}) (asked []string) {
	for _, m := range n.votersByLog(term) {
		asked = append(asked, m.Name())
		_ = n.nominate(context.Background(), m.ID, gone) // gone tells whether it was elected
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

// votersByLog returns the other voters by their match index in term, the highest first.
func (n *Node) votersByLog(term uint64) []members.Member {
	matches := n.acks.matches(term)
	others := slices.DeleteFunc(slices.Clone(n.Configuration().Members), func(m members.Member) bool {
		return !m.Voter || m.ID == n.config.ID
	})
	slices.SortStableFunc(others, func(a, b members.Member) int { return cmp.Compare(matches[b.ID], matches[a.ID]) })
	return others
}

// ReplayLag bounds the entries that a node still has to apply when it is about to serve or lead. An entry may have
// thousands of commands. 0 would be too few, since not every entry reaches the state machine.
const ReplayLag = 16

// askAgain is the interval at which lagging voters are asked again.
const askAgain = 50 * time.Millisecond

// Successor waits until the voter id, or any other voter if id is empty, has applied nearly all that this leader has
// applied, or had applied when Successor was called. A node that has just started would lead for seconds before it
// could serve. It returns the voter's ID for [Node.TransferTo]: of several, the one with the longest log. It returns id
// if no voter answers, and an error if ctx ends first.
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
	return id, nil // no voter answers, or this node no longer leads, or stops
}

// candidates asks the voter id, or all others if id is empty, for their applied index. It omits those that do not
// answer within a quarter of the election timeout.
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
