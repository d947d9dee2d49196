package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/bench/internal/workload"
)

// The sections of bench/RESULTS.md.
const (
	Performance = "performance" // see [Summary]
	NativeLocks = "native"      // see [Native]

	LockLibraries = "libraries" // see [Libraries]
)

// Rewrite replaces the text between a section's markers: <!-- section --> … <!-- /section -->.
func Rewrite(document, section, text string) (string, error) {
	begin, end := "<!-- "+section+" -->\n", "<!-- /"+section+" -->"
	before, rest, ok := strings.Cut(document, begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return "", fmt.Errorf("there is no %s … %s", strings.TrimSpace(begin), end)
	}
	return before + begin + text + end + after, nil
}

// column is a column of the table of results.
type column struct {
	title string
	point Point
	cell  func(r *Result, wl workload.Workload, p Point) string
	// of is the measure in the table of quotients.
	of measure
}

// medianColumn is the median of a measure.
func medianColumn(title string, p Point, of measure) column {
	return column{title, p, func(r *Result, wl workload.Workload, p Point) string {
		return r.medianCell(wl, p, of, thousands)
	}, of}
}

// cpuColumn is the servers' CPU time with three digits.
func cpuColumn(title string, p Point) column {
	return column{title, p, func(r *Result, wl workload.Workload, p Point) string {
		return r.medianCell(wl, p, cpuPerThousand, func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) })
	}, cpuPerThousand}
}

// pairsColumn is the pairs of clients without contention.
func pairsColumn(connections int, title string) column {
	return column{title, Point{Workload: "uncontended", Connections: connections}, (*Result).pairsCell, rateOf}
}

func rateColumn(title string, p Point) column { return column{title, p, (*Result).rateCell, rateOf} }

func summaryColumns() []column {
	return []column{
		pairsColumn(1, "pairs/s by 1 connection"), pairsColumn(64, "by 64"), pairsColumn(256, "by 256"),
		rateColumn("hot lock: hand-offs/s among 64", Point{Workload: "hot", Connections: 64}),
		rateColumn("pipelined SET/s by 50, depth 16", Point{Workload: "pipelined", Connections: 50, Depth: 16}),
		rateColumn("depth 64", Point{Workload: "pipelined", Connections: 50, Depth: 64}),
		rateColumn("GET/s by 256", Point{Workload: "reads", Connections: 256}),
		cpuColumn("CPU s per 1,000 pairs of 256", Point{Workload: "uncontended", Connections: 256}),
	}
}

const nativeTarget = "holdfast-native"

// nativeColumns are the columns of the table of native locks.
func nativeColumns() []column {
	hot, handoffs := Point{Workload: "hot", Connections: 64}, Point{Workload: "handoffs", Connections: 64}
	return []column{
		pairsColumn(1, "pairs/s by 1 connection"), pairsColumn(64, "by 64"), pairsColumn(256, "by 256"),
		rateColumn("hot lock: hand-offs/s among 64", hot),
		rateColumn("among 1,000", Point{Workload: "hot", Connections: 1000}),
		cpuColumn("CPU s per 1,000 hand-offs among 64", hot),
		medianColumn("log entries a hand-off", hot, reported("log_entries_each")),
		medianColumn("longest wait by the mean", hot, reported("longest_by_mean")),
		rateColumn("16 hot locks: pairs/s of 256", Point{Workload: "contended", Connections: 256}),
		rateColumn("BLPOP hand-offs/s among 64", handoffs), cpuColumn("CPU s per 1,000 of them", handoffs),
		medianColumn("messages/s to 1,000 subscribers", Point{Workload: "publish", Connections: 1000},
			reported("messages_per_second")),
	}
}

// Native returns the section of native locks: the first result's table, native locks as a multiple of each other
// target, and the goals, judged by all results.
func Native(results []*Result) string {
	var b strings.Builder
	r := results[0]
	m := r.Machine
	fmt.Fprintf(&b,
		"%s, %d cores, revision %s, %s; all servers of a row and the load generator share it. Medians of %d rounds "+
			"by turns,\n"+
			"± half the distance between the best and the worst; in brackets the median milliseconds of an acquire.\n",
		m.CPU, m.CPUs, m.Revision, r.Started.Format("2006-01-02"), r.rounds())
	columns := r.shown(nativeColumns())
	r.summaryTable(&b, columns)
	b.WriteString("\nNative locks as a multiple of each, median of the rounds' quotients (of CPU, entries and waits, " +
		"less is better):\n")
	r.quotientTable(&b, columns, nativeTarget)
	judged(&b, results, "the runs of `make bench-native`")
	evidence(results).goalTable(&b, nativeGoals())
	evidence(results).besideTable(&b, nativeBeside())
	leftOut(&b, results)
	return b.String()
}

