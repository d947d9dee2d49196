package hclogger

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

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
