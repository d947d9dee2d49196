package frontend

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
)

// conn is one client's connection. The fields before memory belong to the connection's own
// goroutine, unless their type says otherwise.
type conn struct {
	srv *Server
	// table has the commands that the client may send: Redis's, or those of a Sentinel.
	table *protocol.Table
	ctx   context.Context // the server's
	stream
	profile
	clientState
	limited
	locks lockClient
	// backup is under way; nil most of the time.
	backup Backup
	// parked: the last command is answered later. nil most of the time.
	parked  *pending
	numbers batchNumbers
	// onNumber is conn.numbered, made once.
	onNumber func(number uint64)
	// lastWrite is the number of the last write that was acknowledged.
	lastWrite uint64
	// lastPublish is the same for the last that published something, 0 when the subscriptions know of it.
	lastPublish uint64

	memory    memoryShare
	admission admission
}

// stream is the bytes of a connection, both ways: input and replies, and messages between the replies. It does not know
// what they mean.
type stream struct {
	srv *Server
	socket
	input
	ending
	outbox
	// w is the memory of the pipeline under way, nil when there is none.
	w *work
	// authenticated: the client may hold buffers of the usual size.
	authenticated bool
	// pushing: messages are being written, not replies.
	pushing bool
	// resp is the version of the protocol in which replies and messages are encoded.
	resp int
	// onGrowth is called when buffers have grown, onStall while the client does not take what is left of the output.
	onGrowth func()
	onStall  func(unwritten int)
}

// ending says how far a connection is from its end.
type ending struct {
	// closing: answer what is there, then close. gone: the client is not there any more.
	closing, gone bool
	// revoked: the user may not do what it did. Nothing more is taken up. Set by any goroutine.
	revoked atomic.Bool
	// loading: the client's own ACL LOAD runs. The client gets its reply, even if that takes its rights.
	loading atomic.Bool
}

// clientState is what the client's commands have set. RESET undoes it.
type clientState struct {
	identity
	db          int
	replyMode   replyMode
	executing   bool         // the commands of an EXEC are being answered
	monitoring  bool         // the client gets the commands of the node: MONITOR
	tx          *transaction // nil outside MULTI
	watches     watches
	track       track
	subs        subscriptions
	lastCommand string
}

// work is the memory of a pipeline. The memory is pooled, because most connections are idle most of
// the time.
type work struct {
	// in[from:] has arrived and is not parsed yet.
	in     []byte
	from   int
	reader *protocol.Reader
	// commands counts the commands parsed since replies were last written.
	commands int
	// filled: the last read used all the free space, so more may have arrived.
	filled bool

	request request
	batch   replica.Batch
	// slots are the places of replies. The first placed slots are in the output.
	slots  []slot
	placed int
	local  []byte // encoded replies that wait for the replies before them
	out    []byte // bytes of replies to be written
	// unencoded bounds the bytes of a large reply that are not in out yet.
	unencoded int
	// replyBytes bounds the memory of the batch's replies, or of a large reply of the node's own.
	replyBytes int
	// publishes: the batch has a PUBLISH.
	publishes bool
	// numbered: the client must know the number of the batch.
	numbered bool
	// tx is the transaction whose reply a slotExec waits for.
	tx *transaction
	// began is when the batch went out.
	began time.Time
}

func newConn(s *Server, nc net.Conn, table *protocol.Table) *conn {
	u := s.cfg.Users.Held().Default()
	c := &conn{
		srv: s, table: table,
		stream: stream{
			srv: s, socket: newSocket(nc, s.cfg.TLS), authenticated: u.Open(), resp: protocol.RESP2,
			input: input{born: time.Now()},
		},
		profile:     profile{id: s.nextID.Add(1), shown: shown{user: u}},
		limited:     limited{srv: s},
		clientState: clientState{identity: newIdentity(u)},
	}
	c.profile.addr, c.profile.localAddr = c.nc.RemoteAddr(), c.nc.LocalAddr()
	c.socket.id, c.outbox.srv, c.outbox.socket = c.id, s, &c.socket
	c.arrived, c.onNumber, c.onGrowth, c.onStall = c.born, c.numbered, c.account, c.publishStall
	c.publish()
	return c
}

// run serves the client until either side ends the connection.
func (c *conn) run(ctx context.Context) {
	defer c.nc.Close()
	defer func() {
		if p := recover(); p != nil {
			// A mistake in this package must not end the node, and with the node other clients'
			// locks.
			c.srv.cfg.Logger.Error("connection panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	c.ctx = ctx
	defer c.leave()
	if c.authenticated {
		c.countAs(c.user.Name, 0)
	}
	c.setLimit(c.user.Name)
	if err := c.open(); err != nil {
		c.srv.cfg.Logger.Debug("connection not opened", "client", c.nc.RemoteAddr(), "error", err)
		return
	}
	for {
		if err := c.awaitInput(); err != nil {
			c.noteVanished(err)
			c.logEnd(err)
			if c.retired.Load() {
				// The last reply may still be under way.
				c.halfClose()
			}
			return
		}
		if !c.servePipelines() {
			return
		}
		c.releaseIdle()
	}
}

// servePipelines answers all complete commands that have arrived, as one batch unless there are
// more than the limit, and reports whether the connection goes on.
func (c *conn) servePipelines() bool {
	for {
		c.fresh = false
		full := c.consume()
		if !full && !c.closing && c.parked == nil && c.readMore() {
			continue
		}
		c.keepPace(c.ctx, c.w.commands, &c.retired)
		c.runBatch()
		c.write()
		if c.outbox.writes {
			c.delivered(c.gone)
		}
		c.track.written()
		c.srv.metrics.Commands.Add(uint64(c.w.commands))
		c.w.commands, c.readMoreUntil = 0, time.Time{}
		if c.gone {
			return false
		}
		if c.closing {
			c.halfClose()
			return false
		}
		if !full && !c.fresh || c.parked != nil {
			return true
		}
		if c.retired.Load() {
			return false
		}
		if c.deliver(); c.gone {
			return false
		}
	}
}

// consume dispatches the commands in the buffer, and reports whether the limit of commands in a
// pipeline is reached.
func (c *conn) consume() (full bool) {
	w := c.w
	for !c.closing && c.parked == nil {
		if w.commands >= c.srv.cfg.MaxPipeline {
			return true
		}
		args, n, err := w.reader.Next(w.in[w.from:])
		w.from += n
		if err != nil {
			if err != protocol.ErrIncomplete {
				c.protocolError(err)
			}
			return false
		}
		w.commands++
		c.dispatch(args)
	}
	return false
}

// protocolError answers input that is not a command, and ends the connection.
func (c *conn) protocolError(err error) {
	c.reply(nil, c.srv.errorReply(err))
	c.closing = true
}

// releaseIdle returns the memory to the pool when no part of a command has arrived.
func (c *conn) releaseIdle() {
	c.releaseEmpty()
	c.account()
	c.publish()
}

// logEnd logs why a connection ended, unless the reason is ordinary.
func (c *conn) logEnd(err error) {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), c.retired.Load():
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.srv.cfg.Logger.Debug("closed an idle connection", "client", c.nc.RemoteAddr())
	default:
		c.srv.cfg.Logger.Debug("connection lost", "client", c.nc.RemoteAddr(), "error", err)
	}
}
