package fsm

import (
	"strings"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// lockRequests has the functions of the requests about native locks that only nodes make: see protocol/request.go.
var lockRequests = map[string]op{
	"node-keepalive":  nodeKeepaliveOp,
	"return-grant":    returnGrantOp,
	"end-connections": endConnectionsOp,
	"lock-command":    lockCommandOp,
}

// lockCommandWords is the number of words before the command of a "lock-command" request.
const lockCommandWords = 4

// wordOf returns the name of the command in a request. In a "lock-command" request it is the wrapped command.
func wordOf(args []string) string {
	if args[0] == "lock-command" && len(args) > lockCommandWords {
		return args[lockCommandWords]
	}
	return args[0]
}

var errLockRequest = protocol.Err("request about locks is corrupt")

// lockCommandOp runs "lock-command <conn> <ticket> <grace ms> <command> <word>…". The node that made the request wraps
// a lock command of one of its connections in this way. In the word <conn>, the address and the name of the client may
// follow the number of the connection, separated by blanks. In a transaction the command may not wait.
func lockCommandOp(c *call) protocol.Value {
	if len(c.Args) <= lockCommandWords {
		return command.ErrArity("lock-command")
	}
	from, ok := c.callerOf(c.Args[1:lockCommandWords])
	words := c.Args[lockCommandWords:]
	b := c.lookup(words[0])
	switch {
	case !ok, b == nil, b.row == nil, b.row.Group != protocol.GroupModule, !b.writes:
		return errLockRequest
	case !b.acceptsArity(len(words)):
		return command.ErrArity(words[0])
	case c.refuses(b, words):
		return c.refusal
	}
	args := c.Args
	c.Args, c.from = words, from
	reply := b.do(c)
	c.Args, c.from = args, caller{}
	return reply
}

// callerOf parses the words <conn>, <ticket> and <grace ms> of a "lock-command" request. ok reports whether they are
// valid.
func (c *call) callerOf(words []string) (from caller, ok bool) {
	conn, address, name := words[0], "", ""
	conn, address, _ = strings.Cut(conn, " ")
	address, name, _ = strings.Cut(address, " ")
	if from.client, ok = c.clientOf(conn); !ok {
		return from, false
	}
	from.address, from.name = address, name
	if from.ticket, ok = parseTicket(words[1]); !ok {
		return from, false
	}
	if c.Undo != nil {
		from.ticket = 0
	}
	from.graceMillis, ok = protocol.ParseInt(words[2])
	return from, ok && from.graceMillis >= 0 && from.graceMillis <= maxDuration
}

// clientOf returns the connection with a number, of the node that made the current batch. The connection 0 is the zero
// Client. ok reports whether the word is a valid number.
func (c *call) clientOf(word string) (cl locks.Client, ok bool) {
	conn, ok := protocol.ParseInt(word)
	if !ok || conn < 0 {
		return cl, false
	}
	if conn > 0 {
		cl = locks.Client{Origin: c.keptOrigin(), Conn: conn}
	}
	return cl, true
}

// nodeKeepaliveOp runs "node-keepalive". It renews all sessions that are attached to connections of the incarnation
// that made the request.
func nodeKeepaliveOp(c *call) protocol.Value {
	if len(c.Args) != 1 || c.Undo != nil {
		return command.ErrArity("node-keepalive")
	}
	if !c.Fits(c.ownWork(keepaliveChanges)) {
		return command.ErrOverWork
	}
	t := c.changeLocks(0)
	c.setLockBudget(keepaliveChanges)
	t.KeepNodeAlive(c.keptOrigin())
	c.publishLockEvents()
	return protocol.OK
}

// endConnectionsOp runs "end-connections <conn>…". It ends the sessions that are attached to these connections of the
// node, and replies with the number of those sessions.
func endConnectionsOp(c *call) protocol.Value {
	if c.Undo != nil {
		return command.ErrArity("end-connections")
	}
	clients, work := make([]locks.Client, len(c.Args)-1), 0
	for i, word := range c.Args[1:] {
		client, ok := c.clientOf(word)
		if !ok || client.Conn == 0 {
			return errLockRequest
		}
		clients[i] = client
		work += 1 + c.st.Locks.SessionsOf(client)
	}
	if !c.paysForKeys(work) {
		return command.ErrOverWork
	}
	ended := 0
	for _, client := range clients {
		ended += c.changeLocks(0).EndSessionsOf(client)
		c.publishLockEvents()
	}
	return protocol.Integer(int64(ended))
}

// returnGrantOp runs "return-grant <key> <owner> <fence> <conn>". A node makes this request if a client had
// disconnected before the node could pass the grant to it. The reply is 1 if the hold was released, and 0 if the hold
// has ended or belongs to another connection.
func returnGrantOp(c *call) protocol.Value {
	if len(c.Args) != 5 || c.Undo != nil {
		return command.ErrArity("return-grant")
	}
	fence, ok := parseFence(c.Args[3])
	client, known := c.clientOf(c.Args[4])
	if !ok || !known {
		return errLockRequest
	}
	if !c.paysForKeys(1) || !c.fitsChanges(1) {
		return command.ErrOverWork
	}
	given := c.changeLocks(1).ReturnGrant(c.DB, c.Args[1], c.Args[2], uint64(fence), client)
	c.publishLockEvents()
	return command.Boolean(given)
}

// unblockLock ends the wait for a native lock that has a name. It returns 1 if there was such a wait, and otherwise 0.
func (c *call) unblockLock(name waits.Name) (left int64) {
	if c.st.Locks.Stats().Waiters == 0 {
		return 0
	}
	if c.changeLocks(0).RemoveWaiter(name, protocol.Leave(c.Args[1])) {
		left = 1
	}
	c.publishLockEvents()
	return left
}
