package raftnode

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer/wire"
	"github.com/holdfast/holdfast/server/store"
)

// port is a stream to members that answer as the test sets. It accepts no connections.
type port struct {
	memberStub
	closed       chan struct{}
	once         sync.Once
	dialed, open atomic.Int32
	refuses      atomic.Bool // whether dials fail

	mu    sync.Mutex
	conns []net.Conn // all that were dialed
}

func (p *port) Accept() (net.Conn, error) {
	<-p.closed
	return nil, net.ErrClosed
}

func (p *port) Close() error {
	p.once.Do(func() { close(p.closed) })
	p.hangUp()
	return nil
}

func (p *port) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
}

func (p *port) Addr() net.Addr { return &net.TCPAddr{} }

func (p *port) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	p.dialed.Add(1)
	return nil, syscall.ECONNREFUSED
}

func (p *port) DialContext(ctx context.Context, id string) (net.Conn, error) {
	if p.refuses.Load() {
		return nil, syscall.ECONNREFUSED
	}
	conn, err := p.memberStub.DialContext(ctx, id)
	p.dialed.Add(1)
	p.open.Add(1)
	conn = &dialedConn{Conn: conn, port: p}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, conn)
	return conn, err
}

// dialedConn counts as open until it is closed.
type dialedConn struct {
	net.Conn
	port *port
	once sync.Once
}

func (c *dialedConn) Close() error {
	c.once.Do(func() { c.port.open.Add(-1) })
	return c.Conn.Close()
}

// machineStub is a state machine that accepts every entry, and ignores it.
type machineStub struct{}

func (machineStub) Apply(Entry) error               { return nil }
func (machineStub) Reach(uint64)                    {}
func (machineStub) Capture() io.WriterTo            { return strings.NewReader("state") }
func (machineStub) Restore(io.Reader, uint64) error { return nil }

// single is the node n1, of which no other member runs.
type single struct {
	*Node
	append    *port
	snapshots atomic.Int32 // number of those taken

	removed, changed, configured atomic.Int32 // number of calls of OnRemoved, OnChange and OnConfiguration

	start func()
}

// singleConfig returns the configuration of n1.
func singleConfig(store *raft.InmemStore, snapshots raft.SnapshotStore) Config {
	return Config{
		ID: "n1", Log: store, Stable: store, Snapshots: snapshots,
		Raft: &port{closed: make(chan struct{})}, Append: &port{closed: make(chan struct{})},
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
		OnChange: func() {}, OnConfiguration: func() {}, OnRemoved: func() {}, OnEvent: func(Event) {}, Fail: func(error) {},
	}
}

// openSingle opens n1. The other founders do not answer. It must be called in a bubble.
func openSingle(t *testing.T, others ...string) *single {
	s := &single{append: &port{closed: make(chan struct{})}}
	founders := []members.Member{{ID: "n1", Addr: "n1:1", Voter: true}}
	for _, id := range others {
		founders = append(founders, members.Member{ID: id, Addr: id + ":1", Voter: true})
	}
	store := raft.NewInmemStore()
	var err error
	c := singleConfig(store, raft.NewInmemSnapshotStore())
	c.Bootstrap, c.Append, c.OnRemoved = founders, s.append, func() { s.removed.Add(1) }
	c.OnChange, c.OnConfiguration = func() { s.changed.Add(1) }, func() { s.configured.Add(1) }
	c.OnEvent = func(e Event) {
		if _, taken := e.(SnapshotTaken); taken {
			s.snapshots.Add(1)
		}
	}
	c.Fail = func(err error) { t.Error(err) }
	s.Node, err = Open(c)
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
		<-s.stopped
		require.True(t, s.transport.appender.closed, "else raft would wait for nodes that do not answer")
		require.NoError(t, s.Wait())
		parts.Wait()
		require.Zero(t, s.append.open.Load())
	})
	return s
}

// TestLeadershipIsOneTerms: a leader leads only its own term, and sends no request of an earlier term.
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
		round, index := n.BeginRound(term)
		require.Zero(t, round.End(), "there are no others")
		require.Positive(t, index)
		require.Equal(t, n.Committed(), index)
		args := &raft.AppendEntriesRequest{Term: term - 1, PrevLogEntry: 1, PrevLogTerm: 1}
		require.ErrorIs(t, n.transport.AppendEntries("n2", "", args, &raft.AppendEntriesResponse{}), raft.ErrLeadershipLost)
		require.Zero(t, n.append.dialed.Load())
		began := time.Now()
		require.NoError(t, n.TransferTo(t.Context(), "n1", nil))
		require.ErrorIs(t, n.TransferTo(t.Context(), "n2", nil), ErrNotMember)
		require.Zero(t, time.Since(began), "neither transfer waits")
	})
}

// TestRemovalNoticeIsALeaders: a leader repeats a removal notice until it is accepted, and then closes its connection.
// A node that does not lead sends none.
func TestRemovalNoticeIsALeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		follower := openSingle(t, "n2", "n3")
		follower.sendRemovalNotice(t.Context(), "n9", 1)
		require.Zero(t, follower.append.dialed.Load())
		n, notices := openSingle(t), 0
		n.append.answer = func(*raft.AppendEntriesRequest) *raft.AppendEntriesResponse {
			notices++
			return &raft.AppendEntriesResponse{Success: notices == 3}
		}
		n.start()
		n.sendRemovalNotice(t.Context(), "n9", 1)
		require.Equal(t, 3, notices)
		require.Equal(t, int32(1), n.append.dialed.Load())
		require.Zero(t, n.append.open.Load())
		n.removals <- committedChange{index: 1, gone: []string{"n1"}}
		synctest.Wait()
		require.Equal(t, 3, notices, "a node sends itself no notice")
		n.sendRemovalNotice(t.Context(), "n9", 99)
		require.Equal(t, 3, notices, "the log lacks the entry")
	})
}

