package fsm

import (
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// lockRequests has the requests about native locks that only nodes write: see protocol/request.go.
var lockRequests = map[string]op{
	"node-keepalive":  nodeKeepaliveOp,
	"return-grant":    returnGrantOp,
	"end-connections": endConnectionsOp,
	"lock-command":    lockCommandOp,
}

// lockCommandWords is the number of words before the command of a "lock-command" request.
const lockCommandWords = 4

// wordOf returns the name of the command in a request, which may be wrapped.
func wordOf(args []string) string {
	if args[0] == "lock-command" && len(args) > lockCommandWords {
		return args[lockCommandWords]
	}
	return args[0]
}

var errLockRequest = protocol.Err("request about locks is corrupt")

// lockCommandOp is "lock-command <conn> <ticket> <grace ms> <command> <word>…": a lock command of a connection of the
// node that wrote the request. The connection's number may be followed by the address and the name of the client,
// separated by blanks. In a transaction the command may not wait.
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
	case !b.takes(len(words)):
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

// callerOf reads the words of a "lock-command" request that name its client.
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

// clientOf returns a connection of the node that sent the present batch.
func (c *call) clientOf(word string) (cl locks.Client, ok bool) {
	conn, err := strconv.ParseInt(word, 10, 64)
	if err != nil || conn < 0 {
		return cl, false
	}
	if conn > 0 {
		cl = locks.Client{
			Origin: protocol.Incarnation{Node: c.st.sessions.nameOf(c.origin.Node), Epoch: c.origin.Epoch},
			Conn:   conn,
		}
	}
	return cl, true
}

// nodeKeepaliveOp renews all sessions that are attached to connections of this incarnation of the node.
func nodeKeepaliveOp(c *call) protocol.Value {
	if len(c.Args) != 1 || c.Undo != nil {
		return command.ErrArity("node-keepalive")
	}
	if !c.Fits(c.ownWork(keepaliveChanges)) {
		return command.ErrOverWork
	}
	t := c.changeLocks(0)
	c.turnLocks(keepaliveChanges)
	t.KeepNodeAlive(protocol.Incarnation{Node: c.st.sessions.nameOf(c.origin.Node), Epoch: c.origin.Epoch})
	c.publishLockEvents()
	return protocol.OK
}

// endConnectionsOp is "end-connections <conn>…": the sessions that are attached to these connections of the node end.
// The reply is the number of sessions.
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
	if !c.worksOn(work) {
		return command.ErrOverWork
	}
	ended := 0
	for _, client := range clients {
		ended += c.changeLocks(0).EndSessionsOf(client)
		c.publishLockEvents()
	}
	return protocol.Integer(int64(ended))
}

// returnGrantOp is "return-grant <key> <owner> <fence> <conn>": the client of a waiter had disconnected before it heard
// of the grant. The reply is 1, or 0 if the hold has ended or is another connection's.
func returnGrantOp(c *call) protocol.Value {
	if len(c.Args) != 5 || c.Undo != nil {
		return command.ErrArity("return-grant")
	}
	fence, ok := parseFence(c.Args[3])
	client, known := c.clientOf(c.Args[4])
	if !ok || !known {
		return errLockRequest
	}
	if !c.worksOn(1) || !c.fitsChanges(1) {
		return command.ErrOverWork
	}
	given := c.changeLocks(1).ReturnGrant(c.DB, c.Args[1], c.Args[2], uint64(fence), client)
	c.publishLockEvents()
	return command.Boolean(given)
}

// unblockLock ends a wait for a lock, and returns the number of ended waits.
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
