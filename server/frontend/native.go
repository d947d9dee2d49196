package frontend

import (
	"bytes"
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

// nativeCall is what this node does about a word.
type nativeCall struct {
	// then is called with the reply.
	then func(c *conn, v protocol.Value)
	// keeps: a session may come to live with the connection.
	keeps bool
}

// answered is called with the reply, also of a call that is nil.
func (n *nativeCall) answered(c *conn, v protocol.Value) {
	if n != nil && n.then != nil {
		n.then(c, v)
	}
}

// prepareLock is what this node does about a lock command outside MULTI before the command goes out. The result are the
// arguments for the state machine, or why the command must not go.
func (c *conn) prepareLock(s *slot, args [][]byte) (rest [][]byte, cause *protocol.Error) {
	args, heartbeat := s.row.takeHeartbeat(args)
	switch waits, notify := howItWaits(s.row, args); {
	case notify:
		c.enterLocks()
		cause = c.awaitNotice(s, args)
	case waits:
		c.enterLocks()
		s.kind = slotBlock
	default:
		s.native = c.prepareNative(s.row, args, heartbeat)
	}
	return args, cause
}

// prepareNative is what this node does about a word; nil: nothing.
func (c *conn) prepareNative(row *row, args [][]byte, heartbeat bool) *nativeCall {
	c.enterLocks()
	if row.handler.native == nil {
		return nil
	}
	call := row.handler.native(c, row, args)
	if row.Name == "session.attach" || heartbeat {
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
func (tx *transaction) addNative(c *conn, row *row, args [][]byte, heartbeat bool) (bytes int) {
	call := c.prepareNative(row, args, heartbeat)
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

// howItWaits finds out whether a request may wait, and whether without parking the connection.
func howItWaits(row *row, args [][]byte) (waits, notify bool) {
	if !row.handler.acquires {
		return false, false
	}
	var room [4]int
	owner := ownerAt(row.lockedKeys(room[:0], args), args)
	if owner == 0 {
		return false, false
	}
	row.eachOption(args, owner+1, func(token string, _ []byte) {
		waits = waits || token == "WAIT"
		notify = notify || token == "NOTIFY"
	})
	return waits, waits && notify
}

// lockedKeys is where the keys of a request for locks stand.
func (r *row) lockedKeys(room []int, args [][]byte) []int {
	positions, err := r.KeyPositionsIn(room, args)
	if err != nil {
		return nil
	}
	return positions
}

// ownerAt is where the owner stands, behind the keys; 0: the request has none.
func ownerAt(keys []int, args [][]byte) int {
	if len(keys) == 0 || keys[len(keys)-1]+1 >= len(args) {
		return 0
	}
	return keys[len(keys)-1] + 1
}

// nativeOpen looks after a session that is to live with the connection.
func nativeOpen(_ *conn, row *row, args [][]byte) *nativeCall {
	var lease time.Duration
	lives := false
	row.eachOption(args, 1, func(token string, value []byte) {
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
func nativeAttach(*conn, *row, [][]byte) *nativeCall { return keeping(0) }

// keeping has the renewer expect a session, unless there surely is none.
func keeping(lease time.Duration) *nativeCall {
	return &nativeCall{keeps: true, then: func(c *conn, v protocol.Value) {
		if v.IsNull() || v.IsError() && protocol.OutcomeOf(v.Str) != protocol.OutcomeUnknown {
			return
		}
		if number := c.w.batch.Number; number != 0 {
			c.srv.backend.Sessions().Expect(c.id, lease, number, c.w.began)
		}
	}}
}

// takeHeartbeat takes HEARTBEAT out of the words of a session that lives with the connection, and reports whether it
// was there: this node alone needs to know. Elsewhere the state machine refuses the word.
func (r *row) takeHeartbeat(args [][]byte) (rest [][]byte, demanded bool) {
	var at []int
	lives := r.Name == "session.attach"
	switch {
	case lives:
		r.eachOptionAt(args, 2, func(i int, _ string, _ []byte) { at = append(at, i) })
	case r.Name == "session.open":
		r.eachOptionAt(args, 1, func(i int, token string, _ []byte) {
			lives = lives || token == "CONNECTION"
			if token == "HEARTBEAT" {
				at = append(at, i)
			}
		})
	}
	if !lives || at == nil {
		return args, false
	}
	for i, arg := range args {
		if !slices.Contains(at, i) {
			rest = append(rest, arg)
		}
	}
	return rest, true
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
		c.srv.backend.Sessions().Demand(c.id, heartbeat)
	}
}

// eachOption calls visit with the options among a word's arguments, and with what stands behind those that have
// a value. It ends at what is no option: the state machine will refuse it.
func (r *row) eachOption(args [][]byte, from int, visit func(token string, value []byte)) {
	r.eachOptionAt(args, from, func(_ int, token string, value []byte) { visit(token, value) })
}

// eachOptionAt is eachOption with where the option stands.
func (r *row) eachOptionAt(args [][]byte, from int, visit func(at int, token string, value []byte)) {
	for i := from; i < len(args); i++ {
		at := i
		arg := findOption(r.Args, args[i])
		if arg == nil {
			return
		}
		var value []byte
		if arg.Type != protocol.ArgPureToken {
			if i++; i == len(args) {
				return
			}
			value = args[i]
		}
		visit(at, arg.Token, value)
	}
}

// findOption finds the argument with a token.
func findOption(among []protocol.Arg, word []byte) *protocol.Arg {
	for i := range among {
		arg := &among[i]
		if arg.Token != "" && len(arg.Token) == len(word) && bytes.EqualFold([]byte(arg.Token), word) {
			return arg
		}
		if found := findOption(arg.Args, word); found != nil {
			return found
		}
	}
	return nil
}

// moduleList has one module: the commands that Redis lacks.
func moduleList(*conn, [][]byte) protocol.Value {
	return protocol.Array(protocol.Fields(
		"name", protocol.Bulk(protocol.ModuleName), "ver", protocol.Integer(protocol.ModuleVersion),
		"path", protocol.Bulk(""), "args", protocol.Array(),
	))
}
