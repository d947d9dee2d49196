package picture

import (
	"bytes"
	"fmt"
	"html"
	"strings"
	"time"
)

// The layout, in the units of the drawing.
const (
	width     = 860
	left      = 64 // of the axis of time; the names of the rows are beside it
	right     = width - 8
	top       = 62 // of the first panel: the title and the legend are above it
	heading   = 30 // of a panel
	labels    = 18 // the names of faults, above the rows
	rowHeight = 17
	barHeight = 11
	gap       = 20 // below a panel
	foot      = 46 // the axis' figures, and the line below them
)

const style = `
text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #59636e }
.title { font-size: 17px; font-weight: 600; fill: #1f2328 }
.target { font-size: 15px; font-weight: 600; fill: #1f2328 }
.fault { font-size: 11px }
.wrong { fill: #d1242f }
.right { fill: #1a7f37 }
.row { stroke: #d1d9e0 }
.broken { fill: #818b98; fill-opacity: .2 }
.hold { fill: #0969da }
.two { fill: #d1242f }
.during { fill: #d1242f; fill-opacity: .13 }
@media (prefers-color-scheme: dark) {
text { fill: #9198a1 }
.title, .target { fill: #f0f6fc }
.wrong { fill: #ff7b72 }
.right { fill: #3fb950 }
.row { stroke: #3d444d }
.broken { fill: #9198a1; fill-opacity: .25 }
.hold { fill: #4493f8 }
.two { fill: #f85149 }
.during { fill: #f85149; fill-opacity: .2 }
}
`

// SVG is the drawing, without a ground, and with colours for a light ground and for a dark.
func (p *Picture) SVG() []byte {
	var b bytes.Buffer
	rows := p.Clients * rowHeight
	panel := heading + labels + rows + gap
	height := top + len(p.Runs)*panel - gap + foot
	fmt.Fprintf(&b,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" "+
			"aria-labelledby=\"title desc\">\n",
		width, height, width, height)
	fmt.Fprintf(&b, "<title id=\"title\">%s</title>\n<desc id=\"desc\">%s</desc>\n", html.EscapeString(title),
		html.EscapeString(p.description()))
	fmt.Fprintf(&b, "<style>%s</style>\n", style)
	p.legend(&b)
	for i := range p.Runs {
		p.panel(&b, &p.Runs[i], top+i*panel)
	}
	p.axis(&b, height-foot)
	fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\">%s</text>\n</svg>\n", 8, height-8, html.EscapeString(p.caption()))
	return b.Bytes()
}

const title = "Who believes it holds the lock?"

// description is the picture in words.
func (p *Picture) description() string {
	var said []string
	for i := range p.Runs {
		r := &p.Runs[i]
		_, double := bars(r.History)
		said = append(said, r.name()+": "+count(double)+".")
	}
	return fmt.Sprintf("A row for each of %d clients that share one lock. A bar is a time in which the client believes "+
		"it holds the lock; "+
		"it is red while another client believes so, too. Faults are shaded. %s %s", p.Clients, strings.Join(said, " "),
		p.caption())
}

// caption says what was run.
func (p *Picture) caption() string {
	names := make([]string, len(p.Runs))
	for i := range p.Runs {
		names[i] = p.Runs[i].release()
	}
	return fmt.Sprintf("%s: %d nodes each, the same faults (seed %d), SET NX PX and compare-and-delete.",
		strings.Join(names, ", "), p.Nodes, p.Seed)
}

func (p *Picture) legend(b *bytes.Buffer) {
	fmt.Fprintf(b, "<text class=\"title\" x=\"8\" y=\"22\">%s</text>\n", html.EscapeString(title))
	at := 8
	for _, entry := range []struct {
		class, text string
		width       int
	}{
		{"hold", "one client", 106},
		{"two", "two clients at once", 164},
		{"broken", "something is broken", 0},
	} {
		fmt.Fprintf(b,
			"<rect class=%q x=\"%d\" y=\"36\" width=\"18\" height=\"%d\" rx=\"2\"/><text x=\"%d\" y=\"46\">%s</text>\n",
			entry.class, at, barHeight, at+24, entry.text)
		at += entry.width
	}
}

func (p *Picture) x(at int64) float64 {
	share := float64(min(max(at, 0), int64(p.Time))) / float64(p.Time)
	return left + share*(right-left)
}

// panel draws one run from y down.
func (p *Picture) panel(b *bytes.Buffer, r *Run, y int) {
	held, double := bars(r.History)
	verdict := "right"
	if double > 0 {
		verdict = "wrong"
	}
	fmt.Fprintf(b, "<text class=\"target\" x=\"8\" y=\"%d\">%s: <tspan class=%q>%s</tspan></text>\n", y+16,
		html.EscapeString(r.name()), verdict, count(double))
	y += heading
	rows := p.Clients * rowHeight
	for _, f := range r.History.Faults {
		p.rect(b, "broken", span{f.Start, f.Stop}, y, labels+rows)
		fmt.Fprintf(b, "<text class=\"fault\" x=\"%.1f\" y=\"%d\">%s</text>\n", p.x(f.Start)+2, y+13,
			html.EscapeString(happened(f.Name)))
	}
	y += labels
	var during []span
	for _, h := range held {
		during = append(during, h.shared...)
	}
	for _, s := range union(during) {
		p.rect(b, "during", s, y, rows)
	}
	for client := range p.Clients {
		middle := y + client*rowHeight + rowHeight/2
		fmt.Fprintf(b, "<text x=\"8\" y=\"%d\">client %d</text><path class=\"row\" d=\"M%d %d.5H%d\"/>\n", middle+4, client+
			1, left, middle, right)
	}
	for _, h := range held {
		at := y + h.client*rowHeight + (rowHeight-barHeight)/2
		p.rect(b, "hold", h.span, at, barHeight)
		for _, s := range h.shared {
			p.rect(b, "two", s, at, barHeight)
		}
	}
}

// rect draws a span of time, wide enough to be seen.
func (p *Picture) rect(b *bytes.Buffer, class string, s span, y, height int) {
	from, to := p.x(s.from), p.x(s.to)
	fmt.Fprintf(b, "<rect class=%q x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>\n", class, from, y, max(to-from, 1),
		height)
}

// axis draws the seconds.
func (p *Picture) axis(b *bytes.Buffer, y int) {
	const step = 5 * time.Second
	for at := time.Duration(0); at <= p.Time; at += step {
		x := p.x(int64(at))
		fmt.Fprintf(b,
			"<path class=\"row\" d=\"M%.1f %dv4\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d s</text>\n", x, y+
				2, x, y+18, int(at.Seconds()))
	}
}