// TestRemovalNoticeEnds: a removal notice ends when the member has a later term, when it refuses connections, or after
// a timeout.
func TestRemovalNoticeEnds(t *testing.T) {
	for _, c := range []struct {
		name           string
		newer          bool // the member answers with a later term
		refuses        bool // the member refuses connections
		hangs          bool // the member closes the connection at each request
		took           time.Duration
		notices, dials int32
	}{
		{"it takes none", false, false, false, removalNoticeTimeout, 20, 1},
		{"it follows another leader", true, false, false, 0, 1, 1},
		{"it is down", false, true, false, 0, 0, 0},
		{"it hangs up", false, false, true, removalNoticeTimeout, 20, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := openSingle(t)
				var notices atomic.Int32
				n.append.answer = func(req *raft.AppendEntriesRequest) *raft.AppendEntriesResponse {
					notices.Add(1)
					if c.hangs {
						n.append.hangUp()
					}
					is := &raft.AppendEntriesResponse{Term: req.Term}
					if c.newer {
						is.Term++
					}
					return is
				}
				n.append.refuses.Store(c.refuses)
				n.start()
				began := time.Now()
				n.sendRemovalNotice(t.Context(), "n9", 1)
				require.Equal(t, c.took, time.Since(began))
				require.InDelta(t, c.notices, notices.Load(), 1) // the last may coincide with the timeout
				require.InDelta(t, c.dials, n.append.dialed.Load(), 1)
				require.Equal(t, c.notices == 0, notices.Load() == 0)
				require.Equal(t, c.dials > 1, n.append.dialed.Load() > 1)
			})
		})
	}
}

// TestLeaderAtTheStart: a lone voter that was elected before its parts start keeps its leadership.
func TestLeaderAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t)
		time.Sleep(10 * time.Second)
		term, leading := n.Leading()
		require.True(t, leading)
		n.start()
		require.True(t, n.Leads(term))
	})
}

// TestOthersAreNotOvertaken: a node that starts waits for a leader if there are other voters.
func TestOthersAreNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t, "n2", "n3")
		n.start()
		require.Equal(t, raft.Follower, n.raft.State())
	})
}

// TestChangesAreReportedAtTheStart: changes of the members that are found while the node is opened are reported when it
// starts.
func TestChangesAreReportedAtTheStart(t *testing.T) {
	for _, removed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := openSingle(t, "n2", "n3")
			reports := func() [2]int32 { return [2]int32{n.configured.Load(), n.removed.Load()} }
			is := map[bool]int32{true: 1}[removed]
			n.configurationCommitted(committedChange{removed: removed})
			n.reconfigure(n.configurations.view())
			require.Zero(t, reports())
			n.start()
			require.Equal(t, [2]int32{1, is}, reports())
			n.reconfigure(n.configurations.view())
			require.Equal(t, [2]int32{2, is}, reports())
			n.configurationCommitted(committedChange{removed: removed})
			require.Equal(t, [2]int32{3, 2 * is}, reports())
		})
	}
}

// TestSnapshotAfterSoManyBytes: a snapshot is taken when enough bytes were applied since the last one, whatever the
// last one was taken for.
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

// TestSnapshotForAnother: OpenSnapshot opens a snapshot that is new enough, or takes one first. In quarantine it opens
// none.
func TestSnapshotForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		follower := openSingle(t, "n2", "n3")
		_, _, err := follower.OpenSnapshot(0)
		require.ErrorIs(t, err, raft.ErrNothingNewToSnapshot)
		n := openSingle(t)
		n.start()
		_, _, err = n.OpenSnapshot(n.Applied() + 1)
		require.ErrorContains(t, err, "and is needed up to")
		require.Zero(t, n.snapshots.Load())
		for range 2 {
			snapshot, state, err := n.OpenSnapshot(1)
			require.NoError(t, err)
			require.NoError(t, state.Close())
			require.GreaterOrEqual(t, snapshot.Index, uint64(1))
			require.Equal(t, int32(1), n.snapshots.Load())
		}
		for at, taken := range []int32{2, 2, 3} { // by turns, the first call of the store fails, and none
			store := n.Node.snapshots.SnapshotStore
			n.Propose(n.Term(), nil)
			synctest.Wait()
			n.Node.snapshots.SnapshotStore = &faulty{SnapshotStore: store, left: at % 2}
			_, state, err := n.OpenSnapshot(1)
			require.NoError(t, err)
			require.NoError(t, state.Close())
			n.Node.snapshots.SnapshotStore = store
			require.Equal(t, taken, n.snapshots.Load(), "try %d", at)
		}
		store := n.Node.snapshots.SnapshotStore
		n.Node.snapshots.SnapshotStore = &faulty{SnapshotStore: store}
		n.applier.broken.Store(true)
		_, state, err := n.OpenSnapshot(1)
		require.NoError(t, err, "another cannot be taken, but this one can be opened now")
		require.NoError(t, state.Close())
		n.applier.broken.Store(false)
		n.Node.snapshots.SnapshotStore = unlisted{store}
		_, _, err = n.OpenSnapshot(1)
		require.ErrorIs(t, err, errBroken)
		n.Node.snapshots.SnapshotStore = store
		stored, err := n.Node.snapshots.List()
		require.NoError(t, err)
		n.Quarantine()
		_, _, err = n.OpenSnapshot(1)
		require.ErrorIs(t, err, ErrQuarantined)
		_, _, err = n.Node.snapshots.Open(stored[0].ID)
		require.ErrorIs(t, err, ErrQuarantined)
	})
}

// unlisted is a store whose snapshots cannot be listed.
type unlisted struct{ raft.SnapshotStore }

func (unlisted) List() ([]*raft.SnapshotMeta, error) { return nil, errBroken }

