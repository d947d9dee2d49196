package raftnode

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/peer/wire"
)

// appender sends a leader's AppendEntries to other nodes, over connections of its
// own. Everything else that raft asks of other nodes goes through its own
// transport; this is what every command waits for, and what a leadership check sends.
type appender struct {
	stream    wire.Stream
	addresses provider

	mu     sync.Mutex
	idle   map[raft.ServerID][]*appendConn
	closed bool
}

// appendConn is one connection. It carries a request at a time.
type appendConn struct {
	net.Conn
	br *bufio.Reader
	// out and in are its frames, used again.
	out, in []byte
	steady  wire.Steady
	// until is the deadline that is set for an answer.
	until time.Time
}

func newAppender(stream wire.Stream, addresses provider) *appender {
	return &appender{stream: stream, addresses: addresses, idle: make(map[raft.ServerID][]*appendConn)}
}

// call sends args to a node and waits for its answer.
func (a *appender) call(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	conn, err := a.take(id)
	if err != nil {
		return err
	}
	frame, err := conn.exchange(args)
	if err != nil {
		_ = conn.Close()
		return err
	}
	err = decodeAppended(frame, resp)
	if errors.Is(err, wire.ErrCorrupt) {
		_ = conn.Close()
		return err
	}
	a.give(id, conn)
	return err
}

func (a *appender) take(id raft.ServerID) (*appendConn, error) {
	a.mu.Lock()
	if conns := a.idle[id]; len(conns) > 0 {
		conn := conns[len(conns)-1]
		a.idle[id] = conns[:len(conns)-1]
		a.mu.Unlock()
		return conn, nil
	}
	a.mu.Unlock()
	addr, err := a.addresses.ServerAddr(id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), rpcTimeout)
	defer cancel()
	conn, err := a.stream.DialContext(ctx, string(addr))
	if err != nil {
		return nil, err
	}
	return &appendConn{Conn: conn, br: bufio.NewReader(conn), steady: wire.Steady{Conn: conn}}, nil
}

func (a *appender) give(id raft.ServerID, conn *appendConn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || len(a.idle[id]) >= connsPerPeer {
		_ = conn.Close()
		return
	}
	a.idle[id] = append(a.idle[id], conn)
}

// close ends all connections, and the calls that wait for an answer.
func (a *appender) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	_ = a.stream.Close()
}

// exchange returns the answer to args, valid until the next call.
func (c *appendConn) exchange(args *raft.AppendEntriesRequest) ([]byte, error) {
	c.out = appendAppend(append(c.out[:0], make([]byte, wire.Head)...), args)
	if len(c.out) > maxAppendFrame {
		return nil, fmt.Errorf("append to a node's log: %d bytes, the limit is %d", len(c.out), maxAppendFrame)
	}
	if _, err := c.steady.Write(wire.Seal(c.out)); err != nil {
		return nil, err
	}
	patience := answerWithin(len(c.out))
	if now := time.Now(); c.until.Sub(now) < patience/2 {
		// A deadline that is far enough is left as it is: moving it costs more than a small write.
		c.until = now.Add(patience)
		_ = c.SetReadDeadline(c.until)
	}
	if cap(c.out) > 4*wire.Gather {
		c.out = nil
	}
	var err error
	c.in, err = wire.Read(c.br, c.in, wire.Short)
	return c.in, err
}

const (
	// underWay is how much of what was written may be in the buffers of two kernels, and
	// slowest how fast, in bytes a second, a link is at least that brings it to the other node.
	underWay = 8 << 20
	slowest  = 128 << 10
)

// answerWithin is how long an answer to a frame of that size may take, once it is written.
func answerWithin(size int) time.Duration {
	return rpcTimeout + time.Duration(min(size, underWay))*time.Second/slowest
}

// acceptAppends takes other nodes' connections until ctx ends.
func (t *transport) acceptAppends(ctx context.Context) error {
	return wire.Accept(ctx, t.appender.stream, func(ctx context.Context, conn net.Conn) {
		_ = t.serveAppends(ctx, conn) // that the other node is gone is told where it is missed
	})
}

