package raftnode

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer/wire"
	"github.com/holdfast/holdfast/server/store"
)

// TestRequestFromBeforeTheLog: a request that begins before the log is compared with the newest snapshot if raft has
// applied that. Raft has then handled all earlier requests. A request that contradicts the snapshot is not passed to
// raft.
func TestRequestFromBeforeTheLog(t *testing.T) {
	for _, c := range []struct {
		name       string
		end, term  uint64 // of the snapshot; 0: there is none
		unlisted   bool
		prev       uint64
		want       []uint64 // the previous index, and the entries, that raft gets
		former     bool     // it is of a former term
		contradict bool
	}{
		{name: "the snapshot has its beginning", end: 2, term: 1, prev: 1, want: []uint64{0, 3, 4}},
		{name: "raft does not have the snapshot", end: 99, term: 1, prev: 1, want: []uint64{1, 2, 3, 4}},
		{name: "there is no snapshot", prev: 1, want: []uint64{1, 2, 3, 4}},
		{name: "there may be one", end: 2, term: 1, unlisted: true, prev: 1},
		{name: "the log has its beginning", end: 2, term: 1, prev: 3, want: []uint64{3, 4}},
		{name: "it begins with the first entry", end: 2, term: 1, prev: 0, want: []uint64{0, 3, 4}},
		{name: "it has another entry", end: 2, term: 9, prev: 1, contradict: true},
		{name: "a former leader has another entry", end: 2, term: 9, prev: 1, former: true, want: []uint64{0, 3, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := openSingle(t)
				n.start()
				require.GreaterOrEqual(t, n.Applied(), uint64(2))
				snapshots := raft.SnapshotStore(raft.NewInmemSnapshotStore())
				if c.end > 0 {
					takeSnapshot(t, snapshots, c.end, c.term, "n1")
				}
				if c.unlisted {
					snapshots = unlisted{snapshots}
				}
				var failed error
				log := newParallelLog(raft.NewInmemStore(), 1<<20, func(err error) { failed = err })
				require.NoError(t, log.StoreLog(&raft.Log{Index: 3, Term: 1}))
				f := &rpcFilter{
					requests: make(chan raft.RPC), log: log, raft: n.raft, snapshots: snapshots, installing: make(chan struct{}, 1),
				}
				req := &raft.AppendEntriesRequest{Term: n.Term(), PrevLogEntry: c.prev, PrevLogTerm: 1}
				if c.former {
					req.Term--
				}
				for i := c.prev + 1; i <= 4; i++ {
					req.Entries = append(req.Entries, &raft.Log{Index: i, Term: 1})
				}
				answer := make(chan raft.RPCResponse, 1)
				passed := make(chan struct{})
				go func() {
					f.pass(t.Context(), raft.RPC{Command: req, RespChan: answer})
					close(passed)
				}()
				synctest.Wait()
				if c.prev < 3 {
					require.Len(t, f.installing, 1, "meanwhile no snapshot is handed over")
					before := (<-f.requests).Command.(*raft.AppendEntriesRequest)
					require.Zero(t, before.Term)
				}
				switch {
				case c.contradict:
					require.ErrorContains(t, (<-answer).Error, "committed")
					require.ErrorContains(t, failed, "committed")
				case c.unlisted:
					require.ErrorIs(t, (<-answer).Error, errBroken)
					require.NoError(t, failed)
				default:
					got := (<-f.requests).Command.(*raft.AppendEntriesRequest)
					is := []uint64{got.PrevLogEntry}
					for _, e := range got.Entries {
						is = append(is, e.Index)
					}
					require.Equal(t, c.want, is)
					require.NoError(t, failed)
				}
				<-passed
				require.Empty(t, f.installing)
			})
		})
	}
}

