package frontend

import (
	"errors"
	"strings"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
	"github.com/holdfast/holdfast/server/replica"
)

// BLPOP and similar commands, and requests for locks with WAIT, may wait: see [conn.send]. Inside MULTI they are queued
// like any other command, and do not wait.
//
// The reply of such a command is a [pending]. It is created before the command runs, since the reply may come at any
// time from then on. With NOTIFY the reply is a message, and the connection continues. Otherwise the connection is
// parked: its goroutine waits for the reply, writes messages, and keeps input until after the reply.

// pendingState is the state of a pending reply.
//
//	state      meaning                                                 transitions
//	executing  the request has its ticket, and its batch is running    wait: waiting; complete: completed;
//	                                                                   an immediate reply: the record is kept or dropped
//	waiting    the connection is parked, or continues with NOTIFY      complete: completed, with NOTIFY delivering;
//	                                                                   the connection ends: the waiter is removed
//	completed  the parked connection has not taken the reply yet       resume: delivering for a grant, else finished;
//	                                                                   the connection ends: the grant is returned
//	delivering the grant is in the output or the outbox                delivered: finished;
//	                                                                   the connection ends: the grant is returned
type pendingState uint8

const (
	pendingExecuting pendingState = iota
	pendingWaiting
	pendingCompleted
	pendingDelivering
)

// pending is a reply that comes later. A connection keeps one for its next command that may wait: a command that is
// served at once leaves nothing behind.
type pending struct {
	c *conn
	// ticket is the name of the request in the cluster.
	ticket uint64
	// request is the request while the batch runs. row and mute are those of the parked command.
	request *request
	row     *row
	mute    bool
	// notify is set if the reply is a message.
	notify bool
	// onComplete is the method value pending.complete. onLeave is called by the connection's goroutine if the connection
	// ends while it is parked. Both are allocated once.
	onComplete func(protocol.Value)
	onLeave    func()

	// outbox.mu guards the fields below. Only the connection's goroutine sets state to pendingWaiting.
	state pendingState
	value protocol.Value // valid if completed
	// message is the message with the grant until it is in the output. It is nil if the grant is the reply of a parked
	// command.
	message *push.Message
	grant
}

// grant is what a request for locks gives the client. keys is empty for other requests, and while the request runs.
type grant struct {
	db    int
	keys  []string
	owner string
}

// newGrant returns the grant of a request.
func newGrant(req *request) (g grant) {
	if !req.handler.acquires {
		return g
	}
	keys := req.keys()
	g = grant{db: req.db, keys: make([]string, len(keys)), owner: string(req.args[req.owner()])}
	for i, p := range keys {
		g.keys[i] = string(req.args[p])
	}
	return g
}

// takePending returns a pending with a ticket for a command that may wait.
func (c *conn) takePending(req *request) *pending {
	p := c.spare
	if c.spare = nil; p == nil {
		p = &pending{c: c}
		p.onComplete, p.onLeave = p.complete, p.leave
	}
	p.ticket, p.request = c.srv.backend.Clients().Waiters.Enter(len(req.args), p.onComplete), req
	return p
}

// keep keeps a pending that no other goroutine uses any more.
func (o *outbox) keep(p *pending) {
	p.value, p.state, p.grant = protocol.Value{}, pendingExecuting, grant{}
	o.spare = p
}

// number returns the ticket, or 0 if p is nil.
func (p *pending) number() uint64 {
	if p == nil {
		return 0
	}
	return p.ticket
}

// wait records that the reply comes later, and the grant that it may be. It reports whether the connection has ended.
// The caller then calls abandon, since the reply may have arrived before.
func (p *pending) wait() (closed bool) {
	var g grant
	if p.request != nil {
		g = newGrant(p.request)
	}
	o := &p.c.outbox
	o.mu.Lock()
	defer o.mu.Unlock()
	p.grant = g
	if p.state == pendingExecuting {
		p.state = pendingWaiting
	}
	return o.closed
}

// complete sets the reply. Only the first call counts. Any goroutine may call it, even before the connection is parked.
func (p *pending) complete(v protocol.Value) {
	if p.notify {
		p.completeNotice(v)
		return
	}
	o := &p.c.outbox
	o.mu.Lock()
	lost := o.closed && len(p.keys) > 0
	if !lost && p.state < pendingCompleted {
		p.value, p.state = v, pendingCompleted
		o.wake()
	}
	o.mu.Unlock()
	if lost {
		p.giveBack(v)
	}
}

// completed reports whether the reply of a parked command has arrived. The caller holds outbox.mu.
func (p *pending) completed() bool { return p != nil && p.state == pendingCompleted }

// abandon is called after the connection has ended without the reply. If the reply has arrived meanwhile, abandon
// returns the grant and reports true.
func (p *pending) abandon() bool {
	o := &p.c.outbox
	o.mu.Lock()
	completed, v := p.completed(), p.value
	o.mu.Unlock()
	if completed {
		p.giveBack(v)
	}
	return completed
}

// leave is called when the parked connection ends.
func (p *pending) leave() {
	if !p.abandon() {
		p.c.srv.backend.Clients().Waiters.Leave(p.ticket)
	}
}

