package report

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/bench/internal/workload"
)

// Plot is a picture of a workload.
type Plot struct {
	// Name ends the file's name.
	Name  string
	Write func(io.Writer) error
}

// Plots are the pictures that say something: latency over load when several rates were offered,
// the rate over held locks, and what was taken down over time.
func (r *Result) Plots(wl workload.Workload) []Plot {
	var all []Plot
	if r.Offered(wl) {
		all = append(all, Plot{wl.Name, func(w io.Writer) error { return r.WriteSVG(w, wl) }})
	}
	if wl.Holds && r.measured(wl) {
		all = append(all, Plot{wl.Name, r.growth(wl).write})
	}
	for _, name := range r.series(wl) {
		all = append(all, Plot{wl.Name + "-" + name, r.overTime(wl, name).write})
	}
	return all
}

func (r *Result) measured(wl workload.Workload) bool {
	return slices.ContainsFunc(r.Runs, func(run Run) bool { return run.Workload == wl.Name && run.Figures != nil })
}

// series are the names of what a workload took down over time, beside the time. What was never
// above zero is left out as not known.
func (r *Result) series(wl workload.Workload) []string {
	var names []string
	for _, run := range r.Runs {
		if run.Workload != wl.Name || run.Figures == nil {
			continue
		}
		for name, values := range run.Figures.Series {
			if name != seconds && !slices.Contains(names, name) && slices.Max(values) > 0 {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// seconds is the series that the others are over.
const seconds = "seconds"

// curves is a picture with a linear scale from 0 upwards.
type curves struct {
	title, below string
	logarithmic  bool // to the right
	lines        []curve
}

type curve struct {
	name, colour string
	x, y         []float64
}

// growth is a line a target: the rate over the number of held locks.
func (r *Result) growth(wl workload.Workload) curves {
	c := curves{title: wl.Name + ": " + strings.ToLower(r.rateTitle(wl)), below: "held locks", logarithmic: true}
	for i, t := range r.Targets {
		line := curve{name: t.Name, colour: colours[i%len(colours)]}
		for _, p := range r.columns(wl) {
			p.Target = t.Name
			if f := r.median(p); f != nil {
				line.x, line.y = append(line.x, float64(p.Held)), append(line.y, RateOf(wl, f))
			}
		}
		c.lines = append(c.lines, line)
	}
	return c
}

// overTime is a line a run.
func (r *Result) overTime(wl workload.Workload, name string) curves {
	c := curves{title: wl.Name + ": " + name, below: seconds}
	for i, t := range r.Targets {
		for _, run := range r.Runs {
			if run.Workload != wl.Name || run.Target != t.Name || run.Figures == nil || len(run.Figures.Series[name]) == 0 {
				continue
			}
			line := curve{colour: colours[i%len(colours)], x: run.Figures.Series[seconds], y: run.Figures.Series[name]}
			if run.Round == 0 {
				line.name = t.Name
			}
			c.lines = append(c.lines, line)
		}
	}
	return c
}

func (c curves) right(x float64) float64 {
	if c.logarithmic {
		return math.Log10(max(x, 1))
	}
	return x
}

func (c curves) write(w io.Writer) error {
	maxX, maxY := 0.0, 0.0
	for _, line := range c.lines {
		for i := range line.x {
			maxX, maxY = max(maxX, c.right(line.x[i])), max(maxY, line.y[i])
		}
	}
	if maxX == 0 || maxY == 0 {
		return fmt.Errorf("plot %s: nothing was measured", c.title)
	}
	var b strings.Builder
	c.frame(&b, maxX, maxY)
	labels := 0
	for _, line := range c.lines {
		var points []string
		for i := range line.x {
			x := plotLeft + plotInnerW*c.right(line.x[i])/maxX
			y := plotTop + plotInnerH*(1-line.y[i]/maxY)
			points = append(points, fmt.Sprintf("%.1f,%.1f", x, y))
		}
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>`+"\n", line.colour,
			strings.Join(points, " "))
		if line.name != "" {
			legend(&b, labels, line.colour, line.name)
			labels++
		}
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// frame draws five lines up and, for a logarithmic scale, a line for each power of ten to the right.
func (c curves) frame(b *strings.Builder, maxX, maxY float64) {
	opening(b, c.title)
	for part := range 5 {
		y := plotTop + plotInnerH - plotInnerH*part/4
		fmt.Fprintf(b, `<path d="M%d %dh%d" stroke="#ccc"/><text x="%d" y="%d" text-anchor="end">%s</text>`+"\n",
			plotLeft, y, plotInnerW, plotLeft-8, y+4, thousands(maxY*float64(part)/4))
	}
	marks := []float64{0, maxX / 4, maxX / 2, maxX * 3 / 4, maxX}
	if c.logarithmic {
		marks = nil
		for power := range int(maxX) + 1 {
			marks = append(marks, float64(power))
		}
	}
	for _, m := range marks {
		text, x := m, plotLeft+plotInnerW*m/maxX
		if c.logarithmic {
			text = math.Pow(10, m)
		}
		fmt.Fprintf(b, `<path d="M%.1f %dv%d" stroke="#ccc"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			x, plotTop, plotInnerH, x, plotTop+plotInnerH+18, thousands(math.Round(text)))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", plotLeft+plotInnerW/2, plotTop+plotInnerH+
		40, c.below)
}

// opening starts a picture.
func opening(b *strings.Builder, title string) {
	fmt.Fprintf(b,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+
			"\n", plotWidth, plotHeight)
	fmt.Fprintf(b, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="22" font-size="15">%s</text>`+"\n",
		plotLeft, html.EscapeString(title))
}

// legend names a line, beside the picture.
func legend(b *strings.Builder, place int, colour, name string) {
	y := plotTop + 10 + place*legendPitch
	fmt.Fprintf(b, `<path d="M%d %dh24" stroke="%s" stroke-width="3"/><text x="%d" y="%d">%s</text>`+"\n",
		legendLeft, y-4, colour, legendLeft+30, y, html.EscapeString(name))
}

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
