package hclogger

import (
	"errors"
	"log/slog"
	"net"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
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
