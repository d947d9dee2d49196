package raftnode

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/peer/wire"
)

// memberStub is a node that answers each request to append to its log.
type memberStub struct {
	net.Listener
	answer func(*raft.AppendEntriesRequest) *raft.AppendEntriesResponse
}

func (a memberStub) DialContext(context.Context, string) (net.Conn, error) {
	dialed, accepted := net.Pipe()
	go func() {
		br := bufio.NewReader(accepted)
		for {
			frame, err := wire.Read(br, nil, maxAppendFrame)
			if err != nil {
				return
			}
			req, _ := decodeAppend(frame)
			answer := appendAppended(make([]byte, wire.Head), raft.RPCResponse{Response: a.answer(req)})
			_, _ = accepted.Write(wire.Seal(answer))
		}
	}()
	return dialed, nil
}

// newLeaderTransport returns the transport of n1, which leads a cluster of three. n2 answers with answer.
func newLeaderTransport(log *parallelLog,
	answer func(*raft.AppendEntriesRequest) *raft.AppendEntriesResponse,
) *transport {
	t := &transport{
		commits:        newCommitNotifier(commitNotifierConfig{}),
		appender:       newAppender(memberStub{answer: answer}),
		acks:           acksOf("n1", "n2", "n3"),
		configurations: newConfigurations("n1"),
		log:            log,
	}
	t.leads.Store(func(term uint64) bool { return term != endedTerm })
	return t
}

// endedTerm is a term in which the leader of newLeaderTransport does not lead.
const endedTerm = 99

// TestFormerLeaderSendsNoEntries: a sender of a former leadership sends nothing, since it may have read entries of two
// leaders' logs.
func TestFormerLeaderSendsNoEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := newLeaderTransport(nil, func(*raft.AppendEntriesRequest) *raft.AppendEntriesResponse {
			t.Error("a request was sent")
			return &raft.AppendEntriesResponse{}
		})
		defer transport.hangUp()
		args := &raft.AppendEntriesRequest{
			Term: endedTerm, PrevLogEntry: 4, PrevLogTerm: 1,
			Entries: []*raft.Log{{Index: 5, Term: 100}},
		}
		require.ErrorIs(t, transport.AppendEntries("n2", "", args, &raft.AppendEntriesResponse{}), raft.ErrLeadershipLost)
	})
}

func (t *transport) hangUp() {
	for _, conns := range t.appender.idle {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
}

// TestAnotherTermConfirmsNothing: an answer with another term confirms nothing, since its node follows another leader,
// or will.
func TestAnotherTermConfirmsNothing(t *testing.T) {
	for _, row := range []struct {
		term uint64
		want bool
	}{{6, false}, {7, true}, {8, false}} {
		synctest.Test(t, func(t *testing.T) {
			transport := newLeaderTransport(nil, func(*raft.AppendEntriesRequest) *raft.AppendEntriesResponse {
				return &raft.AppendEntriesResponse{Term: row.term}
			})
			defer transport.hangUp()
			round := transport.acks.beginRound(7)
			require.NoError(t, transport.AppendEntries("n2", "", &raft.AppendEntriesRequest{Term: 7},
				&raft.AppendEntriesResponse{}))
			confirmed := false
			select {
			case <-round.done:
				confirmed = true
			default:
			}
			require.Equal(t, row.want, confirmed, "answered with term %d", row.term)
		})
	}
}

// TestRequestsSideBySide: several requests to one node can be in flight. A request without entries waits for no disk.
func TestRequestsSideBySide(t *testing.T) {
	log, _, _ := newHeldLog(t, 5)
	transport := newLeaderTransport(log, func(*raft.AppendEntriesRequest) *raft.AppendEntriesResponse {
		return &raft.AppendEntriesResponse{Term: 7, Success: true, LastLog: 5}
	})
	defer transport.hangUp()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20 {
				var resp raft.AppendEntriesResponse
				require.NoError(t, transport.AppendEntries("n2", "", &raft.AppendEntriesRequest{
					Term: 7, PrevLogEntry: 5,
					PrevLogTerm: 1,
				}, &resp))
				require.True(t, resp.Success)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 5, transport.acks.matches(7)["n2"])
}

// TestAcknowledgementWaitsForTheLastEntry: an acknowledgement of several entries is held back until the leader's own
// disk has the last of them.
func TestAcknowledgementWaitsForTheLastEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, _ := newHeldLog(t, 5)
		transport := newLeaderTransport(log, func(*raft.AppendEntriesRequest) *raft.AppendEntriesResponse {
			return &raft.AppendEntriesResponse{Term: 7, Success: true}
		})
		defer transport.hangUp()
		append1(t, log, 6)
		require.Equal(t, 1, <-store.calls)
		append1(t, log, 7)
		acknowledged := waits(t, func() error {
			req := &raft.AppendEntriesRequest{Term: 7, PrevLogEntry: 5, Entries: []*raft.Log{{Index: 6}, {Index: 7}}}
			return transport.AppendEntries("n2", "", req, &raft.AppendEntriesResponse{})
		})
		store.let <- nil
		require.Equal(t, 1, <-store.calls, "the first is on the disk")
		synctest.Wait()
		require.Empty(t, acknowledged)
		store.let <- nil
		require.NoError(t, <-acknowledged)
	})
}

