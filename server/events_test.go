package server

import (
	"io"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/server/consistency"
	"github.com/holdfast/holdfast/server/frontend/observe"
	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer"
	"github.com/holdfast/holdfast/server/peer/peertest"
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
	network := peertest.New()
	l, err := network.Listen("n1:1")
	require.NoError(t, err)
	peers, err := peer.New(peer.Config{
		Listener: l, Dial: network.Dial("n1:1"), ClusterID: func() string { return "c1" },
		Addresses: &members.Addresses{}, ID: "n1",
		Incarnations: incarnation.New(incarnation.Config{Stable: raft.NewInmemStore()}),
	})
	require.NoError(t, err)
	s := &Server{logger: slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node",
		"n1"), peers: peers}
	for _, event := range []replica.Event{
		replica.LeaderChanged{Leader: "n2"},
		replica.LinkUp{Leader: "n2"},
		replica.LinkDown{Leader: "n2"},
		replica.FollowerStalled{Name: "n2"},
		replica.FollowerMoves{Name: "n2"},
		replica.ProposalStalled{Members: []replica.Member{{Name: "n1", LogIndex: 7}, {Name: "n2", LogIndex: 5}}},
		replica.LogShortened{Name: "n2"},
		replica.FarApart{RoundTrip: 151 * time.Millisecond, HeartbeatTimeout: 400 * time.Millisecond},
	} {
		lines.Reset()
		s.onEvent(event)
		require.Equal(t, 1, strings.Count(lines.String(), " node="), lines.String())
		require.Regexp(t, `=n2|n1=7 n2=5|=151ms heartbeat-timeout=700ms election-timeout=700ms command-timeout=3.0625s`,
			lines.String())
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

// TestSlowLocksAreLogged: as long as there are few, and how many were left out.
func TestSlowLocksAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines strings.Builder
		drop := func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
		s := &Server{
			logger:    slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{ReplaceAttr: drop})),
			slowLocks: newSlowLocks(),
		}
		slow := func(news event.LockNews) {
			news.Owner, news.Conn = "me", 3
			s.onEvent(replica.LockSlow{DB: 1, Key: "k", LockNews: news})
		}
		slow(event.LockNews{Fence: 7, Session: 5, HeldMillis: 99_000, SinceRenewedMillis: 9000, LeaseMillis: 10_000})
		for range 6 {
			slow(event.LockNews{Fence: 7, WaitedMillis: 1500})
		}
		require.Equal(t, slowLines, strings.Count(lines.String(), "\n"))
		time.Sleep(time.Second)
		slow(event.LockNews{Reason: "timeout", WaitedMillis: 2500})
		slow(event.LockNews{HeldMillis: 10_000, SinceRenewedMillis: 10_000, LeaseMillis: 10_000})
		shown := strings.Split(lines.String(), "\n")
		require.Equal(t,
			`level=WARN msg="a lock was held for more than four fifths of its lease" key=k db=1 owner=me id=3 fence=7 session=5 held=1m39s unrenewed=9s lease=10s`, shown[0])
		require.Equal(t,
			`level=WARN msg="waited long for a lock" key=k db=1 owner=me id=3 fence=7 waited=1.5s outcome=granted`, shown[1])
		require.Equal(t,
			`level=WARN msg="waited long for a lock" key=k db=1 owner=me id=3 not_logged=2 waited=2.5s outcome=timeout`,
			shown[5])
		require.Equal(t,
			`level=WARN msg="a lock was held for more than four fifths of its lease" key=k db=1 owner=me id=3 held=10s unrenewed=10s lease=10s lost=expired`, shown[6])
	})
}

// TestDurationsOfCenturies: a lease that no time.Duration holds is logged as the longest one.
func TestDurationsOfCenturies(t *testing.T) {
	for _, n := range []int64{9_223_372_036_855, 1 << 53, math.MaxInt64} {
		require.Greater(t, millis(n), 292*365*24*time.Hour)
	}
}
