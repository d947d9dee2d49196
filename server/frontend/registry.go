package frontend

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/audit"
)

// admitOrRefuse admits or refuses a connection before the next one is accepted, so that there are never more open
// connections than the limits allow.
func (s *Server) admitOrRefuse(ctx context.Context, nc net.Conn, table *protocol.Table, all *sync.WaitGroup) {
	s.metrics.Connections.Add(1)
	c := newConn(s, nc, table)
	switch err := s.register(c); {
	case err == nil:
		c.identify()
		all.Go(func() {
			defer s.unregister(c)
			c.run(ctx)
		})
		return
	case errors.Is(err, errFull):
		s.metrics.Rejected.Add(1)
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

// Refusals bounds the open connections beyond MaxClients: this many that get a reply with the refusal, and as many that
// were closed to make room. Further connections are closed without a reply.
const Refusals = 16

var (
	errFull     = errors.New("too many clients")
	errDraining = errors.New("shutting down")
)

// register adds c to the connections. If there is no room, it closes the oldest connection that has not authenticated,
// since such clients could otherwise shut out all others for good.
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
		s.metrics.Rejected.Add(1)
		s.dismiss(oldest.Value.(*conn))
	}
	s.conns[c.id] = c
	s.memory.total.Add(connBytes)
	if !c.authenticated || c.tls != nil {
		c.admission.stranger = s.strangers.PushBack(c)
	}
	return nil
}

// dismiss closes a connection to make room, and does not count it any more. The caller holds s.mu.
func (s *Server) dismiss(c *conn) {
	s.removeStranger(c)
	if c.admission.dismissed = true; c.admission.hidden {
		c.admission.hidden = false
		s.hidden--
	}
	s.dismissed++
	c.plainConn().Close()
}

// removeStranger removes c from the connections that have not authenticated. The caller holds s.mu.
func (s *Server) removeStranger(c *conn) {
	if c.admission.stranger != nil {
		s.strangers.Remove(c.admission.stranger)
		c.admission.stranger = nil
	}
}

// setKnown sets whether c has authenticated, or performed the TLS handshake if that suffices.
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
	if c.admission.hidden {
		s.hidden--
	}
	s.releaseMemory(c)
	s.mu.Unlock()
	s.cfg.Audit.ClientGone(c.id)
}

// identify passes the client's address, name and user to the audit log.
func (c *conn) identify() {
	if c.srv.cfg.Audit != nil {
		is := c.view()
		c.srv.cfg.Audit.SetClient(c.id, audit.Client{Addr: c.addr.String(), Name: is.name, User: is.user.Name})
	}
}

// hide removes a client from all answers before its connection has ended.
func (s *Server) hide(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[c.id] == c && !c.admission.hidden && !c.admission.dismissed {
		c.admission.hidden = true
		s.hidden++
	}
}

func (s *Server) clientCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns) - s.dismissed - s.hidden
}

// address returns the address for clients, or for Sentinel's clients. It is empty before Serve.
func (s *Server) address(sentinel bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sentinel {
		return s.sentinelAddr
	}
	return s.addr
}

// clients returns the connections, oldest first.
func (s *Server) clients() []*conn {
	s.mu.Lock()
	all := make([]*conn, 0, len(s.conns))
	for _, c := range s.conns {
		if !c.admission.dismissed && !c.admission.hidden {
			all = append(all, c)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
	return all
}

// dismissWithin bounds the time of running commands if the clients must connect again.
const dismissWithin = 2 * time.Second

// Dismiss closes the connections that are open, once their commands are answered.
func (s *Server) Dismiss() {
	all := s.clients()
	for _, c := range all {
		c.retire()
	}
	time.AfterFunc(dismissWithin, func() {
		for _, c := range all {
			c.plainConn().Close()
		}
	})
}

// drain closes idle connections, and waits for running commands. After ShutdownTimeout it closes all connections.
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
