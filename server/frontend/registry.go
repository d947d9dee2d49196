package frontend

import (
	"container/list"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// admitOrRefuse admits a connection or turns it away. That is decided before the next one is
// accepted, so that however fast they come no more are open than there should be.
func (s *Server) admitOrRefuse(ctx context.Context, nc net.Conn, all *sync.WaitGroup) {
	s.stats.connections.Add(1)
	c := newConn(s, nc)
	switch err := s.register(c); {
	case err == nil:
		all.Go(func() {
			defer s.unregister(c)
			c.run(ctx)
		})
		return
	case errors.Is(err, errFull):
		s.stats.rejected.Add(1)
		if s.refusals.Add(1) <= Refusals {
			all.Go(func() {
				defer s.refusals.Add(-1)
				c.refuse(protocol.ErrMaxClients)
			})
			return
		}
		s.refusals.Add(-1)
	}
	nc.Close()
}

// Refusals is how many connections beyond MaxClients may be open: those that are
// being told so, and as many again that were closed to make room. Further ones are closed without a word.
const Refusals = 16

var (
	errFull     = errors.New("too many clients")
	errDraining = errors.New("shutting down")
)

// register registers c. When there is no room, the oldest stranger makes room: else
// those that never say who they are could shut everybody out for good.
func (s *Server) register(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return errDraining
	}
	if len(s.conns)-s.dismissed >= s.cfg.MaxClients {
		oldest := s.strangers.Front()
		if oldest == nil || s.dismissed >= Refusals {
			return errFull
		}
		s.stats.rejected.Add(1)
		s.dismiss(oldest.Value.(*conn))
	}
	s.conns[c.id] = c
	s.memory.total.Add(connBytes)
	if !c.authenticated || c.tls != nil {
		c.admission.stranger = s.strangers.PushBack(c)
	}
	return nil
}

// dismiss closes a connection and no longer counts it. The caller holds s.mu.
func (s *Server) dismiss(c *conn) {
	s.removeStranger(c)
	c.admission.dismissed = true
	s.dismissed++
	c.plainConn().Close()
}

// admission is what the server knows of a connection. Guarded by Server.mu.
type admission struct {
	// stranger is its place among those that have not shown who they are: by a
	// password, or by a handshake of TLS where there is none.
	stranger *list.Element
	// dismissed: it has been closed to make room.
	dismissed bool
}

// removeStranger notes that c is no stranger any more. The caller holds s.mu.
func (s *Server) removeStranger(c *conn) {
	if c.admission.stranger != nil {
		s.strangers.Remove(c.admission.stranger)
		c.admission.stranger = nil
	}
}

// known notes whether c has shown who it is.
func (s *Server) setKnown(c *conn, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case yes:
		s.removeStranger(c)
	case c.admission.stranger == nil && !c.admission.dismissed:
		c.admission.stranger = s.strangers.PushBack(c)
	}
}

func (s *Server) unregister(c *conn) {
	s.mu.Lock()
	delete(s.conns, c.id)
	s.removeStranger(c)
	if c.admission.dismissed {
		s.dismissed--
	}
	s.releaseMemory(c)
	s.mu.Unlock()
}

func (s *Server) clientCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns) - s.dismissed
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
		if !c.admission.dismissed {
			all = append(all, c)
		}
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
	case <-time.After(s.cfg.ShutdownTimeout):
	}
	left := s.clients()
	s.cfg.Logger.Warn("cut off clients whose commands did not end in time", "clients", len(left))
	for _, c := range left {
		c.nc.Close()
	}
	<-done
}