// TestRequestsWaitForASnapshot: a request waits while a snapshot is installed, or another request is compared with one,
// until its context ends. Virtual time continues meanwhile.
func TestRequestsWaitForASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &rpcFilter{
			requests: make(chan raft.RPC), log: newParallelLog(raft.NewInmemStore(), 1<<20, nil),
			installing: make(chan struct{}, 1),
		}
		require.True(t, f.beginInstalling(t.Context()))
		for _, wait := range []func(ctx context.Context){
			func(ctx context.Context) {
				f.pass(ctx, raft.RPC{Command: &raft.AppendEntriesRequest{PrevLogEntry: 7, PrevLogTerm: 1}})
			},
			func(ctx context.Context) {
				f.install(ctx, raft.RPC{}, &raft.InstallSnapshotRequest{})
			},
			func(ctx context.Context) {
				require.ErrorIs(t, f.replace(ctx, raft.RPC{}, store.Snapshot{}), context.DeadlineExceeded)
			},
		} {
			begun := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			wait(ctx)
			require.Equal(t, time.Second, time.Since(begun))
			cancel()
		}
	})
}

// TestHeartbeatFromBeforeTheLog: a request without entries and without a previous entry is compared with nothing.
func TestHeartbeatFromBeforeTheLog(t *testing.T) {
	log := newParallelLog(raft.NewInmemStore(), 1<<20, nil)
	f := &rpcFilter{requests: make(chan raft.RPC, 1), log: log}
	f.pass(t.Context(), raft.RPC{Command: &raft.AppendEntriesRequest{Term: 7}})
	require.Len(t, f.requests, 1)
}

// TestRequestsThatAreRafts: requests for votes are passed to raft unchanged. The node of a request for pre-votes is
// reported.
func TestRequestsThatAreRafts(t *testing.T) {
	var campaigns []raft.ServerID
	f := &rpcFilter{requests: make(chan raft.RPC, 1), configurations: newConfigurations("n1"), applier: &applier{}}
	f.configurations.set(members.Configuration{Members: []members.Member{{ID: "n2", Voter: true}}})
	f.campaigns = func(id raft.ServerID) { campaigns = append(campaigns, id) }
	for _, command := range []any{
		&raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ID: []byte("n2")}, Term: 7},
		&raft.RequestPreVoteRequest{RPCHeader: raft.RPCHeader{ID: []byte("n2")}, Term: 7},
	} {
		f.pass(t.Context(), raft.RPC{Command: command})
		require.Len(t, f.requests, 1)
		require.Equal(t, command, (<-f.requests).Command)
	}
	require.Equal(t, []raft.ServerID{"n2"}, campaigns)
}

// TestCandidates: a candidate is judged by its log, even if it has no vote in this node's configuration.
func TestCandidates(t *testing.T) {
	for _, c := range []struct {
		members  []members.Member
		from, is string
	}{
		{from: "n2", is: "n2"},
		{members: []members.Member{{ID: "n1"}, {ID: "n2"}}, from: "n2", is: "n2"},
		{members: []members.Member{{ID: "n1"}, {ID: "n2", Voter: true}, {ID: "n3", Voter: true}}, from: "n3", is: "n3"},
		{members: []members.Member{{ID: "n1"}, {ID: "n2"}, {ID: "n3", Voter: true}}, from: "n2", is: "n3"},
		{members: []members.Member{{ID: "n1", Voter: true}}, from: "n2", is: "n1"},
		{members: []members.Member{{ID: "n1", Voter: true}}, from: "", is: "n1"},
	} {
		var campaign raft.ServerID
		f := &rpcFilter{
			applier:  &applier{},
			requests: make(chan raft.RPC, 1), configurations: newConfigurations("n1"),
			campaigns: func(id raft.ServerID) { campaign = id },
		}
		f.configurations.set(members.Configuration{Members: c.members})
		header := raft.RPCHeader{ID: []byte(c.from), Addr: []byte(c.from)}
		f.pass(t.Context(), raft.RPC{Command: &raft.RequestVoteRequest{RPCHeader: header}})
		vote := (<-f.requests).Command.(*raft.RequestVoteRequest)
		require.Equal(t, c.is, string(vote.ID))
		require.Equal(t, c.from, string(vote.Addr), "the vote is the candidate's")
		f.pass(t.Context(), raft.RPC{Command: &raft.RequestPreVoteRequest{RPCHeader: header}})
		require.Equal(t, c.is, string((<-f.requests).Command.(*raft.RequestPreVoteRequest).ID))
		require.Equal(t, raft.ServerID(c.from), campaign)
	}
}

