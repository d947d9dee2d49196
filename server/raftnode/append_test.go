package raftnode

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/peer/wire"
)

func anAppend() *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("n1"), Addr: []byte("n1:7379")},
		Term:      7, PrevLogEntry: 1 << 40, PrevLogTerm: 6, LeaderCommitIndex: 300,
		Entries: []*raft.Log{
			{Index: 1<<40 + 1, Term: 7, Type: raft.LogNoop, Data: []byte{}, Extensions: []byte{}},
			{
				Index: 1<<40 + 2, Term: 7, Type: raft.LogCommand, Data: bytes.Repeat([]byte("x"), 300), Extensions: []byte{7},
				AppendedAt: time.Unix(1700000000, 5),
			},
		},
	}
}

func TestAppendFrames(t *testing.T) {
	for _, req := range []*raft.AppendEntriesRequest{
		anAppend(),
		{RPCHeader: raft.RPCHeader{ID: []byte("n1"), Addr: []byte("a")}, Term: 1},
	} {
		read, err := decodeAppend(appendAppend(nil, req))
		require.NoError(t, err)
		require.Equal(t, req, read)
	}
	for _, answer := range []raft.RPCResponse{
		{Response: &raft.AppendEntriesResponse{
			RPCHeader: raft.RPCHeader{ProtocolVersion: 3}, Term: 7, LastLog: 400,
			Success: true,
		}},
		{Response: &raft.AppendEntriesResponse{Term: 8, NoRetryBackoff: true}},
		{Response: &raft.AppendEntriesResponse{Term: 8}, Error: errors.New("no")},
	} {
		var read raft.AppendEntriesResponse
		err := decodeAppended(appendAppended(nil, answer), &read)
		require.Equal(t, answer.Response, &read)
		require.Equal(t, answer.Error, err)
	}
	var read raft.AppendEntriesResponse
	for _, none := range []any{nil, (*raft.AppendEntriesResponse)(nil)} {
		answer := appendAppended(nil, raft.RPCResponse{Response: none, Error: errors.New("closed")})
		require.EqualError(t, decodeAppended(answer, &read), "closed")
	}
}

// TestSmallEntriesHoldNoLargeFrame: a small entry beside a large one has memory of its own, so that it does not keep
// the frame. A large entry is not copied.
func TestSmallEntriesHoldNoLargeFrame(t *testing.T) {
	for _, size := range []int{wire.Step / 2, 2 * wire.Step} {
		large := bytes.Repeat([]byte("x"), size)
		frame := appendAppend(nil, &raft.AppendEntriesRequest{Entries: []*raft.Log{
			{Index: 1, Data: []byte("small"), Extensions: []byte("s")}, {Index: 2, Data: large},
		}})
		req, err := decodeAppend(frame)
		require.NoError(t, err)
		clear(frame)
		own := size > wire.Step
		require.Equal(t, own, string(req.Entries[0].Data) == "small", "%d bytes", size)
		require.Equal(t, own, string(req.Entries[0].Extensions) == "s", "%d bytes", size)
		require.Equal(t, make([]byte, size), req.Entries[1].Data)
	}
}

// TestAppendFramesAreFrozen: the encoding stays the same, since nodes of other releases read it.
func TestAppendFramesAreFrozen(t *testing.T) {
	req := anAppend()
	req.Entries[1].Data = []byte("entry")
	require.Equal(t,
		`"\x03\x02n1\an1:7379\a\x80\x80\x80\x80\x80 \x06\xac\x02\x02\x81\x80\x80\x80\x80 \a\x01\x00\x00\x00\x82\x80\x80\x80\x80 \a\x00\x85\x80\xa8\xb1\xe3\x9f\xe7\xcb\x17\x05entry\x01\a"`, fmt.Sprintf("%q", appendAppend(nil, req)))
	require.Equal(t, `"\x03\a\x90\x03\x01\x02no"`, fmt.Sprintf("%q", appendAppended(nil, raft.RPCResponse{
		Response: &raft.AppendEntriesResponse{
			RPCHeader: raft.RPCHeader{ProtocolVersion: 3}, Term: 7, LastLog: 400,
			Success: true,
		},
		Error: errors.New("no"),
	})))
}

