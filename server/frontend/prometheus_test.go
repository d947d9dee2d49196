package frontend

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// registry returns a registry with the metrics of s.
func registry(t *testing.T, s *Server) prometheus.Gatherer {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(s.Metrics().Collector()))
	return r
}

// gather scrapes s, and returns for each family the values by their labels.
func gather(t *testing.T, s *Server) map[string]map[string]float64 {
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

// TestPrometheusCommands shows that calls are counted by name and outcome, with their durations, and errors by prefix.
// An error with a prefix of a script counts as "other". No label has a key.
func TestPrometheusCommands(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
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
		}, found["holdfast_commands_total"])
		require.Equal(t, map[string]float64{"ERR": 1, "WRONGTYPE": 1, "other": 1, "OOM": 0, "TRYAGAIN": 0, "UNCERTAIN": 0},
			found["holdfast_error_replies_total"])
		require.Len(t, found["holdfast_command_duration_seconds"], 3)
		families, err := registry(t, s.Server).Gather()
		require.NoError(t, err)
		for _, f := range families {
			require.NotContains(t, f.String(), "secret")
			if f.GetName() != "holdfast_command_duration_seconds" {
				continue
			}
			for _, m := range f.GetMetric() {
				require.Positive(t, m.GetHistogram().GetSampleCount())
				require.Len(t, m.GetHistogram().GetBucket(), 14)
			}
		}
	})
}

// TestPrometheusLockClasses shows that locks are counted by class and kind, and that each series exists from the start,
// with 0.
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
			require.Equal(t, want, found["holdfast_lock_class_"+name], name)
		}
		require.Equal(t, map[string]float64{"": 1}, found["holdfast_lock_stock_keys"])
	})
}