// serveAppends answers the requests of one connection.
func (t *transport) serveAppends(ctx context.Context, conn net.Conn) error {
	br := bufio.NewReaderSize(conn, 64<<10)
	answers := make(chan raft.RPCResponse, 1)
	var out []byte
	for {
		// Entries stay in the frame: each has memory of its own.
		frame, err := wire.Read(br, nil, maxAppendFrame)
		if err != nil {
			return err
		}
		req, err := decodeAppend(frame)
		if err != nil {
			return err
		}
		t.handle(ctx, req, answers)
		select {
		case answer := <-answers:
			out = appendAppended(append(out[:0], make([]byte, wire.Head)...), answer)
		case <-ctx.Done():
			return nil
		}
		if _, err := conn.Write(wire.Seal(out)); err != nil {
			return err
		}
	}
}

// handle gives a request to raft. A heartbeat is handled at once, so that it does not wait for a disk.
func (t *transport) handle(ctx context.Context, req *raft.AppendEntriesRequest, answers chan raft.RPCResponse) {
	rpc := raft.RPC{Command: req, RespChan: answers}
	if f := t.heartbeat.Load(); f != nil && isHeartbeat(req) {
		(*f)(rpc)
		return
	}
	t.pass(ctx, rpc)
}

// isHeartbeat tells what raft's heartbeats send from what its replication does.
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return req.PrevLogEntry == 0 && req.PrevLogTerm == 0 && len(req.Entries) == 0 && req.LeaderCommitIndex == 0
}

const (
	// maxAppendFrame bounds a request that is received: a leader of an earlier release sends as many entries as raft
	// gives it, each of the largest batch. No room is made for what has not come yet.
	maxAppendFrame = maxAppend * (maxEntry + wire.Step)
	// maxEntry is about what the largest entry of any release takes: one batch.
	maxEntry = 32 << 20
	// appendGather is where gathering of entries into one request stops. A larger entry goes alone.
	appendGather = 8 << 20
)

// cutAppend returns the request that is sent for args, and what remains of args after it, nil if that is nothing.
//
// Raft gives up to 32 entries at a time, which may be a gigabyte: over a slow link such a request never got
// through, and each attempt began at its beginning. Both requests are as raft would have made them, had it been asked for
// fewer entries: the second says that it follows the last entry of the first. The first is whole: what log had given
// raft without its data is loaded, and the first entry of the second, whose size decides, at most.
func cutAppend(args *raft.AppendEntriesRequest, log *parallelLog) (piece, rest *raft.AppendEntriesRequest, err error) {
	piece = args // raft's own stays as it is
	size := 0
	for i, given := range args.Entries {
		e, err := log.whole(given)
		if err != nil {
			return nil, nil, err
		}
		if e != given && piece == args {
			own := *args
			own.Entries = slices.Clone(args.Entries)
			piece = &own
		}
		if e != given {
			piece.Entries[i] = e
		}
		if size += len(e.Data) + len(e.Extensions); size <= appendGather || i == 0 {
			continue
		}
		first, others := *piece, *piece
		last := args.Entries[i-1]
		// Whoever has the others must not keep those that were sent.
		first.Entries, others.Entries = piece.Entries[:i], slices.Clone(piece.Entries[i:])
		others.PrevLogEntry, others.PrevLogTerm = last.Index, last.Term
		return &first, &others, nil
	}
	return piece, nil, nil
}

// The append stream: one frame (see frame.go) for each request, and one for its answer.
//
//	request  protocol version, bytes id, bytes address of the leader, term, previous index, its term,
//	         commit index, count, (index, term, type, nanoseconds of Unix time or 0, bytes data, bytes extensions)*
//	answer   protocol version, term, last index, flags, bytes error

const (
	flagSuccess uint64 = 1 << iota
	flagNoRetryBackoff
)

