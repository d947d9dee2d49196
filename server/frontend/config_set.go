package frontend

import (
	"strings"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
)

// notifySetting is the one setting that clients may change: part of the state, and so the same on all
// nodes. The other settings are a node's flags. Redis refuses settings that are fixed at the start with the
// same words.
const notifySetting = "notify-keyspace-events"

// configSet is CONFIG SET. All pairs are checked before one is set, as in Redis.
func configSet(c *conn, args [][]byte) protocol.Value {
	if len(args)%2 != 0 {
		return protocol.Err(errSyntax)
	}
	value, given := "", false
	for i := 2; i < len(args); i += 2 {
		name := string(args[i])
		switch {
		case !c.srv.hasSetting(name):
			return protocol.Err("Unknown option or number of arguments for CONFIG SET - '" + name + "'")
		case !strings.EqualFold(name, notifySetting):
			return errConfigSet(name, "can't set immutable config")
		case given:
			return errConfigSet(name, "duplicate parameter")
		}
		value, given = string(args[i+1]), true
	}
	if _, ok := fsm.ParseClasses(value); !ok {
		return errConfigSet(notifySetting, "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")
	}
	b := replica.Batch{Body: protocol.AppendRequest(nil, 0, "notify", args[3:4]), Count: 1, Write: true}
	if err := c.srv.backend.Execute(&b); err != nil {
		return c.errorReply(err)
	}
	c.lastWrite = b.Number
	return b.Replies[0]
}

func errConfigSet(name, why string) protocol.Value {
	return protocol.Err("CONFIG SET failed (possibly related to argument '" + name + "') - " + why)
}

func (s *Server) hasSetting(name string) bool {
	for _, row := range s.settings() {
		if strings.EqualFold(row.Name, name) {
			return true
		}
	}
	return false
}
