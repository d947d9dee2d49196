package frontend

import (
	"bytes"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

func clientHandlers() map[string]handler {
	return map[string]handler{
		"client|id":       {reply: clientID},
		"client|getname":  {reply: clientGetName},
		"client|setname":  {reply: clientSetName},
		"client|setinfo":  {reply: clientSetInfo},
		"client|reply":    {reply: clientReply},
		"client|no-evict": {reply: clientNoEvict},
		"client|no-touch": {reply: clientNoTouch},
		"client|kill":     {reply: clientKill},
		"client|unblock":  {reply: clientUnblock, barrier: true},
	}
}

func clientID(c *conn, _ [][]byte) protocol.Value { return protocol.Integer(c.id) }

func clientGetName(c *conn, _ [][]byte) protocol.Value {
	name := c.view().name
	if name == "" {
		return protocol.Null
	}
	return protocol.Bulk(name)
}

func clientSetName(c *conn, args [][]byte) protocol.Value {
	if !validAttribute(args[2]) {
		return protocol.Err(errClientName)
	}
	c.update(func(s *shown) { s.name = string(args[2]) })
	c.identify()
	return protocol.OK
}

// validAttribute reports whether CLIENT LIST can show a value without damage to its format.
func validAttribute(word []byte) bool {
	for _, b := range word {
		if b < '!' || b > '~' {
			return false
		}
	}
	return true
}

func clientSetInfo(c *conn, args [][]byte) protocol.Value {
	attribute := string(args[2])
	var field *string
	switch strings.ToLower(attribute) {
	case "lib-name":
		field = &c.shown.libName
	case "lib-ver":
		field = &c.shown.libVersion
	default:
		return protocol.Err("Unrecognized option '" + attribute + "'")
	}
	if !validAttribute(args[3]) {
		return protocol.Err(attribute + " cannot contain spaces, newlines or special characters.")
	}
	c.update(func(*shown) { *field = string(args[3]) })
	return protocol.OK
}

func clientNoEvict(c *conn, args [][]byte) protocol.Value {
	v := c.setSwitch(&c.shown.noEvict, args[2])
	c.memory.noEvict.Store(c.shown.noEvict)
	return v
}

func clientNoTouch(c *conn, args [][]byte) protocol.Value {
	return c.setSwitch(&c.shown.noTouch, args[2])
}

// endCommand ends the effect of CLIENT REPLY SKIP after the next command, and that of CLIENT CACHING after the next
// command or transaction that is no CLIENT command.
func (c *conn) endCommand() {
	c.replyMode.skip, c.replyMode.skipNext = c.replyMode.skipNext, false
	if c.track.caching && c.tx == nil && !strings.HasPrefix(c.lastCommand, "client") {
		c.track.caching = false
	}
}

func clientReply(c *conn, args [][]byte) protocol.Value {
	switch strings.ToLower(string(args[2])) {
	case "on":
		c.replyMode = replyMode{}
		return protocol.OK
	case "off":
		c.replyMode.off = true
		return protocol.None
	case "skip":
		c.replyMode.skipNext = !c.replyMode.off
		return protocol.None
	}
	return protocol.Err(errSyntax)
}

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

// reset runs RESET: the connection gets the state of a new one.
func reset(c *conn, _ [][]byte) protocol.Value {
	c.endTransaction()
	subscribed := c.outbox.subscribed()
	if c.withdraw(); subscribed {
		c.deliverFirst()
	}
	c.db = 0
	c.setProtocol(protocol.RESP2)
	c.replyMode = replyMode{}
	u := c.srv.cfg.Users.Held().Default()
	c.become(u, u.Open())
	c.memory.noEvict.Store(false)
	c.update(func(s *shown) { s.name, s.noEvict, s.noTouch = "", false, false })
	return protocol.Simple("RESET")
}

// withdraw ends all that the client has on this node: subscriptions, sessions, tracking, MONITOR and a backup. RESET
// calls it, and so does a connection that ends, before its last reply: a client with that reply has nothing left.
func (c *conn) withdraw() {
	if c.outbox.subscribed() {
		c.runBatch()
		c.awaitDelivery()
		c.unsubscribeAll()
	}
	c.resetLocks()
	c.stopTracking()
	c.stopMonitoring()
	c.closeBackup()
}

// quit ends the connection once all commands before QUIT are answered.
func quit(c *conn, _ [][]byte) protocol.Value {
	c.closing = true
	return protocol.OK
}
