package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/bench/internal/workload"
)

// The plot's geometry, in pixels.
const (
	plotWidth, plotHeight   = 760, 440
	plotLeft, plotTop       = 70, 40
	plotInnerW, plotInnerH  = 500, 340
	legendLeft, legendPitch = plotLeft + plotInnerW + 20, 20
)

// colours differ for colour-blind readers, too.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// knot is a place on a curve.
type knot struct{ rate, p50, p99 float64 }

// Offered reports whether a workload was measured at several rates, so that a plot says something.
func (r *Result) Offered(wl workload.Workload) bool {
	rates := make(map[float64]bool)
	for _, c := range r.columns(wl) {
		rates[c.RatePerSecond] = c.RatePerSecond > 0
	}
	return len(rates) > 1
}

// WriteSVG plots latency over load: p99 as a line and p50 dashed, in milliseconds on a
// logarithmic scale, over the operations completed a second.
func (r *Result) WriteSVG(w io.Writer, wl workload.Workload) error {
	curves := make(map[string][]knot)
	maxRate, low, high := 1.0, math.Inf(1), 0.0
	for _, t := range r.Targets {
		for _, c := range r.columns(wl) {
			c.Target = t.Name
			f := r.median(c)
			if f == nil || c.RatePerSecond == 0 || RateOf(wl, f) == 0 {
				continue
			}
			l := f.Steps[latencyStep(wl)]
			curves[t.Name] = append(curves[t.Name], knot{RateOf(wl, f), l.P50Micros / 1000, l.P99Micros / 1000})
			maxRate, low, high = max(maxRate, RateOf(wl, f)), min(low, l.P50Micros/1000), max(high, l.P99Micros/1000)
		}
	}
	if high == 0 {
		return fmt.Errorf("plot %s: nothing was completed", wl.Name)
	}
	p := scale{maxRate: maxRate, low: math.Floor(math.Log10(max(low, 0.001))), high: math.Ceil(math.Log10(high) + 1e-9)}
	var b strings.Builder
	p.frame(&b, wl)
	for i, t := range r.Targets {
		colour := colours[i%len(colours)]
		knots := curves[t.Name]
		slices.SortFunc(knots, func(a, b knot) int { return cmp.Compare(a.rate, b.rate) })
		p.line(&b, knots, colour, "", func(k knot) float64 { return k.p99 })
		p.line(&b, knots, colour, ` stroke-dasharray="5 4"`, func(k knot) float64 { return k.p50 })
		legend(&b, i, colour, t.Name)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// scale maps rates and latencies to pixels; low and high are powers of ten.
type scale struct{ maxRate, low, high float64 }

func (p scale) x(rate float64) float64 { return plotLeft + plotInnerW*rate/p.maxRate }

func (p scale) y(ms float64) float64 {
	part := (math.Log10(max(ms, 0.001)) - p.low) / (p.high - p.low)
	return plotTop + plotInnerH*(1-part)
}

func (p scale) frame(b *strings.Builder, wl workload.Workload) {
	opening(b, wl.Name+": milliseconds of one "+latencyStep(wl)+", p99 (line) and p50 (dashed)")
	for power := p.low; power <= p.high; power++ {
		ms := math.Pow(10, power)
		fmt.Fprintf(b, `<path d="M%d %.1fh%d" stroke="#ccc"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n",
			plotLeft, p.y(ms), plotInnerW, plotLeft-8, p.y(ms)+4, ms)
	}
	for part := range 5 {
		rate := p.maxRate * float64(part) / 4
		fmt.Fprintf(b, `<path d="M%.1f %dv%d" stroke="#ccc"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			p.x(rate), plotTop, plotInnerH, p.x(rate), plotTop+plotInnerH+18, thousands(math.Round(rate)))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">completed a second</text>`+"\n", plotLeft+plotInnerW/2,
		plotTop+plotInnerH+40)
}

func (p scale) line(b *strings.Builder, knots []knot, colour, style string, of func(knot) float64) {
	if len(knots) == 0 {
		return
	}
	points := make([]string, len(knots))
	for i, k := range knots {
		points[i] = fmt.Sprintf("%.1f,%.1f", p.x(k.rate), p.y(of(k)))
	}
	fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="2"%s points="%s"/>`+"\n", colour, style,
		strings.Join(points, " "))
}