// TestGivingUp: entries are unacknowledged if too few other voters have an entry behind the commit index. GiveUp asks
// the voter with the longest log first.
func TestGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t, "n2", "n3")
		n.configurations.appended([]*raft.Log{{
			Index: 2, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(store.MembersToRaft([]members.Member{
				{ID: "n1", Addr: "n1:1", Voter: true},
				{ID: "n2", Addr: "n2:1", Voter: true},
				{ID: "n3", Addr: "n3:1", Voter: true},
				{ID: "n4", Addr: "n4:1"},
			})),
		}})
		n.acks.note("n4", 7, 0, 11)
		sum, too := n.Unacknowledged(7)
		require.Zero(t, sum, "what has no vote does not count")
		require.True(t, too)
		n.acks.note("n3", 7, 0, 9)
		n.acks.note("n2", 7, 0, 2)
		sum, too = n.Unacknowledged(7)
		require.Equal(t, uint64(11), sum)
		require.False(t, too)
		sum, too = n.Unacknowledged(8)
		require.Zero(t, sum)
		require.True(t, too)
		ended := make(chan struct{})
		require.Equal(t, []string{"n3", "n2"}, n.GiveUp(7, ended))
		dialed := n.config.Raft.(*port).dialed.Load()
		close(ended)
		require.Equal(t, []string{"n3"}, n.GiveUp(7, ended))
		synctest.Wait()
		require.Equal(t, dialed+1, n.config.Raft.(*port).dialed.Load())
	})
}

// TestCommittedEntriesWaitForNobody: if all entries of a leader are committed, no voter owes an acknowledgement, even
// while the state machine works on them.
func TestCommittedEntriesWaitForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t)
		n.start()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, n.Last(), n.Committed())
		n.configurations.appended([]*raft.Log{configurationAt(90, "n1", "n2", "n3")})
		n.acks.note("n2", n.Term(), 0, n.Last())
		sum, too := n.Unacknowledged(n.Term())
		require.Equal(t, n.Last(), sum)
		require.False(t, too)
	})
}

// TestSubscriptionOutlivesChangesOfMembers: a subscription survives a change of the members. Its connection is closed
// when its goroutine ends.
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

// TestSubscriptionOfAFormerMember: when a subscriber is removed, the connection that was kept for it is closed.
func TestSubscriptionOfAFormerMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t, "n2", "n3")
		for _, id := range []raft.ServerID{"n2", "n3"} {
			n.SetCommitSubscriber(string(id), true)
		}
		var run sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		run.Go(func() { _ = n.commits.run(ctx) })
		synctest.Wait()
		require.EqualValues(t, 2, n.append.open.Load())
		n.commits.reconfigure(viewOf("n1", "n3"))
		synctest.Wait()
		require.EqualValues(t, 1, n.append.open.Load())
		stop()
		run.Wait()
	})
}

// TestIdleConnectionsAreBounded: at most connsPerPeer idle connections to a node are kept, and none after the node has
// stopped.
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
			a.give(conn)
		}
		require.Equal(t, int32(connsPerPeer), n.append.open.Load())
		require.Len(t, a.idle["n2"], connsPerPeer)
		a.hangUp("n2")
		require.Zero(t, n.append.open.Load())
		require.Empty(t, a.idle["n2"], "closed connections are not reused")
		conn, err := a.take("n2")
		require.NoError(t, err)
		a.close()
		<-n.append.closed
		a.give(conn)
		require.Zero(t, n.append.open.Load())
		require.Empty(t, a.idle["n2"])
	})
}

// replayStub is a state machine that records what it restores and applies, and returns err.
type replayStub struct {
	applied []string
	err     error
}

func (m *replayStub) Restore(io.Reader) error {
	if m.err == nil {
		m.applied = append(m.applied, "snapshot")
	}
	return m.err
}

func (m *replayStub) Apply(data []byte) error {
	m.applied = append(m.applied, string(data))
	return m.err
}

// takeSnapshot stores an empty snapshot of the log up to index, with the members ids.
func takeSnapshot(t *testing.T, snapshots raft.SnapshotStore, index, term uint64, ids ...string) {
	t.Helper()
	_, transport := raft.NewInmemTransport("")
	sink, err := snapshots.Create(1, index, term, raft.DecodeConfiguration(configurationAt(1, ids...).Data), 1, transport)
	require.NoError(t, err)
	require.NoError(t, sink.Close())
}

// TestReplay: Replay skips void entries. It returns an error for an entry that is missing or cannot be applied, and for
// a snapshot that cannot be read.
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

	require.NoError(t, store.StoreLog(&raft.Log{Index: 4, Term: 2, Type: raft.LogCommand, Data: []byte("no stamp")}))
	m = &replayStub{}
	_, err = Replay(store, snapshots, m)
	require.ErrorContains(t, err, "apply log entry 4 of term 2: the entry does not say for which term it was stamped")
	require.Equal(t, []string{"counts"}, m.applied)
	require.NoError(t, store.DeleteRange(4, 4))

	require.NoError(t, store.DeleteRange(2, 2))
	_, err = Replay(store, snapshots, &replayStub{})
	require.ErrorIs(t, err, raft.ErrLogNotFound)

	takeSnapshot(t, snapshots, 3, 2, "n1", "n2")
	m = &replayStub{}
	r, err = Replay(store, snapshots, m)
	require.NoError(t, err)
	require.Equal(t, []string{"snapshot"}, m.applied)
	require.Equal(t, [3]uint64{3, 3, 2}, [3]uint64{r.Snapshot, r.Last, r.Term})
	require.True(t, r.Members.Has("n2"))
	_, err = Replay(store, snapshots, refuses)
	require.ErrorIs(t, err, refuses.err)
	_, err = Replay(store, &faulty{SnapshotStore: snapshots}, m)
	require.ErrorIs(t, err, errBroken)
	closes := &closing{SnapshotStore: snapshots}
	_, err = Replay(store, closes, m)
	require.NoError(t, err)
	require.Equal(t, 1, closes.closed)
	_, err = Replay(store, &unreadable{SnapshotStore: snapshots, err: errBroken}, m)
	require.ErrorIs(t, err, errBroken)
}

// closing is a store of snapshots that counts how many of them were closed.
type closing struct {
	raft.SnapshotStore
	closed int
}

