package raftnode

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
)

// port is a stream to members that answer as told, and that accepts nothing.
type port struct {
	memberStub
	closed       chan struct{}
	once         sync.Once
	dialed, open atomic.Int32
}

func (p *port) Accept() (net.Conn, error) {
	<-p.closed
	return nil, net.ErrClosed
}

func (p *port) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *port) Addr() net.Addr { return &net.TCPAddr{} }

func (p *port) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) { return nil, net.ErrClosed }

func (p *port) DialContext(ctx context.Context, id string) (net.Conn, error) {
	conn, err := p.memberStub.DialContext(ctx, id)
	p.dialed.Add(1)
	p.open.Add(1)
	return &dialedConn{Conn: conn, port: p}, err
}

// dialedConn is counted until it is closed.
type dialedConn struct {
	net.Conn
	port *port
	once sync.Once
}

func (c *dialedConn) Close() error {
	c.once.Do(func() { c.port.open.Add(-1) })
	return c.Conn.Close()
}

// machineStub takes every entry.
type machineStub struct{}

func (machineStub) Apply(Entry) error               { return nil }
func (machineStub) Reach(uint64)                    {}
func (machineStub) Capture() io.WriterTo            { return strings.NewReader("state") }
func (machineStub) Restore(io.Reader, uint64) error { return nil }

// single is the node n1 by itself.
type single struct {
	*Node
	append    *port
	snapshots atomic.Int32 // that were taken
	removed   atomic.Int32 // times that the owner was told
	start     func()
}

// openSingle opens n1, with these other founders, who do not answer. It belongs into a bubble.
func openSingle(t *testing.T, others ...string) *single {
	s := &single{append: &port{closed: make(chan struct{})}}
	founders := []members.Member{{ID: "n1", Addr: "n1:1", Voter: true}}
	for _, id := range others {
		founders = append(founders, members.Member{ID: id, Addr: id + ":1", Voter: true})
	}
	store := raft.NewInmemStore()
	var err error
	s.Node, err = Open(Config{
		ID: "n1", Bootstrap: founders, Log: store, Stable: store, Snapshots: raft.NewInmemSnapshotStore(),
		Raft: &port{closed: make(chan struct{})}, Append: s.append,
		Dial: func(context.Context, string) (net.Conn, error) { return nil, net.ErrClosed },
		Timing: Timing{
			HeartbeatTimeout: time.Second, ElectionTimeout: time.Second, LeaseTimeout: 500 * time.Millisecond,
			CommitTimeout: 50 * time.Millisecond,
		},
		SnapshotPolicy: SnapshotPolicy{
			SnapshotThreshold: 1 << 20, SnapshotBytes: 100, SnapshotInterval: time.Hour, TrailingLogs: 1 << 20,
			TrailingBytes: 1 << 20,
		},
		Logger: slog.New(slog.DiscardHandler), RaftLogger: hclog.NewNullLogger(), Machine: machineStub{},
		OnChange: func() {}, OnConfiguration: func() {}, OnRemoved: func() { s.removed.Add(1) },
		OnEvent: func(e Event) {
			if _, taken := e.(SnapshotTaken); taken {
				s.snapshots.Add(1)
			}
		},
		Fail: func(err error) { t.Error(err) },
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	s.start = func() {
		s.Start(func(_ string, run func(context.Context) error) { parts.Go(func() { _ = run(ctx) }) })
		synctest.Wait()
	}
	t.Cleanup(func() {
		cancel()
		require.True(t, s.Stop())
		require.NoError(t, s.Wait())
		parts.Wait()
	})
	return s
}

// TestLeadershipIsOneTerms: a leader does not lead the terms before its own, and sends nothing of them.
func TestLeadershipIsOneTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t)
		n.append.answer = func(*raft.AppendEntriesRequest) *raft.AppendEntriesResponse {
			return &raft.AppendEntriesResponse{Success: true}
		}
		require.False(t, n.Leads(n.Term()))
		n.start()
		term, leading := n.Leading()
		require.True(t, leading)
		require.True(t, n.Leads(term))
		require.False(t, n.Leads(term-1))
		args := &raft.AppendEntriesRequest{Term: term - 1, PrevLogEntry: 1, PrevLogTerm: 1}
		require.ErrorIs(t, n.transport.AppendEntries("n2", "", args, &raft.AppendEntriesResponse{}), raft.ErrLeadershipLost)
		require.Zero(t, n.append.dialed.Load())
		began := time.Now()
		require.NoError(t, n.TransferTo(t.Context(), "n1", nil))
		require.ErrorIs(t, n.TransferTo(t.Context(), "n2", nil), ErrNotMember)
		require.Zero(t, time.Since(began), "nothing is waited for")
	})
}

