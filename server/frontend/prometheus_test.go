package frontend

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

// gather is a scrape: the families by name.
func gather(t *testing.T, s *Server) map[string]*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(s.Metrics().Collector()))
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

// TestPrometheusCommands: calls are counted by name and outcome, with how long they took; errors by their prefix,
// unless a script made it up; and no label is a key.
func TestPrometheusCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{}, newCluster())
		c := s.dial()
		for _, line := range []string{
			"SET secret v", "SET secret v", "HGET secret f", "SET secret",
			"EVAL \"return redis.error_reply('secret is held')\" 0",
		} {
			c.send([]byte(line + "\r\n"))
			synctest.Wait()
		}
		found := gather(t, s.Server)
		require.Equal(t, map[string]float64{
			"set ok": 2, "set failed": 0, "set rejected": 1, "hget ok": 0, "hget failed": 1, "hget rejected": 0,
			"eval ok": 0, "eval failed": 1, "eval rejected": 0,
		}, series(found["holdfast_commands_total"]))
		require.Equal(t, map[string]float64{"ERR": 1, "WRONGTYPE": 1, "other": 1, "OOM": 0, "TRYAGAIN": 0, "UNCERTAIN": 0},
			series(found["holdfast_error_replies_total"]))
		for _, m := range found["holdfast_command_duration_seconds"].GetMetric() {
			h := m.GetHistogram()
			require.Positive(t, h.GetSampleCount())
			require.Len(t, h.GetBucket(), 14)
		}
		for name, f := range found {
			require.NotContains(t, f.String(), "secret", name)
		}
		s.stop()
	})
}

// TestPrometheusLockClasses: locks are counted by class and kind, and each series is there from 0 on.
func TestPrometheusLockClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := newCluster()
		cl.machine.ClassifyLocks([]string{"jobs:*"})
		s := start(t, Config{}, cl)
		c, other := s.dial(), s.dial()
		require.Equal(t, "+OK\r\n", answer(c, "SET", "jobs:1", "t", "NX", "PX", "1000"))
		require.Equal(t, "$-1\r\n", answer(other, "SET", "jobs:1", "u", "NX", "PX", "1000"))
		require.Equal(t, "$-1\r\n", answer(other, "SET", "jobs:1", "u", "NX", "PX", "1000"))
		require.Equal(t, ":1\r\n", answer(c, "LOCK.ACQUIRE", "native", "me", "PX", "1000"))
		found := gather(t, s.Server)
		zero := map[string]float64{"jobs:* native": 0, "jobs:* stock": 0, "other native": 0, "other stock": 0}
		for name, want := range map[string]map[string]float64{
			"grants_total":         {"jobs:* native": 0, "jobs:* stock": 1, "other native": 1, "other stock": 0},
			"refusals_total":       {"jobs:* native": 0, "jobs:* stock": 2, "other native": 0, "other stock": 0},
			"longest_queue":        {"jobs:* native": 0, "jobs:* stock": 1, "other native": 0, "other stock": 0},
			"slow_grants_total":    zero,
			"releases_total":       zero,
			"late_releases_total":  zero,
			"expired_total":        zero,
			"stale_releases_total": zero,
		} {
			require.Equal(t, want, series(found["holdfast_lock_class_"+name]), name)
		}
		require.Equal(t, map[string]float64{"": 1}, series(found["holdfast_lock_stock_keys"]))
	})
}
