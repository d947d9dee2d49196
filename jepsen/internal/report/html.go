package report

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// The plots' size, in the units of their drawing.
const (
	plotWidth  = 1100
	plotHeight = 260
	marginLeft = 60
	marginLow  = 24
)

// maxPoints is the number of operations drawn one by one; of more, every n-th is.
const maxPoints = 20000

const style = `body{font:14px/1.45 system-ui,sans-serif;max-width:1180px;margin:2em auto;color:#222}
h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}pre{background:#f5f5f5;padding:.8em;overflow:auto}
.valid{color:#1a7f37}.INVALID{color:#c00}.unknown{color:#a60}
svg{background:#fff;border:1px solid #ddd;width:100%;height:auto}text{font:11px system-ui,sans-serif;fill:#555}`

func (r *Report) writeHTML(w io.Writer) error {
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		return err
	}
	var b strings.Builder
	title := fmt.Sprintf("%s, %s under %s, seed %d", r.Run.Target, r.Run.Workload, r.Run.Nemesis, r.Run.Seed)
	fmt.Fprintf(&b, "<!doctype html><meta charset=utf-8><title>%s</title><style>%s</style>\n", html.EscapeString(title), style)
	fmt.Fprintf(&b, "<h1>%s: <span class=%q>%s</span></h1>\n", html.EscapeString(title), r.Verdict, r.Verdict)
	span := r.span()
	b.WriteString("<h2>Latency</h2><p>Each dot is an operation: <span style='color:#2a7'>ok</span>, <span style='color:#e90'>failed</span>, " +
		"<span style='color:#c00'>unknown</span>. Faults are shaded; hover for their names.</p>\n")
	r.plotLatency(&b, span)
	b.WriteString("<h2>Service</h2><p>Successful operations a second, by anybody.</p>\n")
	r.plotService(&b, span)
	fmt.Fprintf(&b, "<h2>Verdict</h2><pre>%s</pre>\n", html.EscapeString(text.String()))
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
	return marginLeft + float64(at)/float64(span)*(plotWidth-marginLeft-10)
}

// open begins a plot: faults, then the axis of time.
func (r *Report) open(b *strings.Builder, span int64) {
	fmt.Fprintf(b, "<svg viewBox='0 0 %d %d'>\n", plotWidth, plotHeight)
	for _, f := range r.History.Faults {
		left, right := x(f.Start, span), x(min(f.Stop, span), span)
		fmt.Fprintf(b, "<rect x='%.1f' y='0' width='%.1f' height='%d' fill='%s' opacity='.18'><title>%s: %s</title></rect>\n",
			left, max(1.5, right-left), plotHeight-marginLow, colour(f.Name), html.EscapeString(f.Name), html.EscapeString(f.Detail))
	}
	step := int64(time.Second)
	for span/step > 15 {
		step *= 2
	}
	for at := int64(0); at <= span; at += step {
		fmt.Fprintf(b, "<text x='%.1f' y='%d'>%ds</text>\n", x(at, span), plotHeight-8, at/int64(time.Second))
	}
}

// colour tells faults apart by their kind.
func colour(name string) string {
	group, _, _ := strings.Cut(name, "-")
	switch group {
	case "partition", "packets":
		return "#36c"
	case "kill", "restart":
		return "#c33"
	case "pause":
		return "#c3c"
	case "clock":
		return "#292"
	default:
		return "#a80"
	}
}

// plotLatency draws every operation at its call, by the logarithm of its duration.
func (r *Report) plotLatency(b *strings.Builder, span int64) {
	r.open(b, span)
	const low, high = 1e5, 2e10 // nanoseconds
	y := func(nanos float64) float64 {
		share := math.Log(min(max(nanos, low), high)/low) / math.Log(high/low)
		return (plotHeight - marginLow) * (1 - share)
	}
	for _, tick := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second} {
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
		fmt.Fprintf(b, "<circle cx='%.1f' cy='%.1f' r='1.3' fill='%s'/>\n", x(o.Call, span), y(float64(o.Return-o.Call)), colours[o.Outcome])
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
			n := o.Return / bucket
			counts[n]++
			highest = max(highest, counts[n])
		}
	}
	r.open(b, span)
	var points strings.Builder
	for i, n := range counts {
		y := (plotHeight - marginLow) * (1 - float64(n)/float64(highest))
		fmt.Fprintf(&points, "%.1f,%.1f ", x(int64(i)*bucket, span), y)
	}
	fmt.Fprintf(b, "<polyline points='%s' fill='none' stroke='#2a7' stroke-width='1.2'/>\n", points.String())
	fmt.Fprintf(b, "<text x='4' y='12'>%d/s</text><text x='4' y='%d'>0</text></svg>\n",
		int64(highest)*int64(time.Second)/bucket, plotHeight-marginLow)
}
