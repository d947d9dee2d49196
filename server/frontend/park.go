package frontend

import (
	"errors"

	"github.com/holdfast/holdfast/protocol"
)

// A command can be answered later than executed. Its handler makes a [lateReply] before the command is
// executed, and hands it to whatever will know the reply. When the batch has been executed, and the reply
// is not known yet, the handler parks the connection. A parked connection costs no goroutine and no buffer:
// its own goroutine waits for the reply, and takes messages and input meanwhile. Input is kept, and
// served behind the reply.

// lateReply is the reply of a parked command.
type lateReply struct {
	c *conn
	// value counts when given.
	value protocol.Value
	given bool
	// grant is what a lock's reply gives the client; nil: not a lock's, or the command is being executed. Guarded
	// by outbox.mu, as value and given are. Only the connection's goroutine sets it.
	grant *pendingGrant
}

// give sends the reply. Only the first call counts. Any goroutine may call give, also before the
// connection is parked.
func (l *lateReply) give(v protocol.Value) {
	o := &l.c.outbox
	o.mu.Lock()
	var lost *pendingGrant
	if o.closed {
		lost = l.grant
	}
	if lost == nil && !l.given {
		l.value, l.given = v, true
		l.c.wake()
	}
	o.mu.Unlock()
	lost.giveBack(v)
}

// setGrant sets what the reply gives the client, when it is known that the reply comes later, and reports whether the
// connection has ended: then lose gives back what came before.
func (l *lateReply) setGrant(g *pendingGrant) (closed bool) {
	l.c.outbox.mu.Lock()
	defer l.c.outbox.mu.Unlock()
	l.grant = g
	return l.c.outbox.closed
}

// lose is called when the connection has ended without a word of the reply, and reports whether the reply was
// given already.
func (l *lateReply) lose() bool {
	o := &l.c.outbox
	o.mu.Lock()
	given, v := l.given, l.value
	o.mu.Unlock()
	if given {
		l.grant.giveBack(v)
	}
	return given
}

// pause is what a parked connection waits for.
type pause struct {
	late *lateReply
	row  *row
	mute bool
	// ticket is kept for the next wait; nil: there is none.
	ticket *ticket
	// left is called, by the connection's goroutine, when the connection ends without the reply.
	left func()
}

// errTooMuchInput ends a parked connection whose client sends more than may be kept, as in Redis.
var errTooMuchInput = errors.New("too much input behind a command that waits")

// park has the connection dispatch no further command until the reply is given. A handler calls park in
// dispatch, after the batch has been executed. left is called on the connection's goroutine if the
// connection ends first, and may then take as long as a command.
func (c *conn) park(row *row, late *lateReply, left func()) {
	c.parked = &pause{late: late, row: row, mute: c.replyMode.muted(), left: left}
	c.setBlocked(true)
}

// lateGiven reports whether a parked command's reply is there. The caller holds outbox.mu.
func (c *conn) lateGiven() bool { return c.parked != nil && c.parked.late.given }

// resume places the parked command's reply, if it is there, and reports whether the connection goes on
// with its input.
func (c *conn) resume() bool {
	p := c.parked
	if p == nil {
		return false
	}
	c.outbox.mu.Lock()
	given, v := p.late.given, p.late.value
	c.outbox.mu.Unlock()
	if !given {
		return false
	}
	c.unpark()
	if c.w == nil {
		c.w = c.srv.acquireWork(c)
	}
	v = c.limitReply(p.row, v)
	c.count(p.row, v)
	if !p.mute {
		c.deliverGrant(p.late.grant, v)
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
