package raftnode

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// commitNotifier sends the commit index to subscribed followers as soon as this leader has applied the entry. Raft
// sends the commit index with the next entry, or after CommitTimeout.
//
// A notification is an AppendEntries without entries, as raft itself sends them: DESIGN.md says why that is safe. Raft
// does not see the answer.
type commitNotifier struct {
	commitNotifierConfig
	// peers are the other members, by ID. Another map takes the place of the map when the members change.
	peers   atomic.Pointer[map[raft.ServerID]*commitSubscriber]
	changed chan struct{}
}

// commitSubscriber is another member, subscribed or not.
type commitSubscriber struct {
	subscribed atomic.Bool
	wake       chan struct{}
	// conn is kept while the node is subscribed: no notification waits for a dial. The goroutine's own.
	conn *appendConn
	// stop ends the goroutine; nil: there is none yet. The goroutine of run's own.
	stop context.CancelFunc
}

// commitNotifierConfig is what the notifier is handed.
type commitNotifierConfig struct {
	self     string
	appender *appender
	acks     *acks
	log      raft.LogStore
	leading  func() (term uint64, leading bool)
	commit   func() (index uint64)
	// committed is a request that says, in term, that all up to an entry is committed.
	committed func(term uint64, entry *raft.Log) *raft.AppendEntriesRequest
}

func newCommitNotifier(config commitNotifierConfig) *commitNotifier {
	c := &commitNotifier{commitNotifierConfig: config, changed: make(chan struct{}, 1)}
	c.peers.Store(&map[raft.ServerID]*commitSubscriber{})
	return c
}

// reconfigure goes over to other members. Calls come one at a time.
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

// run has a goroutine for each other member, until ctx ends.
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
		p.conn, _ = a.take(id) // tried again at the next entry
	case !subscribed && p.conn != nil:
		a.give(p.conn)
		p.conn = nil
	}
}

// send sends a node the commit index if nothing else did, and reports whether the node took it. A notification that is
// lost is not sent again: raft's next request has the index.
func (c *commitNotifier) send(p *commitSubscriber, id raft.ServerID) bool {
	if p.conn == nil {
		return false
	}
	// In this order: all up to committed was in this node's log when it led term.
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
	c.acks.notifying(id, term, index)
	var resp raft.AppendEntriesResponse
	broken, err := p.conn.call(c.committed(term, &entry), &resp)
	if broken {
		p.conn = nil
		notify(p.wake) // for another
	}
	return err == nil && resp.Success
}