// Libraries returns the section of lock libraries: each library's rate, and Holdfast's of the same language as a
// multiple.
func Libraries(r *Result) string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b,
		"%s, %d cores, revision %s, %s; servers and clients share it. Medians of %d rounds by turns, ± half the distance\n"+
			"between the best and the worst; × is Holdfast's of the language by it, the median of the rounds' quotients.\n",
		m.CPU, m.CPUs, m.Revision, r.Started.Format("2006-01-02"), r.rounds())
	columns := []column{
		{title: "hand-offs/s of one lock among 64 clients", point: Point{Workload: "hot", Connections: 64}},
		{title: "pairs/s by one client", point: Point{Workload: "uncontended", Connections: 1}},
	}
	header(&b, []column{columns[0], {title: "×"}, columns[1], {title: "×"}})
	for _, t := range r.Targets {
		language, _, _ := strings.Cut(t.Name, "-")
		fmt.Fprintf(&b, "| `%s`: %s |", t.Name, t.About)
		for _, c := range columns {
			wl, _ := workload.Named(c.point.Workload)
			rate, times := "-", "-"
			c.point.Target = t.Name
			if len(r.at(c.point)) > 0 {
				rate = r.rateCell(wl, c.point)
			}
			c.point.Target = language + "-holdfast"
			rateOf := figureOf(wl.Name, rateOf)
			s, ok := (evidence{r}).quotients(c.point, c.point.by(t.Name), rateOf, rateOf)
			if ok && c.point.Target != t.Name {
				times = fmt.Sprintf("%.2f", s.median)
			}
			fmt.Fprintf(&b, " %s | %s |", rate, times)
		}
		b.WriteString("\n")
	}
	leftOut(&b, []*Result{r})
	return b.String()
}

// judged introduces the goals. missing names the source of absent results.
func judged(b *strings.Builder, results []*Result, missing string) {
	fmt.Fprintf(b,
		"\nThe targets, judged by the same runs and, for what the table does not show, by %s; in brackets the least and "+
			"the most of a round, or others' figures:\n",
		origins(results[1:], missing))
}

// pairsCell is the rate with its spread, and the median of an acquire.
func (r *Result) pairsCell(wl workload.Workload, p Point) string {
	return fmt.Sprintf("%s (%s)", r.rateCell(wl, p), millis(r.median(p).Steps[latencyStep(wl)].P50Micros))
}

// Summary returns the section of performance: the first result's table, Holdfast as a multiple of each other target,
// and the goals, judged by all results.
func Summary(results []*Result) string {
	var b strings.Builder
	r := results[0]
	m := r.Machine
	fmt.Fprintf(&b, `%s, %d cores, Linux %s, %s, revision %s, %s; all servers of a row and the load generator share it. Floors there: append and fdatasync
%.0f µs, a loopback round trip %.0f µs. Medians of %d rounds by turns, ± half the distance between the best and the worst; in brackets the median
milliseconds of an acquire. A pair is SET NX PX and a compare-and-delete by EVALSHA. Rows differ in what they promise, see [README.md](README.md).
`, m.CPU, m.CPUs, m.Kernel, m.Go, m.Revision, r.Started.Format("2006-01-02"), m.Floors.AppendSyncMicros, m.Floors.RoundTripMicros, r.rounds())
	columns := r.shown(summaryColumns())
	r.summaryTable(&b, columns)
	r.floor(&b)
	b.WriteString("\nHoldfast as a multiple of each, median of the rounds' quotients (of CPU, less is better):\n")
	r.quotientTable(&b, columns, nodes[0])
	judged(&b, results, "the runs of `make bench-limits`")
	evidence(results).goalTable(&b, goals())
	evidence(results).besideTable(&b, beside())
	for _, r := range results {
		r.wanTable(&b)
		r.neighbourTable(&b)
	}
	leftOut(&b, results)
	return b.String()
}

// wanTable is the pairs by round trip between the servers, with etcd's of the same round.
func (r *Result) wanTable(b *strings.Builder) {
	wl, _ := workload.Named("uncontended")
	var rows strings.Builder
	for p, acquire := range r.distances() {
		fmt.Fprintf(&rows, "| %s | %s | %s | %.2f | %s |", p.Title(), r.rateCell(wl, p), millis(acquire.P50Micros),
			tripsOf(p, acquire), millis(acquire.P99Micros))
		etcd, times := "-", "-"
		rateOf := figureOf(wl.Name, rateOf)
		s, ok := evidence{r}.quotients(p, p.by("etcd"), rateOf, rateOf)
		if ok {
			p.Target = "etcd"
			etcd, times = r.pairsCell(wl, p), fmt.Sprintf("%.2f", s.median)
		}
		fmt.Fprintf(&rows, " %s | %s |\n", etcd, times)
	}
	if rows.Len() > 0 {
		b.WriteString("\nServers that are a round trip apart, and clients beside the leader:\n")
		header(b, titled("pairs/s", "acquire, p50 ms", "by the round trip", "p99 ms", "`etcd`", "×"))
		b.WriteString(rows.String())
	}
}

