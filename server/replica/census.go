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

// PresenceLease is how long a node's clients may rely on being counted after the node began to renew its presence. A
// node whose lease has ended must have no such clients. DESIGN.md has the argument.
const PresenceLease = 5 * time.Second

const (
	// countedFor is how long the leader waits for a node from whose last renewal it has heard. It is longer than
	// PresenceLease, as the clocks of two nodes differ in rate, and the node takes a moment to close connections.
	countedFor = PresenceLease + 2*time.Second
	// maxCensuses is how many censuses are taken at a time.
	maxCensuses = 8
	// askAgain is the pause before a node is asked again that could not be asked.
	askAgain = 50 * time.Millisecond
)

// goodbye is the question of a node that has no clients any more, and will have none.
const goodbye = "\x00"

// census has the leader ask every node about its clients.
type census struct {
	censusConfig
	turns chan struct{} // has room for each census under way
	// renewed: this node has renewed its presence.
	renewed atomic.Bool

	mu      sync.Mutex
	last    members.Configuration
	dropped map[string]time.Time // by ID of a removed member: until when it may have clients
}

// censusConfig is what the census is handed.
type censusConfig struct {
	self     protocol.Incarnation
	patience time.Duration // what is left of a census's time when it is given up
	serving  *atomic.Pointer[leaderTerm]
	confirm  func() error // a leadership check that begins after the call

	configuration func() members.Configuration
	report        func(question string) protocol.Value
	inquire       func(ctx context.Context, id, question string) (protocol.Value, error)
}

func newCensus(c censusConfig) *census {
	return &census{censusConfig: c, turns: make(chan struct{}, maxCensuses), dropped: make(map[string]time.Time)}
}

// presence is which nodes have renewed their leases under one leadership.
type presence struct {
	mu sync.Mutex
	// until is until when a node's clients may be there: in the past after a goodbye.
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

// follow notes which members are there no more.
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

// ask has every node answer the question of the node from: the single reply is the array of the answers. A node is
// left out only if it surely had no clients when the question came. Without a question the lease of the node from is
// renewed.
func (c *census) ask(from protocol.Incarnation, question string, deadline time.Time) ([]protocol.Value, error) {
	if question == "" || question == goodbye {
		until := time.Now()
		if question == "" {
			until = until.Add(countedFor)
		}
		if l := c.serving.Load(); l != nil {
			l.presence.set(from, until)
		}
		return []protocol.Value{protocol.Array()}, c.confirm()
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
		answers, missing, err := c.once(ctx, question)
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

// errMissing is the error of a census without some nodes' answers.
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

// once asks each node once, and returns which nodes did not answer. At the instant begun no node but those asked had
// clients: the leadership check comes behind it and shows that until then all leases were renewed here, or by leaders
// before.
func (c *census) once(ctx context.Context, question string) (answers []protocol.Value, missing []string, err error) {
	begun := time.Now()
	if err := c.confirm(); err != nil {
		return nil, nil, err
	}
	l := c.serving.Load()
	if l == nil {
		return nil, nil, errReroute
	}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for id := range c.present(l, begun) { // unordered: nodes are asked beside each other
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

// present returns the IDs of the other nodes that may have had clients at the instant. Until the leases that an earlier
// leader granted have ended, these are all members but those that have said goodbye.
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

// leave tells the leader that this node has no clients any more, within the time of a leadership check.
func (r *Replica) leave() {
	if r.census.renewed.Load() {
		_ = r.reader.read(&Batch{Body: []byte(goodbye), Count: 1, Census: true}, time.Now().Add(r.config.ElectionTimeout))
	}
}
