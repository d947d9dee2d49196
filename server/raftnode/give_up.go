package raftnode

import (
	"cmp"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/members"
)

// Unacknowledged reports whether too few other voters have acknowledged to this leader what follows its commit index,
// so that the leader's own disk is not what the entries wait for. acknowledged grows with everything that any of them
// acknowledges.
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
	return acknowledged, have < conf.Quorum()
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

// GiveUp has the other voters stand for election, the one with the longest log first, until gone says that this node
// leads term no more. It returns the names of those that were asked.
//
// Heartbeats keep a leadership that commits nothing: small packets pass where large ones are lost, and a small one
// behind a large one waits for good. A hand-over by raft waits until the other has the whole log, which is just what
// does not happen. What was not committed, the nodes that took it send to the next leader.
func (n *Node) GiveUp(term uint64, gone <-chan struct{}) (asked []string) {
	matches := n.acks.matches(term)
	others := slices.DeleteFunc(slices.Clone(n.Configuration().Members), func(m members.Member) bool {
		return !m.Voter || m.ID == n.config.ID
	})
	slices.SortStableFunc(others, func(a, b members.Member) int { return cmp.Compare(matches[b.ID], matches[a.ID]) })
	for _, m := range others {
		asked = append(asked, m.Name())
		_ = n.transport.nominate(m.ID) // gone says whether it was elected
		timer := time.NewTimer(2 * n.config.ElectionTimeout)
		select {
		case <-gone:
		case <-n.stopped:
		case <-timer.C:
			continue
		}
		timer.Stop()
		break
	}
	return asked
}
