package replicatest

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing/synctest"

	"github.com/holdfast/holdfast/server/consistency"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/store"
)

// compare makes what compares the node's state with the others'.
func (n *Node) compare(p *process, c *replica.Config) {
	if n.cluster.options.Checks == 0 {
		return
	}
	p.checker = consistency.New(consistency.Config{
		Self: n.ID, Interval: max(0, n.cluster.options.Checks), Folder: p.store, Client: p.client,
		Replica: func() consistency.Replica {
			if r := p.opened.Load(); r != nil {
				return r
			}
			return nil
		},
		Fetch: n.cluster.fetch, OnEvent: n.onCheck, Fail: func(err error) { n.die(p, err) },
	})
	p.checker.Serve(p.requests)
	id := p.store.Identity()
	c.Quarantined, c.OnCapture = id.InQuarantine(), p.checker.Captured
	told := c.OnEvent
	c.OnEvent = func(e replica.Event) {
		if _, restored := e.(replica.Restored); restored {
			p.checker.Restored()
		}
		told(e)
	}
}

// fetch opens the state of a node. The program asks for that over the peer port (package bootstrap).
func (c *Cluster) fetch(_ context.Context, from members.Member, index uint64) (store.Snapshot, io.ReadCloser,
	error,
) {
	for _, n := range c.nodes {
		if r := n.Replica(); r != nil && n.ID == from.ID {
			meta, state, err := r.OpenSnapshot(index)
			if err == nil && c.OnFetch != nil {
				state = c.OnFetch(state)
			}
			return meta, state, err
		}
	}
	return store.Snapshot{}, nil, errors.New("it does not run")
}

// runWatched runs the replica, and what watches the membership and the state.
func (p *process) runWatched(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts.Go(func() { _ = p.requests.Run(ctx) }) // ends with its port
	parts.Go(func() { _ = p.membership.WatchMembership(ctx) })
	if p.checker != nil {
		parts.Go(func() { p.checker.Run(ctx) })
	}
	return p.replica.Run(ctx)
}

// Checker compares the running node's state with the others'; nil: none does.
func (n *Node) Checker() *consistency.Checker {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return nil
	}
	return n.process.checker
}

func (n *Node) onCheck(e consistency.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.checks = append(n.checks, e)
}

// Checks returns what was told of comparisons, once all is told that is to be told now.
func (n *Node) Checks() []consistency.Event {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.checks)
}
