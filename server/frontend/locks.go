package frontend

import (
	"slices"
	"sync/atomic"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
	"github.com/holdfast/holdfast/server/replica"
)

// lockClient is a connection as far as native locks go.
type lockClient struct {
	// entered: the renewer of sessions knows the connection.
	entered bool
	// notices are the waits with NOTIFY by their tickets, guarded by outbox.mu. bytes is their memory.
	notices map[uint64]*notice
	bytes   atomic.Int64
}

const (
	// mostNotices and mostNoticeBytes bound the waits with NOTIFY of a connection.
	mostNotices     = 10_000
	mostNoticeBytes = 16 << 20
	// noticeBytes is the cost of a wait beside its words: entries of two maps, here and in package parking. keyBytes
	// is the cost of a key beside its bytes.
	noticeBytes = 400
	keyBytes    = 32
)

var errNotices = protocol.NewError("too many waits with NOTIFY on this connection")

// pendingGrant is what a request that waits gives the client, if it is granted.
type pendingGrant struct {
	c     *conn
	db    int
	keys  []string
	owner string
}

// newPendingGrant is what a request gives the client; nil: the command does not ask for locks.
func (c *conn) newPendingGrant(req *request) *pendingGrant {
	if !req.handler.acquires {
		return nil
	}
	keys := req.keys()
	g := &pendingGrant{c: c, db: req.db, keys: make([]string, len(keys)), owner: string(req.args[req.owner()])}
	for i, p := range keys {
		g.keys[i] = string(req.args[p])
	}
	return g
}

// giveBack releases a grant whose client has gone. v is the reply of the request, granted or not.
func (g *pendingGrant) giveBack(v protocol.Value) {
	if g == nil || v.Kind != protocol.KindInteger || v.Num == 0 {
		return
	}
	holds := make([]protocol.Hold, len(g.keys))
	for i, key := range g.keys {
		holds[i] = protocol.Hold{DB: g.db, Key: key, Owner: g.owner, Fence: v.Num, Conn: g.c.id}
	}
	g.c.srv.backend.Parking().GiveBack(holds...)
}

func (g *pendingGrant) bytes() int64 {
	n := noticeBytes + len(g.owner)
	for _, key := range g.keys {
		n += len(key) + keyBytes
	}
	return int64(n)
}

// undelivered is a grant that the client waited for, and that may not have reached the socket.
type undelivered struct {
	grant *pendingGrant
	reply protocol.Value
	// m is the message of the grant. nil: it is being written, or the grant is a command's reply.
	m *push.Message
}

// enterLocks makes the connection known to the renewer of sessions.
func (c *conn) enterLocks() {
	if !c.locks.entered {
		c.locks.entered = true
		c.srv.backend.Sessions().Enter(c.id, c)
	}
}

// leaveLocks is the end of the connection, after the outbox was closed: places in queues are left, and grants
// that were not delivered are given back. The sessions of the connection end, unless it is the node
// that ends.
func (c *conn) leaveLocks() {
	if !c.locks.entered {
		return
	}
	if c.vanished {
		c.srv.backend.Sessions().Vanished(c.id)
	}
	c.srv.backend.Sessions().Leave(c.id, c.ctx.Err() == nil)
	c.leaveQueues()
	o := &c.outbox
	o.mu.Lock()
	grants := o.undelivered
	o.undelivered = nil
	o.mu.Unlock()
	for _, u := range grants {
		u.grant.giveBack(u.reply)
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
		c.srv.backend.Parking().Leave(ticket)
	}
	return len(notices) > 0
}

// resetLocks is RESET: waits with NOTIFY and sessions of the connection end, as if the client had gone. Should
// nobody know whether they did, the connection ends.
func (c *conn) resetLocks() {
	if !c.locks.entered {
		return
	}
	c.runBatch()
	c.lastInput.demanded = false
	c.srv.backend.Sessions().Demand(c.id, false)
	if !c.leaveQueues() && c.srv.backend.Sessions().Sessions(c.id) == 0 {
		return
	}
	batch := &replica.Batch{Body: protocol.AppendGone(nil, c.id), Count: 1, Write: true}
	if c.srv.backend.Execute(batch) != nil {
		c.closing = true
	}
}

