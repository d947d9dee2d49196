package raftnode

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// maxFarewells bounds the changes of members that wait to be told.
	maxFarewells = 16
	// sayAgain and sayFor are how often and how long a removed member is told.
	sayAgain = 100 * time.Millisecond
	sayFor   = 2 * time.Second
)

// sayFarewells tells members that were removed that the removal is committed, until ctx ends. Raft sends a
// removed member the configuration without it, once, before that is committed, and nothing after.
//
// As a commit notification does, a farewell says what the leader of raft's algorithm may say at any time, and confirms
// nothing. A node that does not hear is told so by the other nodes when it dials them.
func (n *Node) sayFarewells(ctx context.Context) error {
	for {
		select {
		case change := <-n.farewells:
			for _, id := range change.gone {
				if id != n.config.ID {
					n.sayFarewell(ctx, raft.ServerID(id), change.index)
				}
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (n *Node) sayFarewell(ctx context.Context, id raft.ServerID, index uint64) {
	defer n.transport.appender.hangUp(id)
	ctx, cancel := context.WithTimeout(ctx, sayFor)
	defer cancel()
	again := time.NewTicker(sayAgain)
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
		broken, err := conn.call(n.committed(term, &entry), &resp)
		if !broken {
			n.transport.appender.give(id, conn)
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

// electAlone has the only voter elected at once: there is no other to wait for.
func (n *Node) electAlone(ctx context.Context) error {
	if v := n.configurations.view(); v.voter && v.otherVoters == 0 && n.raft.State() == raft.Follower {
		n.filter.nominate(ctx, raft.RPC{Command: nomination(), RespChan: make(chan raft.RPCResponse, 1)})
	}
	return nil
}