// giveBack returns the grant, if v is one. The client has disconnected.
func (p *pending) giveBack(v protocol.Value) {
	if len(p.keys) == 0 || v.Kind != protocol.KindInteger || v.Num == 0 {
		return
	}
	holds := make([]protocol.Hold, len(p.keys))
	for i, key := range p.keys {
		holds[i] = protocol.Hold{DB: p.db, Key: key, Owner: p.owner, Fence: v.Num, Conn: p.c.id}
	}
	p.c.srv.backend.Clients().Waiters.GiveBack(holds...)
}

// addBlockedReply handles the immediate reply of a command that may wait, and reports whether it parked the connection.
func (c *conn) addBlockedReply(s *slot, v protocol.Value) (parked bool) {
	waiters, p := c.srv.backend.Clients().Waiters, s.wait
	switch {
	case protocol.IsParked(v):
		c.update(func(s *shown) { s.ticket = p.ticket })
		c.park(s.row, p)
		waiters.Parked(p.ticket, c.lastWrite)
		return true
	case isUncertain(v):
		if closed := p.wait(); closed {
			p.abandon()
		}
		waiters.Leave(p.ticket)
	case waiters.Forget(p.ticket):
		c.keep(p)
	}
	return false
}

// isUncertain reports whether v is an error after which the request may have been applied.
func isUncertain(v protocol.Value) bool {
	return v.IsError() && protocol.OutcomeOf(v.Str) == protocol.OutcomeUnknown
}

// errTooMuchInput is the error of a parked connection whose client sends more than may be kept. Redis has this limit,
// too.
var errTooMuchInput = errors.New("too much input behind a command that waits")

// park stops the dispatch of commands until the reply is complete. It is called after the batch has run. If the
// connection ends first, its goroutine calls p.onLeave, which may take as long as a command.
func (c *conn) park(row *row, p *pending) {
	p.wait()
	p.row, p.mute = row, c.replyMode.muted()
	c.parked = p
	c.setBlocked(true)
}

// resume places the reply of the parked command, if it has arrived, and reports whether the connection continues with
// its input.
func (c *conn) resume() bool {
	p := c.parked
	if p == nil {
		return false
	}
	c.outbox.mu.Lock()
	completed, v := p.completed(), p.value
	c.outbox.mu.Unlock()
	if !completed {
		return false
	}
	c.unpark()
	if c.w == nil {
		c.w = c.srv.acquireWork(&c.stream)
	}
	v = c.srv.limitReply(p.row, v)
	c.srv.count(p.row, v)
	switch {
	case p.mute:
		c.keep(p)
	case len(p.keys) > 0:
		c.addGrant(p)
		c.encode(v, c.resp)
	default:
		c.keep(p)
		c.encode(v, c.resp)
	}
	return true
}

func (c *conn) unpark() {
	c.parked = nil
	c.setBlocked(false)
}

// leave ends all that the connection has, at its end.
func (c *conn) leave() {
	if why := c.outbox.whyEnded(); why != "" {
		c.srv.cfg.Logger.Warn("cut off a client", "client", c.nc.RemoteAddr(), "id", c.id, "reason", why)
	}
	c.countAs("", 0)
	c.closeBackup()
	c.closeOutbox()
	c.leaveLocks()
	c.endTracking()
	c.unsubscribeAll()
	c.stopMonitoring()
	if p := c.parked; p != nil {
		c.unpark()
		p.onLeave()
	}
}

// clientUnblock runs CLIENT UNBLOCK. The reply is 1 if the command has ended the wait.
func clientUnblock(c *conn, args [][]byte) protocol.Value { return c.srv.clientUnblock(c, args) }

// clientUnblock runs CLIENT UNBLOCK. sender is nil if the command comes from another node.
func (s *Server) clientUnblock(sender *conn, args [][]byte) protocol.Value {
	how := protocol.LeaveTimeout
	if len(args) > 4 {
		return protocol.Err("unknown subcommand or wrong number of arguments for '" + string(args[1]) + "'. Try CLIENT HELP.")
	}
	if len(args) == 4 {
		switch strings.ToLower(string(args[3])) {
		case "timeout":
		case "error":
			how = protocol.LeaveError
		default:
			return protocol.Err("CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
		}
	}
	id, ok := protocol.ParseInt(string(args[2]))
	if !ok {
		return protocol.ErrNotInteger.Value()
	}
	if !s.ids.has(id) && sender != nil {
		return s.askOthers(sender.ctx, id, args)
	}
	return s.unblock(id, how)
}

// unblock ends the wait of a client: the cluster ends a wait with a ticket, and the connection any other.
func (s *Server) unblock(id int64, how protocol.Leave) protocol.Value {
	target := s.client(id)
	if target == nil {
		return protocol.Integer(0)
	}
	shown := target.view()
	if !shown.blocked || shown.ticket == 0 {
		return protocol.Integer(0)
	}
	batch := &replica.Batch{Body: protocol.AppendUnblock(nil, how, shown.ticket), Count: 1, Write: true}
	if err := s.backend.Execute(batch); err != nil {
		return s.errorReply(err)
	}
	return batch.Replies[0]
}
