package frontend

import (
	"strings"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
)

// BLPOP and its like wait if they cannot be served, and so do requests for locks with WAIT: see [conn.send]. Inside
// MULTI such a command is queued like any other, and does not wait.

// ticket is what a command that may wait is called by. A connection keeps one for its next such command: a
// command that is served at once leaves nothing behind.
type ticket struct {
	number  uint64
	pending *pending
	// complete is pending.complete, made once.
	complete func(protocol.Value)
	// request is the command's, while the batch is executed.
	request *request
}

// ticket is the number, 0: there is none.
func (t *ticket) ticket() uint64 {
	if t == nil {
		return 0
	}
	return t.number
}

// takeTicket is a ticket for a command that may wait.
func (c *conn) takeTicket(req *request) *ticket {
	t := c.spareTicket
	if c.spareTicket = nil; t == nil {
		t = &ticket{pending: &pending{c: c}}
		t.complete = t.pending.complete
	}
	t.number, t.request = c.srv.backend.Parking().Enter(len(req.args), t.complete), req
	return t
}

// keepTicket keeps a ticket that no other goroutine knows any more.
func (c *conn) keepTicket(t *ticket) {
	t.pending.value, t.pending.completed, t.pending.grant = protocol.Value{}, false, nil
	c.spareTicket = t
}

// placeBlocked places the reply of a command that may wait, or parks the connection.
func (c *conn) placeBlocked(s *slot, v protocol.Value) (parked bool) {
	registry, t := c.srv.backend.Parking(), s.wait
	switch {
	case protocol.IsParked(v):
		t.pending.setGrant(c.newPendingGrant(t.request))
		c.update(func(s *shown) { s.ticket = t.number })
		c.park(s.row, t.pending, func() {
			if !t.pending.abandon() {
				registry.Leave(t.number)
			}
		})
		c.parked.ticket = t
		registry.Parked(t.number, c.lastWrite)
		return true
	case v.IsError() && protocol.OutcomeOf(v.Str) == protocol.OutcomeUnknown:
		if closed := t.pending.setGrant(c.newPendingGrant(t.request)); closed {
			t.pending.abandon()
		}
		registry.Leave(t.number)
	case registry.Forget(t.number):
		c.keepTicket(t)
	}
	return false
}

// clientUnblock is CLIENT UNBLOCK. It answers 1 if it was this command that ended the wait.
func clientUnblock(c *conn, args [][]byte) protocol.Value {
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
	return c.srv.unblock(id, how)
}

// unblock ends the wait of a client: under a ticket by the cluster, else by the connection itself.
func (s *Server) unblock(id int64, how protocol.Leave) protocol.Value {
	s.mu.Lock()
	target := s.conns[id]
	s.mu.Unlock()
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