// TestRemovalNoticeIsALeaders: it is repeated until it is taken, and leaves no connection; a node that does not lead
// sends none.
func TestRemovalNoticeIsALeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		follower := openSingle(t, "n2", "n3")
		follower.sendRemovalNotice(t.Context(), "n9", 1)
		require.Zero(t, follower.append.dialed.Load())
		n, asked := openSingle(t), 0
		n.append.answer = func(*raft.AppendEntriesRequest) *raft.AppendEntriesResponse {
			asked++
			return &raft.AppendEntriesResponse{Success: asked == 3}
		}
		n.start()
		n.sendRemovalNotice(t.Context(), "n9", 1)
		require.Equal(t, 3, asked)
		require.Equal(t, int32(1), n.append.dialed.Load())
		require.Zero(t, n.append.open.Load())
	})
}

// TestRemovalBeforeTheStart: the owner is told of what was found while the node was opened.
func TestRemovalBeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t, "n2", "n3")
		n.configurationCommitted(committedChange{removed: true})
		require.Zero(t, n.removed.Load())
		n.start()
		require.Equal(t, int32(1), n.removed.Load())
	})
}

// TestSnapshotAfterSoManyBytes: they are counted anew after each snapshot, whatever it was taken for.
func TestSnapshotAfterSoManyBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t)
		n.start()
		propose := func() {
			n.Propose(n.Term(), make([]byte, 60))
			synctest.Wait()
		}
		for i, taken := range []int32{0, 1, 1, 2} {
			propose()
			require.Equal(t, taken, n.snapshots.Load(), "entry %d", i)
		}
		propose()
		require.NoError(t, n.TakeSnapshot())
		require.Equal(t, int32(3), n.snapshots.Load())
		propose()
		require.Equal(t, int32(3), n.snapshots.Load())
	})
}

// TestSnapshotForAnother: one that is new enough is opened, or taken first; a node in quarantine opens none.
func TestSnapshotForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t)
		n.start()
		_, _, err := n.OpenSnapshot(n.Applied() + 1)
		require.ErrorContains(t, err, "and is needed up to")
		require.Zero(t, n.snapshots.Load())
		for range 2 {
			meta, state, err := n.OpenSnapshot(1)
			require.NoError(t, err)
			require.NoError(t, state.Close())
			require.GreaterOrEqual(t, meta.Index, uint64(1))
			require.Equal(t, int32(1), n.snapshots.Load())
		}
		stored, err := n.Node.snapshots.List()
		require.NoError(t, err)
		require.NoError(t, n.Quarantine())
		_, _, err = n.OpenSnapshot(1)
		require.ErrorIs(t, err, ErrQuarantined)
		_, _, err = n.Node.snapshots.Open(stored[0].ID)
		require.ErrorIs(t, err, ErrQuarantined)
	})
}

// TestGivingUp: too few other voters have what follows the commit index; the voter with the longest log is asked first.
func TestGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t, "n2", "n3")
		n.acks.note("n3", 7, 0, 9)
		n.acks.note("n2", 7, 0, 0)
		sum, too := n.Unacknowledged(7)
		require.Equal(t, uint64(9), sum)
		require.False(t, too)
		sum, too = n.Unacknowledged(8)
		require.Zero(t, sum)
		require.True(t, too)
		gone := make(chan struct{})
		require.Equal(t, []string{"n3", "n2"}, n.GiveUp(7, gone))
		close(gone)
		require.Equal(t, []string{"n3"}, n.GiveUp(7, gone))
	})
}

// TestSubscriptionOutlivesChangesOfMembers, and its connection ends with the goroutine.
func TestSubscriptionOutlivesChangesOfMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t, "n2", "n3")
		n.SetCommitSubscriber("n2", true)
		n.commits.reconfigure(viewOf("n1", "n2", "n4"))
		peers := *n.commits.peers.Load()
		require.Len(t, peers, 2)
		require.True(t, peers["n2"].subscribed.Load())
		p := peers["n2"]
		var err error
		p.conn, err = n.transport.appender.take("n2")
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		<-p.wake
		p.stop = stop
		stop()
		n.commits.serve(ctx, p, "n2")
		require.Zero(t, n.append.open.Load())
	})
}

// TestIdleConnectionsAreBounded: so many are kept to a node, and none once the node stops.
func TestIdleConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t, "n2", "n3")
		a := n.transport.appender
		var conns []*appendConn
		for range connsPerPeer + 2 {
			conn, err := a.take("n2")
			require.NoError(t, err)
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			a.give("n2", conn)
		}
		require.Equal(t, int32(connsPerPeer), n.append.open.Load())
		a.hangUp("n2")
		require.Zero(t, n.append.open.Load())
		conn, err := a.take("n2")
		require.NoError(t, err)
		a.close()
		a.give("n2", conn)
		require.Zero(t, n.append.open.Load())
	})
}

// replayStub is a machine that may refuse entries.
type replayStub struct {
	applied []string
	err     error
}

func (m *replayStub) Restore(io.Reader) error { return nil }

func (m *replayStub) Apply(data []byte) error {
	m.applied = append(m.applied, string(data))
	return m.err
}

