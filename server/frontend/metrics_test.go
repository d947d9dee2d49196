package frontend

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// metricsDocument is ../METRICS.md.
func metricsDocument() string {
	var b strings.Builder
	b.WriteString(`# Metrics

Made by ` + "`make rewrite`" + ` from the rows of [metrics.go](frontend/metrics.go). Each row is a line of INFO. The section
Commandstats is in INFO commandstats and INFO all only. A counter grows from the start of the process, or from CONFIG
RESETSTAT; a gauge rises and falls.
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
	const path = "../METRICS.md"
	if protocoltest.Rewriting() {
		require.NoError(t, os.WriteFile(path, []byte(metricsDocument()), 0o644))
		return
	}
	there, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(there), metricsDocument(), "run 'make rewrite' and look at the change")
}

// TestMetricsAreNumbers: a counter or gauge has a number and a help, and a row has a single source.
func TestMetricsAreNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{}, newCluster())
		for _, leading := range []bool{true, false} {
			r := &report{srv: s.Server, status: s.backend.Status()}
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
		s.stop()
	})
}
