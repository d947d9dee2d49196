package raftnode

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// maxRemovalNotices bounds the changes of members whose removal notices are queued.
	maxRemovalNotices = 16
	// removalNoticeEvery is the interval at which a notice is resent, and removalNoticeTimeout the time after which it
	// is given up.
	removalNoticeEvery   = 100 * time.Millisecond
	removalNoticeTimeout = 2 * time.Second
)

// sendRemovalNotices sends removed members a notice that their removal is committed, until ctx ends. Raft sends them
// the configuration once, and nothing later.
//
// A removal notice, like a commit notification, is a request that the leader of raft's algorithm may send at any time,
// and confirms nothing. A node that receives no notice learns of its removal when it dials the other nodes.
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
	for !n.acks.hasPeer(id) {
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

// electAlone starts an election at once if there is no other voter. A node without a vote refuses it.
func (n *Node) electAlone(ctx context.Context) error {
	if n.configurations.view().otherVoters == 0 && n.raft.State() == raft.Follower {
		n.filter.nominate(ctx, raft.RPC{Command: nomination(), RespChan: make(chan raft.RPCResponse, 1)})
	}
	return nil
}
