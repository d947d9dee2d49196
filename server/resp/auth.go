package resp

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

func authLocals() map[string]local {
	return map[string]local{
		"auth":  {answer: auth},
		"hello": {answer: hello},
	}
}

const (
	defaultUser  = "default"
	errWrongPass = "WRONGPASS invalid username-password pair or user is disabled."
)

func auth(c *conn, words [][]byte) protocol.Value {
	switch {
	case len(words) > 3:
		return protocol.Err("syntax error")
	case len(words) == 2 && c.srv.cfg.Password == "":
		return protocol.Err("AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
	case len(words) == 2:
		return c.authenticate([]byte(defaultUser), words[1])
	}
	return c.authenticate(words[1], words[2])
}

// authenticate opens the connection to the one user there is. Without a
// password to know, any is right, as Redis has it for a "nopass" user.
func (c *conn) authenticate(user, password []byte) protocol.Value {
	want, got := sha256.Sum256([]byte(c.srv.cfg.Password)), sha256.Sum256(password)
	same := subtle.ConstantTimeCompare(want[:], got[:]) == 1 || c.srv.cfg.Password == ""
	if string(user) != defaultUser || !same {
		return protocol.ErrValue(errWrongPass)
	}
	c.setAuthenticated(true)
	return protocol.OK
}

// hello negotiates the protocol version. Nothing of it takes effect, but for
// AUTH, unless all of it is right.
func hello(c *conn, words [][]byte) protocol.Value {
	version := c.resp
	if len(words) > 1 {
		n, ok := protocol.ParseInt(string(words[1]))
		if !ok {
			return protocol.Err("Protocol version is not an integer or out of range")
		}
		if n != protocol.RESP2 && n != protocol.RESP3 {
			return protocol.ErrValue("NOPROTO unsupported protocol version")
		}
		version = int(n)
	}
	var user, password, name []byte
	for i := 2; i < len(words); i++ {
		left := len(words) - 1 - i
		switch {
		case strings.EqualFold(string(words[i]), "auth") && left >= 2:
			user, password = words[i+1], words[i+2]
			i += 2
		case strings.EqualFold(string(words[i]), "setname") && left >= 1:
			name = words[i+1]
			if !validAttribute(name) {
				return protocol.Err(errClientName)
			}
			i++
		default:
			return protocol.Err("Syntax error in HELLO option '" + string(words[i]) + "'")
		}
	}
	if user != nil {
		if v := c.authenticate(user, password); v.IsError() {
			return v
		}
	}
	if !c.authenticated {
		return protocol.ErrValue("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
	}
	if name != nil {
		c.setName(name)
	}
	c.resp = version
	return protocol.Map(
		protocol.Bulk("server"), protocol.Bulk("redis"),
		protocol.Bulk("version"), protocol.Bulk(protocol.RedisVersion),
		protocol.Bulk("proto"), protocol.Integer(int64(version)),
		protocol.Bulk("id"), protocol.Integer(c.id),
		protocol.Bulk("mode"), protocol.Bulk("standalone"),
		protocol.Bulk("role"), protocol.Bulk(c.srv.helloRole()),
		protocol.Bulk("modules"), protocol.Array(),
	)
}
