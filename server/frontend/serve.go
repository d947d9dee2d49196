package frontend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// Serve accepts clients on ln until ctx ends. It then closes ln, waits for running commands, and returns nil once all
// connections have ended. Commands that run for longer than ShutdownTimeout are cut off. Serve may run for several
// listeners.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	s.mu.Lock()
	if s.addr == "" {
		s.addr = ln.Addr().String()
	}
	s.mu.Unlock()
	return s.serve(ctx, ln, protocol.Redis())
}

// ServeSentinel is [Server.Serve] for clients that ask for the leader as they ask a Sentinel.
func (s *Server) ServeSentinel(ctx context.Context, ln net.Listener) error {
	s.mu.Lock()
	s.sentinelAddr = ln.Addr().String()
	s.mu.Unlock()
	return s.serve(ctx, ln, protocol.Sentinel())
}

func (s *Server) serve(ctx context.Context, ln net.Listener, table *protocol.Table) error {
	var all sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	err := s.accept(ctx, ln, table, &all)
	s.drain(&all)
	if ctx.Err() != nil {
		return nil
	}
	ln.Close()
	return err
}

// accept starts a goroutine for each connection until the listener is closed.
func (s *Server) accept(ctx context.Context, ln net.Listener, table *protocol.Table, all *sync.WaitGroup) error {
	var pause time.Duration
	for {
		nc, err := ln.Accept()
		if err == nil {
			pause = 0
			s.admitOrRefuse(ctx, nc, table, all)
			continue
		}
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("accept clients: %w", err)
		}
		// The usual cause is too many open files. Clients that are connected go on, others wait.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.cfg.Logger.Warn("cannot accept clients", "error", err, "pause", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func newConn(s *Server, nc net.Conn, table *protocol.Table) *conn {
	u := s.cfg.Users.Held().Default()
	c := &conn{
		srv: s, table: table,
		stream: stream{
			srv: s, socket: newSocket(nc, s.cfg.TLS), authenticated: u.Open(), resp: protocol.RESP2,
			input: input{born: time.Now()},
		},
		profile:     profile{id: s.ids.next(), shown: shown{user: u}},
		limited:     limited{srv: s},
		clientState: clientState{identity: newIdentity(u)},
	}
	c.profile.addr, c.profile.localAddr = c.nc.RemoteAddr(), c.nc.LocalAddr()
	c.socket.id, c.outbox.srv, c.outbox.socket = c.id, s, &c.socket
	c.arrived, c.onNumber, c.onGrowth, c.onStall = c.born, c.numbered, c.account, c.publishStall
	c.publish()
	return c
}

// run serves the client until either side ends the connection.
func (c *conn) run(ctx context.Context) {
	defer c.nc.Close()
	defer func() {
		if p := recover(); p != nil {
			// A bug in this package must not end the node, and with it the locks of other clients.
			c.srv.cfg.Logger.Error("connection panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	c.ctx = ctx
	defer c.leave()
	if c.authenticated {
		c.countAs(c.user.Name, 0)
	}
	c.setLimit(c.user.Name)
	if err := c.open(); err != nil {
		c.srv.cfg.Logger.Debug("connection not opened", "client", c.nc.RemoteAddr(), "error", err)
		return
	}
	for {
		if err := c.awaitInput(); err != nil {
			c.noteVanished(err)
			c.logEnd(err)
			if c.retired.Load() {
				// The last reply may not have been sent yet.
				c.halfClose()
			}
			return
		}
		if !c.servePipelines() {
			return
		}
		c.releaseIdle()
	}
}

// servePipelines runs all complete commands that have arrived, in one batch for each MaxPipeline commands, and replies.
// It reports whether the connection continues.
func (c *conn) servePipelines() bool {
	for {
		c.fresh = false
		full := c.consume()
		if !full && !c.closing && c.parked == nil && c.readMore() {
			continue
		}
		if c.w.commands > 0 {
			c.w.shrink()
		}
		c.keepPace(c.ctx, c.w.commands, &c.retired)
		c.runBatch()
		if c.closing && !c.disconnected {
			c.withdraw()
			c.srv.hide(c)
		}
		c.write()
		if c.outbox.writes {
			c.delivered(c.disconnected)
		}
		c.track.written()
		c.srv.metrics.Commands.Add(uint64(c.w.commands))
		c.w.commands, c.readMoreUntil = 0, time.Time{}
		if c.disconnected {
			return false
		}
		if c.closing {
			c.halfClose()
			return false
		}
		if !full && !c.fresh || c.parked != nil {
			return true
		}
		if c.retired.Load() {
			return false
		}
		if c.deliver(); c.disconnected {
			return false
		}
	}
}

// consume dispatches the commands in the buffer, and reports whether the pipeline has MaxPipeline commands.
func (c *conn) consume() (full bool) {
	w := c.w
	for !c.closing && c.parked == nil {
		if w.commands >= c.srv.cfg.MaxPipeline {
			return true
		}
		args, n, err := w.reader.Next(w.in[w.from:])
		w.from += n
		if err != nil {
			if err != protocol.ErrIncomplete {
				c.protocolError(err)
			}
			return false
		}
		w.commands++
		c.dispatch(args)
	}
	return false
}

// protocolError replies to input that is no command, and ends the connection.
func (c *conn) protocolError(err error) {
	c.reply(nil, c.srv.errorReply(err))
	c.closing = true
}

// releaseIdle returns the memory to the pool if no part of a command has arrived.
func (c *conn) releaseIdle() {
	c.releaseEmpty()
	c.account()
	c.publish()
}

// logEnd logs why a connection ended, unless the reason is ordinary.
func (c *conn) logEnd(err error) {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), c.retired.Load():
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.srv.cfg.Logger.Debug("closed an idle connection", "client", c.nc.RemoteAddr())
	default:
		c.srv.cfg.Logger.Debug("connection lost", "client", c.nc.RemoteAddr(), "error", err)
	}
}
