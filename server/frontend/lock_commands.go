package frontend

import (
	"slices"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// A lock command has the number of its connection in the log. So a session can be attached to the connection, the
// connection is notified of a loss, and a queue entry ends with it. A command with WAIT parks the connection, as BLPOP
// does. With NOTIFY the end of the wait is a message: see locks.go.

// lockHandlers returns the effects of lock commands on the node that receives them.
func lockHandlers() map[string]handler {
	return map[string]handler{
		"lock.acquire":    {acquires: true},
		"lock.acquireall": {acquires: true},
		"lock.info":       {fill: (*conn).addDetails},
		"lock.list":       {fill: (*conn).addDetails},
		"session.attach":  {lock: attachSession},
		"session.open":    {lock: openSession},
		"module|list":     {reply: moduleList},
	}
}

// answered passes the reply to then. A nil lockCommand ignores it.
func (n *lockCommand) answered(c *conn, v protocol.Value) {
	if n != nil && n.then != nil {
		n.then(c, v)
	}
}

// prepareLock prepares a lock command outside MULTI. The error is why the command must not be sent.
func (c *conn) prepareLock(s *slot, req *request) (cause *protocol.Error) {
	heartbeat := req.takeHeartbeat()
	switch waits, notify := req.waits(); {
	case notify:
		c.enterLocks()
		cause = c.awaitNotice(s, req)
	case waits:
		c.enterLocks()
		s.kind = slotBlock
	default:
		s.lock = c.lockCommand(req, heartbeat)
	}
	return cause
}

// lockCommand returns what to do with the reply of a lock command, or nil.
func (c *conn) lockCommand(req *request, heartbeat bool) *lockCommand {
	c.enterLocks()
	if req.handler.lock == nil {
		return nil
	}
	call := req.handler.lock(c, req)
	if req.Name == "session.attach" || heartbeat {
		call.demanding(heartbeat)
	}
	return call
}

// queuedLock is a lock command in a transaction, with its index among the data commands.
type queuedLock struct {
	at   int
	call *lockCommand
}

// addLock records a lock command in a transaction, where it does not wait.
func (tx *transaction) addLock(c *conn, req *request, heartbeat bool) (bytes int) {
	call := c.lockCommand(req, heartbeat)
	if call == nil || call.then == nil {
		return 0
	}
	tx.locks = append(tx.locks, queuedLock{tx.count, call})
	return 128
}

// lockCommand returns what to do with the replies of the lock commands of a transaction, or nil.
func (tx *transaction) lockCommand() *lockCommand {
	if len(tx.locks) == 0 {
		return nil
	}
	keeps := slices.ContainsFunc(tx.locks, func(q queuedLock) bool { return q.call.keeps })
	return &lockCommand{keeps: keeps, then: func(c *conn, v protocol.Value) {
		for _, q := range tx.locks {
			switch {
			case v.IsError():
				q.call.answered(c, v)
			case q.at < len(v.Elems):
				q.call.answered(c, v.Elems[q.at])
			}
		}
	}}
}

// openSession has the renewer expect a session that will be attached to the connection.
func openSession(_ *conn, req *request) *lockCommand {
	var lease time.Duration
	lives := false
	req.eachOption(func(_ int, token string, value []byte) {
		switch token {
		case "PX":
			lease = leaseOf(value, time.Millisecond)
		case "EX":
			lease = leaseOf(value, time.Second)
		case "CONNECTION":
			lives = true
		}
	})
	if !lives {
		return nil
	}
	return keeping(lease)
}

// leaseOf parses the duration of a lease. More than an hour counts as an hour.
func leaseOf(value []byte, unit time.Duration) time.Duration {
	n, _ := protocol.ParseInt(string(value))
	return time.Duration(min(max(n, 0), int64(time.Hour/unit))) * unit
}

// attachSession is openSession for a session whose lease this node does not know.
func attachSession(*conn, *request) *lockCommand { return keeping(0) }

// keeping has the renewer expect a session, unless the reply says that there is none.
func keeping(lease time.Duration) *lockCommand {
	return &lockCommand{keeps: true, then: func(c *conn, v protocol.Value) {
		if v.IsNull() || v.IsError() && protocol.OutcomeOf(v.Str) != protocol.OutcomeUnknown {
			return
		}
		if number := c.w.batch.Number; number != 0 {
			c.srv.backend.Clients().Renewer.Expect(c.id, lease, number, c.w.began)
		}
	}}
}

// demanding sets, once the session is attached, whether the renewer demands that the client sends something.
func (n *lockCommand) demanding(heartbeat bool) {
	keeping := n.then
	n.then = func(c *conn, v protocol.Value) {
		keeping(c, v)
		if v.IsNull() || v.IsError() && protocol.OutcomeOf(v.Str) != protocol.OutcomeUnknown {
			return
		}
		c.lastInput.demanded = heartbeat
		c.lastInput.note(c.born)
		c.srv.backend.Clients().Renewer.Demand(c.id, heartbeat)
	}
}

// moduleList returns one module: the commands that Redis does not have.
func moduleList(*conn, [][]byte) protocol.Value {
	return protocol.Array(protocol.Fields(
		"name", protocol.Bulk(protocol.ModuleName), "ver", protocol.Integer(protocol.ModuleVersion),
		"path", protocol.Bulk(""), "args", protocol.Array(),
	))
}
