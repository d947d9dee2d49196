package resp

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// serve is one connection's life, from accept to close.
func (s *Server) serve(ctx context.Context, nc net.Conn) {
	s.stats.connections.Add(1)
	c := newConn(s, nc)
	switch err := s.admit(c); {
	case err == nil:
		defer s.forget(c)
		c.run(ctx)
	case errors.Is(err, errFull):
		s.stats.rejected.Add(1)
		c.refuse(protocol.ErrMaxClients)
	default:
		nc.Close()
	}
}

var (
	errFull     = errors.New("too many clients")
	errDraining = errors.New("shutting down")
)

// admit registers c.
func (s *Server) admit(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining:
		return errDraining
	case len(s.conns) >= s.cfg.Limits.Clients:
		return errFull
	}
	s.conns[c.id] = c
	return nil
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	delete(s.conns, c.id)
	s.mu.Unlock()
}

func (s *Server) clientCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// address is where clients reach the node; empty before Serve.
func (s *Server) address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// clients are the connections, oldest first.
func (s *Server) clients() []*conn {
	s.mu.Lock()
	all := make([]*conn, 0, len(s.conns))
	for _, c := range s.conns {
		all = append(all, c)
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *conn) int { return int(a.id - b.id) })
	return all
}

// drain wakes the connections that wait for a command, so that they close, and
// waits for those that are at work; past the limit it cuts them off.
func (s *Server) drain(all *sync.WaitGroup) {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	for _, c := range s.clients() {
		c.retire()
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
		return
	case <-time.After(s.cfg.Timing.Drain):
	}
	left := s.clients()
	s.cfg.Logger.Warn("cut off clients whose commands did not end in time", "clients", len(left))
	for _, c := range left {
		c.nc.Close()
	}
	<-done
}
