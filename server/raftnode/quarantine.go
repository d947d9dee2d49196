package raftnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

// candidacyDelayHeartbeats is the number of heartbeat timeouts without a leader for which a quarantined node requests
// no votes. It requests them at all because it may be the only voter with all committed entries: once elected, it
// brings the others up to date and gets one of them elected. It requests them at once if a candidate has a shorter log.
// It grants votes as any node does.
const candidacyDelayHeartbeats = 10

// quarantine is the state of a node whose machine differs from the other members'. Its log is as good as theirs, so the
// node still stores and acknowledges entries, and votes.
type quarantine struct {
	since  atomic.Pointer[time.Time] // nil outside quarantine
	needed atomic.Pointer[time.Time] // time of the last vote request from a candidate with a shorter log; nil if none
	// frozen stops the applying of entries until a state from another member is installed.
	frozen atomic.Bool
}

func (q *quarantine) begin() {
	now := time.Now()
	q.since.Store(&now)
	q.frozen.Store(true)
}

// on reports whether the node is in quarantine.
func (q *quarantine) on() bool { return q.since.Load() != nil }

// defersCandidacy reports whether this node, in quarantine, requests no votes yet. Raft's timers are not changed for
// that, since the one that delays a candidacy also delays the votes that raft grants.
func (a *applier) defersCandidacy(heartbeat time.Duration) bool {
	since := a.quarantine.since.Load()
	switch {
	case since == nil:
		return false
	case !a.opened.Load():
		return true
	}
	heard := a.raft.LastContact()
	if heard.Before(*since) {
		heard = *since
	}
	if needed := a.quarantine.needed.Load(); needed != nil && needed.After(heard) {
		return false
	}
	return time.Since(heard) < candidacyDelayHeartbeats*heartbeat
}

// Quarantine freezes the state: no entry is applied, no snapshot is taken or sent, and nominations are refused. It ends
// with [Node.Release].
func (n *Node) Quarantine() { n.applier.quarantine.begin() }

// Release ends the quarantine of a node whose state was replaced.
func (n *Node) Release() error {
	if n.applier.quarantine.frozen.Load() {
		return errors.New("release from quarantine: the state was not replaced")
	}
	n.applier.quarantine.since.Store(nil)
	return nil
}

// Quarantined reports whether the node is in quarantine, and whether its state is still frozen.
func (n *Node) Quarantined() (on, frozen bool) {
	return n.applier.quarantine.on(), n.applier.quarantine.frozen.Load()
}

// Decline transfers the leadership of this quarantined node to [Node.awaitCapableVoter]. It returns when gone is
// closed, or as [Node.TransferTo] does.
func (n *Node) Decline(ctx context.Context, gone <-chan struct{}) error {
	id := n.awaitCapableVoter(ctx, gone)
	if id == "" {
		return errors.New("decline leadership: no voter answers that could lead")
	}
	return n.TransferTo(ctx, id, gone)
}

// awaitCapableVoter returns the ID of a voter that can lead, or "" if none can before ctx ends or gone is closed. It
// asks each voter until that has applied an entry, which a voter has not in quarantine or right after its start. Of the
// voters that can lead within a quarter of the election timeout it returns the one with the longest log, and else the
// first.
func (n *Node) awaitCapableVoter(ctx context.Context, gone <-chan struct{}) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	own, voters, able := n.failover.candidate(), n.votersByLog(n.Term()), make(chan candidate)
	for _, m := range voters {
		go n.until(ctx, askAgain, func() (can bool) { // ends with ctx or the node
			n.failover.poll(ctx, []members.Member{m}, proposal{candidate: own}, func(c candidate, _ bool) {
				if can = c.applied > 0; can {
					select {
					case able <- c:
					case <-ctx.Done():
					}
				}
			})
			return can
		})
	}
	timer := time.NewTimer(n.config.ElectionTimeout / 4)
	defer timer.Stop()
	var best candidate
	for timedOut, left := false, len(voters); left > 0 && (!timedOut || best.id == ""); {
		select {
		case c := <-able:
			left--
			if c.moreUpToDate(best) {
				best = c
			}
		case <-timer.C:
			timedOut = true
		case <-gone:
			return ""
		case <-n.stopped:
			return ""
		case <-ctx.Done():
			return ""
		}
	}
	return best.id
}

// ReplaceState makes raft install the state of another member, as if the leader had sent it. The node must be in
// quarantine, with a state that is not newer. The log is kept, and the entries behind the state, which this node has
// acknowledged, are applied next. The end of ctx must end the reading of state, too.
func (n *Node) ReplaceState(ctx context.Context, snapshot store.Snapshot, state io.Reader) error {
	term, leader := n.Leader()
	switch {
	case !n.applier.quarantine.on():
		return errors.New("replace state: the node is not in quarantine")
	case leader == "" || leader == n.config.ID:
		return errors.New("replace state: no other leader is known")
	case !snapshot.Plausible() || snapshot.Term > term:
		return errors.New("replace state: its description makes no sense")
	}
	answer := make(chan raft.RPCResponse, 1)
	rpc := raft.RPC{
		Command: &raft.InstallSnapshotRequest{
			RPCHeader:       raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(leader), Addr: []byte(leader)},
			SnapshotVersion: raft.SnapshotVersionMax, Term: term,
			LastLogIndex: snapshot.Index, LastLogTerm: snapshot.Term,
			Configuration:      raft.EncodeConfiguration(store.MembersToRaft(snapshot.Members.Members)),
			ConfigurationIndex: snapshot.Members.Index, Size: snapshot.Bytes,
		},
		Reader: state, RespChan: answer,
	}
	n.log.keeps.Store(snapshot.Index < n.Last())
	defer n.log.keeps.Store(false)
	if err := n.filter.replace(ctx, rpc, snapshot); err != nil {
		return fmt.Errorf("replace state: %w", err)
	}
	select { // does not wait for ctx, since state ends with it
	case is := <-answer:
		if done, ok := is.Response.(*raft.InstallSnapshotResponse); is.Error == nil && (!ok || !done.Success) {
			return errors.New("replace state: raft did not take it, the term has changed or it is damaged")
		}
		return is.Error
	case <-n.stopped:
		return errors.New("replace state: the node ends")
	}
}

// replace passes raft a state that replaces a differing one, unless raft would return to an older configuration, see
// [rpcFilter.late].
func (f *rpcFilter) replace(ctx context.Context, rpc raft.RPC, snapshot store.Snapshot) error {
	if !f.beginInstalling(ctx) {
		return ctx.Err()
	}
	defer f.endInstalling()
	f.drain(ctx)
	switch newest := f.configurations.view().Index; {
	case snapshot.Index < f.applier.index.Load():
		return fmt.Errorf("the state ends at index %d, and this node's at %d", snapshot.Index, f.applier.index.Load())
	case snapshot.Members.Index < newest:
		return fmt.Errorf("the state has the members of index %d, and this node's log those of %d",
			snapshot.Members.Index, newest)
	case f.raft.State() == raft.Leader:
		return errors.New("this node leads")
	}
	f.hand(ctx, rpc)
	return ctx.Err()
}
