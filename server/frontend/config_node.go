package frontend

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/holdfast/holdfast/protocol"
)

// nodeSetting is a setting that CONFIG SET changes on this node alone, until the node ends: about what the
// node remembers of slow commands.
type nodeSetting struct {
	name  string
	least int64
	value *atomic.Int64
}

func (s *Server) nodeSettings() []nodeSetting {
	return []nodeSetting{
		{"latency-monitor-threshold", 0, &s.slow.MonitorMillis},
		{"slowlog-log-slower-than", -1, &s.slow.AboveMicros},
		{"slowlog-max-len", 0, &s.slow.MostEntries},
	}
}

// nodeSetting finds a setting of this node by name.
func (s *Server) nodeSetting(name string) (set nodeSetting, ok bool) {
	for _, set := range s.nodeSettings() {
		if strings.EqualFold(set.name, name) {
			return set, true
		}
	}
	return set, false
}

// parse reads a value. why says what is wrong with the value, in Redis's words; empty: nothing.
func (n nodeSetting) parse(value string) (v int64, why string) {
	v, ok := protocol.ParseInt(value)
	switch {
	case !ok:
		return 0, "argument couldn't be parsed into an integer"
	case v < n.least:
		return 0, fmt.Sprintf("argument must be between %d and %d inclusive", n.least, int64(math.MaxInt64))
	}
	return v, ""
}

// shownNodeSettings are rows of CONFIG GET.
func (s *Server) shownNodeSettings() (rows []Setting) {
	for _, set := range s.nodeSettings() {
		rows = append(rows, Setting{set.name, strconv.FormatInt(set.value.Load(), 10)})
	}
	return append(rows, Setting{"latency-tracking", "yes"}, Setting{"latency-tracking-info-percentiles", "50 99 99.9"})
}
