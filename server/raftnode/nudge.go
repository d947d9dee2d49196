package raftnode

import (
	"context"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// nudges tells followers with listeners how far the log is committed, as soon as this leader has applied
// that. Raft tells a follower with the next entry, or after CommitTimeout.
//
// A nudge is an AppendEntries without entries, as raft itself sends them: DESIGN.md says why nudges are
// safe. The answer tells raft nothing.
type nudges struct {
	node  *Node
	peers map[string]*nudged
}

// nudged is another node.
type nudged struct {
	listens atomic.Bool
	wake    chan struct{}
	// conn is kept while the node listens: no nudge waits for a dial. The goroutine's own.
	conn *appendConn
}

func newNudges(n *Node) *nudges {
	ns := &nudges{node: n, peers: make(map[string]*nudged)}
	for name := range n.config.InitialCluster {
		if name != n.config.Name {
			ns.peers[name] = &nudged{wake: make(chan struct{}, 1)}
		}
	}
	return ns
}

// SetListener says whether someone on the node of that name waits for entries: that node is nudged then, while
// this node leads.
func (n *Node) SetListener(name string, listens bool) {
	if p := n.nudges.peers[name]; p != nil {
		p.listens.Store(listens)
		notify(p.wake)
	}
}

// look has a follower nudged if there is something to tell.
func (ns *nudges) look(id raft.ServerID) {
	if p := ns.peers[string(id)]; p != nil && p.listens.Load() {
		notify(p.wake)
	}
}

func (ns *nudges) lookAll() {
	for name := range ns.peers { // unordered: each is told for itself
		ns.look(raft.ServerID(name))
	}
}

// run nudges a node, one request at a time, until ctx ends.
func (ns *nudges) run(ctx context.Context, name string) error {
	p := ns.peers[name]
	for {
		select {
		case <-p.wake:
		case <-ctx.Done():
			return nil
		}
		ns.connect(p, raft.ServerID(name))
		for p.listens.Load() && ns.nudge(p, raft.ServerID(name)) {
		}
	}
}

// connect has a connection to a node that listens, and to no other.
func (ns *nudges) connect(p *nudged, id raft.ServerID) {
	a := ns.node.transport.appender
	switch listens := p.listens.Load(); {
	case listens && p.conn == nil:
		p.conn, _ = a.take(id) // tried again at the next entry
	case !listens && p.conn != nil:
		a.give(id, p.conn)
		p.conn = nil
	}
}

// nudge tells a node what the node does not know, and reports whether the node took that. A nudge that
// is lost is not sent again: raft tells the node in time.
func (ns *nudges) nudge(p *nudged, id raft.ServerID) bool {
	n := ns.node
	if p.conn == nil {
		return false
	}
	// In this order: all up to committed was in this node's log when it led term.
	committed := n.raft.CommitIndex()
	term, leading := n.Leading()
	if !leading {
		return false
	}
	index := n.acks.untold(id, term, committed)
	if index == 0 {
		return false
	}
	var entry raft.Log
	if err := n.log.GetLog(index, &entry); err != nil {
		return false // behind a snapshot: committed long ago
	}
	req := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{
			ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(n.config.Name),
			Addr: n.transport.EncodePeer(raft.ServerID(n.config.Name), n.transport.LocalAddr()),
		},
		Term: term, PrevLogEntry: index, PrevLogTerm: entry.Term, LeaderCommitIndex: index,
	}
	n.acks.telling(id, term, index)
	var resp raft.AppendEntriesResponse
	broken, err := p.conn.call(req, &resp)
	if broken {
		p.conn = nil
		ns.connect(p, id)
		notify(p.wake)
	}
	return err == nil && resp.Success
}
