package frontend

import (
	"slices"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// Words of native locks go to the state machine with the number of the connection, so that a session can
// live with the connection, a loss is told to the connection, and a place in a queue ends with it. A word with
// WAIT parks the connection, as BLPOP does; with NOTIFY the end of the wait is a message: see locks.go.

// nativeHandlers are the side effects of lock commands on the node that takes them.
func nativeHandlers() map[string]handler {
	return map[string]handler{
		"lock.acquire":    {acquires: true},
		"lock.acquireall": {acquires: true},
		"lock.info":       {fill: (*conn).addDetails},
		"lock.list":       {fill: (*conn).addDetails},
		"session.attach":  {native: nativeAttach},
		"session.open":    {native: nativeOpen},
		"module|list":     {reply: moduleList},
	}
}

// answered is called with the reply, also of a call that is nil.
func (n *nativeCall) answered(c *conn, v protocol.Value) {
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
		s.native = c.prepareNative(req, heartbeat)
	}
	return cause
}

// prepareNative is what this node does about a word; nil: nothing.
func (c *conn) prepareNative(req *request, heartbeat bool) *nativeCall {
	c.enterLocks()
	if req.handler.native == nil {
		return nil
	}
	call := req.handler.native(c, req)
	if req.Name == "session.attach" || heartbeat {
		call.demanding(heartbeat)
	}
	return call
}

// queuedNative is a word in a transaction, with its place among the data commands.
type queuedNative struct {
	at   int
	call *nativeCall
}

// addNative looks at a word that is queued. A word in a transaction does not wait.
func (tx *transaction) addNative(c *conn, req *request, heartbeat bool) (bytes int) {
	call := c.prepareNative(req, heartbeat)
	if call == nil || call.then == nil {
		return 0
	}
	tx.natives = append(tx.natives, queuedNative{tx.count, call})
	return 128
}

// nativeCall is what this node does about the words of a transaction.
func (tx *transaction) nativeCall() *nativeCall {
	if len(tx.natives) == 0 {
		return nil
	}
	keeps := slices.ContainsFunc(tx.natives, func(q queuedNative) bool { return q.call.keeps })
	return &nativeCall{keeps: keeps, then: func(c *conn, v protocol.Value) {
		for _, q := range tx.natives {
			switch {
			case v.IsError():
				q.call.answered(c, v)
			case q.at < len(v.Elems):
				q.call.answered(c, v.Elems[q.at])
			}
		}
	}}
}

// nativeOpen looks after a session that is to live with the connection.
func nativeOpen(_ *conn, req *request) *nativeCall {
	var lease time.Duration
	lives := false
	req.eachOption(1, func(_ int, token string, value []byte) {
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

// nativeAttach is nativeOpen for a session whose lease only the state knows.
func nativeAttach(*conn, *request) *nativeCall { return keeping(0) }

// keeping has the renewer expect a session, unless there surely is none.
func keeping(lease time.Duration) *nativeCall {
	return &nativeCall{keeps: true, then: func(c *conn, v protocol.Value) {
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
func (n *nativeCall) demanding(heartbeat bool) {
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