// TestWhatAnAnswerSays: what an answer reveals of the node's log, and of the leadership.
func TestWhatAnAnswerSays(t *testing.T) {
	entries := []*raft.Log{{Index: 6, Term: 7}, {Index: 7, Term: 7}}
	whole := &raft.AppendEntriesRequest{Term: 7, PrevLogEntry: 5, PrevLogTerm: 6, Entries: entries, LeaderCommitIndex: 6}
	none := &raft.AppendEntriesRequest{Term: 7, PrevLogEntry: 5, PrevLogTerm: 6, LeaderCommitIndex: 9}
	heartbeat := &raft.AppendEntriesRequest{Term: 7}
	for _, c := range []struct {
		name             string
		req              *raft.AppendEntriesRequest
		answer           raft.AppendEntriesResponse
		match, shortened uint64 // shortened: the last index of a log that has become shorter
		unnotified       uint64 // for commit index 9
	}{
		{"takes entries", whole, raft.AppendEntriesResponse{Term: 7, Success: true, LastLog: 7}, 7, 0, 7},
		{"takes none", none, raft.AppendEntriesResponse{Term: 7, Success: true, LastLog: 5}, 5, 0, 0},
		{"refuses entries", whole, raft.AppendEntriesResponse{Term: 7, LastLog: 4}, 4, 0, 0},
		{"takes a heartbeat", heartbeat, raft.AppendEntriesResponse{Term: 7, Success: true, LastLog: 9}, 4, 0, 4},
		{"has lost entries", heartbeat, raft.AppendEntriesResponse{Term: 7, Success: true, LastLog: 3}, 0, 3, 0},
		{"follows another", whole, raft.AppendEntriesResponse{Term: 8, LastLog: 3}, 4, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, _, _ := newHeldLog(t, 7)
				tr := newLeaderTransport(log, func(*raft.AppendEntriesRequest) *raft.AppendEntriesResponse { return &c.answer })
				defer tr.hangUp()
				var events []Event
				tr.tell = func(e Event) { events = append(events, e) }
				tr.commits.reconfigure(viewOf("n1", "n2"))
				follower := (*tr.commits.peers.Load())["n2"]
				follower.subscribed.Store(true)
				tr.acks.note("n2", 7, 0, 4)
				require.NoError(t, tr.AppendEntries("n2", "", c.req, &raft.AppendEntriesResponse{}))
				require.Equal(t, c.match, tr.acks.matchOf("n2", 7))
				require.Equal(t, c.unnotified, tr.acks.unnotified("n2", 7, 9))
				require.Equal(t, c.answer.Success && len(c.req.Entries) > 0, len(follower.wake) > 0)
				if c.shortened > 0 {
					tr.compare("n2", 7, 4, c.shortened) // another answer with the same last index
					require.Len(t, events, 1)
					require.Equal(t, c.shortened, events[0].(LogShortened).LogIndex)
				} else {
					require.Empty(t, events)
				}
				if len(c.req.Entries) > 0 { // again, while the disk lacks their last one
					log.queue = []*raft.Log{{Index: 7}}
					answered := make(chan error, 1)
					go func() { answered <- tr.AppendEntries("n2", "", c.req, &raft.AppendEntriesResponse{}) }()
					synctest.Wait()
					require.Equal(t, !c.answer.Success, len(answered) > 0, "what is refused is not held back")
					log.mu.Lock()
					log.queue = nil
					log.mu.Unlock()
					log.written.Broadcast()
					require.NoError(t, <-answered)
				}
			})
		})
	}
}

