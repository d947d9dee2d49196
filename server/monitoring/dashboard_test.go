package monitoring

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// graph is a panel of the dashboard, or, without queries, a heading.
type graph struct {
	title, about string
	unit         string // a unit of Grafana; "" is a number
	width        int    // in 24ths of the page; 0 is a third of the page
	stat         bool   // shows the present value only
	queries      []query
}

// query is a curve. In expr, # stands for the selector of the job, @ for that of the job and the chosen nodes, and ~
// for the interval of a rate.
type query struct{ legend, expr string }

// days is a unit whose values fall below 0 when a certificate has expired.
const days = "d"

var graphs = []graph{
	{title: "The cluster"},
	{stat: true, title: "Nodes that answer", width: 5, queries: []query{{"nodes", "sum(up#)"}}},
	{
		stat: true, title: "Members", width: 5,
		queries: []query{
			{"members", "max(holdfast_raft_members#)"},
		},
	},
	{
		stat: true, title: "Leader", about: "The node that leads.", width: 5,
		queries: []query{
			{"{{instance}}", "holdfast_raft_is_leader# == 1"},
		},
	},
	{
		stat: true, title: "Term", about: "Grows with every election.", width: 5,
		queries: []query{
			{"term", "max(holdfast_raft_term#)"},
		},
	},
	{
		stat: true, title: "Releases", about: "Nodes by what they run.", width: 4,
		queries: []query{
			{"{{version}} {{revision}}", "count by (version, revision) (holdfast_build_info#)"},
		},
	},
	{
		title: "Who leads", about: "1 on the leader.",
		queries: []query{
			{"{{instance}}", "holdfast_raft_is_leader@"},
		},
	},
	{
		title: "Knows a leader", about: "0: commands are answered with CLUSTERDOWN.",
		queries: []query{
			{"{{instance}}", "holdfast_raft_has_leader@"},
		},
	},
	{
		title: "Lag of followers", about: "Committed entries that the follower lacks.",
		queries: []query{
			{"{{follower}}", "holdfast_raft_follower_lag_entries@"},
		},
	},
	{
		title: "Entries", about: "Entries a second that the leader has applied.", unit: "ops",
		queries: []query{
			{"{{instance}}", "rate(holdfast_raft_entry_duration_seconds_count@~)"},
		},
	},
	{
		title: "Append to the log", about: "What an append took until the disk had it.", unit: "s",
		queries: []query{
			{
				"{{instance}} p50",
				"histogram_quantile(0.5, sum by (instance, le) (rate(holdfast_log_sync_duration_seconds_bucket@~)))",
			},
			{
				"{{instance}} p99",
				"histogram_quantile(0.99, sum by (instance, le) (rate(holdfast_log_sync_duration_seconds_bucket@~)))",
			},
		},
	},
	{
		title: "Entry, from proposal until applied", about: "On the leader.", unit: "s",
		queries: []query{
			{
				"{{instance}} p50",
				"histogram_quantile(0.5, sum by (instance, le) (rate(holdfast_raft_entry_duration_seconds_bucket@~)))",
			},
			{
				"{{instance}} p99",
				"histogram_quantile(0.99, sum by (instance, le) (rate(holdfast_raft_entry_duration_seconds_bucket@~)))",
			},
		},
	},
	{title: "Commands"},
	{
		title: "Commands", about: "By name.", unit: "ops",
		queries: []query{
			{"{{command}}", "sum by (command) (rate(holdfast_commands_total@~))"},
		},
	},
	{
		title: "Outcomes", about: "Failed: the reply was an error. Rejected: refused before it ran.",
		unit: "ops",
		queries: []query{
			{"{{outcome}}", "sum by (outcome) (rate(holdfast_commands_total@~))"},
		},
	},
	{
		title: "Errors", about: "By the prefix of the reply.", unit: "ops",
		queries: []query{
			{"{{prefix}}", "sum by (prefix) (rate(holdfast_error_replies_total@~))"},
		},
	},
	{
		title: "Time of commands, p99", about: "From the side of the clients of each node.", unit: "s",
		queries: []query{
			{
				"{{command}}",
				"histogram_quantile(0.99, sum by (command, le) (rate(holdfast_command_duration_seconds_bucket@~)))",
			},
		},
	},
	{
		title: "Clients",
		queries: []query{
			{"{{instance}}", "holdfast_connected_clients@"},
			{"{{instance}} blocked", "holdfast_blocked_clients@"},
		},
	},
	{
		title: "Network", unit: "Bps",
		queries: []query{
			{"{{instance}} in", "rate(holdfast_network_input_bytes_total@~)"},
			{"{{instance}} out", "rate(holdfast_network_output_bytes_total@~)"},
		},
	},
	{title: "Locks"},
	{
		title: "Locks", about: "The same on all nodes.",
		queries: []query{
			{"locks", "max(holdfast_lock_keys#)"},
			{"holds", "max(holdfast_lock_holds#)"},
			{"waiters", "max(holdfast_lock_waiters#)"},
			{"sessions", "max(holdfast_lock_sessions#)"},
		},
	},
	{
		title: "Granted, refused, timed out", unit: "ops",
		queries: []query{
			{"granted", "max(rate(holdfast_lock_grants_total#~))"},
			{"refused", "max(rate(holdfast_lock_refusals_total#~))"},
			{"timed out", "max(rate(holdfast_lock_wait_timeouts_total#~))"},
		},
	},
	{
		title: "Lost", about: "Holds that ended against the holder.", unit: "ops",
		queries: []query{
			{"lease over", "max(rate(holdfast_lock_lost_expired_total#~))"},
			{"session over", "max(rate(holdfast_lock_lost_session_total#~))"},
			{"broken", "max(rate(holdfast_lock_lost_broken_total#~))"},
			{"flushed", "max(rate(holdfast_lock_lost_flushed_total#~))"},
		},
	},
	{
		title: "Waited, p99", about: "Of requests that had to wait.", unit: "s",
		queries: []query{
			{"waited", "histogram_quantile(0.99, max by (le) (rate(holdfast_lock_wait_duration_seconds_bucket#~)))"},
		},
	},
	{
		title: "Held, p99", about: "Of holds that ended.", unit: "s",
		queries: []query{
			{"held", "histogram_quantile(0.99, max by (le) (rate(holdfast_lock_hold_duration_seconds_bucket#~)))"},
		},
	},
	{title: "Keys", queries: []query{{"{{instance}} db{{db}}", "holdfast_keys@"}}},
	{
		title: "Waited more than a second", unit: "ops", width: 6,
		queries: []query{
			{"{{class}} {{kind}}", "max by (class, kind) (increase(holdfast_lock_class_slow_grants_total#~))"},
		},
	},
	{
		title: "Given back late", unit: "ops", width: 6,
		queries: []query{
			{"{{class}} {{kind}}", "max by (class, kind) (increase(holdfast_lock_class_late_releases_total#~))"},
		},
	},
	{
		title: "Given back by who had lost it", unit: "ops", width: 6,
		queries: []query{
			{"{{class}} {{kind}}", "max by (class, kind) (increase(holdfast_lock_class_stale_releases_total#~))"},
		},
	},
	{
		title: "Longest queue", width: 6,
		queries: []query{
			{"{{class}} {{kind}}", "max by (class, kind) (holdfast_lock_class_longest_queue#)"},
		},
	},
	{title: "The process"},
	{
		title: "Keys in memory", unit: "bytes", width: 6,
		queries: []query{
			{"{{instance}}", "holdfast_memory_used_bytes@"},
			{"{{instance}} limit", "holdfast_memory_max_bytes@"},
		},
	},
	{
		title: "Memory of the process", unit: "bytes", width: 6,
		queries: []query{
			{"{{instance}}", "process_resident_memory_bytes@"},
			{"{{instance}} clients", "holdfast_memory_clients_bytes@"},
		},
	},
	{
		title: "CPU", about: "Cores.", width: 6,
		queries: []query{
			{"{{instance}}", "rate(process_cpu_seconds_total@~)"},
		},
	},
	{
		title: "Goroutines, files", width: 6,
		queries: []query{
			{"{{instance}} goroutines", "go_goroutines@"},
			{"{{instance}} files", "process_open_fds@"},
		},
	},
	{
		title: "Days until certificates run out",
		about: "The first to run out of a chain; of a file of authorities the last.",
		unit:  days, width: 12,
		queries: []query{
			{"{{instance}} {{flag}}", "(holdfast_tls_certificate_expiry_timestamp_seconds@ - time()) / 86400"},
		},
	},
	{
		title: "Snapshots that failed", width: 12,
		queries: []query{
			{"{{instance}}", "increase(holdfast_snapshot_failures_total@~)"},
		},
	},
}

