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

// appender sends a leader's AppendEntries to other nodes, over separate connections. Every command
// and every leadership check waits for AppendEntries; raft's own transport carries everything else
// that raft asks of other nodes.
type appender struct {
	stream wire.Stream

	mu     sync.Mutex
	idle   map[raft.ServerID][]*appendConn
	open   map[*appendConn]struct{}
	dials  map[*appendDial]struct{}
	closed bool
}

// appendDial is a connection that is being made.
type appendDial struct {
	id     raft.ServerID
	since  time.Time
	cancel context.CancelFunc
}

// appendConn is a connection, with a request at a time, or those of a pipeline.
type appendConn struct {
	net.Conn
	appender *appender
	id       raft.ServerID
	br       *bufio.Reader
	// sent is since when a request has had no answer, in ns since 1970; 0: there is none.
	sent atomic.Int64
	// out and in are the connection's frames, used again.
	out, in []byte
	steady  wire.Steady
	// until is the deadline that is set for an answer.
	until time.Time
	// retired: the connection is closed instead of kept. The appender's mutex guards it.
	retired bool
}

func newAppender(stream wire.Stream) *appender {
	return &appender{
		stream: stream, idle: make(map[raft.ServerID][]*appendConn),
		open: make(map[*appendConn]struct{}), dials: make(map[*appendDial]struct{}),
	}
}

// call sends args to a node and waits for the answer.
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
		a.hangUp(id) // the path of the idle ones is the same
	}
	return err
}

// call sends args and waits for the answer. A broken connection is closed.
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

// adopt makes a connection one of the appender's. Requires a.mu.
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
	full := a.closed || conn.retired || len(a.idle[conn.id]) >= connsPerPeer
	if !full {
		a.idle[conn.id] = append(a.idle[conn.id], conn)
	}
	a.mu.Unlock()
	if full {
		_ = conn.Close()
	}
}

// abandon closes the connections to a node that have had no answer for age, and ends dials as old: what they sent was
// lost, and TCP waits up to as long again before it sends that once more.
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

// hangUp closes the idle connections to a node, and the others when they come back.
func (a *appender) hangUp(id raft.ServerID) {
	a.mu.Lock()
	conns := a.idle[id]
	delete(a.idle, id)
	for c := range a.open { // unordered: each is looked at
		c.retired = c.retired || c.id == id
	}
	a.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// close ends all connections, and the calls that wait for an answer.
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
	patience := answerWithin(len(c.out))
	if now := time.Now(); c.until.Sub(now) < patience/2 {
		// A deadline that is far enough stays: moving a deadline costs more than a small write.
		c.until = now.Add(patience)
		_ = c.SetReadDeadline(c.until)
	}
	c.out = wire.Kept(c.out)
	return c.read(resp)
}

// read reads the next answer. An error that the other node answers with breaks nothing.
func (c *appendConn) read(resp *raft.AppendEntriesResponse) (broken bool, err error) {
	if c.in, err = wire.Read(c.br, c.in, wire.Short); err != nil {
		return true, err
	}
	err = decodeAppended(c.in, resp)
	return errors.Is(err, wire.ErrCorrupt), err
}

// write sends args.
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
	// underWay is how much of a written request may be in the buffers of two kernels, and slowest
	// is the least speed of a link, in bytes a second, at which the buffers drain.
	underWay = 8 << 20
	slowest  = 128 << 10
)

// answerWithin is how long an answer to a frame of that size may take, once the frame is written.
func answerWithin(size int) time.Duration {
	return rpcTimeout + time.Duration(min(size, underWay))*time.Second/slowest
}

// cutAppend returns the request that is sent for args, and what remains of args after that, or nil.
//
// Raft gives up to 32 entries at a time, which may be a gigabyte. Over a slow link such a request
// would never get through, as each attempt begins anew. Raft would make both requests like this for
// fewer entries: the second follows the last entry of the first. Entries that raft got without
// their data are loaded for the first request; the first entry of the second may be loaded, too, as
// the entry's size decides.
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
		// A copy, so that others does not keep the entries that were sent in memory.
		first.Entries, others.Entries = piece.Entries[:i], slices.Clone(piece.Entries[i:])
		others.PrevLogEntry, others.PrevLogTerm = last.Index, last.Term
		return &first, &others, nil
	}
	return piece, nil, nil
}
