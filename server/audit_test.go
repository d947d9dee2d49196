package server_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server"
	"github.com/holdfast/holdfast/server/audit"
	"github.com/holdfast/holdfast/server/servertest"
)

// auditors are the audit logs of a cluster's nodes, each of a start.
type auditors struct {
	t    *testing.T
	dir  string
	logs map[string]*audit.Log
}

// open is called when a node starts. What the former start has left is written first.
func (a *auditors) open(node string) *audit.Log {
	require.NoError(a.t, a.logs[node].Close())
	l, err := audit.Open(audit.Config{
		Path: a.path(node), Bytes: 1 << 30, Node: node, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(a.t, err)
	l.Begin("c")
	a.logs[node] = l
	return l
}

func (a *auditors) path(node string) string { return filepath.Join(a.dir, node) }

// lines are what the files of some nodes say of locks.
func (a *auditors) lines(nodes ...string) (lines []audit.Line) {
	var from []io.Reader
	for _, node := range nodes {
		require.NoError(a.t, a.logs[node].Close())
		f, err := os.Open(a.path(node))
		require.NoError(a.t, err)
		defer f.Close()
		from = append(from, f)
	}
	trail, err := audit.Read(from, func(l *audit.Line) bool { return l.Run == 0 })
	require.NoError(a.t, err)
	require.Zero(a.t, trail.Unreadable)
	return trail.Lines
}

// TestAudit: a node misses entries, and gets their state by a snapshot; the leader ends, and applies entries again when
// it starts. The files together have each change once, in the order of the log, with the client's address.
func TestAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &auditors{t: t, dir: t.TempDir(), logs: map[string]*audit.Log{}}
		c := servertest.New(t, servertest.Options{Audit: a.open, Tune: func(conf *server.Config) {
			conf.SnapshotThreshold, conf.TrailingLogs = 1<<20, 8
		}})
		c.Settle()
		leader, away, other := c.Leader(), c.Followers()[0], c.Followers()[1]
		var want []string
		pair := func(n int, through *servertest.Node) {
			client := c.Client(through, protocol.RESP2)
			defer client.Close()
			key := fmt.Sprintf("k%d", n)
			do := func(words ...string) protocol.Value {
				v, err := client.Do(words...)
				require.NoError(t, err)
				require.False(t, v.IsError() || v.IsNull(), "%q: %+v", words, v)
				return v
			}
			do("CLIENT", "SETNAME", "w")
			fence := do("LOCK.ACQUIRE", key, "me", "PX", "60000")
			do("LOCK.RELEASE", key, "me")
			do("SET", "s"+key, "token", "NX", "PX", "60000")
			require.Equal(t, protocol.Integer(1), do("DELIFEQ", "s"+key, "token"))
			want = append(want, fmt.Sprint("granted ", key, " me ", fence.Num), fmt.Sprint("released ", key, " me ", fence.Num),
				fmt.Sprint("granted s", key, " token 0"), fmt.Sprint("released s", key, " token 0"))
		}
		pair(0, leader)
		c.Settle()
		away.Crash()
		for n := range 20 {
			pair(1+n, []*servertest.Node{leader, other}[n%2])
		}
		require.NoError(t, leader.Replica().TakeSnapshot())
		away.Start()
		c.Settle()
		leader.Crash()
		leader.Start()
		c.Settle()
		pair(21, c.Leader())
		c.Settle()

		seen := func(lines []audit.Line) (all []string) {
			for _, l := range lines {
				all = append(all, fmt.Sprint(l.Event, " ", l.Key, " ", l.Owner, " ", l.Fence))
				require.Equal(t, "w", l.Name, "%+v", l)
				require.NotEmpty(t, l.Addr)
			}
			return all
		}
		require.Equal(t, want, seen(a.lines(c.Names()...)))
		require.Less(t, len(a.lines(away.Name)), len(want), "no snapshot stood for entries")
		for _, node := range c.Names() {
			text, err := os.ReadFile(a.path(node))
			require.NoError(t, err)
			require.Len(t, a.lines(node), bytes.Count(text, []byte(`"id":"c/`)), "%s wrote a line twice", node)
		}
	})
}
