package replica

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/members"
)

// PresenceLease is the time after the start of a renewal for which other nodes count this node's clients. A node whose
// lease has ended must have no such clients. DESIGN.md has the argument.
const PresenceLease = 5 * time.Second

const (
	// countedFor is the time after a renewal for which the leader waits for the node's answers. It exceeds PresenceLease,
	// since clocks differ in rate, and since the node needs a moment to close connections.
	countedFor = PresenceLease + 2*time.Second
	// maxCensuses bounds the censuses at a time.
	maxCensuses = 8
	// askAgain is the pause before a failed question is repeated.
	askAgain = 50 * time.Millisecond
)

// goodbye is the question by which a node says that it has no clients, and will have none.
const goodbye = "\x00"

// census has the leader ask every node about its clients.
type census struct {
	censusConfig
	turns chan struct{} // has room for each running census
	// renewed is set once this node has renewed its presence.
	renewed atomic.Bool

	mu      sync.Mutex
	last    members.Configuration
	dropped map[string]time.Time // until when removed members may have clients, by ID
}

// censusConfig has the functions and values that the census needs.
type censusConfig struct {
	self     protocol.Incarnation
	patience time.Duration // a census is given up when only this is left of its time
	serving  *atomic.Pointer[leaderTerm]
	confirm  func(deadline time.Time) error // a leadership check that begins after the call

	configuration func() members.Configuration
	report        func(question string) protocol.Value
	inquire       func(ctx context.Context, id, question string) (protocol.Value, error)
}

func newCensus(c censusConfig) *census {
	return &census{censusConfig: c, turns: make(chan struct{}, maxCensuses), dropped: make(map[string]time.Time)}
}

// presence records which nodes have renewed their leases under one leadership.
type presence struct {
	mu sync.Mutex
	// until is the time until which a node may have clients. A goodbye sets it to the past.
	until map[protocol.Incarnation]time.Time
}

func (p *presence) set(node protocol.Incarnation, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil {
		p.until = make(map[protocol.Incarnation]time.Time)
	}
	p.until[node] = until
}

// follow records members that were removed.
func (c *census) follow(conf members.Configuration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(c.dropped, func(_ string, until time.Time) bool { return now.After(until) })
	for _, m := range c.last.Members {
		if !conf.Has(m.ID) {
			c.dropped[m.ID] = now.Add(countedFor)
		}
	}
	c.last = conf
}

// ask has every node answer the question of the node from, and returns an array of the answers. It leaves out only
// nodes that surely had no clients when the question arrived. An empty question renews the lease of the node from.
func (c *census) ask(from protocol.Incarnation, question string, deadline time.Time) ([]protocol.Value, error) {
	if question == "" || question == goodbye {
		until := time.Now()
		if question == "" {
			until = until.Add(countedFor)
		}
		if l := c.serving.Load(); l != nil {
			l.presence.set(from, until)
		}
		return []protocol.Value{protocol.Array()}, c.confirm(deadline)
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline.Add(-c.patience))
	defer cancel()
	select {
	case c.turns <- struct{}{}:
		defer func() { <-c.turns }()
	case <-ctx.Done():
		return nil, protocol.ErrNoRoom
	}
	for {
		answers, missing, err := c.once(ctx, question, deadline)
		if err != nil || missing == nil {
			return []protocol.Value{protocol.Array(answers...)}, err
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return nil, errMissing(missing)
		}
	}
}

// errMissing returns the error of a census that lacks the answers of some nodes.
func errMissing(ids []string) *protocol.Error {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = members.Name(id)
	}
	slices.Sort(names)
	return &protocol.Error{
		Prefix: "TRYAGAIN", Text: strings.Join(names, ", ") + " cannot be asked, and may still have clients",
	}
}

// once asks each node once, and returns the nodes that did not answer. At the instant begun, no other node had clients:
// the leadership check, which follows, shows that until then this leader or earlier ones have renewed all leases.
func (c *census) once(ctx context.Context, question string, deadline time.Time) (answers []protocol.Value,
	missing []string, err error,
) {
	begun := time.Now()
	if err := c.confirm(deadline); err != nil {
		return nil, nil, err
	}
	l := c.serving.Load()
	if l == nil {
		return nil, nil, errReroute
	}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for id := range c.present(l, begun) { // all nodes are asked at the same time
		asking.Go(func() {
			answer, err := c.inquire(ctx, id, question)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				missing = append(missing, id)
			} else {
				answers = append(answers, answer)
			}
		})
	}
	own := c.report(question)
	asking.Wait()
	return append(answers, own), missing, nil
}

// present returns the IDs of the other nodes that may have had clients at an instant. Until the leases from an earlier
// leader have ended, these are all members that have not said goodbye.
func (c *census) present(l *leaderTerm, at time.Time) map[string]bool {
	l.presence.mu.Lock()
	defer l.presence.mu.Unlock()
	ids, heard := make(map[string]bool), make(map[string]bool)
	for node, until := range l.presence.until { // unordered: sets
		heard[node.Node] = true
		if at.Before(until) {
			ids[node.Node] = true
		}
	}
	if at.Sub(l.since) < countedFor {
		for _, m := range c.configuration().Members {
			ids[m.ID] = ids[m.ID] || !heard[m.ID]
		}
		c.mu.Lock()
		for id, until := range c.dropped { // unordered: a set
			ids[id] = ids[id] || !heard[id] && at.Before(until)
		}
		c.mu.Unlock()
	}
	maps.DeleteFunc(ids, func(id string, may bool) bool { return !may || id == c.self.Node })
	return ids
}

// leave tells the leader that this node has no clients any more. It takes at most the time of a leadership check.
func (r *Replica) leave() {
	if r.census.renewed.Load() {
		_ = r.reader.read(&Batch{Body: []byte(goodbye), Count: 1, Census: true}, time.Now().Add(r.config.ElectionTimeout))
	}
}
