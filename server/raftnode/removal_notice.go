package raftnode

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// maxRemovalNotices bounds the changes of members whose notices were not sent yet.
	maxRemovalNotices = 16
	// removalNoticeEvery and removalNoticeTimeout are how often and how long a notice is sent to a removed member.
	removalNoticeEvery   = 100 * time.Millisecond
	removalNoticeTimeout = 2 * time.Second
)

// sendRemovalNotices sends removed members a notice that the removal is committed, until ctx ends. Raft sends a removed
// member the configuration without it, once, before the configuration is committed, and nothing after.
//
// A removal notice, as a commit notification, is a request that the leader of raft's algorithm may send at any time,
// and confirms nothing. A node that gets no notice learns of the removal when it dials the other nodes.
func (n *Node) sendRemovalNotices(ctx context.Context) error {
	for {
		select {
		case change := <-n.removals:
			for _, id := range change.gone {
				if id != n.config.ID {
					n.sendRemovalNotice(ctx, raft.ServerID(id), change.index)
				}
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (n *Node) sendRemovalNotice(ctx context.Context, id raft.ServerID, index uint64) {
	defer n.transport.appender.hangUp(id)
	ctx, cancel := context.WithTimeout(ctx, removalNoticeTimeout)
	defer cancel()
	again := time.NewTicker(removalNoticeEvery)
	defer again.Stop()
	for !n.acks.knows(id) {
		term, leading := n.Leading()
		var entry raft.Log
		if !leading || n.log.GetLog(index, &entry) != nil {
			return
		}
		conn, err := n.transport.appender.take(id)
		if err != nil {
			return
		}
		var resp raft.AppendEntriesResponse
		broken, err := conn.call(n.transport.committed(term, &entry), &resp)
		if !broken {
			n.transport.appender.give(conn)
		}
		if err == nil && (resp.Success || resp.Term > term) {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// electAlone has the only voter elected at once: there is no other to wait for. A node without a vote refuses.
func (n *Node) electAlone(ctx context.Context) error {
	if n.configurations.view().otherVoters == 0 && n.raft.State() == raft.Follower {
		n.filter.nominate(ctx, raft.RPC{Command: nomination(), RespChan: make(chan raft.RPCResponse, 1)})
	}
	return nil
}
