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

// shown is the part of a connection that CLIENT LIST shows to other connections.
type shown struct {
	user                        *acl.User
	name, libName, libVersion   string
	noEvict, noTouch, blocked   bool
	ticket                      uint64 // under which the client waits, 0: none
	command                     string // the last command
	active                      time.Time
	db, resp                    int
	queued, queuedBytes         int // since MULTI; queued is -1 outside
	watched                     int
	input, inputFree            int    // bytes not parsed, room for more
	argBytes                    int    // memory for the arguments of an incomplete command
	output, replies, replyBytes int    // bytes to be written, replies behind these bytes, bytes of these replies
	subs                        [3]int // subscriptions by pubsub.Kind
	track                       trackMode
	monitoring                  bool
	held                        int // bytes beyond the cost of an idle connection
}

// publish copies the connection's state for CLIENT LIST, at the end of each pipeline and when the
// client asks about itself.
func (c *conn) publish() {
	c.mu.Lock()
	defer c.mu.Unlock()
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

// publishStall shows CLIENT LIST how much the client has not taken.
func (c *conn) publishStall(unwritten int) {
	waiting := c.unencodedBytes()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.shown
	s.output, s.replies, s.replyBytes = unwritten, len(c.w.batch.Replies), waiting
	s.held = int(c.memory.counted.Load())
}

// kind is the kind of the client, as CLIENT KILL and CLIENT LIST know kinds.
func (s *shown) kind() string {
	if s.subs != [3]int{} {
		return pubsubClient
	}
	return normalClient
}

// kind may be called by any goroutine.
func (c *conn) kind() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shown.kind()
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
		keep = func(other *conn) bool { return other.kind() == kind }
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
	c.mu.Lock()
	s := c.shown
	c.mu.Unlock()
	waiting, messages := int(c.outbox.held.Load()), int(c.outbox.count.Load())
	return fmt.Appendf(dst, "id=%d addr=%s laddr=%s fd=%d name=%s age=%d idle=%d flags=%s db=%d"+
		" sub=%d psub=%d ssub=%d multi=%d watch=%d qbuf=%d qbuf-free=%d argv-mem=%d multi-mem=%d rbs=0 rbp=0 obl=%d "+
		"oll=%d omem=%d"+
		" tot-mem=%d events=r cmd=%s user=%s redir=%d resp=%d lib-name=%s lib-ver=%s\n",
		c.id, c.nc.RemoteAddr(), c.nc.LocalAddr(), c.descriptor(), s.name,
		int(now.Sub(c.born).Seconds()), int(now.Sub(s.active).Seconds()), s.flags(), s.db,
		s.subs[pubsub.Channel], s.subs[pubsub.Pattern], s.subs[pubsub.Shard], s.queued, s.watched, s.input, s.inputFree,
		s.argBytes, s.queuedBytes, s.output, s.replies+messages, s.replyBytes+waiting, connBytes+s.held+waiting,
		s.command, s.user.Name, s.redirect(), s.resp, s.libName, s.libVersion)
}

// redirect is the client that gets the messages of tracking, as in CLIENT GETREDIR.
func (s *shown) redirect() int64 {
	if !s.track.on {
		return -1
	}
	return s.track.redirect
}

func (s *shown) flags() string {
	var flags strings.Builder
	for _, f := range []struct {
		on   bool
		mark byte
	}{
		{s.monitoring, 'O'},
		{s.kind() == pubsubClient, 'P'},
		{s.queued >= 0, 'x'},
		{s.blocked, 'b'},
		{s.track.on, 't'},
		{s.track.broken, 'R'},
		{s.track.bcast, 'B'},
		{s.noEvict, 'e'},
		{s.noTouch, 'T'},
	} {
		if f.on {
			flags.WriteByte(f.mark)
		}
	}
	if flags.Len() == 0 {
		return "N"
	}
	return flags.String()
}
