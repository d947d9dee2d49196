package frontend

import (
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

func clientLocals() map[string]local {
	return map[string]local{
		"client|id":       {answer: clientID},
		"client|getname":  {answer: clientGetName},
		"client|setname":  {answer: clientSetName},
		"client|setinfo":  {answer: clientSetInfo},
		"client|reply":    {answer: clientReply},
		"client|no-evict": {answer: clientNoEvict},
		"client|no-touch": {answer: clientNoTouch},
		"client|kill":     {answer: clientKill},
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

func clientSetName(c *conn, words [][]byte) protocol.Value {
	if !validAttribute(words[2]) {
		return protocol.Err(errClientName)
	}
	c.setName(words[2])
	return protocol.OK
}

func (c *conn) setName(name []byte) {
	c.mu.Lock()
	c.shown.name = string(name)
	c.mu.Unlock()
}

// validAttribute reports whether CLIENT LIST could show the word without harm to its format.
func validAttribute(word []byte) bool {
	for _, b := range word {
		if b < '!' || b > '~' {
			return false
		}
	}
	return true
}

func clientSetInfo(c *conn, words [][]byte) protocol.Value {
	c.mu.Lock()
	defer c.mu.Unlock()
	attribute := string(words[2])
	var field *string
	switch strings.ToLower(attribute) {
	case "lib-name":
		field = &c.shown.libName
	case "lib-ver":
		field = &c.shown.libVersion
	default:
		return protocol.Err("Unrecognized option '" + attribute + "'")
	}
	if !validAttribute(words[3]) {
		return protocol.Err(attribute + " cannot contain spaces, newlines or special characters.")
	}
	*field = string(words[3])
	return protocol.OK
}

func clientReply(c *conn, words [][]byte) protocol.Value {
	switch strings.ToLower(string(words[2])) {
	case "on":
		c.reply = replyMode{}
		return protocol.OK
	case "off":
		c.reply.off = true
		return protocol.None
	case "skip":
		c.reply.skipNext = !c.reply.off
		return protocol.None
	}
	return protocol.Err(errSyntax)
}

func clientNoEvict(c *conn, words [][]byte) protocol.Value {
	v := c.setSwitch(&c.shown.noEvict, words[2])
	c.held.spared.Store(c.shown.noEvict)
	return v
}

func clientNoTouch(c *conn, words [][]byte) protocol.Value {
	return c.setSwitch(&c.shown.noTouch, words[2])
}

// setSwitch sets a flag that CLIENT LIST shows. NO-TOUCH means nothing else here, as
// no key's last access is kept.
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
