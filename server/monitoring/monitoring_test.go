// Package monitoring has no code: its files are for Prometheus and Grafana.
package monitoring

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// counted matches the names of metrics that only grow.
var counted = regexp.MustCompile(`_(total|bucket|count|sum)$`)

// known returns the labels of each metric of METRICS.md, by each name that queries use for it.
func known(t *testing.T) map[string][]string {
	t.Helper()
	document := protocoltest.ReadFile(t, "METRICS.md")
	metrics := map[string][]string{
		"up": {}, "process_open_fds": {}, "process_max_fds": {}, "process_start_time_seconds": {},
		"process_cpu_seconds_total": {}, "process_resident_memory_bytes": {}, "go_goroutines": {},
	}
	row := regexp.MustCompile("(?m)^\\| `(holdfast_[a-z_]+)` \\| (\\w+) \\| ([^|]*) \\|")
	for _, m := range row.FindAllStringSubmatch(document, -1) {
		labels := strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' })
		if m[2] == "histogram" {
			metrics[m[1]+"_bucket"] = append(labels, "le")
			metrics[m[1]+"_sum"], metrics[m[1]+"_count"] = labels, labels
			continue
		}
		metrics[m[1]] = labels
	}
	require.Greater(t, len(metrics), 60)
	return metrics
}

var (
	selector = regexp.MustCompile(`\b((?:holdfast|go|process)_\w+|up)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`^(\w+)(=|=~)"([^"]*)"$`)
	grouping = regexp.MustCompile(`by \(([^)]*)\)`)
	function = regexp.MustCompile(`([a-z_]+)\s*\(`)
)

// checkQuery requires that the metrics, labels and functions of a query exist.
func checkQuery(t *testing.T, metrics map[string][]string, query string) {
	t.Helper()
	require.Equal(t, strings.Count(query, "("), strings.Count(query, ")"), query)
	require.Equal(t, strings.Count(query, "{"), strings.Count(query, "}"), query)
	labels := []string{"job", "instance"}
	found := selector.FindAllStringSubmatch(query, -1)
	require.NotEmpty(t, found, query)
	for _, m := range found {
		has, is := metrics[m[1]]
		require.True(t, is, "%s: no metric is called %s", query, m[1])
		labels = append(labels, has...)
		require.NotEmpty(t, m[2], "%s: %s is not held to its job", query, m[1])
		for _, one := range strings.Split(m[2], ",") {
			parts := matcher.FindStringSubmatch(one)
			require.NotNil(t, parts, "%s: %s", query, one)
			require.Contains(t, append([]string{"job", "instance"}, has...), parts[1], query)
		}
		grows := regexp.MustCompile(`(rate|increase)\(` + regexp.QuoteMeta(m[0])).MatchString(query)
		require.Equal(t, counted.MatchString(m[1]), grows,
			"%s: a counter alone says nothing, and what falls has no rate: %s", query, m[1])
	}
	for _, m := range grouping.FindAllStringSubmatch(query, -1) {
		for _, label := range strings.Split(m[1], ", ") {
			require.Contains(t, labels, label, query)
		}
	}
	for _, m := range function.FindAllStringSubmatch(query, -1) {
		require.Contains(t, []string{
			"sum", "min", "max", "max_over_time", "on", "rate", "increase", "floor", "histogram_quantile", "time", "by", "and",
			"absent", "count",
		}, m[1], query)
	}
}

// TestAlerts shows that Prometheus can read the rules, that their metrics exist, and that ALERTS.md has a section for
// each alert. -rewrite sets the links to the sections to this release.
func TestAlerts(t *testing.T) {
	release := "/blob/v" + protocol.HoldfastVersion + "/"
	for _, file := range []string{"alerts.yaml", "alerts_test.yaml"} {
		text := protocoltest.ReadFile(t, file)
		if protocoltest.Rewriting() {
			text = regexp.MustCompile(`/blob/v[^/]+/`).ReplaceAllLiteralString(text, release)
			require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		}
	}
	text := protocoltest.ReadFile(t, "alerts.yaml")
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&file))
	runbook := protocoltest.ReadFile(t, "../operating/ALERTS.md")
	metrics, names := known(t), []string{}
	for _, group := range file.Groups {
		for _, r := range group.Rules {
			require.NotContains(t, names, r.Alert)
			names = append(names, r.Alert)
			checkQuery(t, metrics, r.Expr)
			if r.For != "" {
				_, err := time.ParseDuration(r.For)
				require.NoError(t, err, r.Alert)
			}
			require.Contains(t, []string{"critical", "warning", "info"}, r.Labels["severity"], r.Alert)
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			require.Contains(t, runbook, "\n## "+r.Alert+"\n", "ALERTS.md says nothing of %s", r.Alert)
			require.Equal(t, "https://github.com/holdfast/holdfast/blob/v"+protocol.HoldfastVersion+
				"/server/operating/ALERTS.md#"+strings.ToLower(r.Alert), r.Annotations["runbook_url"])
		}
	}
	require.Greater(t, len(names), 15)
	for _, m := range regexp.MustCompile(`(?m)^## (Holdfast\w+)$`).FindAllStringSubmatch(runbook, -1) {
		require.Contains(t, names, m[1], "ALERTS.md has an alert that there is not")
	}
}

type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ H, W, X, Y int }
	Targets []struct{ Expr, RefID string }
}

// TestDashboard shows that the dashboard is valid JSON, that its panels do not overlap, and that its metrics exist.
func TestDashboard(t *testing.T) {
	text := protocoltest.ReadFile(t, "dashboard.json")
	var d struct {
		UID, Title string
		Panels     []panel
		Templating struct {
			List []struct{ Name, Query string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	require.Equal(t, "holdfast", d.UID)
	metrics := known(t)
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
		for _, m := range selector.FindAllStringSubmatch(v.Query, -1) {
			require.Contains(t, metrics, m[1])
		}
	}
	variables = append(variables, "__rate_interval")
	for _, m := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(text, -1) {
		if m[1] != "__all" {
			require.Contains(t, variables, m[1])
		}
	}
	taken := make(map[[2]int]string)
	var ids []int
	queries := 0
	for _, p := range d.Panels {
		require.False(t, slices.Contains(ids, p.ID), p.Title)
		ids = append(ids, p.ID)
		g := p.GridPos
		require.LessOrEqual(t, g.X+g.W, 24, p.Title)
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				require.Empty(t, taken[[2]int{x, y}], p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
		require.True(t, p.Type == "row" || len(p.Targets) > 0, p.Title)
		for _, target := range p.Targets {
			checkQuery(t, metrics, target.Expr)
			queries++
		}
	}
	require.Greater(t, queries, 30)
}
