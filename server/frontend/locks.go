package frontend

import (
	"slices"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
	"github.com/holdfast/holdfast/server/replica"
)

const (
	// maxNotices and maxNoticeBytes bound the waits with NOTIFY of a connection.
	maxNotices     = 10_000
	maxNoticeBytes = 16 << 20
	// noticeBytes is the memory of a wait beyond its words: entries of two maps, here and in package sessions. keyBytes is
	// that of a key beyond its bytes.
	noticeBytes = 400
	keyBytes    = 32
)

var errNotices = protocol.NewError("too many waits with NOTIFY on this connection")

// bytes returns the memory of a wait with NOTIFY.
func (g *grant) bytes() int64 {
	n := noticeBytes + len(g.owner)
	for _, key := range g.keys {
		n += len(key) + keyBytes
	}
	return int64(n)
}

// enterLocks adds the connection to the renewer of sessions.
func (c *conn) enterLocks() {
	if !c.locks.entered {
		c.locks.entered = true
		c.srv.backend.Clients().Renewer.Enter(c.id, c)
	}
}

// leaveLocks runs at the end of the connection, after the outbox was closed. It ends waits, returns grants that were
// not delivered, and ends the connection's sessions, unless the node itself is stopping.
func (c *conn) leaveLocks() {
	if !c.locks.entered {
		return
	}
	if c.vanished {
		c.srv.backend.Clients().Renewer.Vanished(c.id)
	}
	c.srv.backend.Clients().Renewer.Leave(c.id, c.ctx.Err() == nil)
	c.leaveQueues()
	o := &c.outbox
	o.mu.Lock()
	grants := o.delivering
	o.delivering = nil
	o.mu.Unlock()
	for _, p := range grants {
		p.giveBack(p.value)
	}
}

// leaveQueues ends the waits with NOTIFY, and reports whether there were any.
func (c *conn) leaveQueues() bool {
	c.outbox.mu.Lock()
	notices := c.locks.notices
	c.locks.notices = nil
	c.locks.bytes.Store(0)
	c.outbox.mu.Unlock()
	for ticket := range notices {
		c.srv.backend.Clients().Waiters.Leave(ticket)
	}
	return len(notices) > 0
}

// resetLocks ends waits with NOTIFY and the connection's sessions, for RESET. If the outcome is unknown, it closes the
// connection.
func (c *conn) resetLocks() {
	if !c.locks.entered {
		return
	}
	c.runBatch()
	c.lastInput.demanded = false
	c.srv.backend.Clients().Renewer.Demand(c.id, false)
	if !c.leaveQueues() && c.srv.backend.Clients().Renewer.Sessions(c.id) == 0 {
		return
	}
	batch := &replica.Batch{Body: protocol.AppendEndConnections(nil, c.id), Count: 1, Write: true}
	if c.srv.backend.Execute(batch) != nil {
		c.closing = true
	}
}

// awaitNotice prepares a request whose wait ends by a message. The error is why the client must not wait again.
func (c *conn) awaitNotice(s *slot, req *request) *protocol.Error {
	s.wait = &pending{c: c, notify: true, grant: newGrant(req)}
	if !c.addNotice(s.wait) {
		return errNotices
	}
	return nil
}

// addNoticeReply handles the reply of a request with NOTIFY: the wait begins, or is dropped.
func (c *conn) addNoticeReply(p *pending, v protocol.Value) {
	waiters := c.srv.backend.Clients().Waiters
	if v.Kind == protocol.KindInteger && v.Num == 0 {
		waiters.Parked(p.ticket, c.lastWrite)
		return
	}
	c.outbox.mu.Lock()
	c.locks.dropNotice(p)
	c.outbox.mu.Unlock()
	if isUncertain(v) {
		waiters.Leave(p.ticket)
	} else {
		waiters.Forget(p.ticket)
	}
}

// addNotice gives a wait a ticket, and returns false if there are too many.
func (c *conn) addNotice(p *pending) bool {
	o, l := &c.outbox, &c.locks
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(l.notices) >= maxNotices || l.bytes.Load()+p.bytes() > maxNoticeBytes {
		return false
	}
	p.ticket, p.state = c.srv.backend.Clients().Waiters.Enter(len(p.keys), p.complete), pendingWaiting
	if l.notices == nil {
		l.notices = make(map[uint64]*pending)
	}
	l.notices[p.ticket] = p
	l.bytes.Add(p.bytes())
	return true
}

// dropNotice removes a wait, and reports whether it was there. The caller holds outbox.mu.
func (l *lockClient) dropNotice(p *pending) (waited bool) {
	if waited = l.notices[p.ticket] == p; !waited {
		return false
	}
	delete(l.notices, p.ticket)
	l.bytes.Add(-p.bytes())
	return true
}

// isAskedAgain reports whether a wait ended since this connection has sent a later request for a key. That request has
// an end of its own.
func isAskedAgain(key string, end protocol.Value) bool {
	return end.IsError() && slices.ContainsFunc(end.Elems, func(k protocol.Value) bool { return k.Str == key })
}

// completeNotice sends the client the end of a wait, one message for each key. Any goroutine may call it. There is no
// message if the client has left the queue, or got an uncertain error: it may wait for the same lock again, and would
// take the message for the end of the later wait.
func (p *pending) completeNotice(v protocol.Value) {
	c := p.c
	c.outbox.mu.Lock()
	waited := c.locks.dropNotice(p)
	c.outbox.mu.Unlock()
	if !waited {
		p.giveBack(v)
		return
	}
	granted := v.Kind == protocol.KindInteger && v.Num > 0
	for i, key := range p.keys {
		if isAskedAgain(key, v) {
			continue
		}
		words := []protocol.Value{protocol.Bulk("lock"), protocol.Bulk("timeout"), protocol.Bulk(key), protocol.Bulk(p.owner)}
		switch {
		case granted:
			words[1] = protocol.Bulk("granted")
			words = append(words, protocol.Integer(v.Num))
		case v.IsError():
			words[1] = protocol.Bulk("failed")
			words = append(words, protocol.Bulk(v.Str))
		}
		m := push.ForRESP3(words...)
		var last *pending
		if granted && i == len(p.keys)-1 {
			p.value, last = v, p
		}
		if !c.post(m, last) {
			p.giveBack(v)
			return
		}
	}
}