// neighbourTable is the acquires of four connections, by neighbour that sends much work at a time.
func (r *Result) neighbourTable(b *strings.Builder) {
	wl, _ := workload.Named("beside")
	p := Point{Workload: wl.Name, Target: nodes[0]}
	f := r.median(p)
	if f == nil {
		return
	}
	b.WriteString("\nAcquires of four connections beside a neighbour that sends much work at a time, without quotas:\n")
	header(b, titled("pairs/s", "p50 ms", "p99 ms", "by p99 alone", "neighbour's commands/s", "refused/s"))
	for _, name := range workload.Neighbours() {
		s := f.Steps[name]
		fmt.Fprintf(b, "| %s | %s | %s | %s |", name, thousands(s.PerSecond), millis(s.P50Micros), millis(s.P99Micros))
		for _, suffix := range []string{"_p99_ratio", "_per_second", "_refused_per_second"} {
			b.WriteString(" " + r.medianCell(wl, p, reported(name+suffix), thousands) + " |")
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(b, "\nElections in a round meanwhile: %.0f.\n", f.Numbers["elections"])
}

// leftOut lists failures.
func leftOut(b *strings.Builder, results []*Result) {
	var remarks strings.Builder
	for _, r := range results {
		r.faults(&remarks)
	}
	if remarks.Len() > 0 {
		b.WriteString("\nLeft out or failed:\n" + strings.ReplaceAll(remarks.String(), "\n## Errors\n", ""))
	}
}

// origins names the sources of results that are not in the table.
func origins(results []*Result, missing string) string {
	if len(results) == 0 {
		return missing
	}
	var each []string
	for _, r := range results {
		each = append(each, fmt.Sprintf("`%s` (revision %s, %s)", r.Command, r.Machine.Revision,
			r.Started.Format("2006-01-02")))
	}
	return strings.Join(each, ", ")
}

// floor compares an acquire of one connection with the sum of the unavoidable waits.
func (r *Result) floor(b *strings.Builder) {
	f := r.median(Point{Workload: "uncontended", Target: nodes[0], Connections: 1})
	least := r.Machine.Floors.AppendSyncMicros + 2*r.Machine.Floors.RoundTripMicros
	if f == nil || least == 0 {
		return
	}
	fmt.Fprintf(b,
		"\nA durable acquire on three nodes is at least one fdatasync and two round trips, from the client to the leader "+
			"and from there to a follower:\n"+
			"%s ms here. By one connection it takes %.1f times that.\n", millis(least), f.Steps["acquire"].P50Micros/least)
}

func (r *Result) rounds() int {
	most := 0
	for _, run := range r.Runs {
		most = max(most, run.Round+1)
	}
	return most
}

// shown returns the columns with measured values.
func (r *Result) shown(columns []column) []column {
	var shown []column
	for _, c := range columns {
		for _, t := range r.Targets {
			c.point.Target = t.Name
			if len(r.at(c.point)) > 0 {
				shown = append(shown, c)
				break
			}
		}
	}
	return shown
}

// titled returns columns that only have a title.
func titled(titles ...string) (columns []column) {
	for _, title := range titles {
		columns = append(columns, column{title: title})
	}
	return columns
}

func header(b *strings.Builder, columns []column) {
	b.WriteString("\n| |")
	for _, c := range columns {
		b.WriteString(" " + c.title + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
}

func (r *Result) summaryTable(b *strings.Builder, columns []column) {
	header(b, columns)
	for _, t := range r.Targets {
		fmt.Fprintf(b, "| `%s`: %s |", t.Name, t.About)
		for _, c := range columns {
			wl, _ := workload.Named(c.point.Workload)
			c.point.Target = t.Name
			text := "-"
			if len(r.at(c.point)) > 0 {
				text = c.cell(r, wl, c.point)
			}
			b.WriteString(" " + text + " |")
		}
		b.WriteString("\n")
	}
}

// quotientTable writes a row for each other target: the figures of the target mine, divided by the other's.
func (r *Result) quotientTable(b *strings.Builder, columns []column, mine string) {
	header(b, columns)
	for _, t := range r.Targets {
		if t.Name == mine {
			continue
		}
		fmt.Fprintf(b, "| `%s` |", t.Name)
		for _, c := range columns {
			of, text := figureOf(c.point.Workload, c.of), "-"
			if s, ok := (evidence{r}).quotients(c.point.by(mine), c.point.by(t.Name), of, of); ok {
				text = fmt.Sprintf("%.2f", s.median)
			}
			b.WriteString(" " + text + " |")
		}
		b.WriteString("\n")
	}
}
