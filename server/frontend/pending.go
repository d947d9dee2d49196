package frontend

import (
	"errors"
	"strings"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
	"github.com/holdfast/holdfast/server/replica"
)

// BLPOP and its like wait if they cannot be served, and so do requests for locks with WAIT: see [conn.send]. Inside
// MULTI such a command is queued like any other, and does not wait.
//
// Such a command is answered later than executed. Its reply is a [pending], which is made before the command is
// executed, as the reply may come at any time then. With NOTIFY the reply is a message, and the connection goes on.
// Else the connection is parked: it costs no goroutine and no buffer, its own goroutine waits for the reply, and takes
// messages and input meanwhile. Input is kept, and served behind the reply.

// pendingState is how far a pending reply is.
//
//	state      what holds                                              what leads on
//	executing  the request has its ticket, its batch is under way      wait: waiting; complete: completed;
//	                                                                   answered at once: the record is kept or dropped
//	waiting    the connection is parked, or goes on with NOTIFY        complete: completed, with NOTIFY delivering;
//	                                                                   the connection's end: the ticket is left
//	completed  the reply is there, the parked connection has not       resume: delivering for a grant, else the end;
//	           taken it                                                the connection's end: a grant is given back
//	delivering a grant is in the output or the outbox                  delivered: the end;
//	                                                                   the connection's end: the grant is given back
type pendingState uint8

const (
	pendingExecuting pendingState = iota
	pendingWaiting
	pendingCompleted
	pendingDelivering
)

// pending is a reply that comes later. A connection keeps one for its next such command: a command that is served at
// once leaves nothing behind.
type pending struct {
	c *conn
	// ticket is what the request is called by.
	ticket uint64
	// request is the command's, while the batch is executed. row and mute are the parked command's.
	request *request
	row     *row
	mute    bool
	// notify: the reply is a message.
	notify bool
	// onComplete is pending.complete, and onLeave is called, by the connection's goroutine, when the connection ends
	// while it is parked. Both are made once.
	onComplete func(protocol.Value)
	onLeave    func()

	// The fields below are guarded by outbox.mu. state becomes waiting by the connection's goroutine alone.
	state pendingState
	value protocol.Value // counts when completed
	// message is the grant's, until it is in the output; nil: the grant is a parked command's reply.
	message *push.Message
	grant
}

// grant is what a request for locks gives the client, if it is granted. keys is empty: not a request for locks, or the
// request is being executed.
type grant struct {
	db    int
	keys  []string
	owner string
}

// newGrant is what a request gives the client.
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

// takePending is the reply of a command that may wait, with a ticket.
func (c *conn) takePending(req *request) *pending {
	p := c.spare
	if c.spare = nil; p == nil {
		p = &pending{c: c}
		p.onComplete, p.onLeave = p.complete, p.leave
	}
	p.ticket, p.request = c.srv.backend.Clients().Waiters.Enter(len(req.args), p.onComplete), req
	return p
}

// keep keeps a pending reply that no other goroutine knows any more.
func (o *outbox) keep(p *pending) {
	p.value, p.state, p.grant = protocol.Value{}, pendingExecuting, grant{}
	o.spare = p
}

// number is the ticket, 0: there is none.
func (p *pending) number() uint64 {
	if p == nil {
		return 0
	}
	return p.ticket
}

// wait notes that the reply comes later, with what it gives the client, and reports whether the connection has ended:
// then abandon gives back what came before.
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

// complete sets the reply. Only the first call counts. Any goroutine may call complete, also before the connection is
// parked.
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

// completed reports whether a parked command's reply is there; nil: no command is parked. The caller holds outbox.mu.
func (p *pending) completed() bool { return p != nil && p.state == pendingCompleted }

// abandon is called when the connection has ended without the reply, and reports whether complete was called.
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

// giveBack releases a grant whose client has gone. v is the reply of the request, granted or not.
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

// addBlockedReply writes the reply of a command that may wait, or parks the connection.
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

// isUncertain reports whether an error leaves open what became of the request.
func isUncertain(v protocol.Value) bool {
	return v.IsError() && protocol.OutcomeOf(v.Str) == protocol.OutcomeUnknown
}

// errTooMuchInput ends a parked connection whose client sends more than may be kept, as in Redis.
var errTooMuchInput = errors.New("too much input behind a command that waits")

// park has the connection dispatch no further command until the reply is complete. It is called in dispatch, after the
// batch has been executed. p.onLeave is called on the connection's goroutine if the connection ends first, and may then
// take as long as a command.
func (c *conn) park(row *row, p *pending) {
	p.wait()
	p.row, p.mute = row, c.replyMode.muted()
	c.parked = p
	c.setBlocked(true)
}

// resume places the parked command's reply, if it is there, and reports whether the connection goes on
// with its input.
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

// leave is the end of a connection that may be parked.
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

// clientUnblock is CLIENT UNBLOCK. It answers 1 if it was this command that ended the wait.
func clientUnblock(c *conn, args [][]byte) protocol.Value { return c.srv.clientUnblock(c, args) }

// clientUnblock is CLIENT UNBLOCK. sender is nil if it is a client of another node.
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

// unblock ends the wait of a client: under a ticket by the cluster, else by the connection itself.
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
