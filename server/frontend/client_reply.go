package frontend

import (
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// replyMode is what the client chose by CLIENT REPLY.
type replyMode struct {
	off, skip, skipNext bool
}

func (r *replyMode) muted() bool { return r.off || r.skip }

// endCommand makes CLIENT REPLY SKIP hold for the next command only, and CLIENT CACHING for the next that is
// no CLIENT, or for a transaction.
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