func (s *closing) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, r, err := s.SnapshotStore.Open(id)
	return meta, &closingReader{r, s}, err
}

type closingReader struct {
	io.ReadCloser
	of *closing
}

func (r *closingReader) Close() error {
	r.of.closed++
	return r.ReadCloser.Close()
}

// TestLooksDoNotOverlap: only one check runs at a time, so that events are emitted in order.
func TestLooksDoNotOverlap(t *testing.T) {
	p := newProgress(&Config{})
	p.checking.Store(true)
	p.check(7, 1, acksOf("n1", "n2"))
	require.Zero(t, p.term)
}

// TestEntriesAreVerifiedFirst: a build that verifies entries does so before it applies them.
func TestEntriesAreVerifiedFirst(t *testing.T) {
	a := newApplier(&Config{Machine: &machineStub{}}, nil, nil)
	var verified [][]*raft.Log
	a.verify = func(logs []*raft.Log) {
		require.Zero(t, a.index.Load())
		verified = append(verified, logs)
	}
	logs := []*raft.Log{{Index: 4, Type: raft.LogNoop}, {Index: 5, Type: raft.LogNoop}}
	a.ApplyBatch(logs)
	require.Equal(t, [][]*raft.Log{logs}, verified)
	require.EqualValues(t, 5, a.index.Load())
}

// restores is a state machine that records the index of a restored state, and returns err.
type restores struct {
	machineStub
	index uint64
	err   error
}

func (m *restores) Restore(_ io.Reader, index uint64) error {
	m.index = index
	return m.err
}

// TestRestoredStates: the effects of a restored state depend on its source. Raft reads it from the disk while it is
// opened, and later gets it from a leader.
func TestRestoredStates(t *testing.T) {
	m, snapshots := &restores{}, raft.NewInmemSnapshotStore()
	a := newApplier(&Config{Machine: m, Snapshots: snapshots}, nil, nil)
	a.configurations = newConfigurations("n1")
	a.quarantine.frozen.Store(true)
	restore := func() error { return a.Restore(io.NopCloser(strings.NewReader(""))) }
	a.bytes.Store(7)
	require.NoError(t, restore(), "raft has no snapshot")
	require.Zero(t, m.index)
	require.Zero(t, a.bytes.Load())

	takeSnapshot(t, snapshots, 9, 2, "n1", "n2")
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
	a.snapshots, m.index = &faulty{SnapshotStore: snapshots}, 0
	require.ErrorIs(t, restore(), errBroken, "it is not known which one it is")
	require.Zero(t, m.index)
	a.snapshots = snapshots
	require.Error(t, restore())
	require.NoError(t, a.unreadable, "the leader's was damaged")
	require.True(t, a.quarantine.frozen.Load())
	m.err = nil
	require.NoError(t, restore())
	require.False(t, a.quarantine.frozen.Load())
	require.Equal(t, []string{"n1", "n2"}, a.configurations.ids())
	a.snapshots = raft.NewInmemSnapshotStore()
	require.NoError(t, restore())
	require.Equal(t, []string{"n1", "n2"}, a.configurations.ids(), "of no snapshot nothing is known")
}

// takesAll is the answer of a member that accepts every request.
func takesAll(req *raft.AppendEntriesRequest) *raft.AppendEntriesResponse {
	return &raft.AppendEntriesResponse{
		Term: req.Term, Success: true, LastLog: req.PrevLogEntry + uint64(len(req.Entries)),
	}
}

// TestMemberKeepsItsAddress: only a move changes a member's address, whatever address another change has. A change is
// confirmed only by the configuration that it has made.
func TestMemberKeepsItsAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t)
		n.append.answer = takesAll
		n.start()
		change := func(kind ChangeKind, addr string) error {
			_, err := n.Change(t.Context(), Change{
				Kind: kind, Member: members.Member{ID: "n2", Addr: addr}, After: n.Configuration().Index,
			})
			return err
		}
		for _, c := range []struct {
			kind       ChangeKind
			addr, want string
		}{{AddNonvoter, "n2:1", "n2:1"}, {AddVoter, "n2:9", "n2:1"}, {Move, "n2:2", "n2:2"}, {Demote, "", "n2:2"}} {
			require.NoError(t, change(c.kind, c.addr))
			m, ok := n.CommittedConfiguration().Find("n2")
			require.True(t, ok)
			require.Equal(t, c.want, m.Addr)
		}
		_, err := n.Change(t.Context(), Change{
			Kind: Remove, Member: members.Member{ID: "n2"}, After: n.Configuration().Index - 1,
		})
		require.ErrorIs(t, err, ErrConfigurationChanged)
		require.NotErrorIs(t, err, ErrOutcomeUnknown)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		want := n.Configuration()
		require.NoError(t, n.awaitChange(ctx, n.Term(), want))
		want.Index++
		require.ErrorIs(t, n.awaitChange(ctx, n.Term(), want), ErrOutcomeUnknown, "the members were the same before")
		want.Index -= 2
		require.NoError(t, n.awaitChange(ctx, n.Term(), want), "this leader appended the next behind it")
		require.ErrorIs(t, n.awaitChange(ctx, n.Term()-1, want), ErrOutcomeUnknown, "it may have been replaced")
		newest := n.Configuration()
		_, err = n.Node.append(t.Context(), n.Term()-1, Change{
			Kind: Remove, Member: members.Member{ID: "n2"}, After: newest.Index,
		}, want)
		require.ErrorIs(t, err, ErrOutcomeUnknown)
		synctest.Wait()
		require.Equal(t, newest, n.Configuration(), "a leadership that is over changes nothing")
	})
}

// TestTermOfARunningNode: if a running node cannot store a term, the owner gets the error, and raft's call does not
// return.
func TestTermOfARunningNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t)
		n.start()
		var failed error
		s := n.stable
		s.StableStore, s.fail, s.never = brokenStable{}, func(err error) { failed = err }, make(chan struct{})
		returned := waits(t, func() error { return s.SetUint64([]byte("CurrentTerm"), 9) })
		require.ErrorIs(t, failed, errBroken)
		close(s.never)
		require.ErrorIs(t, <-returned, errBroken)
		s.lost = make(chan struct{}) // the node stops as usual
	})
}