// TestAppendIsCutIntoRequests: any number of entries is sent in requests of bounded size, each of which continues the
// one before.
func TestAppendIsCutIntoRequests(t *testing.T) {
	args := anAppend()
	args.Entries = nil
	const largest = 10 << 20
	for i, size := range []int{100, 3 << 20, 5<<20 - 50, 100, 1, largest, largest, 1, 7 << 20, 1 << 20} {
		args.Entries = append(args.Entries, &raft.Log{
			Index: args.PrevLogEntry + 1 + uint64(i), Term: 7 + uint64(i),
			Data: make([]byte, size),
		})
	}
	given := *args
	var entries []*raft.Log
	prev, prevTerm := args.PrevLogEntry, args.PrevLogTerm
	requests := 0
	log := newParallelLog(raft.NewInmemStore(), 256<<20, nil)
	for rest := args; rest != nil; requests++ {
		var piece *raft.AppendEntriesRequest
		var err error
		piece, rest, err = cutAppend(rest, log)
		require.NoError(t, err)
		require.Equal(t, []uint64{prev, prevTerm, given.Term, given.LeaderCommitIndex}, []uint64{
			piece.PrevLogEntry,
			piece.PrevLogTerm, piece.Term, piece.LeaderCommitIndex,
		})
		require.Equal(t, given.RPCHeader, piece.RPCHeader)
		require.NotEmpty(t, piece.Entries)
		size := 0
		for _, e := range piece.Entries {
			size += len(e.Data)
		}
		require.True(t, size <= appendGather || len(piece.Entries) == 1)
		entries = append(entries, piece.Entries...)
		last := entries[len(entries)-1]
		prev, prevTerm = last.Index, last.Term
	}
	require.Equal(t, given.Entries, entries)
	require.Equal(t, 6, requests)
	require.Equal(t, given, *args, "raft's request stays as it is: it looks there for what was sent")

	heartbeat := &raft.AppendEntriesRequest{Term: 7}
	piece, rest, err := cutAppend(heartbeat, log)
	require.NoError(t, err)
	require.Same(t, heartbeat, piece)
	require.Nil(t, rest)
}

// TestBrokenAppendFrames: a truncated frame is an error, and so is one with additional bytes.
func TestBrokenAppendFrames(t *testing.T) {
	whole := appendAppend(nil, anAppend())
	for n := range whole {
		_, err := decodeAppend(whole[:n])
		require.ErrorIs(t, err, wire.ErrCorrupt, "%d bytes", n)
	}
	_, err := decodeAppend(append(whole, 0))
	require.ErrorIs(t, err, wire.ErrCorrupt)
	none := appendAppend(nil, &raft.AppendEntriesRequest{})
	_, err = decodeAppend(binary.AppendUvarint(none[:len(none)-1], math.MaxInt64))
	require.ErrorIs(t, err, wire.ErrCorrupt, "a count alone")
	answer := appendAppended(nil, raft.RPCResponse{Response: &raft.AppendEntriesResponse{Success: true}})
	var read raft.AppendEntriesResponse
	for n := range answer {
		require.ErrorIs(t, decodeAppended(answer[:n], &read), wire.ErrCorrupt, "%d bytes", n)
	}
	require.ErrorIs(t, decodeAppended(append(answer, 0), &read), wire.ErrCorrupt)
}

func FuzzAppendFrames(f *testing.F) {
	f.Add(appendAppend(nil, anAppend()))
	f.Fuzz(func(t *testing.T, frame []byte) {
		req, err := decodeAppend(frame)
		if err != nil {
			return
		}
		again, err := decodeAppend(appendAppend(nil, req))
		require.NoError(t, err)
		require.Equal(t, req, again)
	})
}

// TestHeartbeats: a request with an index, a term of an entry or entries is no heartbeat.
func TestHeartbeats(t *testing.T) {
	require.True(t, isHeartbeat(&raft.AppendEntriesRequest{Term: 7}))
	for _, req := range []*raft.AppendEntriesRequest{
		{Term: 7, PrevLogEntry: 1},
		{Term: 7, PrevLogTerm: 1},
		{Term: 7, LeaderCommitIndex: 1},
		{Term: 7, Entries: []*raft.Log{{Index: 1}}},
	} {
		require.False(t, isHeartbeat(req), "%+v", req)
	}
}

// answering is a stream to a node that records requests, and answers them.
type answering struct {
	wire.Stream
	got    []*raft.AppendEntriesRequest
	answer func(n int) *raft.AppendEntriesResponse
}

