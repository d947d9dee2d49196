package frontend

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/frontend/observe"
	"github.com/holdfast/holdfast/server/pubsub"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/sessions"
	"github.com/holdfast/holdfast/server/tracking"
	"github.com/stretchr/testify/require"
)

// cluster is a Backend with a single state machine. It fails only if a test sets fail or uncertain.
type cluster struct {
	machine fsm.Machine
	version byte // of the entries
	started time.Time

	mu sync.Mutex
	// awaited has the arguments of AwaitApplied, and batches the executed batches with their replies.
	awaited []uint64
	// lag is the duration of AwaitApplied.
	lag     time.Duration
	batches []replica.Batch
	seq     uint64
	// fail, if set, is the result of Execute.
	fail error
	// uncertain, if set, is the result of the next batch that goes through the log. The batch is applied nevertheless.
	uncertain error
	// gate, if set, blocks Execute until it is closed.
	gate chan struct{}
	// diskFull is the result of DiskFull, and is written to the entries.
	diskFull atomic.Bool

	hub    *pubsub.Hub
	caches *tracking.Table
	// monitors gets the events of the state machine.
	monitors *observe.Monitors
	status   replica.Status
	acks     int
	// lead is the current leadership, and watchers are called when it changes.
	watchers []func(replica.Leadership, []replica.Member)
	lead     replica.Leadership
	clients  *sessions.Clients
	// onForced, if set, is called with the event of a forced break.
	onForced func(*event.Event)
}

func newCluster() *cluster { return newClusterOf(protocol.EntryVersion) }

// newClusterOf is [newCluster] with the version of the entries.
func newClusterOf(version byte) *cluster {
	cl := &cluster{
		version:  version,
		monitors: observe.NewMonitors(),
		lead:     replica.Leadership{Leader: member("1"), Present: true},
		machine:  fsm.New(), hub: pubsub.New(slog.New(slog.DiscardHandler)), caches: tracking.New(tracking.DefaultLimits()),
		started: time.Now(), acks: 2,
		status: replica.Status{
			ID: "n1", Name: "n1", Leading: true, Leader: member("1"), Version: protocol.OldestEntryVersion, Term: 3,
			Committed: 42, Applied: 42, LastLog: 42,
			Members:   []replica.Member{member("1"), member("2"), member("3")},
			Followers: twoFollowers(),
		},
	}
	empty := protocol.NewEntry(nil, version, 0, 0, protocol.EntryLimits{})
	if err := cl.machine.Apply(empty.Bytes(), &sink{cl: cl}); err != nil {
		panic(err)
	}
	cl.machine.SeedReads(here)
	cl.clients = sessions.New(sessions.Cluster{
		Propose: func(body []byte, count int) error {
			return cl.Execute(&replica.Batch{Body: body, Count: count, Write: true})
		},
		Renew: func() error {
			return cl.Execute(&replica.Batch{Body: protocol.AppendNodeKeepalive(nil), Count: 1, Write: true})
		},
		Waits:            func(ticket uint64) bool { return cl.machine.Waits(here, ticket) },
		Applied:          func(number uint64) bool { return cl.machine.Applied(here, number) },
		SubscribeWaiting: func(bool) {}, SubscribeSessions: func(bool) {},
	})
	return cl
}

// here is the incarnation of the cluster's node.
var here = protocol.Incarnation{Node: "n1", Epoch: 1}

func (cl *cluster) Compile(source string) error { return cl.machine.Compile(source) }

func (cl *cluster) Compiled(source string) bool { return cl.machine.Compiled(source) }

func (cl *cluster) ScriptWork(word []byte, words [][]byte) int64 {
	return cl.machine.ScriptWork(word, words)
}

func (cl *cluster) Origin() protocol.Incarnation { return here }

func (cl *cluster) Clients() *sessions.Clients { return cl.clients }

func (cl *cluster) LockStats() fsm.LockStats { return cl.machine.LockStats() }

func (cl *cluster) LockClasses() []fsm.LockClass { return cl.machine.LockClasses() }

func (cl *cluster) StockWaiters(db int, key string) []fsm.StockWaiter {
	return cl.machine.StockWaiters(db, key)
}

// tick applies empty entries with the current time while a timer is due.
func (cl *cluster) tick() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	now := time.Since(cl.started).Milliseconds()
	for due, ok := cl.machine.NextDue(); ok && due <= now; due, ok = cl.machine.NextDue() {
		bare := protocol.NewEntry(nil, cl.version, now, time.Now().UnixMilli()-now, protocol.EntryLimits{})
		if err := cl.machine.Apply(bare.Bytes(), &sink{cl: cl}); err != nil {
			panic(err)
		}
	}
}

