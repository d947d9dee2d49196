package report

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// The plots' size, in the units of their drawing.
const (
	plotWidth   = 1100
	plotHeight  = 260
	marginLeft  = 60
	marginRight = 20
	marginLow   = 24
)

// maxPoints is the number of operations that are all drawn; of more, every n-th is.
const maxPoints = 20000

const style = `body{font:14px/1.45 system-ui,sans-serif;max-width:1180px;margin:2em auto;color:#222}
h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}pre{background:#f5f5f5;padding:.8em;white-space:pre-wrap;overflow-wrap:anywhere}.key{padding:.1em .4em}
.valid{color:#1a7f37}.INVALID{color:#c00}.unknown{color:#a60}
svg{background:#fff;border:1px solid #ddd;width:100%;height:auto}text{font:11px system-ui,sans-serif;fill:#555}`

func (r *Report) writeHTML(w io.Writer) error {
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		return err
	}
	var b strings.Builder
	title := fmt.Sprintf("%s, %s under %s, seed %d", r.Run.Target, r.Run.Workload, r.Run.Nemesis, r.Run.Seed)
	fmt.Fprintf(&b, "<!doctype html><meta charset=utf-8><title>%s</title><style>%s</style>\n", html.EscapeString(title),
		style)
	fmt.Fprintf(&b, "<h1>%s: <span class=%q>%s</span></h1>\n", html.EscapeString(title), r.Verdict, r.Verdict)
	span := r.span()
	fmt.Fprintf(&b, "<p>Faults are shaded, hover for their names: %s.</p>\n", r.legend())
	b.WriteString("<h2>Latency</h2><p>Each dot is an operation: <span style='color:#2a7'>ok</span>, <span " +
		"style='color:#e90'>failed</span>, " +
		"<span style='color:#c00'>unknown</span>.</p>\n")
	r.plotLatency(&b, span)
	b.WriteString("<h2>Service</h2><p>Successful operations a second, by anybody; the last reads, when all is mended, " +
		"go beyond the scale.</p>\n")
	r.plotService(&b, span)
	fmt.Fprintf(&b, "<h2>Verdict</h2><pre>%s</pre>\n", html.EscapeString(text.String()))
	b.WriteString("<h2>Beside this page</h2><p>")
	for _, name := range r.files() {
		fmt.Fprintf(&b, "<a href=%q>%s</a> ", name, html.EscapeString(name))
	}
	b.WriteString("</p>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// span is the time that the plots show, in nanoseconds.
func (r *Report) span() int64 {
	end := int64(time.Second)
	for _, o := range r.History.Ops {
		end = max(end, o.Return)
	}
	return end
}

func x(at, span int64) float64 {
	return marginLeft + float64(at)/float64(span)*(plotWidth-marginLeft-marginRight)
}

// open begins a plot: faults, then the axis of time.
func (r *Report) open(b *strings.Builder, span int64) {
	fmt.Fprintf(b, "<svg viewBox='0 0 %d %d'>\n", plotWidth, plotHeight)
	for _, f := range r.History.Faults {
		left, right := x(f.Start, span), x(min(f.Stop, span), span)
		fmt.Fprintf(b, "<rect x='%.1f' y='0' width='%.1f' height='%d' fill='%s' opacity='.18'><title>%s: %s</title></rect>\n",
			left, max(1.5, right-left), plotHeight-marginLow, colour(f.Name), html.EscapeString(f.Name),
			html.EscapeString(f.Detail))
	}
	step := tick(span)
	for at := int64(0); at <= span; at += step {
		fmt.Fprintf(b, "<text x='%.1f' y='%d' text-anchor='middle'>%ds</text>\n", x(at, span), plotHeight-8,
			at/int64(time.Second))
	}
}

// tick is a round time that divides a span into fifteen parts at most.
func tick(span int64) int64 {
	const second = int64(time.Second)
	for _, n := range []int64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800} {
		if span/(n*second) <= 15 {
			return n * second
		}
	}
	return 3600 * second
}

