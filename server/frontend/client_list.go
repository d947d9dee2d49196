package frontend

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/acl"
	"github.com/holdfast/holdfast/server/pubsub"
)

func clientListHandlers() map[string]handler {
	return map[string]handler{
		"client|info": {reply: clientInfo},
		"client|list": {reply: clientList},
	}
}

// publish copies the connection's state for CLIENT LIST, at the end of each pipeline and when the
// client asks about itself.
func (c *conn) publish() {
	c.profile.mu.Lock()
	defer c.profile.mu.Unlock()
	s := &c.shown
	s.db, s.resp, s.watched, s.queued, s.queuedBytes = c.db, c.resp, len(c.watches.keys), -1, 0
	if c.tx != nil {
		s.queued, s.queuedBytes = c.tx.queued, c.tx.bytes
	}
	s.subs, s.monitoring = c.subs.counts, c.monitoring
	s.command, s.active = c.lastCommand, c.arrived
	s.input, s.inputFree, s.argBytes, s.output, s.replies, s.replyBytes = 0, 0, 0, 0, 0, 0
	s.held = c.footprint()
	if c.w != nil {
		s.input, s.inputFree = c.w.buffered(), cap(c.w.in)-len(c.w.in)
		s.argBytes = c.w.reader.Memory()
	}
}

// publishStall updates CLIENT LIST with the output that the client has not taken.
func (c *conn) publishStall(unwritten int) {
	waiting := c.unencodedBytes()
	c.profile.mu.Lock()
	defer c.profile.mu.Unlock()
	s := &c.shown
	s.output, s.replies, s.replyBytes = unwritten, len(c.w.batch.Replies), waiting
	s.held = int(c.memory.counted.Load())
}

func clientInfo(c *conn, _ [][]byte) protocol.Value {
	c.publish()
	return protocol.Verbatim(string(c.appendLine(nil, time.Now())))
}

func clientList(c *conn, args [][]byte) protocol.Value {
	keep := func(*conn) bool { return true }
	option := ""
	if len(args) > 3 {
		option = strings.ToLower(string(args[2]))
	}
	switch {
	case len(args) == 2:
	case option == "type" && len(args) == 4:
		kind, ok := clientKind(string(args[3]))
		if !ok {
			return unknownClientKind(string(args[3]))
		}
		keep = func(other *conn) bool {
			s := other.view()
			return s.kind() == kind
		}
	case option == "id":
		ids := make(map[int64]bool)
		for _, w := range args[3:] {
			id, ok := protocol.ParseInt(string(w))
			if !ok {
				return protocol.Err("Invalid client ID")
			}
			ids[id] = true
		}
		keep = func(other *conn) bool { return ids[other.id] }
	default:
		return protocol.Err(errSyntax)
	}
	c.publish()
	var list []byte
	now := time.Now()
	for _, other := range c.srv.clients() {
		if keep(other) {
			list = other.appendLine(list, now)
		}
	}
	return protocol.Verbatim(string(list))
}

// appendLine appends the connection's line of CLIENT LIST. Fields of Redis that mean nothing here
// are zero. Any goroutine may call appendLine.
func (c *conn) appendLine(dst []byte, now time.Time) []byte {
	s := c.view()
	waiting, messages := int(c.outbox.held.Load()), int(c.outbox.count.Load())
	return fmt.Appendf(dst, "id=%d addr=%s laddr=%s fd=%d name=%s age=%d idle=%d flags=%s db=%d"+
		" sub=%d psub=%d ssub=%d multi=%d watch=%d qbuf=%d qbuf-free=%d argv-mem=%d multi-mem=%d rbs=0 rbp=0 obl=%d "+
		"oll=%d omem=%d"+
		" tot-mem=%d events=r cmd=%s user=%s redir=%d resp=%d lib-name=%s lib-ver=%s\n",
		c.id, c.addr, c.localAddr, c.descriptor(), s.name,
		int(now.Sub(c.born).Seconds()), int(now.Sub(s.active).Seconds()), s.flags(), s.db,
		s.subs[pubsub.Channel], s.subs[pubsub.Pattern], s.subs[pubsub.Shard], s.queued, s.watched, s.input, s.inputFree,
		s.argBytes, s.queuedBytes, s.output, s.replies+messages, s.replyBytes+waiting, connBytes+s.held+waiting,
		s.command, s.user.Name, s.redirect(), s.resp, s.libName, s.libVersion)
}

// clientFilter selects the clients that CLIENT KILL closes. A field that is not given matches all clients.
type clientFilter struct {
	id          int64
	addr, laddr *string // a client has no empty address, so an empty one matches none
	kind, user  string
	skipMe      bool
}

// clientKill runs both forms of CLIENT KILL. CLIENT KILL addr replies OK, and may close its sender. The form with
// filters replies with the number of closed clients.
func clientKill(c *conn, args [][]byte) protocol.Value { return c.srv.kill(c, args) }

// kill runs CLIENT KILL. sender is nil if the command comes from another node.
func (s *Server) kill(sender *conn, args [][]byte) protocol.Value {
	if len(args) == 3 {
		addr := string(args[2])
		if s.killAll(clientFilter{addr: &addr}, sender) == 0 {
			return protocol.Err("No such client")
		}
		return protocol.OK
	}
	filter, command := clientFilter{skipMe: true}, args
	for args := args[2:]; len(args) > 0; args = args[2:] {
		if len(args) == 1 {
			return protocol.Err(errSyntax)
		}
		if v, ok := filter.set(string(args[0]), string(args[1]), s.cfg.Users.Held()); !ok {
			return v
		}
	}
	if filter.id != 0 && !s.ids.has(filter.id) && sender != nil {
		return s.askOthers(sender.ctx, filter.id, command)
	}
	return protocol.Integer(int64(s.killAll(filter, sender)))
}

// set parses one filter. If ok is false, v is the error.
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

// clientKind parses a TYPE of CLIENT KILL and CLIENT LIST.
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

// killAll closes the clients that match, and returns their number. The sender gets its reply first.
func (s *Server) killAll(f clientFilter, sender *conn) int {
	n := 0
	for _, other := range s.clients() {
		shown := other.view()
		switch {
		case f.id != 0 && other.id != f.id,
			f.addr != nil && other.addr.String() != *f.addr,
			f.laddr != nil && other.localAddr.String() != *f.laddr,
			f.kind != "" && f.kind != shown.kind(),
			f.user != "" && f.user != shown.user.Name,
			f.skipMe && other == sender:
			continue
		case other == sender:
			sender.closing = true
		default:
			s.hide(other)
			other.nc.Close()
		}
		n++
	}
	return n
}
