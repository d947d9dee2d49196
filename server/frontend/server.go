package frontend

import (
	"container/list"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
)

// Server serves clients. Create it with [New].
type Server struct {
	cfg     Config
	backend Backend
	started time.Time
	// rows never change. watchRow and execRow are two of the rows.
	rows              map[*protocol.Command]*row
	watchRow, execRow *row
	compiled          *compileCache
	stats             stats
	nextID            atomic.Int64
	pool              sync.Pool // of *work
	memory            clientMemory
	refusals          atomic.Int32
	// lead is what the backend said last about the leader.
	lead atomic.Pointer[replica.Leadership]

	mu    sync.Mutex
	conns map[int64]*conn
	// dismissed counts the connections of conns that were closed to make room. strangers are the
	// connections that have not authenticated, oldest first.
	dismissed int
	strangers list.List
	draining  bool
	addr      string // of the first listener
}

// New makes a server whose commands are executed by backend.
func New(cfg Config, backend Backend) *Server {
	cfg = cfg.withDefaults()
	if cfg.Node.RunID == "" {
		var id [20]byte
		rand.Read(id[:])
		cfg.Node.RunID = hex.EncodeToString(id[:])
	}
	s := &Server{
		cfg: cfg, backend: backend, started: time.Now(), rows: newRows(),
		compiled: newCompileCache(fsm.CheckScript), conns: make(map[int64]*conn),
		memory: clientMemory{limit: int64(cfg.MaxMemoryClientsBytes)},
	}
	s.pool.New = func() any {
		return &work{in: make([]byte, 0, pooledIn), reader: protocol.NewReader(protocol.DefaultLimits())}
	}
	backend.WatchLeadership(func(l replica.Leadership) { s.lead.Store(&l) })
	for _, row := range s.rows {
		switch row.Name {
		case "watch":
			s.watchRow = row
		case "exec":
			s.execRow = row
		}
	}
	return s
}

// leadership is what clients are told about the leader.
func (s *Server) leadership() replica.Leadership { return *s.lead.Load() }

// Serve accepts clients on ln until ctx ends. Then Serve closes ln, lets the commands in flight be
// answered, and returns nil when all connections are gone. Commands that take longer than
// ShutdownTimeout are cut off. Serve may run for several listeners.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	s.mu.Lock()
	if s.addr == "" {
		s.addr = ln.Addr().String()
	}
	s.mu.Unlock()
	var all sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	err := s.accept(ctx, ln, &all)
	s.drain(&all)
	if ctx.Err() != nil {
		return nil
	}
	ln.Close()
	return err
}

// accept starts a goroutine for each connection until the listener is closed.
func (s *Server) accept(ctx context.Context, ln net.Listener, all *sync.WaitGroup) error {
	var pause time.Duration
	for {
		nc, err := ln.Accept()
		if err == nil {
			pause = 0
			s.admitOrRefuse(ctx, nc, all)
			continue
		}
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("accept clients: %w", err)
		}
		// The usual cause is too many open files. Existing clients go on, new clients wait.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.cfg.Logger.Warn("cannot accept clients", "error", err, "pause", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}