// cutStable fails all writes after the first left ones.
type cutStable struct {
	raft.StableStore
	left int
}

func (s *cutStable) Set(key, value []byte) error {
	if s.left--; s.left < 0 {
		return errBroken
	}
	return s.StableStore.Set(key, value)
}

func (s *cutStable) SetUint64(key []byte, value uint64) error {
	if s.left--; s.left < 0 {
		return errBroken
	}
	return s.StableStore.SetUint64(key, value)
}

// TestHalfStoredVote: a node was killed while it stored a vote. In that term it votes for no node whose log is shorter
// than its own, even if it had voted for that node before.
func TestHalfStoredVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t, "n2", "n3")
		n.start()
		disk, never := n.stable.StableStore, make(chan struct{})
		close(never)
		for written := range 4 {
			term := n.Term() + 1
			require.NoError(t, disk.SetUint64([]byte(keyVoteTerm), term-1))
			require.NoError(t, disk.Set([]byte(keyVoteCandidate), []byte("n3")))
			s := newStable(&cutStable{disk, written}, func(error) {})
			s.never = never
			s.opened.Store(true)
			if s.SetUint64([]byte(keyVoteTerm), term) == nil { // as raft stores a vote
				_ = s.Set([]byte(keyVoteCandidate), []byte("n2"))
			}
			answer := make(chan raft.RPCResponse, 1)
			n.filter.pass(t.Context(), raft.RPC{RespChan: answer, Command: &raft.RequestVoteRequest{
				RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("n3"), Addr: []byte("n3")},
				Term:      term, // and its log is empty
			}})
			require.False(t, (<-answer).Response.(*raft.RequestVoteResponse).Granted, "after %d writes", written)
		}
	})
}

// TestRefusedStates: a node refuses a state that is older than its own, a state with an older configuration, and any
// state while it leads.
func TestRefusedStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t)
		n.start()
		applied, newest := n.applier.index.Load(), n.Configuration().Index
		for _, c := range []struct {
			index, configuration uint64
			want                 string
		}{
			{applied - 1, newest, "the state ends at index"},
			{applied, newest - 1, "the state has the members of index"},
			{applied, newest, "this node leads"},
		} {
			snapshot := store.Snapshot{Index: c.index, Members: members.NewConfiguration(c.configuration)}
			require.ErrorContains(t, n.filter.replace(t.Context(), raft.RPC{}, snapshot), c.want)
		}
	})
}

// TestStateOfAnotherMember: a node in quarantine takes another member's state if it knows a leader. Until the
// quarantine ends, it requests votes only after it has heard of a candidate with a shorter log.
func TestStateOfAnotherMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t, "n2", "n3")
		n.start()
		snapshot := store.Snapshot{
			Index: 2, Term: 5, Bytes: 5, Members: members.NewConfiguration(1, n.Configuration().Members...),
		}
		replace := func(ctx context.Context) error {
			return n.ReplaceState(ctx, snapshot, strings.NewReader("state"))
		}
		require.ErrorContains(t, replace(t.Context()), "the node is not in quarantine")
		n.Quarantine()
		require.True(t, n.transport.defersCandidacy())
		var refused raft.RequestPreVoteResponse
		require.NoError(t, n.transport.RequestPreVote("n2", "", &raft.RequestPreVoteRequest{Term: 2}, &refused))
		require.Equal(t, raft.RequestPreVoteResponse{Term: 2}, refused, "no voter is asked")
		require.ErrorContains(t, replace(t.Context()), "no other leader is known")
		answer := make(chan raft.RPCResponse, 1)
		n.filter.pass(t.Context(), raft.RPC{RespChan: answer, Command: &raft.AppendEntriesRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("n2"), Addr: []byte("n2")},
			Term:      5, PrevLogEntry: 1, PrevLogTerm: 1, LeaderCommitIndex: 3,
			Entries: []*raft.Log{{Index: 2, Term: 5, Type: raft.LogNoop}, {Index: 3, Term: 5, Type: raft.LogNoop}},
		}})
		require.True(t, (<-answer).Response.(*raft.AppendEntriesResponse).Success)
		require.ErrorContains(t, n.Release(), "the state was not replaced")
		time.Sleep(time.Millisecond)
		for _, c := range []struct {
			term, last      uint64
			defersCandidacy bool
		}{{5, 3, true}, {6, 1, true}, {5, 2, false}} {
			n.filter.noteCandidateBehind(c.term, c.last)
			require.Equal(t, c.defersCandidacy, n.transport.defersCandidacy(), c)
		}
		for _, c := range []struct {
			alters func(*store.Snapshot)
			want   string
		}{
			{func(s *store.Snapshot) { s.Members.Index = 3 }, "its description makes no sense"},
			{func(s *store.Snapshot) { s.Term = 0 }, "its description makes no sense"},
			{func(s *store.Snapshot) { s.Term = 6 }, "its description makes no sense"},
			{func(s *store.Snapshot) { s.Members.Members = nil }, "its description makes no sense"},
		} {
			other := snapshot
			c.alters(&other)
			require.ErrorContains(t, n.ReplaceState(t.Context(), other, strings.NewReader("state")), c.want)
			on, frozen := n.Quarantined()
			require.True(t, on && frozen)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		requests := n.filter.requests
		n.filter.requests = make(chan raft.RPC) // raft receives no request
		require.ErrorIs(t, replace(ended), context.Canceled)
		for _, c := range []struct {
			answer any
			err    error
			want   string
		}{
			{&raft.InstallSnapshotResponse{}, nil, "raft did not take it"},
			{&raft.AppendEntriesResponse{}, nil, "raft did not take it"},
			{&raft.InstallSnapshotResponse{}, errBroken, errBroken.Error()},
		} {
			n.filter.requests = make(chan raft.RPC)
			go func() {
				before := <-n.filter.requests
				require.IsType(t, &raft.AppendEntriesRequest{}, before.Command, "raft is through with the others")
				require.Len(t, n.filter.installing, cap(n.filter.installing))
				require.True(t, n.log.keeps.Load(), "the log goes on behind it")
				rpc := <-n.filter.requests
				rpc.Respond(c.answer, c.err)
			}()
			require.ErrorContains(t, replace(t.Context()), c.want)
		}
		n.filter.requests = requests
		on, frozen := n.Quarantined()
		require.True(t, on && frozen)
		require.NoError(t, replace(t.Context()))
		require.False(t, n.log.keeps.Load())
		on, frozen = n.Quarantined()
		require.True(t, on && !frozen)
		require.NoError(t, n.Release())
		require.False(t, n.transport.defersCandidacy())
		on, _ = n.Quarantined()
		require.False(t, on)
	})
	synctest.Test(t, func(t *testing.T) {
		store := raft.NewInmemStore()
		c := singleConfig(store, raft.NewInmemSnapshotStore())
		c.Quarantined, c.Bootstrap = true, []members.Member{{ID: "n1", Addr: "n1:1", Voter: true}}
		n, err := Open(c)
		require.NoError(t, err)
		on, frozen := n.Quarantined()
		require.True(t, on && frozen, "it was in quarantine before")
		require.True(t, n.transport.defersCandidacy())
		require.True(t, n.Stop())
		require.NoError(t, n.Wait())
	})
}

