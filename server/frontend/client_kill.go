package frontend

import (
	"strings"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/acl"
)

// clientFilter says which clients CLIENT KILL closes. A field that is not given matches all clients.
type clientFilter struct {
	id          int64
	addr, laddr *string // a client has no empty address, so an empty one matches none
	kind, user  string
	skipMe      bool
}

// clientKill has two forms. CLIENT KILL addr answers OK and may close its sender. The form with
// filters answers the number of closed clients.
func clientKill(c *conn, args [][]byte) protocol.Value {
	if len(args) == 3 {
		addr := string(args[2])
		if c.killAll(clientFilter{addr: &addr}) == 0 {
			return protocol.Err("No such client")
		}
		return protocol.OK
	}
	filter := clientFilter{skipMe: true}
	for args := args[2:]; len(args) > 0; args = args[2:] {
		if len(args) == 1 {
			return protocol.Err(errSyntax)
		}
		if v, ok := filter.set(string(args[0]), string(args[1]), c.srv.cfg.Users.Held()); !ok {
			return v
		}
	}
	return protocol.Integer(int64(c.killAll(filter)))
}

// set reads one filter. Without ok, v is the error.
func (f *clientFilter) set(name, value string, users *acl.Users) (v protocol.Value, ok bool) {
	switch strings.ToLower(name) {
	case "id":
		if f.id, ok = protocol.ParseInt(value); !ok || f.id < 1 {
			return protocol.Err("client-id should be greater than 0"), false
		}
	case "type":
		if f.kind, ok = clientKind(value); !ok {
			return unknownClientKind(value), false
		}
	case "addr":
		f.addr = &value
	case "laddr":
		f.laddr = &value
	case "user":
		if users.Find(value) == nil {
			return protocol.Err("No such user '" + value + "'"), false
		}
		f.user = value
	case "skipme":
		switch strings.ToLower(value) {
		case "yes":
			f.skipMe = true
		case "no":
			f.skipMe = false
		default:
			return protocol.Err(errSyntax), false
		}
	default:
		return protocol.Err(errSyntax), false
	}
	return protocol.Value{}, true
}

// The kinds of clients that there are.
const (
	normalClient = "normal"
	pubsubClient = "pubsub"
)

// clientKind reads a TYPE of CLIENT KILL and CLIENT LIST.
func clientKind(word string) (kind string, ok bool) {
	switch kind = strings.ToLower(word); kind {
	case normalClient, "master", "replica", pubsubClient:
		return kind, true
	case "slave":
		return "replica", true
	}
	return "", false
}

func unknownClientKind(word string) protocol.Value {
	return protocol.Err("Unknown client type '" + word + "'")
}

// userName may be called by any goroutine.
func (c *conn) userName() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shown.user.Name
}

// killAll closes the clients that match and returns their number. The sender gets its reply before
// its connection is closed.
func (c *conn) killAll(f clientFilter) int {
	n := 0
	for _, other := range c.srv.clients() {
		switch {
		case f.id != 0 && other.id != f.id,
			f.addr != nil && other.nc.RemoteAddr().String() != *f.addr,
			f.laddr != nil && other.nc.LocalAddr().String() != *f.laddr,
			f.kind != "" && f.kind != other.kind(),
			f.user != "" && f.user != other.userName(),
			f.skipMe && other == c:
			continue
		case other == c:
			c.closing = true
		default:
			other.nc.Close()
		}
		n++
	}
	return n
}
