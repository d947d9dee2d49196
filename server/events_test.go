package server

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/replica"
)

// TestLogLinesNameTheirNodeOnce: what a line says of another node has a key of its own, since readers of
// JSON keep one of two values with the same key.
func TestLogLinesNameTheirNodeOnce(t *testing.T) {
	var lines strings.Builder
	s := &Server{logger: slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", "n1")}
	for _, event := range []replica.Event{
		replica.LeaderChanged{Leader: "n2"},
		replica.LinkUp{Leader: "n2"},
		replica.LinkDown{Leader: "n2"},
		replica.FollowerStalled{Name: "n2"},
		replica.FollowerMoves{Name: "n2"},
	} {
		lines.Reset()
		s.onEvent(event)
		require.Equal(t, 1, strings.Count(lines.String(), " node="), lines.String())
		require.Contains(t, lines.String(), "=n2")
	}
}
