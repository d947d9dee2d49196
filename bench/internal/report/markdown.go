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

// WriteMarkdown writes a table for each workload.
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
		for _, also := range alsoShown {
			if r.knows(wl, also.of) {
				r.table(&b, wl, columns, also.title, func(wl workload.Workload, p Point) string { return also.cell(r, wl, p) })
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

// notADisk is an fdatasync time in microseconds below which the file system cannot be durable.
const notADisk = 10

// columns returns the points of a workload without their targets, in order.
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

// RateOf returns the main figure of a workload.
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

// measure is a figure of a run of a workload; ok is false where there is none.
type measure func(workload.Workload, *workload.Figures) (v float64, ok bool)

// reported is a number that some workloads have in addition to steps.
func reported(name string) measure {
	return func(_ workload.Workload, f *workload.Figures) (float64, bool) {
		v, ok := f.Numbers[name]
		return v, ok
	}
}

// each is a number of the window per step that a workload counts, times a factor.
func each(name string, times float64) measure {
	return func(wl workload.Workload, f *workload.Figures) (float64, bool) {
		v, ok := f.Numbers[name]
		count := RateOf(wl, f) * f.Numbers["window_seconds"]
		return v * times / count, ok && count > 0
	}
}

// cpuPerThousand is the servers' CPU seconds per thousand counted steps.
var cpuPerThousand = each("server_cpu_seconds", 1000)

// knows reports whether a figure was measured.
func (r *Result) knows(wl workload.Workload, of measure) bool {
	return slices.ContainsFunc(r.Runs, func(run Run) bool {
		if run.Workload != wl.Name || run.Figures == nil {
			return false
		}
		v, ok := of(wl, run.Figures)
		return ok && v > 0
	})
}

// alsoShown are further tables, for workloads with such figures.
var alsoShown = []column{
	cpuColumn("CPU seconds of the servers per 1,000", Point{}),
	medianColumn("CPU of the leader for each, microseconds", Point{}, each("leader_cpu_seconds", 1e6)),
	medianColumn("CPU of a follower for each, microseconds", Point{}, each("follower_cpu_seconds", 1e6)),
	medianColumn("Bytes that a follower reads for each", Point{}, each("follower_read_bytes", 1)),
	medianColumn("Bytes that a follower writes for each, to its log and to the leader", Point{},
		each("follower_written_bytes", 1)),
	medianColumn("Log entries for each", Point{}, each("log_entries", 1)),
	medianColumn("The longest as a multiple of the mean", Point{}, reported("longest_by_mean")),
	medianColumn("Others that were served while one waited, at most", Point{}, reported("most_served_before")),
	medianColumn("Messages that subscribers got, a second", Point{}, reported("messages_per_second")),
}

// medianCell formats the median of the rounds.
func (r *Result) medianCell(wl workload.Workload, p Point, of measure, format func(float64) string) string {
	var all []float64
	for _, f := range r.at(p) {
		if v, ok := of(wl, f); ok {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return "-"
	}
	return format(median(all))
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

// numbers writes the table of a workload without steps: a column for each number.
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

// faults lists all errors and failed runs.
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

// millis formats microseconds as milliseconds with three digits.
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

// thousands formats a number with commas, and a small one with two decimals.
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