// proposes returns a connection to a node that answers a question after a while, without agreeing. lengthAndApplied are
// the node's log length and applied index.
func proposes(t *testing.T, after time.Duration, lengthAndApplied ...byte) net.Conn {
	asking, answering := net.Pipe()
	go func() {
		_, _ = wire.Read(bufio.NewReader(answering), nil, wire.Short)
		select {
		case <-time.After(after):
		case <-t.Context().Done():
		}
		answer := append(make([]byte, wire.Head), proposalKind, 0)
		_, _ = answering.Write(wire.Seal(append(answer, lengthAndApplied...)))
	}()
	return asking
}

// TestSuccessors: a voter is ready to lead if it has applied about as much as the leader.
func TestSuccessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t, "n2", "n3", "n4")
		n.applier.index.Store(100)
		says := map[string][]byte{"n2": {100}, "n3": {50}, "n4": {84}}
		n.failover.dial = func(_ context.Context, id string) (net.Conn, error) {
			return proposes(t, 0, append([]byte{100}, says[id]...)...), nil
		}
		ready, lags := n.candidates(t.Context(), "", 100)
		require.ElementsMatch(t, []candidate{
			{id: "n2", length: 100, applied: 100}, {id: "n4", length: 100, applied: 84},
		}, ready)
		require.Len(t, lags, 1)
		require.Equal(t, "n3", lags[0].id)
		ready, lags = n.candidates(t.Context(), "", 50)
		require.Len(t, ready, 3, "all have what was applied when the question came")
		require.Empty(t, lags)
		n.applier.index.Store(10)
		says["n3"] = []byte{0}
		_, lags = n.candidates(t.Context(), "", 10)
		require.Len(t, lags, 1, "it is in quarantine, however little was applied")
		says["n3"] = []byte{50}
		n.applier.index.Store(100)
		n.failover.dial = func(_ context.Context, id string) (net.Conn, error) {
			if id == "n2" {
				return nil, net.ErrClosed
			}
			return proposes(t, 0, append([]byte{100}, says[id]...)...), nil
		}
		ready, _ = n.candidates(t.Context(), "", 100)
		require.Equal(t, "n4", ready[0].id)
		require.Len(t, ready, 1, "who does not answer is not ready")
		n.configurations.appended([]*raft.Log{withNonvoter(9, "n4", "n1", "n2", "n3")})
		ready, _ = n.candidates(t.Context(), "", 100)
		require.Empty(t, ready, "a member without a vote is not asked")
		n.configurations.truncated(9)
		n.failover.dial = func(_ context.Context, id string) (net.Conn, error) {
			return proposes(t, 0, append([]byte{100}, says[id]...)...), nil
		}

		began := time.Now()
		id, err := n.Successor(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, "n2", id, "of those that are ready")
		id, err = n.Successor(t.Context(), "n3")
		require.NoError(t, err)
		require.Equal(t, "n3", id, "this node does not lead: nothing is waited for")
		require.Zero(t, time.Since(began))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		id, err = n.Successor(ended, "n3")
		require.NoError(t, err)
		require.Equal(t, "n3", id)
	})
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t)
		n.start()
		n.configurations.appended([]*raft.Log{configurationAt(9, "n1", "n2", "n3")})
		n.applier.index.Store(100)
		applied, answers := map[string]byte{"n2": 84, "n3": 50}, true
		n.failover.dial = func(_ context.Context, id string) (net.Conn, error) {
			if !answers {
				return nil, net.ErrClosed
			}
			return proposes(t, 0, 100, applied[id]), nil
		}
		within := func(id string) (successor string, took time.Duration, err error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			successor, err = n.Successor(ctx, id)
			return successor, time.Since(began), err
		}
		id, took, err := within("")
		require.NoError(t, err)
		require.Equal(t, "n2", id, "others lag")
		require.Zero(t, took)
		_, took, err = within("n3")
		require.ErrorContains(t, err, "n3 has applied the log up to 50 of 100")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, took, "it may catch up")
		applied["n3"] = 85
		id, took, err = within("")
		require.NoError(t, err)
		require.Equal(t, "n3", id, "none lags, and n3 has applied more")
		require.Zero(t, took)
		answers = false
		id, took, err = within("")
		require.NoError(t, err)
		require.Empty(t, id, "no voter answers")
		require.Zero(t, took)
	})
}

