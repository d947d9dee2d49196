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

// severity is the level of a raft message.
//
// An error is what this node cannot do and should. Raft also logs an error when another node does
// not answer, or hangs up, as any stopped node does: a warning here. When a connection ends because
// this node has closed the connection, the level is debug.
func severity(l hclog.Level, msg string, args []any) slog.Level {
	if l != hclog.Error {
		return level(l)
	}
	severe := slog.LevelError
	if ofConnections[msg] {
		severe = slog.LevelWarn
	}
	for ; len(args) >= 2; args = args[2:] {
		if err, ok := args[1].(error); ok && closedHere(err) {
			return slog.LevelDebug
		}
		if args[0] == "peer" || args[0] == "target" {
			severe = slog.LevelWarn
		}
	}
	return severe
}

// ofConnections are the errors of raft's transport, which name no other node.
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
	// quietFor is how long a complaint is not repeated. Raft complains about a peer that is down
	// several times a second, until the peer is back.
	quietFor = 30 * time.Second
	// maxComplaints bounds what is remembered.
	maxComplaints = 256
)

// limiter keeps raft from saying the same of the same peer again and again.
type limiter struct {
	mu         sync.Mutex
	complaints map[string]*loglimit.Limit
}

// admit reports whether the message is to be logged, and how many like messages were skipped since
// the last.
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
