package server

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/server/consistency"
	"github.com/holdfast/holdfast/server/frontend/observe"
	"github.com/holdfast/holdfast/server/peer"
	"github.com/holdfast/holdfast/server/pubsub"
	"github.com/holdfast/holdfast/server/push"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/store"
	"github.com/holdfast/holdfast/server/tracking"
)

// TestLogLinesNameTheirNodeOnce: what a line says of another node has a key of its own, since readers of
// JSON keep one of two values with the same key.
func TestLogLinesNameTheirNodeOnce(t *testing.T) {
	var lines strings.Builder
	s := &Server{logger: slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node",
		"n1"), peers: new(peer.Mux)}
	for _, event := range []replica.Event{
		replica.LeaderChanged{Leader: "n2"},
		replica.LinkUp{Leader: "n2"},
		replica.LinkDown{Leader: "n2"},
		replica.FollowerStalled{Name: "n2"},
		replica.FollowerMoves{Name: "n2"},
		replica.ProposalStalled{Members: []replica.Member{{Name: "n1", LogIndex: 7}, {Name: "n2", LogIndex: 5}}},
		replica.LogShortened{Name: "n2"},
	} {
		lines.Reset()
		s.onEvent(event)
		require.Equal(t, 1, strings.Count(lines.String(), " node="), lines.String())
		require.Regexp(t, `=n2|n1=7 n2=5`, lines.String())
	}
}

// TestNodeEndsOnWhatItMustNotSurvive: and on nothing else.
func TestNodeEndsOnWhatItMustNotSurvive(t *testing.T) {
	for what, row := range map[string]struct {
		happens func(*Server)
		want    string
	}{
		"state":    {func(s *Server) { s.onEvent(replica.Failed{Err: io.EOF}) }, "state can no longer follow the log: EOF"},
		"hang":     {func(s *Server) { s.storeHooks(nil).OnStall(store.OpSet, time.Second) }, "disk hangs"},
		"disk":     {func(s *Server) { s.storeHooks(nil).OnFault(store.OpSet, io.EOF) }, "disk failed"},
		"snapshot": {func(s *Server) { s.onEvent(replica.SnapshotTaken{Err: io.EOF}) }, ""},
		"damage":   {func(s *Server) { s.onEvent(replica.SnapshotDamaged{Err: io.EOF}) }, ""},
		"stall":    {func(s *Server) { s.onEvent(replica.ProposalStalled{Age: time.Second}) }, ""},
		"link":     {func(s *Server) { s.onEvent(replica.LinkDown{Err: io.EOF}) }, ""},
	} {
		s := &Server{logger: slog.New(slog.DiscardHandler), fatal: make(chan error, 1)}
		row.happens(s)
		select {
		case err := <-s.fatal:
			require.NotEmpty(t, row.want, what)
			require.ErrorContains(t, err, row.want, what)
		default:
			require.Empty(t, row.want, what)
		}
	}
}

// told is a client that counts what it is told of its cache.
type told struct{ times chan struct{} }

func (c told) Invalidate(*push.Message) { c.times <- struct{}{} }

// TestSkippedEntriesAreTold: when the node has installed a snapshot, clients drop their caches.
func TestSkippedEntriesAreTold(t *testing.T) {
	s := &Server{
		logger: slog.New(slog.DiscardHandler), hub: pubsub.New(slog.New(slog.DiscardHandler)),
		caches:   tracking.New(tracking.DefaultLimits()),
		monitors: observe.NewMonitors(),
	}
	s.cluster.checker = consistency.New(consistency.Config{})
	c := told{make(chan struct{}, 1)}
	s.caches.Client(c).Start(tracking.Options{})
	s.onEvent(replica.Restored{})
	<-c.times
	s.onStateEvents([]event.Event{{Kind: event.Flushed}})
	<-c.times
}