// TestHeir: of the voters that answer in time and are not in quarantine, the one with the longest log leads next. If
// none can lead, the voters are asked until the wait ends, since one may have been started a moment ago.
func TestHeir(t *testing.T) {
	type says struct {
		after           time.Duration
		length, applied byte
	}
	soon, late, over := 10*time.Millisecond, time.Minute, 90*time.Second
	for _, c := range []struct {
		says map[string]says
		ends bool // the leadership ends
		want string
		took time.Duration
	}{
		{map[string]says{"n2": {soon, 7, 7}, "n3": {2 * soon, 9, 5}, "n4": {3 * soon, 8, 8}}, false, "n3", 3 * soon},
		{map[string]says{"n2": {soon, 7, 7}, "n3": {soon, 9, 0}, "n4": {soon, 8, 0}}, false, "n2", 250 * time.Millisecond},
		{map[string]says{"n2": {soon, 7, 0}, "n3": {soon, 9, 0}, "n4": {soon, 8, 0}}, false, "", over},
		{map[string]says{"n2": {soon, 7, 7}, "n3": {late, 9, 9}, "n4": {late, 8, 8}}, false, "n2", 250 * time.Millisecond},
		{map[string]says{"n2": {late, 7, 7}, "n3": {2 * late, 9, 9}, "n4": {2 * late, 8, 8}}, false, "n2", late},
		{map[string]says{"n2": {late, 7, 7}, "n3": {late, 9, 9}, "n4": {late, 8, 8}}, true, "", soon},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := openSingle(t, "n2", "n3", "n4")
			n.failover.dial = func(_ context.Context, id string) (net.Conn, error) {
				is := c.says[id]
				return proposes(t, is.after, is.length, is.applied), nil
			}
			ended := make(chan struct{})
			if c.ends {
				time.AfterFunc(soon, func() { close(ended) })
			}
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), over)
			defer cancel()
			require.Equal(t, c.want, n.awaitCapableVoter(ctx, ended), c.says)
			require.Equal(t, c.took, time.Since(began), c.says)
		})
	}
}

// TestSubscriberThatComesBack: a member that is removed and added again gets commit notifications as before.
func TestSubscriberThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t)
		n.append.answer = takesAll
		n.start()
		for range 3 {
			n.commits.reconfigure(viewOf("n1", "n2"))
			n.SetCommitSubscriber("n2", true)
			synctest.Wait()
			require.Equal(t, int32(1), n.append.open.Load())
			dialed := n.append.dialed.Load()
			n.commits.reconfigure(viewOf("n1", "n2", "n3"))
			synctest.Wait()
			require.Equal(t, int32(1), n.append.open.Load(), "others come and go")
			require.Equal(t, dialed, n.append.dialed.Load())
			for _, yes := range []bool{false, false, true} {
				n.SetCommitSubscriber("n2", yes)
				synctest.Wait()
				require.Equal(t, yes, (*n.commits.peers.Load())["n2"].conn != nil, "others may use it meanwhile")
			}
			n.commits.reconfigure(viewOf("n1"))
			synctest.Wait()
			require.Zero(t, n.append.open.Load())
		}
	})
}

// TestNotifierEndsWithItsGoroutines: a notifier ends after the request in flight. It sends nothing while its node does
// not lead.
func TestNotifierEndsWithItsGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := raft.NewInmemStore()
		require.NoError(t, log.StoreLog(&raft.Log{Index: 1, Term: 7}))
		requests, leads, holds, held := 0, true, false, make(chan struct{})
		stream := &port{closed: make(chan struct{})}
		stream.answer = func(req *raft.AppendEntriesRequest) *raft.AppendEntriesResponse {
			if requests++; holds {
				<-held
			}
			return takesAll(req)
		}
		c := newCommitNotifier(commitNotifierConfig{
			self: "n1", appender: newAppender(stream), acks: acksOf("n1", "n2"), log: log,
			leading: func() (uint64, bool) { return 7, leads }, commit: func() uint64 { return 99 },
			committed: (&transport{self: "n1"}).committed,
		})
		c.reconfigure(viewOf("n1", "n2"))
		(*c.peers.Load())["n2"].subscribed.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.run(ctx) }()
		for i, step := range []struct {
			happens  func()
			requests int
			open     int32
		}{
			{func() {}, 1, 1},
			{func() {}, 2, 1},
			{func() { leads = false }, 2, 1},
			{func() { leads = true }, 3, 1},
			{func() { require.NoError(t, log.DeleteRange(5, 5)) }, 3, 1}, // a snapshot has the entry
			{func() { stream.hangUp() }, 3, 1},                           // the next request finds a new connection
			{func() {}, 4, 1},
			{func() { stream.refuses.Store(true); stream.hangUp() }, 4, 0},
			{func() {}, 4, 0},
			{func() { stream.refuses.Store(false) }, 5, 1},
			{func() { holds = true }, 6, 1},
		} {
			synctest.Wait()
			index := uint64(i + 1)
			require.NoError(t, log.StoreLog(&raft.Log{Index: index, Term: 7}))
			step.happens()
			c.acks.note("n2", 7, 0, index)
			c.notify("n2")
			synctest.Wait()
			require.Equal(t, step.requests, requests, i)
			require.Equal(t, step.open, stream.open.Load(), i)
		}
		cancel()
		synctest.Wait()
		require.Empty(t, ended, "a request is on its way")
		close(held)
		require.NoError(t, <-ended)
		require.Zero(t, stream.open.Load())
	})
}

// TestLateSnapshot: whether a snapshot is late is decided after raft has handled all earlier requests. A late snapshot
// is read to its end, since the next request follows it on the connection.
func TestLateSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t)
		n.start()
		f := &rpcFilter{
			requests: make(chan raft.RPC), log: n.log, raft: n.raft, installing: make(chan struct{}, 1),
		}
		from := make(chan raft.RPC)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = f.run(ctx, from) }()
		for _, failure := range []error{nil, errBroken} {
			state, answer := strings.NewReader("state"), make(chan raft.RPCResponse, 1)
			rpc := raft.RPC{
				Command: &raft.InstallSnapshotRequest{Term: n.Term(), LastLogIndex: 1, LastLogTerm: 1}, Reader: state,
				RespChan: answer,
			}
			if failure != nil {
				rpc.Reader = io.MultiReader(state, iotest.ErrReader(failure))
			}
			from <- rpc
			synctest.Wait()
			require.Empty(t, answer)
			require.Len(t, f.installing, 1, "meanwhile no request is judged by the newest snapshot")
			require.IsType(t, &raft.AppendEntriesRequest{}, (<-f.requests).Command)
			is := <-answer
			require.ErrorIs(t, is.Error, failure)
			require.Equal(t, failure == nil, is.Response.(*raft.InstallSnapshotResponse).Success)
			require.Zero(t, state.Len())
		}
	})
}