// notice is a wait with NOTIFY.
type notice struct {
	*pendingGrant
	ticket uint64
}

// awaitNotice prepares a request whose wait, if it comes to that, ends by a message. The result is why there must not
// be another.
func (c *conn) awaitNotice(s *slot, req *request) *protocol.Error {
	n := &notice{pendingGrant: c.newPendingGrant(req)}
	if !c.addNotice(n) {
		return errNotices
	}
	registry := c.srv.backend.Parking()
	s.wait = &ticket{number: n.ticket}
	s.native = &nativeCall{then: func(c *conn, v protocol.Value) {
		if v.Kind == protocol.KindInteger && v.Num == 0 {
			registry.Parked(n.ticket, c.lastWrite)
			return
		}
		c.outbox.mu.Lock()
		c.locks.dropNotice(n)
		c.outbox.mu.Unlock()
		if v.IsError() && protocol.OutcomeOf(v.Str) == protocol.OutcomeUnknown {
			registry.Leave(n.ticket)
		} else {
			registry.Forget(n.ticket)
		}
	}}
	return nil
}

// addNotice gives a wait its ticket, unless there are too many.
func (c *conn) addNotice(n *notice) bool {
	o, l := &c.outbox, &c.locks
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(l.notices) >= mostNotices || l.bytes.Load()+n.bytes() > mostNoticeBytes {
		return false
	}
	n.ticket = c.srv.backend.Parking().Enter(len(n.keys), n.complete)
	if l.notices == nil {
		l.notices = make(map[uint64]*notice)
	}
	l.notices[n.ticket] = n
	l.bytes.Add(n.bytes())
	return true
}

// dropNotice forgets a wait, and reports whether the client waited for it. The caller holds outbox.mu.
func (l *lockClient) dropNotice(n *notice) (waited bool) {
	if waited = l.notices[n.ticket] == n; !waited {
		return false
	}
	delete(l.notices, n.ticket)
	l.bytes.Add(-n.bytes())
	return true
}

// isAskedAgain reports whether a wait ended since this connection has asked for a key again: that request has an end of
// its own.
func isAskedAgain(key string, end protocol.Value) bool {
	return end.IsError() && slices.ContainsFunc(end.Elems, func(k protocol.Value) bool { return k.Str == key })
}

// complete sends the client the end of a wait, by any goroutine: one message for each key. A client that has left the
// queue, or that got an uncertain error, gets no message: it may wait for the same lock again, and would take the
// message for the end of that wait.
func (n *notice) complete(v protocol.Value) {
	c := n.c
	c.outbox.mu.Lock()
	waited := c.locks.dropNotice(n)
	c.outbox.mu.Unlock()
	if !waited {
		n.giveBack(v)
		return
	}
	granted := v.Kind == protocol.KindInteger && v.Num > 0
	for i, key := range n.keys {
		if isAskedAgain(key, v) {
			continue
		}
		words := []protocol.Value{protocol.Bulk("lock"), protocol.Bulk("timeout"), protocol.Bulk(key), protocol.Bulk(n.owner)}
		switch {
		case granted:
			words[1] = protocol.Bulk("granted")
			words = append(words, protocol.Integer(v.Num))
		case v.IsError():
			words[1] = protocol.Bulk("failed")
			words = append(words, protocol.Bulk(v.Str))
		}
		m := push.ForRESP3(words...)
		var u *undelivered
		if granted && i == len(n.keys)-1 {
			u = &undelivered{n.pendingGrant, v, m}
		}
		if !c.post(m, u) {
			n.giveBack(v)
			return
		}
	}
}
