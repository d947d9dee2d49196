package workload

import (
	"slices"

	"github.com/holdfast/holdfast/bench/internal/proc"
)

// meter reads what the servers, and this process, use while the window is open.
type meter struct {
	pids         []int
	server, last proc.Usage
	self, ended  float64
	err          error
}

func newMeter(e Env) *meter {
	if e.Target.PIDs == nil {
		return &meter{}
	}
	return &meter{pids: e.Target.PIDs()}
}

func (m *meter) begin() {
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
}

// numbers leaves out what could not be read.
func (m *meter) numbers() map[string]float64 {
	n := map[string]float64{"generator_cpu_seconds": m.ended - m.self}
	if len(m.pids) > 0 && m.err == nil {
		n["server_cpu_seconds"] = m.last.CPUSeconds - m.server.CPUSeconds
		n["server_rss_bytes_max"] = float64(slices.Max(m.last.RSSBytes))
	}
	return n
}
