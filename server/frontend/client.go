package frontend

import (
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

const (
	errClientName = "Client names cannot contain spaces, newlines or special characters."
	errSyntax     = "syntax error"
)

func clientID(c *conn, _ [][]byte) protocol.Value { return protocol.Integer(c.id) }

func clientGetName(c *conn, _ [][]byte) protocol.Value {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shown.name == "" {
		return protocol.Null
	}
	return protocol.Bulk(c.shown.name)
}

func clientSetName(c *conn, args [][]byte) protocol.Value {
	if !validAttribute(args[2]) {
		return protocol.Err(errClientName)
	}
	c.setName(args[2])
	return protocol.OK
}

func (c *conn) setName(name []byte) {
	c.mu.Lock()
	c.shown.name = string(name)
	c.mu.Unlock()
}

// validAttribute reports whether CLIENT LIST can show value without breaking its format.
func validAttribute(word []byte) bool {
	for _, b := range word {
		if b < '!' || b > '~' {
			return false
		}
	}
	return true
}

func clientSetInfo(c *conn, args [][]byte) protocol.Value {
	c.mu.Lock()
	defer c.mu.Unlock()
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
	*field = string(args[3])
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

// setSwitch sets a flag that CLIENT LIST shows. NO-TOUCH has no other effect, as Holdfast keeps no
// time of a key's last access.
func (c *conn) setSwitch(flag *bool, word []byte) protocol.Value {
	on := strings.EqualFold(string(word), "on")
	if !on && !strings.EqualFold(string(word), "off") {
		return protocol.Err(errSyntax)
	}
	c.mu.Lock()
	*flag = on
	c.mu.Unlock()
	return protocol.OK
}
