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

// newLeaderTransport is n1's, in a cluster of three; n2 answers as told.
func newLeaderTransport(log *parallelLog,
	answer func(*raft.AppendEntriesRequest) *raft.AppendEntriesResponse,
) *transport {
	t := &transport{
		commits:  newCommitNotifier(commitNotifierConfig{}),
		appender: newAppender(memberStub{answer: answer}),
		acks:     acksOf("n1", "n2", "n3"),
		log:      log,
	}
	t.leads.Store(func(term uint64) bool { return term != endedTerm })
	return t
}

// endedTerm is a term in which the leader of newLeaderTransport does not lead.
const endedTerm = 99

// What a sender of a former leadership has read may be of two leaders' logs.
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

// A node that answers with another term follows, or will follow, another leader: it confirms nothing.
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

// Requests to one node go side by side. One without entries waits for nothing.
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

// An acknowledgement of several entries is held back until the last of them is on the leader's own disk.
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

// brokenStable is a store of terms and votes that cannot be written.
type brokenStable struct{ raft.StableStore }

var errBroken = errors.New("broken")

func (brokenStable) SetUint64([]byte, uint64) error { return errBroken }
func (brokenStable) Set([]byte, []byte) error       { return errBroken }

// Raft grants no vote, and takes no term, that is not on the disk: it never hears how that ended.
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

// pipes is a stream to one other node.
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

// TestInstalledSnapshotIsAcknowledged: a node that took it in this term has the log up to its end, and no other.
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
			require.Equal(t, row.want, transport.acks.agreed("n2", 7))
			require.Equal(t, row.want > 0, round.isDone())
		})
	}
}

// TestCallsOverStaleConnections are made again, as often as there may be such connections. Other failures are not.
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
