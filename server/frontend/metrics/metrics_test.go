package metrics

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/frontend/discovery"
	"github.com/holdfast/holdfast/server/pubsub"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/sessions"
	"github.com/holdfast/holdfast/server/tracking"
)

// metricsDocument is ../../METRICS.md.
func metricsDocument() string {
	var b strings.Builder
	b.WriteString(`# Metrics

Made by ` + "`make rewrite`" + ` from the rows of [metrics.go](frontend/metrics/metrics.go). Each row is a line of INFO. The
section Commandstats is in INFO commandstats and INFO all only. A counter grows from the start of the process, or from
CONFIG RESETSTAT; a gauge rises and falls.
`)
	for _, s := range sections() {
		heading := "\n## " + s.name + "\n\n| line | kind | |\n|---|---|---|\n"
		for _, m := range s.metrics {
			if m.help != "" {
				fmt.Fprintf(&b, "%s| `%s` | %s | %s |\n", heading, m.name, m.kind, m.help)
				heading = ""
			}
		}
	}
	return b.String()
}

// TestMetricsDocument keeps METRICS.md equal to the rows.
func TestMetricsDocument(t *testing.T) {
	const path = "../../METRICS.md"
	if protocoltest.Rewriting() {
		require.NoError(t, os.WriteFile(path, []byte(metricsDocument()), 0o644))
		return
	}
	there, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(there), metricsDocument(), "run 'make rewrite' and look at the change")
}

// node is a node that leads three, with an empty state.
type node struct {
	fsm.Machine
	status  replica.Status
	clients *sessions.Clients
}

func newNode() *node {
	member := func(n string) replica.Member {
		return replica.Member{ID: "n" + n, Name: "n" + n, Voter: true, ClientAddr: "10.0.0." + n + ":6379"}
	}
	n := &node{
		Machine: fsm.New(), clients: sessions.New(sessions.Cluster{}),
		status: replica.Status{
			ID: "n1", Name: "n1", Leading: true, Leader: member("1"), Version: protocol.OldestEntryVersion, Term: 3,
			Committed: 42, Applied: 42,
			Members: []replica.Member{member("1"), member("2"), member("3")},
		},
	}
	n.status.Followers = []replica.Follower{
		{Member: n.status.Members[1], LogIndex: 43}, {
			Member: n.status.Members[2], LogIndex: 40,
			Silent: 1200 * time.Millisecond,
		},
	}
	return n
}

func (n *node) Status() replica.Status { return n.status }

func (n *node) Clients() *sessions.Clients { return n.clients }

func newRegistry(n *node) *Registry {
	d := discovery.New(discovery.Config{}, n.Status)
	d.SetLeadership(replica.Leadership{Leader: n.status.Leader, Present: true}, n.status.Members)
	return New(Config{
		Backend: n, Directory: d, Hub: pubsub.New(slog.New(slog.DiscardHandler)),
		Tracking: tracking.New(tracking.DefaultLimits()),
		Commands: []*Command{{Name: "get"}, {Name: "set"}},
		Clients:  func() int { return 0 }, ClientBytes: func() int64 { return 0 }, Address: func(bool) string {
			return "10.0.0.1:6379"
		},
	})
}

// TestMetricsAreNumbers: a counter or gauge has a number and a help, and a row has a single source.
func TestMetricsAreNumbers(t *testing.T) {
	for _, leading := range []bool{true, false} {
		r := newRegistry(newNode()).report()
		r.status.Leading = leading
		for _, section := range sections() {
			for _, m := range section.metrics {
				sources := 0
				for _, there := range []bool{m.value != nil, m.lines != nil, m.counted != nil} {
					if there {
						sources++
					}
				}
				require.Equal(t, 1, sources, m.name)
				require.True(t, m.kind == text || m.help != "", "%s has no help", m.name)
				var line strings.Builder
				m.appendTo(&line, r)
				_, value, found := strings.Cut(strings.TrimSpace(line.String()), ":")
				if m.kind != text && m.lines == nil && found {
					_, err := strconv.ParseFloat(value, 64)
					require.NoError(t, err, m.name)
				}
			}
		}
	}
}

func TestHuman(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0B", 1023: "1023B", 1024: "1.00K", 1536: "1.50K", 5 << 20: "5.00M",
		3 << 40: "3.00T", 5 << 50: "5120.00T",
	} {
		require.Equal(t, want, human(n))
	}
}

// TestResetStatForgetsAll: CONFIG RESETSTAT resets all counters that Redis resets.
func TestResetStatForgetsAll(t *testing.T) {
	r := newRegistry(newNode())
	for _, c := range r.cfg.Commands {
		c.Calls.Add(1)
		c.Rejected.Add(1)
		c.Failed.Add(1)
	}
	r.CountError("ERR x")
	r.Evicted.Add(1)
	r.Blocked.Add(1)
	r.Reset()
	for _, c := range r.cfg.Commands {
		require.Zero(t, c.Calls.Load()+c.Rejected.Load(), c.Name)
		require.Zero(t, c.Failed.Load(), c.Name)
	}
	require.Zero(t, r.Failures.Load()+r.Evicted.Load())
	require.Empty(t, r.errorCounts())
	require.EqualValues(t, 1, r.Blocked.Load(), "these wait still")
}