func member(n string) replica.Member {
	host := "10.0.0." + n
	// n3 runs a release that does not report its version.
	releases := map[string]string{"1": protocol.HoldfastVersion, "2": "0.0.9"}
	const next = protocol.EntryVersion + 1 // of a later release
	versions := map[string]uint64{"1": next, "2": next, "3": protocol.OldestEntryVersion}
	holds := map[string]uint64{"2": protocol.OldestEntryVersion}
	return replica.Member{
		NewestVersion: versions[n], HoldVersion: holds[n],
		ID: "n" + n, Name: "n" + n, Voter: true, PeerAddr: host + ":7379", ClientAddr: host + ":6379", SentinelAddr: host +
			":26379",
		Release: releases[n],
	}
}

// twoFollowers returns a follower that has an uncommitted entry, and a follower that lags behind.
func twoFollowers() []replica.Follower {
	return []replica.Follower{
		{Member: member("2"), LogIndex: 43, Silent: 20 * time.Millisecond},
		{Member: member("3"), LogIndex: 40, Silent: 1200 * time.Millisecond},
	}
}

func (cl *cluster) Execute(u *replica.Batch) error {
	cl.mu.Lock()
	gate, fail := cl.gate, cl.fail
	cl.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if fail != nil {
		u.Number = 1 << 40 // the batch was proposed, and is never applied
		return fail
	}
	if u.Census {
		u.Replies = []protocol.Value{protocol.Array()}
		if len(u.Body) > 0 {
			u.Replies[0] = protocol.Array(cl.hub.Answer(string(u.Body)))
		}
		return nil
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	now := time.Since(cl.started).Milliseconds()
	wall := time.Now().UnixMilli() - now
	if !u.Write {
		replies, _, due, err := cl.machine.Read(string(u.Body), u.Count, now, wall, fsm.ReadLong)
		if err != nil {
			return err
		}
		if !due {
			u.Replies = replies
			cl.note(u)
			return nil
		}
	}
	cl.seq++
	if u.OnNumber != nil {
		u.OnNumber(cl.seq)
	}
	entry := protocol.NewEntry(nil, cl.version, now, wall, protocol.EntryLimits{DiskFull: cl.diskFull.Load()})
	entry.Add(here, cl.seq, cl.seq, u.Body)
	sink := &sink{cl: cl}
	if err := cl.machine.Apply(entry.Bytes(), sink); err != nil {
		return err
	}
	if err := cl.uncertain; err != nil {
		cl.uncertain = nil
		return err
	}
	if !sink.applied {
		return errors.New("the batch was not applied")
	}
	u.Replies, u.Number = sink.replies, cl.seq
	cl.note(u)
	return nil
}

func (cl *cluster) note(u *replica.Batch) {
	cl.batches = append(cl.batches, replica.Batch{
		Body: bytes.Clone(u.Body), Count: u.Count, Write: u.Write,
		Replies: u.Replies, Hints: u.Hints, Work: u.Work,
	})
}

// take returns the batches executed since the last call.
func (cl *cluster) take() []replica.Batch {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	batches := cl.batches
	cl.batches = nil
	return batches
}

func (cl *cluster) set(f func()) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	f()
}

func (cl *cluster) Status() replica.Status {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.status
}

func (cl *cluster) WatchLeadership(f func(replica.Leadership, []replica.Member)) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.watchers = append(cl.watchers, f)
	f(cl.lead, cl.status.Members)
}

// elect makes m the leader, and calls the watchers. The zero Member means that there is no leader.
func (cl *cluster) elect(m replica.Member) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.lead.Present = m.Name != ""
	if cl.lead.Present {
		cl.lead.Leader = m
	}
	for _, f := range cl.watchers {
		f(cl.lead, cl.status.Members)
	}
}

// settle waits until the events of the state machine have been posted to the clients.
func (cl *cluster) settle() {
	cl.hub.Settle()
	cl.caches.Settle()
}

func (cl *cluster) Listen(i event.Interest) { cl.machine.Listen(i) }

func (cl *cluster) Version() byte {
	version, _ := cl.machine.Version()
	return version
}

func (cl *cluster) Stats() fsm.Stats { return cl.machine.Stats() }

func (cl *cluster) AwaitApplied(_ context.Context, number uint64) bool {
	var lag time.Duration
	cl.set(func() { cl.awaited, lag = append(cl.awaited, number), cl.lag })
	time.Sleep(lag)
	return true
}

func (cl *cluster) DiskFull() bool { return cl.diskFull.Load() }

func (cl *cluster) WaitReplicated(ctx context.Context, n int, timeout time.Duration) int {
	cl.mu.Lock()
	acks := cl.acks
	cl.mu.Unlock()
	if acks >= n {
		return acks
	}
	var expired <-chan time.Time
	if timeout > 0 {
		expired = time.After(timeout)
	}
	select {
	case <-ctx.Done():
	case <-expired:
	}
	return acks
}

type sink struct {
	replies []protocol.Value
	applied bool
	cl      *cluster
}

func (s *sink) Wanted(protocol.Incarnation, uint64) bool { return true }

func (s *sink) Done(_ protocol.Incarnation, _ uint64, replies []protocol.Value, applied bool) {
	s.replies, s.applied = replies, applied
}

