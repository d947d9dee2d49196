package raftnode

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/peer/wire"
)

// appender sends a leader's AppendEntries over connections of their own, since every command and every leadership check
// waits for AppendEntries. Raft's own transport carries raft's other requests.
type appender struct {
	stream wire.Stream

	mu     sync.Mutex
	idle   map[raft.ServerID][]*appendConn
	open   map[*appendConn]struct{}
	dials  map[*appendDial]struct{}
	closed bool
}

// appendDial is a connection attempt.
type appendDial struct {
	id     raft.ServerID
	since  time.Time
	cancel context.CancelFunc
}

// appendConn is a connection for one request at a time, or for those of a pipeline.
type appendConn struct {
	net.Conn
	appender *appender
	id       raft.ServerID
	br       *bufio.Reader
	// sent is the time since which a request has been unanswered, in Unix ns; 0 if there is none.
	sent atomic.Int64
	// out and in are reusable buffers for the frames.
	out, in []byte
	steady  wire.Steady
	// deadline is the read deadline that is set.
	deadline time.Time
	// isRetired tells give to close the connection. The appender's mutex guards it.
	isRetired bool
}

func newAppender(stream wire.Stream) *appender {
	return &appender{
		stream: stream, idle: make(map[raft.ServerID][]*appendConn),
		open: make(map[*appendConn]struct{}), dials: make(map[*appendDial]struct{}),
	}
}

// call sends args to a node and reads the answer into resp.
func (a *appender) call(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	conn, err := a.take(id)
	if err != nil {
		return err
	}
	broken, err := conn.call(args, resp)
	switch {
	case !broken:
		a.give(conn)
	case errors.Is(err, os.ErrDeadlineExceeded):
		wire.Stuck(conn.Conn)
		a.hangUp(id) // idle connections use the same path
	}
	return err
}

// call sends args and reads the answer into resp. It closes a broken connection.
func (c *appendConn) call(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (broken bool, err error) {
	if broken, err = c.exchange(args, resp); broken {
		_ = c.Close()
	}
	return broken, err
}

func (a *appender) take(id raft.ServerID) (*appendConn, error) {
	a.mu.Lock()
	if conns := a.idle[id]; len(conns) > 0 {
		conn := conns[len(conns)-1]
		a.idle[id] = conns[:len(conns)-1]
		a.mu.Unlock()
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), rpcTimeout)
	defer cancel()
	dial := &appendDial{id: id, since: time.Now(), cancel: cancel}
	a.dials[dial] = struct{}{}
	a.mu.Unlock()
	conn, err := a.stream.DialContext(ctx, string(id))
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.dials, dial)
	if err != nil {
		return nil, err
	}
	return a.adopt(id, conn), nil
}

// adopt wraps and registers a connection. Requires a.mu.
func (a *appender) adopt(id raft.ServerID, conn net.Conn) *appendConn {
	c := &appendConn{
		Conn: conn, appender: a, id: id, br: bufio.NewReader(conn), steady: wire.Steady{Conn: conn},
	}
	a.open[c] = struct{}{}
	return c
}

// Close closes the connection.
func (c *appendConn) Close() error {
	c.appender.mu.Lock()
	delete(c.appender.open, c)
	c.appender.mu.Unlock()
	return c.Conn.Close()
}

func (a *appender) give(conn *appendConn) {
	a.mu.Lock()
	full := a.closed || conn.isRetired || len(a.idle[conn.id]) >= connsPerPeer
	if !full {
		a.idle[conn.id] = append(a.idle[conn.id], conn)
	}
	a.mu.Unlock()
	if full {
		_ = conn.Close()
	}
}

// abandon closes the connections to a node on which a request has been unanswered for age, and cancels dials of that
// age: their packets were lost, and TCP may wait as long again before it retransmits them.
func (a *appender) abandon(id raft.ServerID, age time.Duration) {
	before := time.Now().Add(-age)
	a.mu.Lock()
	defer a.mu.Unlock()
	for d := range a.dials { // unordered: each is looked at
		if d.id == id && d.since.Before(before) {
			d.cancel()
		}
	}
	for c := range a.open { // unordered: each is looked at
		if sent := c.sent.Load(); c.id == id && sent != 0 && sent < before.UnixNano() {
			_ = c.Conn.Close()
		}
	}
}

// hangUp closes the idle connections to a node, and each of the others when it is given back.
func (a *appender) hangUp(id raft.ServerID) {
	a.mu.Lock()
	conns := a.idle[id]
	delete(a.idle, id)
	for c := range a.open { // unordered: each is looked at
		c.isRetired = c.isRetired || c.id == id
	}
	a.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// close closes all connections, which ends pending calls.
func (a *appender) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	_ = a.stream.Close()
}

func (c *appendConn) exchange(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (broken bool,
	err error,
) {
	defer c.sent.Store(0)
	if err := c.write(args); err != nil {
		return true, err
	}
	patience := answerTimeout(len(c.out))
	if now := time.Now(); c.deadline.Sub(now) < patience/2 {
		// A deadline that is late enough is kept: setting one costs more than a small write.
		c.deadline = now.Add(patience)
		_ = c.SetReadDeadline(c.deadline)
	}
	c.out = wire.Kept(c.out)
	return c.read(resp)
}

// read reads the next answer. An error reported by the other node does not break the connection.
func (c *appendConn) read(resp *raft.AppendEntriesResponse) (broken bool, err error) {
	if c.in, err = wire.Read(c.br, c.in, wire.Short); err != nil {
		return true, err
	}
	err = decodeAppended(c.in, resp)
	return errors.Is(err, wire.ErrCorrupt), err
}

// write sends args in one frame.
func (c *appendConn) write(args *raft.AppendEntriesRequest) error {
	c.out = appendAppend(append(c.out[:0], make([]byte, wire.Head)...), args)
	if len(c.out) > maxAppendFrame {
		return fmt.Errorf("append to a node's log: %d bytes, the limit is %d", len(c.out), maxAppendFrame)
	}
	c.sent.CompareAndSwap(0, time.Now().UnixNano())
	_, err := c.steady.Write(wire.Seal(c.out))
	return err
}

const (
	// maxBufferedBytes bounds the part of a written request that the buffers of both kernels hold, and
	// minBytesPerSecond is the speed at which the slowest link drains them.
	maxBufferedBytes  = 8 << 20
	minBytesPerSecond = 128 << 10
)

// answerTimeout returns how long the answer to a frame of size bytes may take once the frame is written.
func answerTimeout(size int) time.Duration {
	return rpcTimeout + time.Duration(min(size, maxBufferedBytes))*time.Second/minBytesPerSecond
}

// cutAppend splits args at appendGather bytes into the request to send and the rest, nil if there is none. It loads the
// data of stripped entries for the request, and may load it for the first entry of the rest.
//
// Raft passes up to 32 entries at a time, which may be a gigabyte. Over a slow link such a request would never arrive,
// since each attempt starts over. Both parts are requests that raft itself would make for fewer entries.
func cutAppend(args *raft.AppendEntriesRequest, log *parallelLog) (piece, rest *raft.AppendEntriesRequest, err error) {
	piece = args // raft's own request stays unchanged
	size := 0
	for i, given := range args.Entries {
		e, err := log.withData(given)
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
		// The clone lets the entries that were sent be collected.
		first.Entries, others.Entries = piece.Entries[:i], slices.Clone(piece.Entries[i:])
		others.PrevLogEntry, others.PrevLogTerm = last.Index, last.Term
		return &first, &others, nil
	}
	return piece, nil, nil
}
