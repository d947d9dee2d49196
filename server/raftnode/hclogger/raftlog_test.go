package hclogger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// capture returns a logger and what it has written, without times.
func capture(lv slog.Level) (hclog.Logger, *bytes.Buffer) {
	var out bytes.Buffer
	h := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: lv, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	return New(slog.New(h)), &out
}

func TestLevelsAndPairs(t *testing.T) {
	l, out := capture(LevelTrace)
	l.Trace("a", "n", 1)
	l.Debug("b", "err", errors.New("it broke"))
	l.Info("c", "odd")
	l.Warn("d", 5, hclog.Fmt("%d-%d", 1, 2))
	l.Error("e", "list", []string{"x", "y"})
	l.Log(hclog.Off, "never")
	l.Log(hclog.NoLevel, "f", "format", hclog.Format{3, 4}, "none", hclog.Format{})
	require.Equal(t, `level=DEBUG-4 msg=a n=1
level=DEBUG msg=b err="it broke"
level=INFO msg=c EXTRA_VALUE_AT_END=odd
level=WARN msg=d 5=1-2
level=ERROR msg=e list="[x y]"
level=INFO msg=f format="3 4" none=""
`, out.String())
}

func TestNamesAndArgumentsOfWith(t *testing.T) {
	l, out := capture(slog.LevelInfo)
	sub := l.Named("raft").With("node", "n1").Named("snapshot")
	sub.Info("hello", "index", uint64(3))
	require.Equal(t, "level=INFO msg=hello node=n1 index=3 logger=raft.snapshot\n", out.String())
}

func TestLevelIsTheHandlers(t *testing.T) {
	l, out := capture(slog.LevelInfo)
	require.Equal(t, hclog.Off, l.GetLevel(), "hclog itself writes nothing")
	l.SetLevel(hclog.Trace)
	l.Debug("x")
	require.Empty(t, out.String())
	l.Info("x")
	require.NotEmpty(t, out.String())
}

// TestRaftTakesIt: a line of raft's own is in the output.
func TestRaftTakesIt(t *testing.T) {
	l, out := capture(slog.LevelDebug)
	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger = "n1", l
	stores := raft.NewInmemStore()
	addr, transport := raft.NewInmemTransport("")
	require.NoError(t, raft.BootstrapCluster(conf, stores, stores, raft.NewInmemSnapshotStore(), transport,
		raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: addr}}}))
	node, err := raft.NewRaft(conf, &raft.MockFSM{}, stores, stores, raft.NewInmemSnapshotStore(), transport)
	require.NoError(t, err)
	require.NoError(t, node.Shutdown().Error())
	require.Contains(t, out.String(), "initial configuration")
}

func TestRepeatedComplaintsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New(slog.New(slog.NewTextHandler(&out, nil))).Named("raft")
		for range 10 {
			l.Error("failed to heartbeat to", "peer", "n2")
			l.Error("failed to heartbeat to", "peer", "n3")
			l.Info("entering follower state")
		}
		require.Equal(t, 1, strings.Count(out.String(), "peer=n2"))
		require.Equal(t, 1, strings.Count(out.String(), "peer=n3"))
		require.Equal(t, 10, strings.Count(out.String(), "entering follower"), "what is no complaint is always said")

		out.Reset()
		time.Sleep(quietFor)
		l.Error("failed to heartbeat to", "peer", "n2")
		require.Contains(t, out.String(), "peer=n2")
		require.Contains(t, out.String(), "skipped=9")
	})
}

// TestSeverity: a failure of another node is a warning. An error of something that this node has closed is logged at a
// low level.
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
		{"INFO", "failed to get log", []any{"index", 1, "error", raft.ErrLogNotFound}},
		{"ERROR", "failed to get log", []any{"index", 1, "error", io.ErrUnexpectedEOF}},
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
