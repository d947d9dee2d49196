package metrics

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	gometrics "runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/frontend/discovery"
	"github.com/holdfast/holdfast/server/replica"
)

// Info returns the reply to INFO [section …]. sentinel is set on the port for Sentinel's clients.
func (g *Registry) Info(names [][]byte, sentinel bool) protocol.Value {
	r := g.report()
	r.sentinel = sentinel
	var b strings.Builder
	for _, s := range sections() {
		if !onPort(s.name, r.sentinel) || !wantsSection(names, s) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("# " + s.name + "\r\n")
		for _, m := range s.metrics {
			m.appendTo(&b, r)
		}
	}
	return protocol.Verbatim(b.String())
}

// onPort reports whether a port shows a section. As at a Sentinel, the port for Sentinel's clients shows few.
func onPort(section string, sentinel bool) bool {
	switch section {
	case "Server", "Clients", "Stats", "CPU":
		return true
	case "Sentinel":
		return sentinel
	}
	return !sentinel
}

func wantsSection(asked [][]byte, s section) bool {
	if len(asked) == 0 {
		return !s.extra
	}
	for _, w := range asked {
		switch name := strings.ToLower(string(w)); {
		case name == "all", name == "everything", name == strings.ToLower(s.name):
			return true
		case name == "default" && !s.extra:
			return true
		}
	}
	return false
}

// appendTo writes the metric's line, or its lines.
func (m metric) appendTo(b *strings.Builder, r *report) {
	switch {
	case m.lines != nil:
		for _, line := range m.lines(r) {
			b.WriteString(line + "\r\n")
		}
	case m.counted != nil:
		fmt.Fprintf(b, "%s:%d\r\n", m.name, m.counted(&r.Counters).Load())
	default:
		if value := m.value(r); value != nil {
			fmt.Fprintf(b, "%s:%v\r\n", m.name, value)
		}
	}
}

// report is the source of the lines of one INFO reply. Expensive values are computed once, by the first line that needs
// them.
type report struct {
	*Registry
	sentinel   bool // on the port for Sentinel's clients
	status     replica.Status
	stateStats *fsm.Stats
	lockStats  *fsm.LockStats
	heapStats  *heapStats
	rateStats  *rateStats
}

func (g *Registry) report() *report { return &report{Registry: g, status: g.cfg.Backend.Status()} }

// state returns the statistics of the state machine.
func (r *report) state() *fsm.Stats {
	if r.stateStats == nil {
		s := r.cfg.Backend.Stats()
		r.stateStats = &s
	}
	return r.stateStats
}

// heapStats is memory in bytes, as Go's runtime reports it.
type heapStats struct{ objects, mapped uint64 }

func (r *report) heap() *heapStats {
	if r.heapStats == nil {
		samples := []gometrics.Sample{
			{Name: "/memory/classes/heap/objects:bytes"},
			{Name: "/memory/classes/total:bytes"},
			{Name: "/memory/classes/heap/released:bytes"},
		}
		gometrics.Read(samples)
		r.heapStats = &heapStats{samples[0].Value.Uint64(), samples[1].Value.Uint64() - samples[2].Value.Uint64()}
	}
	return r.heapStats
}

func (r *report) rates() *rateStats {
	if r.rateStats == nil {
		rates := r.perSecond(time.Now())
		r.rateStats = &rates
	}
	return r.rateStats
}

func human(n uint64) string {
	units := []string{"K", "M", "G", "T"}
	if n < 1024 {
		return strconv.FormatUint(n, 10) + "B"
	}
	f, unit := float64(n)/1024, 0
	for f >= 1024 && unit < len(units)-1 {
		f, unit = f/1024, unit+1
	}
	return strconv.FormatFloat(f, 'f', 2, 64) + units[unit]
}

// microseconds formats seconds with six digits.
func microseconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 6, 64) }

func (r *report) leading() any { return oneIf(r.status.Leading) }

func oneIf(yes bool) any {
	if yes {
		return 1
	}
	return 0
}

func (r *report) master() bool { return r.cfg.Directory.Master(&r.status) }

// ofMaster and ofSlave leave a line out on nodes of the other role.
func ofMaster(value func(*report) any) func(*report) any {
	return func(r *report) any {
		if !r.master() {
			return nil
		}
		return value(r)
	}
}

func ofSlave(value func(*report) any) func(*report) any {
	return func(r *report) any {
		if r.master() {
			return nil
		}
		return value(r)
	}
}

func zero(*report) any { return 0 }

func (r *report) role() string {
	if r.master() {
		return "master"
	}
	return "slave"
}

func (r *report) following() (host, port string) {
	addr, _ := r.cfg.Directory.Following(&r.status)
	return discovery.SplitAddress(addr)
}

func (r *report) leaderLink() any {
	if _, up := r.cfg.Directory.Following(&r.status); !up {
		return "down"
	}
	return "up"
}

func (r *report) connectedSlaves() any {
	if !r.master() {
		return 0
	}
	return len(r.status.Followers)
}

func slaveLines(r *report) (lines []string) {
	if !r.master() {
		return nil
	}
	for i, f := range r.status.Followers {
		host, port := discovery.SplitAddress(f.ClientAddr)
		lines = append(lines, fmt.Sprintf("slave%d:ip=%s,port=%s,state=online,offset=%d,lag=%d",
			i, host, port, discovery.Offset(&r.status, f), int64(f.Silent.Seconds())))
	}
	return lines
}

func stalledLines(r *report) (lines []string) {
	if !r.master() {
		return nil
	}
	for i, f := range r.status.Stalled {
		lines = append(lines, fmt.Sprintf("stalled_follower%d:name=%s,addr=%s,offset=%d,seconds=%d",
			i, f.Name, f.PeerAddr, f.LogIndex, int64(f.For.Seconds())))
	}
	return lines
}

// replicationID returns an ID that is the same on all nodes of a cluster.
func replicationID(cluster string) string {
	sum := sha1.Sum([]byte("holdfast cluster " + cluster))
	return hex.EncodeToString(sum[:])
}

// commandStats returns lines with Redis's fields.
func commandStats(r *report) (lines []string) {
	for _, c := range r.cfg.Commands {
		calls, rejected := c.Calls.Load(), c.Rejected.Load()
		if calls+rejected > 0 {
			micros := c.micros()
			lines = append(lines, fmt.Sprintf("cmdstat_%s:calls=%d,usec=%d,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d",
				c.Name, calls, micros, float64(micros)/float64(max(calls, 1)), rejected, c.Failed.Load()))
		}
	}
	slices.Sort(lines)
	return lines
}

func latencyStats(r *report) (lines []string) {
	for _, c := range r.cfg.Commands {
		t := c.times.Load()
		if t == nil {
			continue
		}
		if p := t.percentiles(50, 99, 99.9); p != nil {
			lines = append(lines, fmt.Sprintf("latency_percentiles_usec_%s:p50=%s,p99=%s,p99.9=%s", c.Name, p[0], p[1], p[2]))
		}
	}
	slices.Sort(lines)
	return lines
}

func errorStats(r *report) (lines []string) {
	for prefix, n := range r.errorCounts() {
		lines = append(lines, fmt.Sprintf("errorstat_%s:count=%d", prefix, n))
	}
	slices.Sort(lines)
	return lines
}

func keyspaceLines(r *report) (lines []string) {
	stats := r.state()
	for db, keys := range stats.Keys {
		if keys > 0 {
			lines = append(lines, fmt.Sprintf("db%d:keys=%d,expires=%d,avg_ttl=0", db, keys, stats.Expires[db]))
		}
	}
	return lines
}
