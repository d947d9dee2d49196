package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"go.yaml.in/yaml/v3"
)

// TestPromtool shows that promtool accepts the rules and the queries of the dashboard, and that alerts_test.yaml
// passes. check.sh provides promtool.
func TestPromtool(t *testing.T) {
	tool := os.Getenv("HOLDFAST_PROMTOOL")
	if tool == "" {
		t.Skip("HOLDFAST_PROMTOOL does not name promtool: see check.sh")
	}
	promtool := func(args ...string) {
		t.Helper()
		out, err := exec.Command(tool, args...).CombinedOutput()
		require.NoError(t, err, "promtool %v:\n%s", args, out)
	}
	promtool("check", "rules", "alerts.yaml")
	promtool("test", "rules", "alerts_test.yaml")

	// The example of scrape_configs is in a comment.
	rulesText := protocoltest.ReadFile(t, "alerts.yaml")
	_, example, _ := strings.Cut(rulesText, "#\n")
	example, _, _ = strings.Cut(example, "\n#\n")
	example = regexp.MustCompile("(?m)^# +?").ReplaceAllString(example, "")
	config := filepath.Join(t.TempDir(), "prometheus.yaml")
	require.NoError(t, os.WriteFile(config, []byte(example), 0o600))
	promtool("check", "config", "--syntax-only", config)

	// Each query of the dashboard becomes a rule, with values in place of Grafana's variables.
	text := protocoltest.ReadFile(t, "dashboard.json")
	var d struct{ Panels []panel }
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	fill := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*", "$job", "holdfast", "$node", ".*")
	type rule struct{ Record, Expr string }
	var rules []rule
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			rules = append(rules, rule{
				fmt.Sprintf("dashboard:%d:%s", p.ID, strings.ToLower(target.RefID)),
				fill.Replace(target.Expr),
			})
		}
	}
	require.Greater(t, len(rules), 30)
	file, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "dashboard.yaml")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	promtool("check", "rules", path)
}

// TestAlertsHaveTests shows that alerts_test.yaml has a case in which each alert fires and one in which it does not,
// and no other alerts.
func TestAlertsHaveTests(t *testing.T) {
	rules := protocoltest.ReadFile(t, "alerts.yaml")
	text := protocoltest.ReadFile(t, "alerts_test.yaml")
	var file struct {
		Tests []struct {
			Alerts []struct {
				Name string `yaml:"alertname"`
				Exp  []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(text), &file))
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, a := range test.Alerts {
			if len(a.Exp) > 0 {
				fires[a.Name] = true
			} else {
				silent[a.Name] = true
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(rules, -1) {
		require.True(t, fires[m[1]], "no test sees %s fire", m[1])
		require.True(t, silent[m[1]], "no test sees %s silent", m[1])
		delete(fires, m[1])
		delete(silent, m[1])
	}
	require.Empty(t, fires)
	require.Empty(t, silent)
}