// refusing is a state machine that cannot apply the entry refused.
type refusing struct {
	machineStub
	applied, reached []uint64
	refused          uint64
}

func (m *refusing) Apply(e Entry) error {
	m.applied = append(m.applied, e.Index)
	if e.Index == m.refused {
		return errBroken
	}
	return nil
}

func (m *refusing) Reach(index uint64) { m.reached = append(m.reached, index) }

// TestNothingIsAppliedBehindWhatCannotBe: after an entry that cannot be applied, no entry is applied, and no snapshot
// is taken.
func TestNothingIsAppliedBehindWhatCannotBe(t *testing.T) {
	var failed []error
	m := &refusing{refused: 3}
	a := newApplier(&Config{
		Machine: m, Fail: func(err error) { failed = append(failed, err) },
		SnapshotPolicy: SnapshotPolicy{SnapshotBytes: 100},
	}, newParallelLog(raft.NewInmemStore(), 1<<20, nil), nil)
	a.configurations = newConfigurations("n1")
	entries := func(from, to uint64) (logs []*raft.Log) {
		for i := from; i <= to; i++ {
			logs = append(logs, &raft.Log{Index: i, Term: 2, Extensions: []byte{2}, Data: []byte{1}})
		}
		return logs
	}
	for _, logs := range [][]*raft.Log{entries(1, 1), entries(2, 4), entries(5, 6)} {
		require.Len(t, a.ApplyBatch(logs), len(logs))
	}
	require.Equal(t, []uint64{1, 2, 3}, m.applied)
	require.Equal(t, []uint64{1}, m.reached)
	require.Equal(t, uint64(1), a.index.Load())
	require.Len(t, failed, 1)
	require.ErrorIs(t, failed[0], errBroken)
	require.ErrorContains(t, failed[0], "apply log entry 3 of term 2")
	_, err := a.Snapshot()
	require.ErrorContains(t, err, "the state is not the log's any more")
}

// turning is a store that has other snapshots after a number of listings.
type turning struct {
	raft.SnapshotStore
	other raft.SnapshotStore
	after int
}

func (s *turning) List() ([]*raft.SnapshotMeta, error) {
	if s.after--; s.after < 0 {
		return s.other.List()
	}
	return s.SnapshotStore.List()
}

// TestMembersThatRaftFinds: a node does not start if raft has read other members than the node itself.
func TestMembersThatRaftFinds(t *testing.T) {
	refused := 0
	for after := range 6 {
		synctest.Test(t, func(t *testing.T) {
			snapshots := &turning{raft.NewInmemSnapshotStore(), raft.NewInmemSnapshotStore(), after}
			for store, ids := range map[raft.SnapshotStore][]string{
				snapshots.SnapshotStore: {"n1", "n2"}, snapshots.other: {"n1", "n3"},
			} {
				addSnapshot(t, store, 9, 5, ids...)
			}
			store := raft.NewInmemStore()
			c := singleConfig(store, snapshots)
			n, err := Open(c)
			if err != nil {
				require.ErrorContains(t, err, "and raft found")
				refused++
				return
			}
			require.NoError(t, n.checkMembers())
			require.True(t, n.Stop())
			require.NoError(t, n.Wait())
		})
	}
	require.Positive(t, refused)
	require.Less(t, refused, 6)
}

// TestDeclineWithoutSuccessor: if no voter answers that could lead, Decline returns an error, and the leadership stays.
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

// TestFullDisk: while the disk is full, a snapshot is requested if it frees space.
func TestFullDisk(t *testing.T) {
	const mega = 1 << 20
	asks := func(full bool, logBytes, stateBytes int64, applied uint64, sizes ...int64) bool {
		snapshots := &sizedSnapshots{}
		for i, size := range sizes {
			snapshots.list = append(snapshots.list, &raft.SnapshotMeta{Index: 9 - uint64(i), Size: size * mega})
		}
		a := newApplier(&Config{Snapshots: snapshots, SnapshotPolicy: SnapshotPolicy{SnapshotBytes: 256 * mega}}, nil, nil)
		a.bytes.Store(logBytes * mega)
		a.index.Store(applied)
		(&Node{applier: a}).SetDiskFull(full, stateBytes*mega)
		require.Equal(t, full, a.bound(256*mega) == fullBytes)
		require.LessOrEqual(t, a.bound(7), int64(7))
		return len(a.cut) == 1
	}
	require.False(t, asks(false, 17, 0, 10))
	require.True(t, asks(true, 17, 0, 10), "the log")
	require.False(t, asks(true, 16, 0, 10))
	require.False(t, asks(true, 17, 0, 9, 1), "nothing was applied")
	require.False(t, asks(true, 0, 100, 10, 100, 100), "the next is as large")
	require.False(t, asks(true, 0, 60, 10, 100), "two smaller ones are larger")
	require.True(t, asks(true, 0, 10, 10, 100))
	require.True(t, asks(true, 0, 10, 10, 10, 100), "the one before is dropped")
	require.False(t, asks(true, 0, 10, 10, 10, 10))
}

// sizedSnapshots is a store whose snapshots can be listed, and not read.
type sizedSnapshots struct {
	raft.SnapshotStore
	list []*raft.SnapshotMeta
}

func (s *sizedSnapshots) List() ([]*raft.SnapshotMeta, error) { return s.list, nil }