// unreachable is a stream whose first dials fail.
type unreachable struct {
	memberStub
	dials, after int
}

func (u *unreachable) DialContext(ctx context.Context, id string) (net.Conn, error) {
	if u.dials++; u.dials <= u.after {
		return nil, syscall.ECONNREFUSED
	}
	return u.memberStub.DialContext(ctx, id)
}

// TestEntriesAreSentUntilTheyArrive: entries are sent again until they arrive, while this node leads and the other is a
// member. A heartbeat is sent once.
func TestEntriesAreSentUntilTheyArrive(t *testing.T) {
	entries := &raft.AppendEntriesRequest{
		Term: 7, PrevLogEntry: 5, PrevLogTerm: 6, Entries: []*raft.Log{{Index: 6, Term: 7}},
	}
	for _, c := range []struct {
		name  string
		req   *raft.AppendEntriesRequest
		at    time.Duration // when then is called
		then  func(*transport, chan struct{})
		dials int
		took  time.Duration
		err   error
	}{
		{name: "it arrives", req: entries, dials: 31, took: 30 * resendAfter},
		{name: "a heartbeat", req: &raft.AppendEntriesRequest{Term: 7}, dials: 1, err: syscall.ECONNREFUSED},
		{
			name: "the leadership ends", req: entries, at: resendAfter * 5 / 2, dials: 3, took: 3 * resendAfter,
			then: func(tr *transport, _ chan struct{}) { tr.leads.Store(func(uint64) bool { return false }) },
			err:  syscall.ECONNREFUSED,
		},
		{
			name: "the member leaves", req: entries, at: resendAfter * 5 / 2, dials: 3, took: 3 * resendAfter,
			then: func(tr *transport, _ chan struct{}) { tr.acks.reconfigure(viewOf("n1", "n3")) },
			err:  syscall.ECONNREFUSED,
		},
		{
			name: "the node stops", req: entries, at: resendAfter * 5 / 2, dials: 3, took: resendAfter * 5 / 2,
			then: func(_ *transport, stopped chan struct{}) { close(stopped) },
			err:  syscall.ECONNREFUSED,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, _, _ := newHeldLog(t, 6)
				tr, stopped := newLeaderTransport(log, nil), make(chan struct{})
				defer tr.hangUp()
				stream := &unreachable{memberStub: memberStub{answer: takesAll}, after: 30}
				tr.appender, tr.stopped = newAppender(stream), stopped
				if c.then != nil {
					time.AfterFunc(c.at, func() { c.then(tr, stopped) })
				}
				began := time.Now()
				require.ErrorIs(t, tr.AppendEntries("n2", "", c.req, &raft.AppendEntriesResponse{}), c.err)
				require.Equal(t, c.took, time.Since(began))
				require.Equal(t, c.dials, stream.dials)
			})
		})
	}
}

// TestEntriesThatCannotBeSent: raft gets the error if the data of an entry cannot be read.
func TestEntriesThatCannotBeSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newParallelLog(raft.NewInmemStore(), 1<<20, nil)
		tr := newLeaderTransport(log, takesAll)
		defer tr.hangUp()
		req := &raft.AppendEntriesRequest{
			Term: 7, PrevLogEntry: 5, PrevLogTerm: 6, Entries: []*raft.Log{{Index: 6, Data: log.placeholder}},
		}
		require.ErrorIs(t, tr.AppendEntries("n2", "", req, &raft.AppendEntriesResponse{}), raft.ErrLogNotFound)
		require.Empty(t, tr.appender.idle)
	})
}

// TestNominationHasItsTime: a nomination waits for the answer, but no longer than an election timeout.
func TestNominationHasItsTime(t *testing.T) {
	for _, c := range []struct {
		after, took time.Duration
		err         error
		fails       bool
	}{
		{after: time.Second / 2, took: time.Second / 2},
		{after: time.Second / 2, took: time.Second / 2, err: errNoVote, fails: true},
		{after: 2 * time.Second, took: time.Second, fails: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			there := newPipes(nil)
			other := raft.NewNetworkTransport(there, 1, time.Minute, io.Discard)
			tr := newLeaderTransport(nil, nil)
			tr.election = time.Second
			tr.inner = raft.NewNetworkTransport(newPipes(there), 1, time.Minute, io.Discard)
			go func() {
				rpc := <-other.Consumer()
				time.Sleep(c.after)
				rpc.Respond(&raft.TimeoutNowResponse{}, c.err)
			}()
			began := time.Now()
			require.Equal(t, c.fails, tr.nominate("n2") != nil)
			require.Equal(t, c.took, time.Since(began))
			time.Sleep(time.Minute)
			tr.inner.CloseStreams()
			require.NoError(t, other.Close())
			require.NoError(t, tr.inner.Close())
		})
	}
}

