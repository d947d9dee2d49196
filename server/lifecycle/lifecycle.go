// Package lifecycle runs the parts of a node, and ends them in the right order: package server uses
// it for processes, package replicatest for nodes in virtual time. Start reading at [New].
package lifecycle

import (
	"context"
	"fmt"
	"time"
)

// Parts are the parts of a node that run until they are stopped.
type Parts struct {
	clients, replica, peers part
	failed                  chan error
}

type part struct {
	name  string
	run   func() error
	stop  context.CancelFunc
	ended chan struct{}
}

// New takes what runs the client port (nil: the node has none), the replica and the port between
// nodes, each until its context ends.
func New(clients, replica, peers func(context.Context) error) *Parts {
	if clients == nil {
		clients = func(context.Context) error { return nil }
	}
	return &Parts{
		clients: newPart("client port", clients), replica: newPart("replica", replica), peers: newPart("peer port", peers),
		failed: make(chan error, 3),
	}
}

func newPart(name string, run func(context.Context) error) part {
	ctx, stop := context.WithCancel(context.Background())
	return part{name, func() error { return run(ctx) }, stop, make(chan struct{})}
}

// Start starts the parts, and does not wait for them.
func (p *Parts) Start() {
	for _, part := range []part{p.peers, p.replica, p.clients} {
		go func() {
			defer close(part.ended)
			if err := part.run(); err != nil {
				p.failed <- fmt.Errorf("%s: %w", part.name, err)
			}
		}()
	}
}

// Failed yields the error of each part that failed.
func (p *Parts) Failed() <-chan error { return p.failed }

// Stop ends all parts at once, as the end of the process would, and does not wait for them.
func (p *Parts) Stop() {
	p.replica.stop()
	p.peers.stop()
	p.clients.stop()
}

// Wait returns when all parts have ended.
func (p *Parts) Wait() {
	<-p.clients.ended
	<-p.replica.ended
	<-p.peers.ended
}

// Shutdown ends the parts in good order. Clients go first, when their commands in flight are
// answered. handOver then ends the replica, which needs the other nodes for that.
func (p *Parts) Shutdown(handOver func() error) error {
	p.clients.stop()
	<-p.clients.ended
	err := handOver()
	p.peers.stop()
	p.Wait()
	return err
}

// lastWords is how long a node that fails waits for its clients to take the
// answers to what they had in flight.
const lastWords = time.Second

// Abandon ends a node that cannot go on, without waiting for its disk: commands in flight are
// answered, the peer port is closed, so that the others look for another leader now, and clients
// are let go.
func (p *Parts) Abandon() {
	p.Stop()
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	select {
	case <-p.clients.ended:
	case <-timer.C:
	}
}
