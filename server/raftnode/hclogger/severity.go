package hclogger

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/loglimit"
)

// severity returns the level of a raft message.
//
// An error is a failure of this node. Raft also logs an error if another node does not answer or closes a connection,
// as any stopped node does; that is a warning here. A connection that this node closed is logged at debug level. An
// entry that the log no longer has is information: a node that needs it is sent a snapshot.
func severity(l hclog.Level, msg string, args []any) slog.Level {
	if l != hclog.Error {
		return level(l)
	}
	severe := slog.LevelError
	if ofConnections[msg] {
		severe = slog.LevelWarn
	}
	for ; len(args) >= 2; args = args[2:] {
		err, _ := args[1].(error)
		switch {
		case closedHere(err):
			return slog.LevelDebug
		case errors.Is(err, raft.ErrLogNotFound):
			return slog.LevelInfo
		}
		if args[0] == "peer" || args[0] == "target" {
			severe = slog.LevelWarn
		}
	}
	return severe
}

// ofConnections are the errors of raft's transport, which do not name the other node.
var ofConnections = map[string]bool{
	"failed to accept connection":       true,
	"failed to decode incoming command": true,
	"failed to flush response":          true,
}

func closedHere(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, raft.ErrTransportShutdown) ||
		errors.Is(err, raft.ErrRaftShutdown)
}

const (
	// quietFor is the time before a warning is repeated. Raft warns of a peer that is down several times a second.
	quietFor = 30 * time.Second
	// maxComplaints bounds the remembered warnings.
	maxComplaints = 256
)

// limiter limits repeated warnings about the same peer.
type limiter struct {
	mu         sync.Mutex
	complaints map[string]*loglimit.Limit
}

// admit reports whether to log the message, and how many of the same kind were skipped since the last one.
func (l *limiter) admit(level slog.Level, msg string, attrs []slog.Attr) (skipped int, ok bool) {
	if level < slog.LevelWarn {
		return 0, true
	}
	key := msg
	for _, a := range attrs {
		if a.Key == "peer" || a.Key == "target" || a.Key == "server-id" || a.Key == "id" {
			key += "\x00" + a.Value.String()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.complaints[key] == nil {
		if len(l.complaints) >= maxComplaints || l.complaints == nil {
			l.complaints = make(map[string]*loglimit.Limit)
		}
		l.complaints[key] = &loglimit.Limit{Burst: 1, Every: quietFor}
	}
	return l.complaints[key].Admit(time.Now())
}
