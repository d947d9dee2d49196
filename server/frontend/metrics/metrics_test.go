package metrics

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
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

// metricsDocument returns the text of METRICS.md.
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
	got := metricsDocument()
	require.Equal(t, protocoltest.Golden(t, "../../METRICS.md", got), got, "run 'make rewrite' and look at the change")
}

// node is a Backend that leads a cluster of three, with an empty state.
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

// TestMetricsAreNumbers shows that a counter or gauge has a number and a help text, and that each row has a single
// source.
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

// TestResetStatForgetsAll shows that CONFIG RESETSTAT resets all counters that Redis resets, and not the number of
// blocked clients.
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

// TestStepsAreRedis shows that the buckets of LATENCY HISTOGRAM have Redis's limits.
func TestStepsAreRedis(t *testing.T) {
	var micros []uint64
	for i := range timeSteps {
		micros = append(micros, stepLimit(i)/1000)
	}
	require.Equal(t, []uint64{
		1, 2, 4, 8, 16, 33, 66, 132, 264, 528, 1056, 2113, 4227, 8454, 16908, 33816, 67633, 135266, 270532, 541065,
	}, micros[:20])
}

// TestStepsHoldTimes shows that a time is counted in the lowest step that holds it, and that the limit of its fine step
// is above it by a sixteenth at most.
func TestStepsHoldTimes(t *testing.T) {
	times := []uint64{0, 1, 15, 16, 17, 31, 32, 1000, 1023, 1024, 1031, 1032, 16511, 16512, 1 << 40}
	for range 1000 {
		times = append(times, rand.Uint64()>>(24+rand.IntN(40)))
	}
	for _, nanos := range times {
		i := stepOf(nanos)
		require.True(t, nanos <= stepLimit(i) || i == timeSteps-1, nanos)
		require.True(t, i == 0 || nanos > stepLimit(i-1), nanos)
		limit := fineLimit(fineOf(nanos))
		if nanos < 1<<36 {
			require.GreaterOrEqual(t, limit, nanos)
			require.LessOrEqual(t, limit, nanos+nanos/16, nanos)
		}
	}
}

func TestPercentiles(t *testing.T) {
	r := &Command{Name: "x"}
	for i := range 1000 {
		r.Took(time.Duration(i+1) * time.Microsecond)
	}
	require.EqualValues(t, 500_500, r.micros())
	p := r.times.Load().percentiles(50, 99, 99.9)
	require.Equal(t, []string{"507.903", "1015.807", "1015.807"}, p)
}

// TestTimesBesideAReset records times while others reset the counters, for the race detector.
func TestTimesBesideAReset(t *testing.T) {
	var r Command
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50_000 {
				r.Took(time.Microsecond)
				r.times.Store(nil)
			}
		})
	}
	all.Wait()
}

// TestRates shows that the rates of INFO are averages over the last 1.6 seconds, whenever INFO is sent.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRegistry(newNode())
		shown := func() string {
			s.NoteRates(time.Now()) // as INFO does
			r := s.perSecond(time.Now())
			return fmt.Sprintf("%.0f %.0f %.0f", r.commands, r.in, r.out)
		}
		// A command has 34 bytes, and its reply 5.
		set := func() {
			s.BytesIn.Add(34)
			s.NoteRates(time.Now())
			s.BytesOut.Add(5)
			s.Commands.Add(1)
		}
		steady := func(d time.Duration) {
			for range d / (10 * time.Millisecond) {
				set()
				time.Sleep(10 * time.Millisecond)
			}
		}
		require.Equal(t, "0 0 0", shown())
		time.Sleep(5 * time.Second)
		require.Equal(t, "0 0 0", shown())

		steady(3 * time.Second)
		require.Equal(t, "100 3379 500", shown())
		time.Sleep(800 * time.Millisecond)
		require.Equal(t, "50 1679 250", shown())
		time.Sleep(10 * time.Second)
		require.Equal(t, "0 0 0", shown())

		// An earlier burst is not in the rates, even if nothing was counted since.
		burst := func() {
			for range 1000 {
				set()
			}
		}
		burst()
		time.Sleep(time.Second)
		require.Equal(t, "625 21250 3125", shown())
		time.Sleep(10 * time.Second)
		burst()
		time.Sleep(10 * time.Second)
		require.Equal(t, "0 0 0", shown())

		steady(3 * time.Second)
		s.Reset()
		require.Equal(t, "0 0 0", shown())
		steady(800 * time.Millisecond)
		require.Equal(t, "50 1700 250", shown())
		steady(2 * time.Second)
		require.Equal(t, "100 3379 500", shown())
	})
}

