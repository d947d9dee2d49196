package raftnode

import (
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// BeginRound starts a leadership check of term. The result is done when a majority has confirmed that this
// node led term after the call began, or when the members have changed. All that was acknowledged to a client
// before is committed up to index.
func (n *Node) BeginRound(term uint64) (confirmed *Acknowledgement, index uint64) {
	confirmed = n.acks.beginRound(term)
	index = n.raft.CommitIndex()
	// VerifyLeader has raft send heartbeats at once. The future is not looked at: the future is
	// content with less than we are, and can stay without an answer.
	n.raft.VerifyLeader()
	return confirmed, index
}

// AwaitMatch waits until so many other voters, or all, have what is committed now on their disks, as this node,
// the leader of term, knows.
func (n *Node) AwaitMatch(term uint64, nodes int) *Acknowledgement {
	return n.acks.awaitMatch(term, n.raft.CommitIndex(), max(nodes, 0))
}

// RoundTrip returns the time of a round trip to as many voters as make a majority with this node, as the requests of
// this leader take it; 0: it is not known.
func (n *Node) RoundTrip() time.Duration { return time.Duration(n.acks.quorum.Load()) }

// FarApart reports whether [FarApart] was told of the leadership of term, and is so still.
func (n *Node) FarApart(term uint64) bool { return n.progress.farApart(term) }

// Quorum returns how many other voters have every committed entry at least: as many as make a majority with this
// node. While the members change it is the smaller of two numbers, as the entry may be older than the change.
func (n *Node) Quorum() int {
	committed := n.configurations.see(n.CommittedConfiguration())
	return min(n.configurations.view().others, committed.others)
}

// OtherVoters returns how many other members have a vote.
func (n *Node) OtherVoters() int { return n.configurations.view().otherVoters }

// Heard returns how far a node's log agrees with this leader's, and when the node last acknowledged something, if
// that was in term and not before since.
func (n *Node) Heard(id string, term uint64, since time.Time) (match uint64, at time.Time, ok bool) {
	ack, ok := n.acks.heardSince(id, term, since)
	return ack.match, ack.heard, ok
}

// Unacknowledged reports whether too few other voters have acknowledged to this leader what follows its commit index,
// so that neither the leader's own disk nor its state machine is what the entries wait for. acknowledged grows with
// everything that any of them acknowledges.
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

// TransferTime is how long the next request with uncommitted entries takes over the slowest link that is allowed for.
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
	return time.Duration(size) * time.Second / slowest
}

// CheckProgress compares the followers' logs with what is committed, and tells what has changed. It is
// called once a second, or more often, while this node leads term.
func (n *Node) CheckProgress(term uint64) { n.progress.check(term, n.raft.CommitIndex(), n.acks) }

// Stalled returns where the log of a follower stands still, and since when, if that was told in
// this leadership.
func (n *Node) Stalled(id string, term uint64) (at uint64, since time.Time, ok bool) {
	l, ok := n.progress.stalled(id, term)
	return l.at, l.since, ok && n.acks.matches(term)[id] == l.at
}

// Refused is told that leader's port refused a connection.
func (n *Node) Refused(leader string) { n.failover.refused(leader) }

// Reached is told that leader was reached.
func (n *Node) Reached(leader string) { n.failover.reached(leader) }

// AnswerProposal takes part in another node's question, whether the leader's process is gone. The
// result says whether frame, the first that came over conn, is such a question.
func (n *Node) AnswerProposal(conn net.Conn, frame []byte) bool {
	if !isProposal(frame) {
		return false
	}
	if err := n.failover.answer(conn, frame); err != nil {
		n.config.Logger.Debug("answer proposal", "error", err)
	}
	return true
}

// SetCommitSubscriber sets whether a node is sent commit notifications while this node leads.
func (n *Node) SetCommitSubscriber(id string, subscribed bool) {
	if p := (*n.commits.peers.Load())[raft.ServerID(id)]; p != nil {
		p.subscribed.Store(subscribed)
		notify(p.wake)
	}
}
