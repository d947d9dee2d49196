package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/bench/internal/workload"
)

// WriteMarkdown writes the tables, in the order of workloads.
func (r *Result) WriteMarkdown(w io.Writer, workloads []workload.Workload) error {
	var b strings.Builder
	r.head(&b)
	for _, wl := range workloads {
		columns := r.columns(wl)
		if len(columns) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n", wl.Name, wl.About)
		if wl.Once {
			r.numbers(&b, wl)
			continue
		}
		r.table(&b, wl, columns, r.rateTitle(wl), r.rateCell)
		r.table(&b, wl, columns, r.latencyTitle(wl), r.latencyCell)
		if r.knowsCPU(wl) {
			r.table(&b, wl, columns, "CPU seconds of the servers per 1,000", r.cpuCell)
		}
		for _, cost := range costs {
			if r.knows(wl, cost.number) {
				r.table(&b, wl, columns, cost.title, r.costCell(cost.number, cost.times))
			}
		}
		for _, also := range alsoShown {
			if r.knows(wl, also.number) {
				r.table(&b, wl, columns, also.title, r.numberCell(also.number))
			}
		}
		if len(r.Targets) > 1 {
			r.table(&b, wl, columns, "Rate as a multiple of "+r.Targets[0].Name+"'s", r.ratioCell)
		}
	}
	r.faults(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Result) head(b *strings.Builder) {
	m := r.Machine
	fmt.Fprintf(b, "# Benchmark of %s\n\n`%s`\n\n", r.Started.Format("2006-01-02 15:04"), r.Command)
	fmt.Fprintf(b, "%s, %d CPUs, Linux %s, %s, revision %s; generator and servers on this one machine.\n", m.CPU, m.CPUs,
		m.Kernel, m.Go, m.Revision)
	fmt.Fprintf(b, "Floors: append + fdatasync %.0f µs, overwrite + fdatasync %.0f µs, loopback round trip %.0f µs.\n",
		m.Floors.AppendSyncMicros, m.Floors.OverwriteSyncMicros, m.Floors.RoundTripMicros)
	if m.Floors.AppendSyncMicros < notADisk {
		b.WriteString("\n**fdatasync is too fast for a disk: --out seems to be on one that forgets (tmpfs), and no figure " +
			"of a durable server means anything.**\n")
	}
}

// notADisk is how fast nothing syncs that keeps what was written, in microseconds.
const notADisk = 10

// columns are the points of a workload without their target, in order.
func (r *Result) columns(wl workload.Workload) []Point {
	var columns []Point
	for _, run := range r.Runs {
		p := run.Point
		p.Target = ""
		if p.Workload == wl.Name && !slices.Contains(columns, p) {
			columns = append(columns, p)
		}
	}
	return columns
}

// Title names a point without its workload and target.
func (p Point) Title() string {
	var title string
	switch p.Connections {
	case 0:
	case 1:
		title = "1 connection"
	default:
		title = fmt.Sprintf("%d connections", p.Connections)
	}
	if p.Depth > 0 {
		title += fmt.Sprintf(", depth %d", p.Depth)
	}
	if p.Held > 0 {
		title = fmt.Sprintf("%s held, %s", thousands(float64(p.Held)), title)
	}
	if p.RoundTrip > 0 {
		title = fmt.Sprintf("%v apart, %s", p.RoundTrip, title)
	}
	if p.RatePerSecond > 0 {
		title = fmt.Sprintf("%s/s offered, %s", thousands(p.RatePerSecond), title)
	}
	return title
}

type cell func(wl workload.Workload, p Point) string

// table writes one row per target.
func (r *Result) table(b *strings.Builder, wl workload.Workload, columns []Point, title string, of cell) {
	fmt.Fprintf(b, "\n%s:\n\n| |", title)
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", c.Title())
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, t := range r.Targets {
		fmt.Fprintf(b, "| %s |", t.Name)
		for _, c := range columns {
			c.Target = t.Name
			text := "-"
			if len(r.at(c)) > 0 {
				text = of(wl, c)
			}
			fmt.Fprintf(b, " %s |", text)
		}
		b.WriteString("\n")
	}
}

func (r *Result) rateTitle(wl workload.Workload) string {
	unit := wl.Step + "s"
	if wl.Batch {
		unit = "commands"
	}
	return strings.ToUpper(unit[:1]) + unit[1:] + " a second, median of rounds and how far they lie apart"
}

// RateOf is the figure that a workload is judged by.
func RateOf(wl workload.Workload, f *workload.Figures) float64 {
	if wl.Batch {
		return f.Numbers["commands_per_second"]
	}
	return f.Steps[wl.Step].PerSecond
}

func (r *Result) rateCell(wl workload.Workload, p Point) string {
	var rates []float64
	for _, f := range r.at(p) {
		rates = append(rates, RateOf(wl, f))
	}
	m := median(rates)
	if len(rates) == 1 || m == 0 {
		return thousands(m)
	}
	return fmt.Sprintf("%s ±%.0f%%", thousands(m), 50*(rates[len(rates)-1]-rates[0])/m)
}

func latencyStep(wl workload.Workload) string {
	if wl.Latency != "" {
		return wl.Latency
	}
	return wl.Step
}

func (r *Result) latencyTitle(wl workload.Workload) string {
	return "Milliseconds of one " + latencyStep(wl) + ", p50 / p99 / p99.9"
}

func (r *Result) latencyCell(wl workload.Workload, p Point) string {
	l := r.median(p).Steps[latencyStep(wl)]
	return millis(l.P50Micros) + " / " + millis(l.P99Micros) + " / " + millis(l.P999Micros)
}

func (r *Result) knowsCPU(wl workload.Workload) bool { return r.knows(wl, "server_cpu_seconds") }

// knows reports whether a number was measured.
func (r *Result) knows(wl workload.Workload, number string) bool {
	return slices.ContainsFunc(r.Runs, func(run Run) bool {
		return run.Workload == wl.Name && run.Figures != nil && run.Figures.Numbers[number] > 0
	})
}

// alsoShown are numbers that some workloads have beside their steps.
var alsoShown = []struct{ number, title string }{
	{"longest_by_mean", "The longest as a multiple of the mean"},
	{"most_served_before", "Others that were served while one waited, at most"},
	{"messages_per_second", "Messages that subscribers got, a second"},
}

func (r *Result) numberCell(number string) cell {
	return func(_ workload.Workload, p Point) string {
		var all []float64
		for _, f := range r.at(p) {
			if v, ok := f.Numbers[number]; ok {
				all = append(all, v)
			}
		}
		if len(all) == 0 {
			return "-"
		}
		return thousands(median(all))
	}
}

func (r *Result) cpuCell(wl workload.Workload, p Point) string {
	var costs []float64
	for _, f := range r.at(p) {
		if cost, ok := cpuPerThousand(wl, f); ok {
			costs = append(costs, cost)
		}
	}
	if len(costs) == 0 {
		return "-"
	}
	return strconv.FormatFloat(median(costs), 'g', 3, 64)
}

// cpuPerThousand is the servers' CPU seconds for a thousand of what a workload counts.
func cpuPerThousand(wl workload.Workload, f *workload.Figures) (float64, bool) {
	cpu, known := f.Numbers["server_cpu_seconds"]
	count := RateOf(wl, f) * f.Numbers["window_seconds"]
	if !known || count == 0 {
		return 0, false
	}
	return cpu / count * 1000, true
}

// costs are what one of a step takes from a node: a number of the window, and what it is multiplied by.
var costs = []struct {
	number, title string
	times         float64
}{
	{"leader_cpu_seconds", "CPU of the leader for each, microseconds", 1e6},
	{"follower_cpu_seconds", "CPU of a follower for each, microseconds", 1e6},
	{"follower_read_bytes", "Bytes that a follower reads for each", 1},
	{"follower_written_bytes", "Bytes that a follower writes for each, to its log and to the leader", 1},
	{"log_entries", "Log entries for each", 1},
}

// costCell is the median of a number of costs, divided by how often the step was taken.
func (r *Result) costCell(number string, times float64) cell {
	return func(wl workload.Workload, p Point) string {
		var all []float64
		for _, f := range r.at(p) {
			count := RateOf(wl, f) * f.Numbers["window_seconds"]
			if v, ok := f.Numbers[number]; ok && count > 0 {
				all = append(all, v*times/count)
			}
		}
		if len(all) == 0 {
			return "-"
		}
		return thousands(median(all))
	}
}

func (r *Result) ratioCell(wl workload.Workload, p Point) string {
	base := p
	base.Target = r.Targets[0].Name
	var ratios []float64
	for round, f := range r.at(base) {
		if other := r.at(p)[round]; other != nil && RateOf(wl, f) > 0 {
			ratios = append(ratios, RateOf(wl, other)/RateOf(wl, f))
		}
	}
	if len(ratios) == 0 {
		return "-"
	}
	return strconv.FormatFloat(median(ratios), 'f', 2, 64)
}

// numbers writes a workload that has no steps: a column for each number.
func (r *Result) numbers(b *strings.Builder, wl workload.Workload) {
	var names []string
	for _, t := range r.Targets {
		if f := r.median(Point{Workload: wl.Name, Target: t.Name}); f != nil {
			names = slices.AppendSeq(names, maps.Keys(f.Numbers))
		}
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	names = slices.Compact(names)
	fmt.Fprintf(b, "\n| | %s |\n|---|%s\n", strings.Join(names, " | "), strings.Repeat("---|", len(names)))
	for _, t := range r.Targets {
		fmt.Fprintf(b, "| %s |", t.Name)
		f := r.median(Point{Workload: wl.Name, Target: t.Name})
		for _, name := range names {
			if f == nil {
				b.WriteString(" - |")
				continue
			}
			if v, ok := f.Numbers[name]; ok {
				fmt.Fprintf(b, " %s |", thousands(v))
			} else {
				b.WriteString(" - |")
			}
		}
		b.WriteString("\n")
	}
}

// faults lists every error, and every run that failed.
func (r *Result) faults(b *strings.Builder) {
	var lines []string
	for _, text := range r.Skipped {
		line, _, _ := strings.Cut(text, "\n")
		lines = append(lines, "- left out: "+line)
	}
	for _, run := range r.Runs {
		where := strings.TrimRight(fmt.Sprintf("%s, %s, %s", run.Target, run.Workload, run.Title()), ", ")
		if run.Failed != "" {
			lines = append(lines, fmt.Sprintf("- %s, round %d failed: %s", where, run.Round, run.Failed))
		}
		if run.Figures == nil {
			continue
		}
		for _, text := range slices.Sorted(maps.Keys(run.Figures.Errors)) {
			lines = append(lines, fmt.Sprintf("- %s, round %d: %d × %s", where, run.Round, run.Figures.Errors[text], text))
		}
	}
	if len(lines) > 0 {
		b.WriteString("\n## Errors\n\n" + strings.Join(lines, "\n") + "\n")
	}
}

// millis writes microseconds as milliseconds with three digits.
func millis(micros float64) string {
	switch ms := micros / 1000; {
	case ms >= 100:
		return strconv.FormatFloat(ms, 'f', 0, 64)
	case ms >= 10:
		return strconv.FormatFloat(ms, 'f', 1, 64)
	default:
		return strconv.FormatFloat(ms, 'f', 2, 64)
	}
}

// thousands writes a number with commas, and small ones with two digits behind the point.
func thousands(f float64) string {
	if f < 100 && f > -100 {
		return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 2, 64), ".00")
	}
	digits := strconv.FormatFloat(f, 'f', 0, 64)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}