func (s *answering) DialContext(context.Context, string) (net.Conn, error) {
	here, there := net.Pipe()
	go func() {
		br := bufio.NewReader(there)
		for {
			frame, err := wire.Read(br, nil, maxAppendFrame)
			if err != nil {
				return
			}
			req, err := decodeAppend(frame)
			if err != nil {
				return
			}
			s.got = append(s.got, req)
			_,
				_ = there.Write(wire.Seal(appendAppended(make([]byte, wire.Head),
				raft.RPCResponse{Response: s.answer(len(s.got))})))
		}
	}()
	return here, nil
}

// TestAppendSucceedsAsAWhole: raft gets a success only if all parts of its request had one, since it then counts all
// entries as stored by the other node.
func TestAppendSucceedsAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		args := &raft.AppendEntriesRequest{Term: 7, PrevLogEntry: 4, PrevLogTerm: 6}
		for i := range uint64(3) {
			args.Entries = append(args.Entries, &raft.Log{Index: 5 + i, Term: 7, Data: make([]byte, appendGather)})
		}
		for _, c := range []struct {
			refused, term     int
			leads, ok, failed bool
			requests          int
		}{
			{term: 7, leads: true, ok: true, requests: 3},
			{refused: 2, term: 7, leads: true, requests: 2},
			{refused: 3, term: 8, leads: true, requests: 3},
			{term: 7, leads: false, ok: true, failed: true, requests: 1},
		} {
			node := &answering{answer: func(n int) *raft.AppendEntriesResponse {
				return &raft.AppendEntriesResponse{Term: uint64(c.term), LastLog: uint64(4 + n), Success: n != c.refused}
			}}
			tr := &transport{
				commits: newCommitNotifier(commitNotifierConfig{}),
				acks:    acksOf("n1", "n2", "n3"), log: newParallelLog(raft.NewInmemStore(), 256<<20, nil),
				appender: newAppender(node), stopped: make(chan struct{}),
				configurations: newConfigurations("n1"),
			}
			tr.leads.Store(func(uint64) bool { return c.leads || len(node.got) == 0 }) // it leads at first
			var resp raft.AppendEntriesResponse
			err := tr.AppendEntries("n2", "", args, &resp)
			require.Equal(t, c.failed, err != nil)
			require.Len(t, node.got, c.requests)
			require.Equal(t, c.ok, resp.Success)
			require.Equal(t, uint64(4+c.requests), resp.LastLog)
			require.Equal(t, uint64(c.term), resp.Term)
			for _, conn := range tr.appender.idle["n2"] {
				require.LessOrEqual(t, cap(conn.out), 4*wire.Gather, "what was large is not kept")
				require.NoError(t, conn.Close())
			}
		}
	})
}

// TestAnswerThatMakesNoSense: an invalid answer ends its connection, which is not used again.
func TestAnswerThatMakesNoSense(t *testing.T) {
	near, far := net.Pipe()
	a := newAppender(nil)
	a.idle["n2"] = []*appendConn{a.adopt("n2", near)}
	go func() {
		_, _ = wire.Read(bufio.NewReader(far), nil, maxAppendFrame)
		_, _ = far.Write(wire.Seal(append(make([]byte, wire.Head), 0xff)))
	}()
	require.ErrorIs(t, a.call("n2", anAppend(), &raft.AppendEntriesResponse{}), wire.ErrCorrupt)
	require.Empty(t, a.idle["n2"])
	_, err := near.Write(nil)
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

// TestAbandonedRequests: abandon ends the requests to a node that were sent long ago, and no others.
func TestAbandonedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAppender(nil)
		errs := make(map[string]chan error)
		send := func(name string, id raft.ServerID) {
			near, far := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, far) }()
			t.Cleanup(func() { _ = near.Close() })
			conn := a.adopt(id, near)
			errs[name] = make(chan error, 1)
			go func() {
				_, err := conn.call(anAppend(), &raft.AppendEntriesResponse{})
				errs[name] <- err
			}()
			synctest.Wait()
		}
		send("old", "n2")
		send("other", "n3")
		idle, far := net.Pipe()
		defer far.Close()
		go func() {
			_, _ = wire.Read(bufio.NewReader(far), nil, maxAppendFrame)
			_, _ = far.Write(wire.Seal(appendAppended(make([]byte, wire.Head), raft.RPCResponse{})))
		}()
		a.idle["n2"] = []*appendConn{a.adopt("n2", idle)}
		require.NoError(t, a.call("n2", anAppend(), &raft.AppendEntriesResponse{}))
		time.Sleep(time.Second)
		send("young", "n2")
		time.Sleep(time.Second / 2)
		a.abandon("n2", time.Second)
		synctest.Wait()
		require.ErrorIs(t, <-errs["old"], io.ErrClosedPipe)
		require.Empty(t, errs["other"])
		require.Empty(t, errs["young"])
		require.Len(t, a.open, 3)
		require.NoError(t, idle.SetDeadline(time.Now()), "the idle connection is closed")
	})
}