// palette tells faults apart by the first word of their names.
var palette = []struct{ words, colour string }{
	{"partition packets refuse", "#3366cc"},
	{"kill restart", "#cc3333"},
	{"pause", "#cc33cc"},
	{"clock", "#229922"},
	{"disk store power", "#aa8800"},
	{"hostile holder", "#dd7711"},
	{"transfer snapshot", "#777777"},
}

func colour(name string) string {
	word, _, _ := strings.Cut(name, "-")
	for _, p := range palette {
		if slices.Contains(strings.Fields(p.words), word) {
			return p.colour
		}
	}
	return "#777777"
}

// legend names the colours of the faults that there were.
func (r *Report) legend() string {
	var present []string
	for _, p := range palette {
		if slices.ContainsFunc(r.History.Faults, func(f history.Fault) bool { return colour(f.Name) == p.colour }) {
			present = append(present, fmt.Sprintf("<span class=key style='background:%s2e'>%s</span>", p.colour,
				strings.ReplaceAll(p.words, " ", ", ")))
		}
	}
	if present == nil {
		return "there were none"
	}
	return strings.Join(present, " ")
}

// plotLatency draws every operation at its call, by the logarithm of the duration.
func (r *Report) plotLatency(b *strings.Builder, span int64) {
	r.open(b, span)
	const low, high = 1e5, 2e10 // nanoseconds
	y := func(nanos float64) float64 {
		share := math.Log(min(max(nanos, low), high)/low) / math.Log(high/low)
		return (plotHeight - marginLow) * (1 - share)
	}
	for _, tick := range []time.Duration{
		time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second,
		10 * time.Second,
	} {
		at := y(float64(tick))
		fmt.Fprintf(b, "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' stroke='#eee'/><text x='4' y='%.1f'>%s</text>\n",
			marginLeft, plotWidth, at, at, at+4, tick)
	}
	colours := map[history.Outcome]string{history.OK: "#2a7", history.Fail: "#e90", history.Info: "#c00"}
	every := len(r.History.Ops)/maxPoints + 1
	for i := range r.History.Ops {
		o := &r.History.Ops[i]
		if o.Node == "" || (i%every != 0 && o.Outcome == history.OK) {
			continue
		}
		fmt.Fprintf(b, "<circle cx='%.1f' cy='%.1f' r='1.3' fill='%s'/>\n", x(o.Call, span), y(float64(o.Return-o.Call)),
			colours[o.Outcome])
	}
	b.WriteString("</svg>\n")
}

// plotService draws the successes of each fifth of a second.
func (r *Report) plotService(b *strings.Builder, span int64) {
	const bucket = int64(200 * time.Millisecond)
	counts := make([]int, span/bucket+1)
	highest := 1
	for _, o := range r.History.Ops {
		if o.Outcome == history.OK && o.Node != "" {
			counts[o.Return/bucket]++
		}
	}
	// The last reads come all at once: they would make everything else look small.
	for n, count := range counts {
		if r.Run.Time == 0 || int64(n+1)*bucket <= int64(r.Run.Time) {
			highest = max(highest, count)
		}
	}
	r.open(b, span)
	var points strings.Builder
	for i, n := range counts {
		y := (plotHeight - marginLow) * (1 - float64(min(n, highest))/float64(highest))
		fmt.Fprintf(&points, "%.1f,%.1f ", x(int64(i)*bucket, span), y)
	}
	fmt.Fprintf(b, "<polyline points='%s' fill='none' stroke='#2a7' stroke-width='1.2'/>\n", points.String())
	fmt.Fprintf(b, "<text x='4' y='12'>%d/s</text><text x='4' y='%d'>0</text></svg>\n",
		int64(highest)*int64(time.Second)/bucket, plotHeight-marginLow)
}