func (s *sink) Events(events []event.Event) {
	s.cl.hub.Events(events)
	s.cl.caches.Events(events)
	s.cl.monitors.Events(events)
	s.cl.clients.Renewer.Events(events)
	for _, e := range events {
		switch e.Kind {
		case event.Woken:
			s.cl.clients.Waiters.Woken(e.Seq, *e.Reply)
		case event.LocksForced:
			if s.cl.onForced != nil {
				s.cl.onForced(&e)
			}
		}
	}
}

// memListener accepts one end of a net.Pipe for each dial.
type memListener struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newMemListener() *memListener {
	return &memListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *memListener) Addr() net.Addr { return memAddr{} }

type memAddr struct{}

func (memAddr) Network() string { return "mem" }
func (memAddr) String() string  { return "127.0.0.1:6379" }

func (l *memListener) dial() (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// testServer is a server on an in-memory listener.
type testServer struct {
	*Server
	t       testing.TB
	ln      *memListener
	cluster *cluster
	stop    func()
}

// start starts a server on an in-memory listener. The server stops when the test ends.
func start(t testing.TB, cfg Config, cl *cluster) *testServer {
	t.Helper()
	ln := newMemListener()
	s := startOn(t, cfg, cl, ln)
	s.ln = ln
	return s
}

// inBubble runs a test in virtual time, with a server.
func inBubble(t *testing.T, cfg Config, test func(t *testing.T, s *testServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, start(t, cfg, newCluster())) })
}

func startOn(t testing.TB, cfg Config, cl *cluster, ln net.Listener) *testServer {
	t.Helper()
	cfg.Hub, cfg.Tracking, cfg.Monitors = cl.hub, cl.caches, cl.monitors
	s := startOver(t, cfg, cl, ln)
	s.cluster = cl
	return s
}

// startOver starts a server with the given backend.
func startOver(t testing.TB, cfg Config, backend Backend, ln net.Listener) *testServer {
	t.Helper()
	cfg.Logger = slog.New(failOnPanic{t})
	if cfg.Node.RunID == "" {
		cfg.Node.RunID = "0123456789abcdef0123456789abcdef01234567"
	}
	s := &testServer{Server: New(cfg, backend), t: t}
	s.ids.before = 0
	s.ids.last.Store(0)
	s.ln, _ = ln.(*memListener)
	ctx, cancel := context.WithCancel(context.Background())
	done, kept := make(chan error, 1), make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	go func() { kept <- backend.Clients().Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, <-kept)
	})
	t.Cleanup(s.stop)
	return s
}

// serveSentinel serves the port for Sentinel's clients. From then on, dial connects to this port.
func (s *testServer) serveSentinel() {
	s.ln = newMemListener()
	s.serveSentinelOn(s.ln)
}

func (s *testServer) serveSentinelOn(ln net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.ServeSentinel(ctx, ln) }()
	stop := s.stop
	s.stop = func() {
		cancel()
		require.NoError(s.t, <-done)
		stop()
	}
	s.t.Cleanup(cancel)
}

// serveOne serves a single connection to its end.
func (s *Server) serveOne(ctx context.Context, nc net.Conn) {
	var all sync.WaitGroup
	s.admitOrRefuse(ctx, nc, protocol.Redis(), &all)
	all.Wait()
}

// failOnPanic is a log handler that fails the test if a connection has panicked.
type failOnPanic struct{ t testing.TB }

func (h failOnPanic) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
func (h failOnPanic) WithAttrs([]slog.Attr) slog.Handler           { return h }
func (h failOnPanic) WithGroup(string) slog.Handler                { return h }

func (h failOnPanic) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "panic" || a.Key == "stack" {
			h.t.Errorf("%s: %v", r.Message, a.Value)
		}
		return true
	})
	return nil
}

// testClient collects what the server sends, until take returns it.
type testClient struct {
	t  testing.TB
	nc net.Conn

	mu     sync.Mutex
	got    []byte
	closed bool
}

func (s *testServer) dial() *testClient {
	nc, err := s.ln.dial()
	require.NoError(s.t, err)
	c := &testClient{t: s.t, nc: nc}
	go c.readAll()
	s.t.Cleanup(func() { nc.Close() })
	return c
}

func (c *testClient) readAll() {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.nc.Read(buf)
		c.mu.Lock()
		c.got = append(c.got, buf[:n]...)
		c.closed = err != nil
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// take returns what has arrived since the last call, and whether the server has closed the connection.
func (c *testClient) take() (got string, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	got, c.got = string(c.got), nil
	return got, c.closed
}

// send writes b. The server may close the connection meanwhile.
func (c *testClient) send(b []byte) {
	if _, err := c.nc.Write(b); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		require.NoError(c.t, err)
	}
}

// deliver sends b, and returns when the server is idle.
func (c *testClient) deliver(b []byte) {
	c.send(b)
	settle()
}

// command returns a command in RESP, as clients send it.
func command(words ...string) []byte {
	return protocol.Strings(words...).AppendTo(nil, protocol.RESP2)
}