// TestWhichSnapshotsAreLate: a snapshot is late if raft has applied its last entry, or has the entry on the disk. A
// late one that ends with another entry than the applied one ends the node. All other requests are passed to raft. So
// are a former leader's snapshots, which raft refuses.
func TestWhichSnapshotsAreLate(t *testing.T) {
	for _, c := range []struct {
		name        string
		index, term uint64
		former      bool // it comes from a former leader
		failed      bool // the disk has failed
		late        bool
		contradict  bool
	}{
		{name: "applied", index: 1, term: 1, late: true},
		{name: "applied, and in the log", index: 2, term: 2, late: true},
		{name: "another entry was applied", index: 2, term: 1, contradict: true},
		{name: "another entry was applied, of a later term", index: 2, term: 3, contradict: true},
		{name: "another entry was applied, and the leader is a former one", index: 2, term: 9, former: true},
		{name: "in the log", index: 50, term: 3, late: true},
		{name: "in the log, and not on the disk", index: 50, term: 3, failed: true},
		{name: "another entry is in the log", index: 50, term: 2},
		{name: "another entry is in the log, of a later term", index: 50, term: 4},
		{name: "behind the log", index: 51, term: 3},
		{name: "behind the log, of no term", index: 51, term: 0},
		{name: "a former leader's", index: 1, term: 1, former: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := openSingle(t)
				n.start()
				require.GreaterOrEqual(t, n.Applied(), uint64(2))
				var ended error
				log := newParallelLog(raft.NewInmemStore(), 1<<20, func(err error) { ended = err })
				require.NoError(t, log.StoreLogs([]*raft.Log{{Index: 2, Term: 2}, {Index: 50, Term: 3}}))
				if c.failed {
					log.err = errBroken
				}
				f := &rpcFilter{
					requests: make(chan raft.RPC), log: log, raft: n.raft, configurations: n.configurations,
					installing: make(chan struct{}, 1),
				}
				from, stopped := make(chan raft.RPC), make(chan error, 1)
				ctx, cancel := context.WithCancel(t.Context())
				go func() { stopped <- f.run(ctx, from) }()
				req := &raft.InstallSnapshotRequest{Term: n.Term(), LastLogIndex: c.index, LastLogTerm: c.term}
				if c.former {
					req.Term--
				}
				answer := make(chan raft.RPCResponse, 1)
				from <- raft.RPC{Command: req, Reader: strings.NewReader("state"), RespChan: answer}
				require.IsType(t, &raft.AppendEntriesRequest{}, (<-f.requests).Command)
				switch {
				case c.contradict:
					require.ErrorContains(t, (<-answer).Error, fmt.Sprintf("log entries 2 to %d are committed", n.Applied()))
				case c.late:
					require.Equal(t, &raft.InstallSnapshotResponse{
						RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}, Term: n.Term(), Success: true,
					}, (<-answer).Response)
				default:
					require.Equal(t, req, (<-f.requests).Command)
				}
				vote := &raft.RequestVoteRequest{Term: 9}
				from <- raft.RPC{Command: vote}
				require.Equal(t, vote, (<-f.requests).Command)
				synctest.Wait()
				require.Empty(t, answer)
				require.Empty(t, f.installing)
				require.Equal(t, c.contradict, ended != nil)
				cancel()
				require.NoError(t, <-stopped)
			})
		})
	}
}

