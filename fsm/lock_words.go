package fsm

import "github.com/holdfast/holdfast/protocol"

// lockOps are the words of native locks and of sessions.
var lockOps = map[string]op{
	"lock.acquire":      unreadyOp,
	"lock.acquireall":   unreadyOp,
	"lock.break":        unreadyOp,
	"lock.cancel":       unreadyOp,
	"lock.check":        unreadyOp,
	"lock.downgrade":    unreadyOp,
	"lock.info":         unreadyOp,
	"lock.list":         unreadyOp,
	"lock.release":      unreadyOp,
	"lock.releaseall":   unreadyOp,
	"lock.renew":        unreadyOp,
	"session.attach":    unreadyOp,
	"session.close":     unreadyOp,
	"session.info":      unreadyOp,
	"session.keepalive": unreadyOp,
	"session.list":      unreadyOp,
	"session.open":      unreadyOp,
}

func unreadyOp(*call) protocol.Value { return protocol.Err("native locks are not there yet") }
