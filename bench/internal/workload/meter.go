package workload

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/bench/internal/proc"
	"github.com/holdfast/holdfast/bench/internal/resp"
	"github.com/holdfast/holdfast/bench/internal/target"
)

// meter measures the resources that the servers and this process use within the window.
type meter struct {
	entries func() (float64, bool) // of the log, so far

	firstEntry, lastEntry float64
	counted               bool

	pids         []int
	leader       int // index of the leader's process; -1 if unknown
	server, last proc.Usage
	self, ended  float64
	err          error
}

func newMeter(e Env) *meter {
	m := &meter{entries: func() (float64, bool) { return logEntries(e.Target) }, leader: -1}
	if e.Target.PIDs != nil {
		m.pids = e.Target.PIDs()
	}
	// With a known log every process is a node.
	if _, counted := m.entries(); counted && len(m.pids) == len(e.Target.Addrs) {
		if addr, err := e.Target.Leader(context.Background()); err == nil {
			m.leader = slices.Index(e.Target.Addrs, addr)
		}
	}
	return m
}

// logEntries returns the number of committed entries of the log so far, or false for targets without a known log.
func logEntries(t target.Target) (float64, bool) {
	if t.Kind != target.RESP || t.Via == target.ViaRedlock || len(t.Addrs) < 3 {
		return 0, false
	}
	info, err := resp.Ask(context.Background(), t.Addrs[0], infoTimeout, "INFO")
	if err != nil {
		return 0, false
	}
	_, rest, ok := strings.Cut(info.Str, "raft_commit_index:")
	line, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.ParseFloat(line, 64)
	return n, ok && err == nil
}

func (m *meter) begin() {
	m.firstEntry, m.counted = m.entries()
	m.server, m.err = proc.Read(m.pids...)
	m.self, _ = proc.Self()
}

func (m *meter) end() {
	u, err := proc.Read(m.pids...)
	if m.err == nil {
		m.err = err
	}
	m.last = u
	m.ended, _ = proc.Self()
	if m.counted {
		m.lastEntry, m.counted = m.entries()
	}
}

// numbers returns the figures of the window. It omits those that could not be read.
func (m *meter) numbers() map[string]float64 {
	n := map[string]float64{"generator_cpu_seconds": m.ended - m.self}
	if len(m.pids) > 0 && m.err == nil {
		n["server_cpu_seconds"] = m.last.CPUSeconds - m.server.CPUSeconds
		n["server_rss_bytes_max"] = float64(slices.Max(m.last.RSSBytes))
		m.byRole(n)
	}
	if m.counted {
		n["log_entries"] = m.lastEntry - m.firstEntry
	}
	return n
}

// byRole adds the leader's usage and the followers' mean.
func (m *meter) byRole(n map[string]float64) {
	if m.leader < 0 {
		return
	}
	followers := float64(len(m.pids) - 1)
	for i, last := range m.last.Each {
		first := m.server.Each[i]
		cpu := last.CPUSeconds - first.CPUSeconds
		if i == m.leader {
			n["leader_cpu_seconds"] = cpu
			continue
		}
		n["follower_cpu_seconds"] += cpu / followers
		n["follower_read_bytes"] += float64(last.ReadBytes-first.ReadBytes) / followers
		n["follower_written_bytes"] += float64(last.WrittenBytes-first.WrittenBytes) / followers
	}
}

// each adds the cost of one step, and the ratio of the longest to the mean.
func (f *Figures) each(step string) {
	s := f.Steps[step]
	count := s.PerSecond * f.Numbers["window_seconds"]
	if entries, ok := f.Numbers["log_entries"]; ok && count > 0 {
		f.Numbers["log_entries_each"] = entries / count
	}
	if s.MeanMicros > 0 {
		f.Numbers["longest_by_mean"] = s.MaxMicros / s.MeanMicros
	}
}