// held is a stream whose dials wait until their contexts end.
type held struct{ wire.Stream }

func (held) DialContext(ctx context.Context, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestAbandonedDials: a node that requests pre-votes ends the dials to it that began long ago, and no others. A dial
// has a timeout.
func TestAbandonedDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, took := newAppender(held{}), make(map[string]time.Duration)
		tr := &transport{appender: a, election: time.Second}
		var mu sync.Mutex
		var all sync.WaitGroup
		dial := func(name string, id raft.ServerID) {
			began := time.Now()
			all.Go(func() {
				err := a.call(id, anAppend(), &raft.AppendEntriesResponse{})
				require.Error(t, err)
				mu.Lock()
				defer mu.Unlock()
				took[name] = time.Since(began)
			})
			synctest.Wait()
		}
		dial("old", "n2")
		dial("other", "n3")
		time.Sleep(time.Second)
		dial("young", "n2")
		time.Sleep(time.Second / 2)
		tr.reached("n2")
		all.Wait()
		require.Equal(t, map[string]time.Duration{"old": 3 * time.Second / 2, "other": rpcTimeout, "young": rpcTimeout}, took)
		require.Empty(t, a.dials)
	})
}

// TestRequestThatIsNotAnswered: a request without an answer times out. The other connections to the node use the same
// path, and are closed as soon as they are idle, so that the next ones send small packets. A connection that was closed
// has no such effect.
func TestRequestThatIsNotAnswered(t *testing.T) {
	request := len(appendAppend(make([]byte, wire.Head), anAppend()))
	for _, c := range []struct {
		name  string
		far   func(net.Conn)
		took  time.Duration
		stuck int
	}{
		{"it is closed", func(far net.Conn) { _ = far.Close() }, 0, 0},
		{
			"it is taken, and not answered", func(far net.Conn) { _, _ = io.Copy(io.Discard, far) },
			answerTimeout(request), 1,
		},
		{"it is not taken", func(net.Conn) {}, 10 * time.Second, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAppender(nil)
				idle, _ := net.Pipe()
				used, _ := net.Pipe()
				busy, other := a.adopt("n2", used), a.adopt("n3", idle)
				near, far := net.Pipe()
				p := &pipe{Conn: near}
				a.idle["n2"] = []*appendConn{a.adopt("n2", idle), a.adopt("n2", p)}
				for _, conn := range a.idle["n2"] {
					conn.deadline = time.Now().Add(time.Millisecond) // of the request before
				}
				go c.far(far)
				began := time.Now()
				require.Error(t, a.call("n2", anAppend(), &raft.AppendEntriesResponse{}))
				require.Equal(t, c.took, time.Since(began))
				require.Equal(t, c.stuck, p.stuck)
				require.Len(t, a.idle["n2"], 1-c.stuck)
				require.Equal(t, c.stuck > 0, idle.SetDeadline(time.Time{}) != nil, "the idle one is closed")
				require.NoError(t, used.SetDeadline(time.Time{}))
				a.give(busy)
				require.Equal(t, c.stuck > 0, used.SetDeadline(time.Time{}) != nil, "so is the busy one, later")
				a.give(other)
				require.Len(t, a.idle["n3"], 1)
				_, _ = idle.Close(), used.Close()
			})
		})
	}
}

// TestConnectionsTogether: connections are given back and hung up while the node stops. None stays open.
func TestConnectionsTogether(t *testing.T) {
	a := newAppender(&port{closed: make(chan struct{})})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				if conn, err := a.take("n2"); err == nil {
					a.give(conn)
				}
			}
		})
		all.Go(func() { a.hangUp("n2") })
	}
	all.Go(a.close)
	all.Wait()
	a.hangUp("n2")
	require.Zero(t, a.stream.(*port).open.Load())
}