// brokenStable is a store of terms and votes whose writes fail.
type brokenStable struct{ raft.StableStore }

var errBroken = errors.New("broken")

func (brokenStable) SetUint64([]byte, uint64) error { return errBroken }
func (brokenStable) Set([]byte, []byte) error       { return errBroken }

// TestUnstoredVoteIsNotGranted: raft grants no vote, and enters no term, that is not on the disk. On a running node, a
// call that fails to store a term does not return.
func TestUnstoredVoteIsNotGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed error
		s := newStable(brokenStable{}, func(err error) { failed = err })
		require.ErrorIs(t, s.SetUint64([]byte("CurrentTerm"), 7), errBroken, "while raft is opened")
		require.NoError(t, failed)
		require.Error(t, s.Set([]byte("LastVoteCand"), nil), "raft hears of that, and grants nothing")
		s.never = make(chan struct{})
		returned := waits(t, func() error { return s.SetUint64([]byte("LastVoteTerm"), 7) })
		require.ErrorIs(t, failed, errBroken)
		<-s.lost
		close(s.never)
		require.ErrorIs(t, <-returned, errBroken)
	})
}

// pipes is a stream to one other node, in memory.
type pipes struct {
	port
	to *pipes
	in chan net.Conn
}

func newPipes(to *pipes) *pipes {
	return &pipes{port: port{closed: make(chan struct{})}, to: to, in: make(chan net.Conn)}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.in:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	dialed, accepted := net.Pipe()
	p.to.in <- accepted
	return dialed, nil
}

// TestInstalledSnapshotIsAcknowledged: a node that has installed a snapshot in this term has the log up to the
// snapshot's end. Any other answer acknowledges nothing.
func TestInstalledSnapshotIsAcknowledged(t *testing.T) {
	for _, row := range []struct {
		resp raft.InstallSnapshotResponse
		err  error
		want uint64
	}{
		{raft.InstallSnapshotResponse{Term: 7, Success: true}, nil, 9},
		{raft.InstallSnapshotResponse{Term: 7}, nil, 0},
		{raft.InstallSnapshotResponse{Term: 8, Success: true}, nil, 0},
		{raft.InstallSnapshotResponse{Term: 7, Success: true}, errors.New("disk full"), 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			there := newPipes(nil)
			other := raft.NewNetworkTransport(there, 1, time.Second, io.Discard)
			defer other.Close()
			transport := newLeaderTransport(nil, nil)
			transport.inner = raft.NewNetworkTransport(newPipes(there), 1, time.Second, io.Discard)
			defer transport.inner.Close()
			go func() {
				rpc := <-other.Consumer()
				_, _ = io.Copy(io.Discard, rpc.Reader)
				rpc.Respond(&row.resp, row.err)
			}()
			args := &raft.InstallSnapshotRequest{Term: 7, LastLogIndex: 9, Size: 5}
			round := transport.acks.beginRound(7)
			err := transport.InstallSnapshot("n2", "", args, &raft.InstallSnapshotResponse{}, strings.NewReader("state"))
			require.Equal(t, row.err == nil, err == nil, err)
			require.Equal(t, row.want, transport.acks.matchOf("n2", 7))
			require.Equal(t, row.want > 0, round.isDone())
		})
	}
}

// TestCallsOverStaleConnections: a call on a closed connection is repeated as often as there may be such connections.
// After other errors it is not.
func TestCallsOverStaleConnections(t *testing.T) {
	for _, c := range []struct {
		err   error
		calls int
	}{
		{io.EOF, connsPerPeer + 1},
		{net.ErrClosed, connsPerPeer + 1},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, connsPerPeer + 1},
		{&net.OpError{Op: "write", Err: syscall.EPIPE}, connsPerPeer + 1},
		{syscall.ECONNREFUSED, 1},
		{os.ErrDeadlineExceeded, 1},
		{nil, 1},
	} {
		calls := 0
		require.ErrorIs(t, retryStale(func() error { calls++; return c.err }), c.err)
		require.Equal(t, c.calls, calls, c.err)
	}
}
