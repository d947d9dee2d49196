package frontend

import (
	"bytes"

	"github.com/holdfast/holdfast/protocol"
)

func connectionHandlers() map[string]handler {
	return map[string]handler{
		"ping":   {reply: ping},
		"echo":   {reply: echo},
		"select": {reply: selectDatabase},
		"reset":  {reply: reset, inMulti: true},
		"quit":   {reply: quit, inMulti: true},
	}
}

func ping(c *conn, args [][]byte) protocol.Value {
	if c.restricted() && len(args) <= 2 {
		return protocol.Strings("pong", string(bytes.Join(args[1:], nil)))
	}
	switch len(args) {
	case 1:
		return protocol.Simple("PONG")
	case 2:
		return protocol.Bulk(string(args[1]))
	}
	return protocol.WrongArity("ping").Value()
}

func echo(_ *conn, args [][]byte) protocol.Value { return protocol.Bulk(string(args[1])) }

func selectDatabase(c *conn, args [][]byte) protocol.Value {
	db, refusal, refused := c.srv.parseDatabase(args[1])
	if refused {
		return refusal
	}
	c.db = db
	return protocol.OK
}

// reset puts the connection into the state of a new one.
func reset(c *conn, _ [][]byte) protocol.Value {
	c.endTransaction()
	if c.outbox.subscribed() {
		c.runBatch()
		c.settle()
		c.unsubscribeAll()
		c.deliverFirst()
	}
	c.resetLocks()
	c.stopTracking()
	c.stopMonitoring()
	c.closeBackup()
	c.db = 0
	c.setProtocol(protocol.RESP2)
	c.replyMode = replyMode{}
	u := c.srv.cfg.Users.Held().Default()
	c.become(u, u.Open())
	c.memory.noEvict.Store(false)
	c.update(func(s *shown) { s.name, s.noEvict, s.noTouch = "", false, false })
	return protocol.Simple("RESET")
}

// quit ends the connection once all commands before QUIT are answered.
func quit(c *conn, _ [][]byte) protocol.Value {
	c.closing = true
	return protocol.OK
}