func appendAppend(dst []byte, req *raft.AppendEntriesRequest) []byte {
	dst = binary.AppendUvarint(dst, uint64(req.ProtocolVersion))
	dst = wire.AppendBytes(wire.AppendBytes(dst, req.ID), req.Addr)
	for _, n := range []uint64{req.Term, req.PrevLogEntry, req.PrevLogTerm, req.LeaderCommitIndex, uint64(len(req.Entries))} {
		dst = binary.AppendUvarint(dst, n)
	}
	for _, e := range req.Entries {
		dst = binary.AppendUvarint(dst, e.Index)
		dst = binary.AppendUvarint(dst, e.Term)
		dst = binary.AppendUvarint(dst, uint64(e.Type))
		var at uint64
		if !e.AppendedAt.IsZero() {
			at = uint64(e.AppendedAt.UnixNano())
		}
		dst = binary.AppendUvarint(dst, at)
		dst = wire.AppendBytes(wire.AppendBytes(dst, e.Data), e.Extensions)
	}
	return dst
}

// decodeAppend reads a request. Its entries share memory with the frame.
func decodeAppend(frame []byte) (*raft.AppendEntriesRequest, error) {
	f := wire.Fields[[]byte]{Rest: frame}
	req := &raft.AppendEntriesRequest{}
	req.ProtocolVersion = raft.ProtocolVersion(f.Number())
	req.ID, req.Addr = f.Bytes(), f.Bytes()
	req.Term, req.PrevLogEntry, req.PrevLogTerm, req.LeaderCommitIndex = f.Number(), f.Number(), f.Number(), f.Number()
	n := f.Number()
	if n > uint64(len(f.Rest)) { // each takes more than a byte
		return nil, fmt.Errorf("%w: count of entries", wire.ErrCorrupt)
	}
	if n > 0 {
		entries := make([]raft.Log, n)
		req.Entries = make([]*raft.Log, n)
		for i := range entries {
			e := &entries[i]
			e.Index, e.Term, e.Type = f.Number(), f.Number(), raft.LogType(f.Number())
			if at := f.Number(); at != 0 {
				e.AppendedAt = time.Unix(0, int64(at))
			}
			e.Data, e.Extensions = f.Bytes(), f.Bytes()
			req.Entries[i] = e
		}
	}
	if f.Err == nil && len(f.Rest) > 0 {
		f.Err = fmt.Errorf("%w: request", wire.ErrCorrupt)
	}
	return req, f.Err
}

func appendAppended(dst []byte, answer raft.RPCResponse) []byte {
	resp, ok := answer.Response.(*raft.AppendEntriesResponse)
	if !ok || resp == nil {
		resp = &raft.AppendEntriesResponse{}
	}
	var flags uint64
	if resp.Success {
		flags |= flagSuccess
	}
	if resp.NoRetryBackoff {
		flags |= flagNoRetryBackoff
	}
	for _, n := range []uint64{uint64(resp.ProtocolVersion), resp.Term, resp.LastLog, flags} {
		dst = binary.AppendUvarint(dst, n)
	}
	var text string
	if answer.Error != nil {
		text = answer.Error.Error()
	}
	return wire.AppendBytes(dst, text)
}

// decodeAppended reads an answer. The error is wire.ErrCorrupt, or what the other node said.
func decodeAppended(frame []byte, resp *raft.AppendEntriesResponse) error {
	f := wire.Fields[[]byte]{Rest: frame}
	resp.ProtocolVersion = raft.ProtocolVersion(f.Number())
	resp.Term, resp.LastLog = f.Number(), f.Number()
	flags, text := f.Number(), f.Bytes()
	resp.Success, resp.NoRetryBackoff = flags&flagSuccess != 0, flags&flagNoRetryBackoff != 0
	switch {
	case f.Err != nil:
		return f.Err
	case len(f.Rest) > 0:
		return fmt.Errorf("%w: answer", wire.ErrCorrupt)
	case len(text) > 0:
		return errors.New(string(text))
	}
	return nil
}