// registry returns a registry with the metrics of s.
func registry(t *testing.T, s *Registry) prometheus.Gatherer {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(s.Collector()))
	return r
}

// gather scrapes s, and returns for each family the values by their labels.
func gather(t *testing.T, s *Registry) map[string]map[string]float64 {
	t.Helper()
	families, err := registry(t, s).Gather()
	require.NoError(t, err)
	found := make(map[string]map[string]float64)
	for _, f := range families {
		values := make(map[string]float64)
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			values[strings.Join(labels, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		found[f.GetName()] = values
	}
	return found
}

// TestPrometheusNames shows that every number of INFO has a name that Prometheus's linter accepts, or is left out on
// purpose.
func TestPrometheusNames(t *testing.T) {
	s := newRegistry(newNode())
	problems, err := testutil.CollectAndLint(s.Collector())
	require.NoError(t, err)
	require.Empty(t, problems)
	rows, names := make(map[string]bool), make(map[string]string)
	for _, section := range sections() {
		for _, m := range section.metrics {
			rows[m.name] = true
			if name := m.promName(); name != "" {
				require.Empty(t, names[name], "%s and %s are both called %s", names[name], m.name, name)
				names[name] = m.name
			} else if m.help != "" && m.kind != text && m.lines == nil {
				left, is := promNames[m.name]
				require.True(t, is && left == "", m.name)
			}
		}
	}
	for row := range promNames {
		require.True(t, rows[row], "%s is no line of INFO", row)
	}
	families, err := registry(t, s).Gather()
	require.NoError(t, err)
	kinds := make(map[string]string)
	for _, f := range families {
		kinds[f.GetName()] = f.GetType().String()
	}
	for name, want := range map[string]string{
		"holdfast_raft_term": "GAUGE", "holdfast_raft_is_leader": "GAUGE",
		"holdfast_raft_commit_index": "GAUGE", "holdfast_raft_applied_index": "GAUGE",
		"holdfast_connected_clients": "GAUGE", "holdfast_memory_used_bytes": "GAUGE",
		"holdfast_connections_received_total": "COUNTER", "holdfast_expired_keys_total": "COUNTER",
		"holdfast_error_replies_total": "COUNTER",
	} {
		require.Equal(t, want, kinds[name], name)
	}
}

// TestPrometheusCountsFromZero shows that the error prefixes in alerts.yaml are exported before the first error.
func TestPrometheusCountsFromZero(t *testing.T) {
	rules := protocoltest.ReadFile(t, filepath.Join("..", "..", "monitoring", "alerts.yaml"))
	named := regexp.MustCompile(`prefix="(\w+)"`).FindAllStringSubmatch(rules, -1)
	require.NotEmpty(t, named)
	for _, m := range named {
		require.Contains(t, alarming, m[1])
	}
}

// TestPrometheusHistogram shows that a bucket counts the times up to its limit, inclusive.
func TestPrometheusHistogram(t *testing.T) {
	r := &Command{}
	for _, nanos := range []int{1, 1031, 1032, 20_000, 1 << 62} {
		r.Took(time.Duration(nanos))
	}
	count, _, buckets := r.times.Load().histogram()
	require.Equal(t, uint64(5), count)
	require.Equal(t, uint64(2), buckets[1031e-9])
	require.Equal(t, uint64(3), buckets[4127e-9])
	require.Equal(t, uint64(4), buckets[66047e-9])
}

// TestPrometheusFollowers shows that the leader exports the lag of each other member, including a silent one, and that
// a follower exports none.
func TestPrometheusFollowers(t *testing.T) {
	n := newNode()
	n.status.Members[1].LogIndex, n.status.Members[2].LogIndex = 43, 40
	n.status.Followers = n.status.Followers[1:] // only n3 answers
	s := newRegistry(n)
	found := gather(t, s)
	require.Equal(t, map[string]float64{"n2": 0, "n3": 2}, found["holdfast_raft_follower_lag_entries"])
	require.Equal(t, map[string]float64{"n2": 0, "n3": 1}, found["holdfast_raft_follower_up"])
	require.Equal(t, map[string]float64{"n3": 1.2}, found["holdfast_raft_follower_silence_seconds"])
	require.Equal(t, map[string]float64{"": 1}, found["holdfast_raft_has_leader"])
	n.status.Leading, n.status.Leader = false, n.status.Members[1]
	found = gather(t, s)
	require.Nil(t, found["holdfast_raft_follower_lag_entries"])
	require.Equal(t, map[string]float64{"": 1}, found["holdfast_raft_has_leader"])
}
