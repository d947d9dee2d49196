package raftnode

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// nudges tells followers with listeners how far the log is committed, as soon as this leader has applied
// that. Raft tells a follower with the next entry, or after CommitTimeout.
//
// A nudge is an AppendEntries without entries, as raft itself sends them: DESIGN.md says why nudges are
// safe. The answer tells raft nothing.
type nudges struct {
	node *Node
	// peers are the other members, by ID. Another map takes the place of the map when the members change.
	peers   atomic.Pointer[map[raft.ServerID]*nudged]
	changed chan struct{}
}

// nudged is another node.
type nudged struct {
	listens atomic.Bool
	wake    chan struct{}
	// conn is kept while the node listens: no nudge waits for a dial. The goroutine's own.
	conn *appendConn
	// stop ends the goroutine; nil: there is none yet. The goroutine of run's own.
	stop context.CancelFunc
}

func newNudges(n *Node) *nudges {
	ns := &nudges{node: n, changed: make(chan struct{}, 1)}
	ns.peers.Store(&map[raft.ServerID]*nudged{})
	return ns
}

// reconfigure goes over to other members. Calls come one at a time.
func (ns *nudges) reconfigure(v *view) {
	before, now := *ns.peers.Load(), make(map[raft.ServerID]*nudged, len(v.Members))
	for _, m := range v.Members {
		id := raft.ServerID(m.ID)
		switch p := before[id]; {
		case m.ID == ns.node.config.ID:
		case p != nil:
			now[id] = p
		default:
			now[id] = &nudged{wake: make(chan struct{}, 1)}
		}
	}
	ns.peers.Store(&now)
	notify(ns.changed)
}

// SetCommitSubscriber sets whether a node is sent commit notifications while this node leads.
func (n *Node) SetCommitSubscriber(id string, subscribed bool) {
	if p := (*n.nudges.peers.Load())[raft.ServerID(id)]; p != nil {
		p.listens.Store(subscribed)
		notify(p.wake)
	}
}

// look has a follower nudged if there is something to tell.
func (ns *nudges) look(id raft.ServerID) { (*ns.peers.Load())[id].look() }

func (p *nudged) look() {
	if p != nil && p.listens.Load() {
		notify(p.wake)
	}
}

func (ns *nudges) lookAll() {
	for _, p := range *ns.peers.Load() { // unordered: each is told for itself
		p.look()
	}
}

// run has a goroutine for each other member, until ctx ends.
func (ns *nudges) run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	began := make(map[raft.ServerID]*nudged)
	for {
		peers := *ns.peers.Load()
		for id, p := range began {
			if peers[id] != p {
				p.stop()
				delete(began, id)
			}
		}
		for id, p := range peers {
			if began[id] == nil {
				began[id] = p
				var own context.Context
				own, p.stop = context.WithCancel(ctx)
				running.Go(func() { ns.serve(own, p, id) })
			}
		}
		select {
		case <-ns.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// serve nudges a node, one request at a time, until ctx ends.
func (ns *nudges) serve(ctx context.Context, p *nudged, id raft.ServerID) {
	defer func() {
		p.stop()
		if p.conn != nil {
			_ = p.conn.Close()
		}
	}()
	for {
		select {
		case <-p.wake:
		case <-ctx.Done():
			return
		}
		ns.connect(p, id)
		for p.listens.Load() && ns.nudge(p, id) {
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
	n.acks.telling(id, term, index)
	var resp raft.AppendEntriesResponse
	broken, err := p.conn.call(n.committed(term, &entry), &resp)
	if broken {
		p.conn = nil
		ns.connect(p, id)
		notify(p.wake)
	}
	return err == nil && resp.Success
}

// committed is a request that says, in term, that all up to an entry is committed.
func (n *Node) committed(term uint64, entry *raft.Log) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{
			ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(n.config.ID), Addr: n.transport.EncodePeer(raft.ServerID(n.config.ID), ""),
		},
		Term: term, PrevLogEntry: entry.Index, PrevLogTerm: entry.Term, LeaderCommitIndex: entry.Index,
	}
}
