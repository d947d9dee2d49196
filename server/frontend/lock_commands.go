package frontend

import (
	"slices"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// Lock commands go to the state machine with the number of the connection, so that a session can
// live with the connection, a loss is told to the connection, and a place in a queue ends with it. A command with
// WAIT parks the connection, as BLPOP does; with NOTIFY the end of the wait is a message: see locks.go.

// lockHandlers are the side effects of lock commands on the node that takes them.
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

// answered is called with the reply, also of a call that is nil.
func (n *lockCommand) answered(c *conn, v protocol.Value) {
	if n != nil && n.then != nil {
		n.then(c, v)
	}
}

// prepareLock is what this node does about a lock command outside MULTI before the command goes out. The result is why
// the command must not go.
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

// lockCommand is what this node does about a lock command; nil: nothing.
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

// queuedLock is a lock command in a transaction, with its place among the data commands.
type queuedLock struct {
	at   int
	call *lockCommand
}

// addLock looks at a lock command that is queued. In a transaction it does not wait.
func (tx *transaction) addLock(c *conn, req *request, heartbeat bool) (bytes int) {
	call := c.lockCommand(req, heartbeat)
	if call == nil || call.then == nil {
		return 0
	}
	tx.locks = append(tx.locks, queuedLock{tx.count, call})
	return 128
}

// lockCommand is what this node does about the lock commands of a transaction.
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

// openSession looks after a session that is to live with the connection.
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

// leaseOf reads the length of a lease. A longer one than an hour counts as an hour.
func leaseOf(value []byte, unit time.Duration) time.Duration {
	n, _ := protocol.ParseInt(string(value))
	return time.Duration(min(max(n, 0), int64(time.Hour/unit))) * unit
}

// attachSession is openSession for a session whose lease only the state knows.
func attachSession(*conn, *request) *lockCommand { return keeping(0) }

// keeping has the renewer expect a session, unless there surely is none.
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

// demanding has the renewer demand signs of life of the client, or no longer, once the session lives with the
// connection.
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

// moduleList has one module: the commands that Redis lacks.
func moduleList(*conn, [][]byte) protocol.Value {
	return protocol.Array(protocol.Fields(
		"name", protocol.Bulk(protocol.ModuleName), "ver", protocol.Integer(protocol.ModuleVersion),
		"path", protocol.Bulk(""), "args", protocol.Array(),
	))
}
