package frontend

import (
	"errors"

	"github.com/holdfast/holdfast/protocol"
)

// A command can be answered later than executed. Its handler makes a [pending] before the command is executed,
// and hands it to the part that will have the reply. When the batch has been executed, and the reply
// is not known yet, the handler parks the connection. A parked connection costs no goroutine and no buffer:
// its own goroutine waits for the reply, and takes messages and input meanwhile. Input is kept, and
// served behind the reply.

// pending is the reply of a parked command.
type pending struct {
	c *conn
	// value counts when completed.
	value     protocol.Value
	completed bool
	// grant is what a lock's reply gives the client; nil: not a lock's, or the command is being executed. Guarded
	// by outbox.mu, as value and completed are. Only the connection's goroutine sets it.
	grant *pendingGrant
}

// complete sets the reply. Only the first call counts. Any goroutine may call complete, also before the connection is
// parked.
func (p *pending) complete(v protocol.Value) {
	o := &p.c.outbox
	o.mu.Lock()
	var lost *pendingGrant
	if o.closed {
		lost = p.grant
	}
	if lost == nil && !p.completed {
		p.value, p.completed = v, true
		p.c.wake()
	}
	o.mu.Unlock()
	lost.giveBack(v)
}

// setGrant sets what the reply gives the client, when it is known that the reply comes later, and reports whether the
// connection has ended: then abandon gives back what came before.
func (p *pending) setGrant(g *pendingGrant) (closed bool) {
	p.c.outbox.mu.Lock()
	defer p.c.outbox.mu.Unlock()
	p.grant = g
	return p.c.outbox.closed
}

// abandon is called when the connection has ended without the reply, and reports whether complete was called.
func (p *pending) abandon() bool {
	o := &p.c.outbox
	o.mu.Lock()
	completed, v := p.completed, p.value
	o.mu.Unlock()
	if completed {
		p.grant.giveBack(v)
	}
	return completed
}

// parkedCommand is the command that a parked connection waits for.
type parkedCommand struct {
	pending *pending
	row     *row
	mute    bool
	// ticket is kept for the next wait; nil: there is none.
	ticket *ticket
	// left is called, by the connection's goroutine, when the connection ends without the reply.
	left func()
}

// errTooMuchInput ends a parked connection whose client sends more than may be kept, as in Redis.
var errTooMuchInput = errors.New("too much input behind a command that waits")

// park has the connection dispatch no further command until the reply is complete. A handler calls park in
// dispatch, after the batch has been executed. left is called on the connection's goroutine if the
// connection ends first, and may then take as long as a command.
func (c *conn) park(row *row, pending *pending, left func()) {
	c.parked = &parkedCommand{pending: pending, row: row, mute: c.replyMode.muted(), left: left}
	c.setBlocked(true)
}

// completed reports whether the command's reply is there. The caller holds outbox.mu.
func (p *parkedCommand) completed() bool { return p != nil && p.pending.completed }

// resume places the parked command's reply, if it is there, and reports whether the connection goes on
// with its input.
func (c *conn) resume() bool {
	p := c.parked
	if p == nil {
		return false
	}
	c.outbox.mu.Lock()
	completed, v := p.pending.completed, p.pending.value
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
	if !p.mute {
		c.addGrant(p.pending.grant, v)
		c.encode(v, c.resp)
	}
	if p.ticket != nil {
		c.keepTicket(p.ticket)
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
		p.left()
	}
}