// TestReplay: void entries are left out, and the first that is missing or cannot be applied ends it.
func TestReplay(t *testing.T) {
	store, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	require.NoError(t, store.StoreLogs([]*raft.Log{
		configurationAt(1, "n1"),
		{Index: 2, Term: 2, Type: raft.LogCommand, Data: []byte("void"), Extensions: []byte{1}},
		{Index: 3, Term: 2, Type: raft.LogCommand, Data: []byte("counts"), Extensions: []byte{2}},
	}))
	m := &replayStub{}
	r, err := Replay(store, snapshots, m)
	require.NoError(t, err)
	require.Equal(t, []string{"counts"}, m.applied)
	require.Equal(t, [2]uint64{3, 2}, [2]uint64{r.Last, r.Term})
	require.True(t, r.Members.Has("n1"))

	refuses := &replayStub{err: errors.New("refused")}
	_, err = Replay(store, snapshots, refuses)
	require.ErrorIs(t, err, refuses.err)

	require.NoError(t, store.DeleteRange(2, 2))
	_, err = Replay(store, snapshots, &replayStub{})
	require.ErrorIs(t, err, raft.ErrLogNotFound)
}

// TestLooksDoNotOverlap: events are told in the order of their causes.
func TestLooksDoNotOverlap(t *testing.T) {
	p := newProgress(&Config{})
	p.looking.Store(true)
	p.look(7, 1, acksOf("n1", "n2"))
	require.Zero(t, p.term)
}

// restores is a machine that is given a state.
type restores struct {
	machineStub
	index uint64
	err   error
}

func (m *restores) Restore(_ io.Reader, index uint64) error {
	m.index = index
	return m.err
}

// TestRestoredStates: what a state changes depends on whether raft takes it from the disk, while it is opened, or from
// a leader.
func TestRestoredStates(t *testing.T) {
	m, snapshots := &restores{}, raft.NewInmemSnapshotStore()
	a := newApplier(&Config{Machine: m, Snapshots: snapshots}, nil, nil)
	a.configurations = newConfigurations("n1")
	a.quarantine.frozen.Store(true)
	restore := func() error { return a.Restore(io.NopCloser(strings.NewReader(""))) }
	a.bytes = 7
	require.NoError(t, restore(), "raft has no snapshot")
	require.Zero(t, m.index)
	require.Zero(t, a.bytes)

	_, transport := raft.NewInmemTransport("")
	sink, err := snapshots.Create(1, 9, 2, raft.DecodeConfiguration(configurationAt(5, "n1", "n2").Data), 5, transport)
	require.NoError(t, err)
	require.NoError(t, sink.Close())
	m.err = errors.New("first")
	require.ErrorIs(t, restore(), m.err)
	first := m.err
	m.err = errors.New("second")
	require.ErrorIs(t, restore(), m.err)
	require.Equal(t, first, a.unreadable, "of the newest")
	require.Zero(t, a.index.Load())
	m.err = nil
	require.NoError(t, restore())
	require.Equal(t, uint64(9), m.index)
	require.Equal(t, uint64(9), a.index.Load())
	require.True(t, a.quarantine.frozen.Load(), "it is the state of before")
	require.Empty(t, a.configurations.ids(), "raft reads the log next")

	a.unreadable, m.err = nil, first
	a.opened.Store(true)
	require.Error(t, restore())
	require.NoError(t, a.unreadable, "the leader's was damaged")
	require.True(t, a.quarantine.frozen.Load())
	m.err = nil
	require.NoError(t, restore())
	require.False(t, a.quarantine.frozen.Load())
	require.Equal(t, []string{"n1", "n2"}, a.configurations.ids())
}

// TestDeclineWithoutSuccessor: a node in quarantine that nobody answers keeps its leadership, and says so.
func TestDeclineWithoutSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t)
		n.start()
		time.Sleep(10 * time.Second)
		require.True(t, n.Leads(n.Term()))
		require.ErrorContains(t, n.Decline(t.Context(), nil), "no voter answers that could lead")
		require.True(t, n.Leads(n.Term()))
	})
}

// TestHeartbeatBeforeRaft: a heartbeat that comes before raft takes them is a request as any other.
func TestHeartbeatBeforeRaft(t *testing.T) {
	require.False(t, new(heartbeats).handle(raft.RPC{}))
}

// TestSubscriberThatComesBack: a member that was removed and is added again is sent notifications again.
func TestSubscriberThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := dialed(make(chan struct{}, 9))
		c := newCommitNotifier(commitNotifierConfig{self: "n1", appender: newAppender(dials)})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.run(ctx) }()
		for _, there := range []bool{true, false, true} {
			others := []string{}
			if there {
				others = append(others, "n2")
			}
			c.reconfigure(viewOf("n1", others...))
			synctest.Wait()
			if p := (*c.peers.Load())["n2"]; p != nil {
				p.subscribed.Store(true)
			}
			c.notifyAll()
			synctest.Wait()
			require.Equal(t, there, len(dials) > 0)
			for len(dials) > 0 {
				<-dials
			}
		}
		stop()
		require.NoError(t, <-ended)
	})
}

// dialed is a stream that reaches nobody, and has something for each dial.
type dialed chan struct{}

func (d dialed) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (d dialed) Close() error              { return nil }
func (d dialed) Addr() net.Addr            { return nil }

func (d dialed) DialContext(context.Context, string) (net.Conn, error) {
	d <- struct{}{}
	return nil, net.ErrClosed
}