// object is a JSON object.
type object map[string]any

var source = object{"type": "prometheus", "uid": "${datasource}"}

// panelsStand is the placeholder for the panels.
const panelsStand = "panels"

// dashboard returns dashboard.json without the panels.
func dashboard() object {
	return object{
		"title": "Holdfast", "uid": "holdfast", "tags": []string{"holdfast"}, "schemaVersion": 39, "version": 1,
		"editable": true, "refresh": "30s", "timezone": "", "time": object{"from": "now-1h", "to": "now"},
		"annotations": object{"list": []any{}}, "links": []any{}, "panels": panelsStand,
		"templating": object{"list": []object{
			{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
			{
				"name": "job", "type": "query", "label": "Job", "datasource": source, "refresh": 2,
				"query":   "label_values(holdfast_build_info, job)",
				"current": object{"text": "holdfast", "value": "holdfast"},
			},
			{
				"name": "instance", "type": "query", "label": "Node", "datasource": source, "refresh": 2,
				"query": `label_values(holdfast_build_info{job="$job"}, instance)`, "multi": true, "includeAll": true,
				"current": object{"text": "All", "value": "$__all"},
			},
		}},
	}
}

// panels places the graphs from left to right, in rows.
func panels() (all []object) {
	x, y, height := 0, 0, 0
	for i, g := range graphs {
		panel := object{"id": i + 1, "type": "timeseries", "title": g.title}
		width, tall := cmp.Or(g.width, 8), 8
		switch {
		case g.queries == nil:
			panel["type"], panel["collapsed"], panel["panels"] = "row", false, []any{}
			width, tall = 24, 1
		case g.stat:
			panel["type"], tall = "stat", 4
		}
		if x+width > 24 {
			x, y = 0, y+height
		}
		panel["gridPos"] = object{"x": x, "y": y, "w": width, "h": tall}
		x, height = x+width, tall
		if g.queries != nil {
			panel["description"], panel["datasource"], panel["targets"] = g.about, source, g.targets()
			defaults := object{"unit": cmp.Or(g.unit, "short"), "min": 0}
			if g.unit == days {
				delete(defaults, "min")
			}
			panel["fieldConfig"] = object{"defaults": defaults, "overrides": []any{}}
		}
		all = append(all, panel)
	}
	return all
}

func (g graph) targets() (all []object) {
	selectors := strings.NewReplacer("#", `{job="$job"}`, "@", `{job="$job",instance=~"$instance"}`,
		"~", "[$__rate_interval]")
	for i, q := range g.queries {
		all = append(all, object{
			"refId": string(rune('A' + i)), "expr": selectors.Replace(q.expr), "legendFormat": q.legend, "datasource": source,
		})
	}
	return all
}

// written returns dashboard.json, with a line for each panel.
func written(t *testing.T) string {
	t.Helper()
	encoded := func(v any, indent string) string {
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", indent)
		require.NoError(t, encoder.Encode(v))
		return strings.TrimSuffix(text.String(), "\n")
	}
	var lines []string
	for _, panel := range panels() {
		lines = append(lines, "  "+encoded(panel, ""))
	}
	all := ": [\n" + strings.Join(lines, ",\n") + "\n ]"
	return strings.Replace(encoded(dashboard(), " "), `: "`+panelsStand+`"`, all, 1) + "\n"
}

// TestDashboardIsOfTheTable shows that dashboard.json is made from the table. -rewrite writes the file.
func TestDashboardIsOfTheTable(t *testing.T) {
	text := written(t)
	require.Equal(t, text, protocoltest.Golden(t, "dashboard.json", text), "make rewrite writes dashboard.json anew")
}