// TestAppendsOverAConnection: each request on a connection gets its answer. An invalid frame ends the connection.
func TestAppendsOverAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newParallelLog(raft.NewInmemStore(), 1<<20, nil)
		require.NoError(t, log.StoreLog(&raft.Log{Index: 1}))
		f := &rpcFilter{requests: make(chan raft.RPC), log: log}
		go func() {
			for rpc := range f.requests {
				req := rpc.Command.(*raft.AppendEntriesRequest)
				rpc.Respond(&raft.AppendEntriesResponse{Term: req.Term, LastLog: req.Entries[0].Index, Success: true}, nil)
			}
		}()
		defer close(f.requests)
		stream, ended := newPipes(nil), make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- f.acceptAppends(ctx, stream) }()
		dial := func() net.Conn {
			near, far := net.Pipe()
			stream.in <- far
			return near
		}
		conn := newAppender(nil).adopt("n1", dial())
		for i := range uint64(3) {
			var resp raft.AppendEntriesResponse
			_, err := conn.call(&raft.AppendEntriesRequest{Term: 7 + i, Entries: []*raft.Log{{Index: 1 + i}}}, &resp)
			require.NoError(t, err)
			require.Equal(t, raft.AppendEntriesResponse{Term: 7 + i, LastLog: 1 + i, Success: true}, resp)
		}
		for _, broken := range []func(net.Conn){
			func(conn net.Conn) { _, _ = conn.Write(wire.Seal(append(make([]byte, wire.Head), 0xff))) },
			func(conn net.Conn) { _, _ = conn.Write([]byte{0xff, 0xff, 0xff, 0xff}) },
		} {
			conn := dial()
			broken(conn)
			_, err := conn.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
		}
		require.NoError(t, conn.Close())
		cancel()
		require.NoError(t, stream.Close())
		<-ended
	})
}

// heartbeat passes n a heartbeat of the leader of term, and returns the channel of the answer.
func heartbeat(t *testing.T, n *single, term uint64) chan raft.RPCResponse {
	answers := make(chan raft.RPCResponse, 1)
	go n.filter.handle(t.Context(), &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("n2"), Addr: []byte("n2"),
	}, Term: term}, answers)
	synctest.Wait()
	return answers
}

// TestHeartbeatOfTheNextLeader: after a heartbeat of the next leader, a deposed leader appends no entry that was
// proposed for its own term.
func TestHeartbeatOfTheNextLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t)
		n.start()
		term, last := n.Term(), n.Last()
		require.True(t, n.Leads(term))
		answer := (<-heartbeat(t, n, term+1)).Response.(*raft.AppendEntriesResponse)
		require.Equal(t, term+1, answer.Term)
		require.True(t, answer.Success)
		n.Propose(term, []byte("x"))
		synctest.Wait()
		require.Equal(t, last, n.Last())
		require.False(t, n.Leads(term))
	})
}

// TestHeartbeatsWhileRaftIsBusy: a follower answers its leader's heartbeats at once. All other heartbeats wait for
// raft.
func TestHeartbeatsWhileRaftIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t, "n2", "n3")
		n.start()
		busy := func() (free func()) {
			answer := make(chan raft.RPCResponse) // raft waits until it is read
			go n.filter.hand(t.Context(), raft.RPC{Command: &raft.AppendEntriesRequest{
				RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax},
			}, RespChan: answer})
			synctest.Wait()
			return func() {
				<-answer
				synctest.Wait()
			}
		}
		require.True(t, (<-heartbeat(t, n, 5)).Response.(*raft.AppendEntriesResponse).Success)
		require.False(t, (<-heartbeat(t, n, 4)).Response.(*raft.AppendEntriesResponse).Success)

		free := busy()
		<-heartbeat(t, n, 5)
		<-heartbeat(t, n, 5)
		require.Empty(t, n.filter.beats, "raft has noted one just now")
		time.Sleep(time.Second / 2)
		for range 3 {
			answer := <-heartbeat(t, n, 5)
			require.Equal(t, raft.RPCResponse{Response: &raft.AppendEntriesResponse{
				RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}, Term: 5, LastLog: n.Last(), Success: true,
			}}, answer)
		}
		require.Len(t, n.filter.beats, 1)
		free()
		require.Equal(t, time.Now(), n.raft.LastContact(), "raft has noted a heartbeat that was answered")
		free = busy()
		next := heartbeat(t, n, 6)
		require.Empty(t, next, "raft goes to the next term first")
		free()
		require.Equal(t, uint64(6), (<-next).Response.(*raft.AppendEntriesResponse).Term)

		time.Sleep(10 * time.Second)
		require.Equal(t, raft.Candidate, n.raft.State())
		free = busy()
		late := heartbeat(t, n, n.Term())
		require.Empty(t, late, "a candidate follows no leader")
		free()
		require.True(t, (<-late).Response.(*raft.AppendEntriesResponse).Success)
		require.Equal(t, raft.Follower, n.raft.State())
	})
}
