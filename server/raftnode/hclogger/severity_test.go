package hclogger

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// What other nodes do is no error of this one, and what this node closes is no news.
func TestSeverity(t *testing.T) {
	refused := errors.New("connection refused")
	for _, row := range []struct {
		want string
		msg  string
		args []any
	}{
		{"WARN", "failed to appendEntries to", []any{"peer", raft.Server{ID: "n2"}, "error", refused}},
		{"WARN", "failed to make requestVote RPC", []any{"target", raft.Server{ID: "n2"}, "error", io.EOF, "term", 3}},
		{"WARN", "failed to decode incoming command", []any{"error", io.ErrUnexpectedEOF}},
		{"DEBUG", "failed to heartbeat to", []any{"peer", "n2", "error", raft.ErrTransportShutdown}},
		{"DEBUG", "failed to accept connection", []any{"error", fmt.Errorf("peer port: %w", net.ErrClosed)}},
		{"ERROR", "failed to commit logs", []any{"error", refused}},
		{"ERROR", "failed to restore snapshot", []any{"id", "1-2-3", "error", io.ErrUnexpectedEOF}},
	} {
		l, out := capture(slog.LevelDebug)
		l.Error(row.msg, row.args...)
		require.True(t, strings.HasPrefix(out.String(), "level="+row.want+" "), out)
	}
	l, out := capture(slog.LevelDebug)
	l.Info("entering follower state", "peer", "n2")
	require.Contains(t, out.String(), "level=INFO")
}
