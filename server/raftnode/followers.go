package raftnode

import (
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// BeginRound starts a leadership check of term. The wait is done when a majority has confirmed that this node led term
// after the call began, or when the members have changed. If it is confirmed, every write that was acknowledged to a
// client before the call has an index up to the returned one.
func (n *Node) BeginRound(term uint64) (confirmed *Acknowledgement, index uint64) {
	confirmed = n.acks.beginRound(term)
	index = n.raft.CommitIndex()
	// VerifyLeader makes raft send heartbeats at once. The future is ignored: it confirms less than the round does, and
	// may never be answered.
	n.raft.VerifyLeader()
	return confirmed, index
}

// AwaitMatch returns a wait until nodes other voters, or all if there are fewer, have acknowledged to this leader of
// term everything that is committed now.
func (n *Node) AwaitMatch(term uint64, nodes int) *Acknowledgement {
	return n.acks.awaitMatch(term, n.raft.CommitIndex(), max(nodes, 0))
}

// RoundTrip returns the round-trip time to the nearest voters that make a majority with this leader, or 0 if unknown.
func (n *Node) RoundTrip() time.Duration { return time.Duration(n.acks.quorum.Load()) }

// FarApart reports whether the event [FarApart] was reported in term and still applies.
func (n *Node) FarApart(term uint64) bool { return n.progress.farApart(term) }

// Quorum returns the least number of other voters that have every committed entry: those that make a majority with this
// node. While the members change it is the smaller of two numbers, since an entry may be older than the change.
func (n *Node) Quorum() int {
	committed := n.configurations.see(n.CommittedConfiguration())
	return min(n.configurations.view().others, committed.others)
}

// OtherVoters returns the number of other members with a vote.
func (n *Node) OtherVoters() int { return n.configurations.view().otherVoters }

// Heard returns the index up to which a node's log agrees with this leader's, and the time of the node's last
// acknowledgement. ok is false if it acknowledged nothing in term after since.
func (n *Node) Heard(id string, term uint64, since time.Time) (match uint64, at time.Time, ok bool) {
	ack, ok := n.acks.heardSince(id, term, since)
	return ack.match, ack.heard, ok
}

// Unacknowledged reports whether uncommitted entries wait for acknowledgements of other voters, rather than for this
// leader's disk or state machine. acknowledged grows with each acknowledged entry.
func (n *Node) Unacknowledged(term uint64) (acknowledged uint64, so bool) {
	conf, commit, have := n.Configuration(), n.raft.CommitIndex(), 1
	matches := n.acks.matches(term)
	for _, m := range conf.Members {
		if !m.Voter || m.ID == n.config.ID {
			continue
		}
		acknowledged += matches[m.ID]
		if matches[m.ID] > commit {
			have++
		}
	}
	return acknowledged, have < conf.Quorum() && commit < n.Last()
}

// TransferTime returns how long the next request with uncommitted entries takes at minBytesPerSecond.
func (n *Node) TransferTime() time.Duration {
	size := 0
	for i := n.raft.CommitIndex() + 1; size < appendGather; i++ {
		var e raft.Log
		if n.log.GetLog(i, &e) != nil {
			break
		}
		whole, err := n.log.withData(&e)
		if err != nil {
			break
		}
		size += len(whole.Data)
	}
	return time.Duration(size) * time.Second / minBytesPerSecond
}

// CheckProgress compares the followers' logs with the commit index and reports changes as events. It must be called at
// least once a second while this node leads term.
func (n *Node) CheckProgress(term uint64) { n.progress.check(term, n.raft.CommitIndex(), n.acks) }

// Stalled returns the index at which a follower's log has stalled, and since when. ok is false unless FollowerStalled
// was reported in term and still applies.
func (n *Node) Stalled(id string, term uint64) (at uint64, since time.Time, ok bool) {
	l, ok := n.progress.stalled(id, term)
	return l.at, l.since, ok && n.acks.matches(term)[id] == l.at
}

// Refused records that leader's port refused a connection.
func (n *Node) Refused(leader string) { n.failover.refused(leader) }

// Reached records that leader was reached.
func (n *Node) Reached(leader string) { n.failover.reached(leader) }

// AnswerProposal answers another node's question whether the leader's process is gone. It returns false if frame, the
// first that arrived over conn, is no such question.
func (n *Node) AnswerProposal(conn net.Conn, frame []byte) bool {
	if !isProposal(frame) {
		return false
	}
	if err := n.failover.answer(conn, frame); err != nil {
		n.config.Logger.Debug("answer proposal", "error", err)
	}
	return true
}

// SetCommitSubscriber sets whether a node receives commit notifications while this node leads.
func (n *Node) SetCommitSubscriber(id string, subscribed bool) {
	if p := (*n.commits.peers.Load())[raft.ServerID(id)]; p != nil {
		p.subscribed.Store(subscribed)
		notify(p.wake)
	}
}
