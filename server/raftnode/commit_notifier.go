package raftnode

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// commitNotifier sends the commit index to subscribed followers as soon as this leader has applied the entry. Raft
// sends it with the next entry, or after CommitTimeout.
//
// A notification is an AppendEntries without entries, as raft itself sends them. Raft does not see the answer.
// DESIGN.md explains why that is safe.
type commitNotifier struct {
	commitNotifierConfig
	// peers has the other members by ID. A change of the members replaces the map.
	peers   atomic.Pointer[map[raft.ServerID]*commitSubscriber]
	changed chan struct{}
}

// commitSubscriber is another member, which may be subscribed.
type commitSubscriber struct {
	subscribed atomic.Bool
	wake       chan struct{}
	// conn is kept open while the node is subscribed, so that no notification waits for a dial. Only serve uses it.
	conn *appendConn
	// stop ends serve, and is nil if it does not run yet. Only run uses it.
	stop context.CancelFunc
}

// commitNotifierConfig has the notifier's dependencies.
type commitNotifierConfig struct {
	self     string
	appender *appender
	acks     *acks
	log      raft.LogStore
	leading  func() (term uint64, leading bool)
	commit   func() (index uint64)
	// committed returns a request that announces, in term, that the log is committed up to entry.
	committed func(term uint64, entry *raft.Log) *raft.AppendEntriesRequest
}

func newCommitNotifier(config commitNotifierConfig) *commitNotifier {
	c := &commitNotifier{commitNotifierConfig: config, changed: make(chan struct{}, 1)}
	c.peers.Store(&map[raft.ServerID]*commitSubscriber{})
	return c
}

// reconfigure sets the members. It is not called concurrently.
func (c *commitNotifier) reconfigure(v *view) {
	before, now := *c.peers.Load(), make(map[raft.ServerID]*commitSubscriber, len(v.Members))
	for _, m := range v.Members {
		id := raft.ServerID(m.ID)
		switch p := before[id]; {
		case m.ID == c.self:
		case p != nil:
			now[id] = p
		default:
			now[id] = &commitSubscriber{wake: make(chan struct{}, 1)}
		}
	}
	c.peers.Store(&now)
	notify(c.changed)
}

// notify wakes the goroutine of a subscribed follower.
func (c *commitNotifier) notify(id raft.ServerID) { (*c.peers.Load())[id].notify() }

func (p *commitSubscriber) notify() {
	if p != nil && p.subscribed.Load() {
		notify(p.wake)
	}
}

func (c *commitNotifier) notifyAll() {
	for _, p := range *c.peers.Load() { // unordered: the goroutines do not depend on each other
		p.notify()
	}
}

// run runs serve for each other member until ctx ends.
func (c *commitNotifier) run(ctx context.Context) error {
	var goroutines sync.WaitGroup
	defer goroutines.Wait()
	running := make(map[raft.ServerID]*commitSubscriber)
	for {
		peers := *c.peers.Load()
		for id, p := range running {
			if peers[id] != p {
				p.stop()
				delete(running, id)
			}
		}
		for id, p := range peers {
			if running[id] == nil {
				running[id] = p
				var own context.Context
				own, p.stop = context.WithCancel(ctx)
				goroutines.Go(func() { c.serve(own, p, id) })
			}
		}
		select {
		case <-c.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// serve sends notifications to a node, one at a time, until ctx ends.
func (c *commitNotifier) serve(ctx context.Context, p *commitSubscriber, id raft.ServerID) {
	defer func() {
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
		c.connect(p, id)
		for p.subscribed.Load() && c.send(p, id) {
		}
	}
}

// connect keeps a connection to a subscribed node, and to no other.
func (c *commitNotifier) connect(p *commitSubscriber, id raft.ServerID) {
	a := c.appender
	switch subscribed := p.subscribed.Load(); {
	case subscribed && p.conn == nil:
		p.conn, _ = a.take(id) // retried at the next entry
	case !subscribed && p.conn != nil:
		a.give(p.conn)
		p.conn = nil
	}
}

// send sends a node the commit index unless it was sent already, and reports whether the node accepted it. A lost
// notification is not retried, since raft's next request has the index.
func (c *commitNotifier) send(p *commitSubscriber, id raft.ServerID) bool {
	if p.conn == nil {
		return false
	}
	// commit is read first, so that the log was committed up to there while this node led term.
	committed := c.commit()
	term, leading := c.leading()
	if !leading {
		return false
	}
	index := c.acks.unnotified(id, term, committed)
	if index == 0 {
		return false
	}
	var entry raft.Log
	if err := c.log.GetLog(index, &entry); err != nil {
		return false // behind a snapshot: committed long ago
	}
	c.acks.noteNotified(id, term, index)
	var resp raft.AppendEntriesResponse
	broken, err := p.conn.call(c.committed(term, &entry), &resp)
	if broken {
		p.conn = nil
		notify(p.wake) // to connect again
	}
	return err == nil && resp.Success
}
