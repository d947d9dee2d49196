package metrics

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

// gather is a scrape: the families by name.
func gather(t *testing.T, s *Registry) map[string]*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(s.Collector()))
	families, err := r.Gather()
	require.NoError(t, err)
	found := make(map[string]*dto.MetricFamily)
	for _, f := range families {
		found[f.GetName()] = f
	}
	return found
}

// series are the values of a family, by the values of the labels.
func series(f *dto.MetricFamily) map[string]float64 {
	values := make(map[string]float64)
	for _, m := range f.GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetValue())
		}
		values[strings.Join(labels, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return values
}

// TestPrometheusNames: every number of INFO has a name that Prometheus's linter accepts, or is left out on purpose.
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
	found := gather(t, s)
	for name, want := range map[string]dto.MetricType{
		"holdfast_raft_term": dto.MetricType_GAUGE, "holdfast_raft_is_leader": dto.MetricType_GAUGE,
		"holdfast_raft_commit_index": dto.MetricType_GAUGE, "holdfast_raft_applied_index": dto.MetricType_GAUGE,
		"holdfast_connected_clients": dto.MetricType_GAUGE, "holdfast_memory_used_bytes": dto.MetricType_GAUGE,
		"holdfast_connections_received_total": dto.MetricType_COUNTER, "holdfast_expired_keys_total": dto.MetricType_COUNTER,
		"holdfast_error_replies_total": dto.MetricType_COUNTER,
	} {
		require.NotNil(t, found[name], name)
		require.Equal(t, want, found[name].GetType(), name)
	}
}

// TestPrometheusCountsFromZero: what an alert looks for is there before the first error.
func TestPrometheusCountsFromZero(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join("..", "..", "monitoring", "alerts.yaml"))
	require.NoError(t, err)
	named := regexp.MustCompile(`prefix="(\w+)"`).FindAllStringSubmatch(string(rules), -1)
	require.NotEmpty(t, named)
	for _, m := range named {
		require.Contains(t, alarming, m[1])
	}
}

// TestPrometheusHistogram: a bucket counts what took no longer than its limit.
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

// TestPrometheusFollowers: the leader says how far each other member is, also one that is silent; a follower does not.
func TestPrometheusFollowers(t *testing.T) {
	n := newNode()
	n.status.Members[1].LogIndex, n.status.Members[2].LogIndex = 43, 40
	n.status.Followers = n.status.Followers[1:] // n3 answers
	s := newRegistry(n)
	found := gather(t, s)
	require.Equal(t, map[string]float64{"n2": 0, "n3": 2}, series(found["holdfast_raft_follower_lag_entries"]))
	require.Equal(t, map[string]float64{"n2": 0, "n3": 1}, series(found["holdfast_raft_follower_up"]))
	require.Equal(t, map[string]float64{"n3": 1.2}, series(found["holdfast_raft_follower_silence_seconds"]))
	require.Equal(t, map[string]float64{"": 1}, series(found["holdfast_raft_has_leader"]))
	n.status.Leading, n.status.Leader = false, n.status.Members[1]
	found = gather(t, s)
	require.Nil(t, found["holdfast_raft_follower_lag_entries"])
	require.Equal(t, map[string]float64{"": 1}, series(found["holdfast_raft_has_leader"]))
}
