package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/frontend"
	"github.com/holdfast/holdfast/server/frontend/observe"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/pubsub"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/sessions"
	"github.com/holdfast/holdfast/server/tracking"
)

// newClusterlessFront returns the frontend of a node without a cluster, which answers commands on keys with
// CLUSTERDOWN. Its connections end once the node belongs to a cluster, and the clients reconnect.
func (s *Server) newClusterlessFront() *frontend.Server {
	c := s.frontConfig()
	c.Hub, c.Tracking, c.Monitors = pubsub.New(s.logger), tracking.New(tracking.DefaultLimits()), observe.NewMonitors()
	c.Options.Debug, c.Options.Faults, c.Backups = false, nil, nil
	c.Logger = slog.New(slog.DiscardHandler)
	c.Node.Waiting = s.cluster.bootstrap.Waiting
	return frontend.New(c, newClusterlessBackend(s.store.Identity().ID))
}

// clusterlessBackend is the backend of newClusterlessFront.
type clusterlessBackend struct {
	id      string
	machine fsm.Machine
	clients *sessions.Clients
}

func newClusterlessBackend(id string) *clusterlessBackend {
	none := func(uint64) bool { return false }
	return &clusterlessBackend{
		id: id, machine: fsm.New(),
		clients: sessions.New(sessions.Cluster{
			Propose: func([]byte, int) error { return protocol.ErrNoLeader }, Renew: func() error { return protocol.ErrNoLeader },
			Waits: none, Applied: none, SubscribeWaiting: func(bool) {}, SubscribeSessions: func(bool) {},
		}),
	}
}

func (b *clusterlessBackend) Execute(*replica.Batch) error { return protocol.ErrNoLeader }

func (b *clusterlessBackend) Compile(source string) error { return b.machine.Compile(source) }

func (b *clusterlessBackend) Compiled(source string) bool { return b.machine.Compiled(source) }

func (b *clusterlessBackend) ScriptWork([]byte, [][]byte) int64 { return 0 }

func (b *clusterlessBackend) Origin() protocol.Incarnation { return protocol.Incarnation{Node: b.id} }

func (b *clusterlessBackend) Clients() *sessions.Clients { return b.clients }

func (b *clusterlessBackend) LockStats() fsm.LockStats { return b.machine.LockStats() }

func (b *clusterlessBackend) LockClasses() []fsm.LockClass { return b.machine.LockClasses() }

func (b *clusterlessBackend) StockWaiters(int, string) []fsm.StockWaiter { return nil }

func (b *clusterlessBackend) Stats() fsm.Stats { return b.machine.Stats() }

func (b *clusterlessBackend) Listen(event.Interest) {}

func (b *clusterlessBackend) Version() byte { return protocol.OldestEntryVersion }

func (b *clusterlessBackend) DiskFull() bool { return false }

func (b *clusterlessBackend) Status() replica.Status {
	return replica.Status{
		ID: b.id, Name: members.Name(b.id),
		Members: []replica.Member{{ID: b.id, Name: members.Name(b.id), Silent: true}},
	}
}

func (b *clusterlessBackend) WatchLeadership(f func(replica.Leadership, []replica.Member)) {
	f(replica.Leadership{}, b.Status().Members)
}

func (b *clusterlessBackend) AwaitApplied(context.Context, uint64) bool { return false }

func (b *clusterlessBackend) WaitReplicated(context.Context, int, time.Duration) int { return 0 }

// sharedListener is a listener whose Close leaves the port open for the next user.
type sharedListener struct {
	*net.TCPListener
	over atomic.Bool
}

// Accept implements net.Listener.
func (l *sharedListener) Accept() (net.Conn, error) {
	if l.over.Load() {
		return nil, net.ErrClosed
	}
	conn, err := l.TCPListener.Accept()
	if l.over.Load() && err != nil {
		return nil, net.ErrClosed
	}
	return conn, err
}

// Close ends Accept.
func (l *sharedListener) Close() error {
	l.over.Store(true)
	return l.SetDeadline(time.Unix(1, 0))
}

// servePort serves a port of clients, at first without a cluster if the node belongs to none.
func (s *Server) servePort(ctx context.Context, ln net.Listener, serve func(*frontend.Server, context.Context,
	net.Listener) error,
) error {
	if tcp, ok := ln.(*net.TCPListener); ok && !s.isOpen() {
		err := s.serveWaiting(ctx, tcp, serve)
		if ctx.Err() != nil || err != nil {
			return errors.Join(err, ln.Close())
		}
	}
	return serve(s.front, ctx, ln)
}

// serveWaiting serves until the node belongs to a cluster.
func (s *Server) serveWaiting(ctx context.Context, ln *net.TCPListener, serve func(*frontend.Server, context.Context,
	net.Listener) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.opened:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := serve(s.waitingFront(), ctx, &sharedListener{TCPListener: ln})
	return errors.Join(err, ln.SetDeadline(time.Time{}))
}
