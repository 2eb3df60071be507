package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strconv"
)

// A plot shows how figures grow, both axes logarithmic: what is proportional is a line that rises, what stays the same
// is level.
type plot struct {
	title, x, y string // the axes' titles have the unit
	lines       []line
}

// A line is the figures of one peer. Figures are above 0.
type line struct {
	name   string
	points []point
}

type point struct{ x, y float64 }

// Sizes in the unit of the picture. The area of the lines lies within the margins.
const (
	plotWidth, plotHeight = 720, 420

	plotLeft, plotRight  = 80, 24
	plotTop, plotBottom  = 88, 56
	plotLegend, plotMark = 160, 24 // widths of an entry of the legend and of its mark
)

// plotStyle has its own background, as the page around may be light where the system is dark. Lines differ in their
// dashes too, for readers who cannot distinguish the colours.
const plotStyle = `
svg { --paper: #ffffff; --ink: #1f2328; --grid: #d8dee4; --l0: #0969da; --l1: #8250df; --l2: #bc4c00; --l3: #9a6700 }
@media (prefers-color-scheme: dark) {
  svg { --paper: #0d1117; --ink: #e6edf3; --grid: #30363d; --l0: #58a6ff; --l1: #bc8cff; --l2: #ff9b5e; --l3: #e3b341 }
}
text { font: 13px sans-serif; fill: var(--ink) }
.title { font-size: 16px; font-weight: bold }
.paper { fill: var(--paper) }
.grid { stroke: var(--grid) }
polyline, .mark { fill: none; stroke-width: 2.5 }
.l0 { stroke: var(--l0) } circle.l0 { fill: var(--l0) }
.l1 { stroke: var(--l1); stroke-dasharray: 8 4 } circle.l1 { fill: var(--l1); stroke-dasharray: none }
.l2 { stroke: var(--l2); stroke-dasharray: 2 4 } circle.l2 { fill: var(--l2); stroke-dasharray: none }
.l3 { stroke: var(--l3); stroke-dasharray: 8 4 2 4 } circle.l3 { fill: var(--l3); stroke-dasharray: none }
`

// plotColours is the number of lines that a plot can distinguish.
const plotColours = 4

// svg draws the plot. It panics without a point and with more than [plotColours] lines.
func (p plot) svg() []byte {
	if len(p.lines) > plotColours {
		panic(fmt.Sprintf("bench: plot of %d lines: want at most %d", len(p.lines), plotColours))
	}
	var b bytes.Buffer
	write := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) }
	x := newLogScale(p.lines, func(at point) float64 { return at.x }, plotLeft, plotWidth-plotRight)
	y := newLogScale(p.lines, func(at point) float64 { return at.y }, plotHeight-plotBottom, plotTop)
	write(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">`, plotWidth, plotHeight)
	write(`<title>%s</title>`, html.EscapeString(p.title))
	write(`<style>%s</style>`, plotStyle)
	write(`<rect class="paper" width="%d" height="%d"/>`, plotWidth, plotHeight)
	write(`<text class="title" x="%d" y="28">%s</text>`, plotLeft, html.EscapeString(p.title))
	p.drawAxes(write, x, y)
	for i, l := range p.lines {
		l.draw(write, i, x, y)
	}
	write(`</svg>`)
	return b.Bytes()
}

func (p plot) drawAxes(write func(string, ...any), x, y logScale) {
	for _, at := range x.ticks() {
		write(`<line class="grid" x1="%.1f" x2="%.1[1]f" y1="%d" y2="%d"/>`, x.at(at), plotTop, plotHeight-plotBottom)
		write(`<text text-anchor="middle" x="%.1f" y="%d">%s</text>`, x.at(at), plotHeight-plotBottom+20, grouped(at))
	}
	for _, at := range y.ticks() {
		write(`<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1[3]f"/>`, plotLeft, plotWidth-plotRight, y.at(at))
		write(`<text text-anchor="end" x="%d" y="%.1f">%s</text>`, plotLeft-8, y.at(at)+4, grouped(at))
	}
	middle := (plotTop + plotHeight - plotBottom) / 2
	write(`<text text-anchor="middle" x="%d" y="%d">%s</text>`,
		(plotLeft+plotWidth-plotRight)/2, plotHeight-12, html.EscapeString(p.x))
	write(`<text text-anchor="middle" transform="translate(20 %d) rotate(-90)">%s</text>`, middle, html.EscapeString(p.y))
}

// draw draws line i and its entry of the legend.
func (l line) draw(write func(string, ...any), i int, x, y logScale) {
	var points bytes.Buffer
	for _, at := range l.points {
		_, _ = fmt.Fprintf(&points, "%.1f,%.1f ", x.at(at.x), y.at(at.y))
		write(`<circle class="l%d" r="3.5" cx="%.1f" cy="%.1f"><title>%s: %s</title></circle>`,
			i, x.at(at.x), y.at(at.y), html.EscapeString(l.name), strconv.FormatFloat(at.y, 'g', 3, 64))
	}
	write(`<polyline class="l%d" points="%s"/>`, i, bytes.TrimSpace(points.Bytes()))
	left := plotLeft + i*plotLegend
	write(`<path class="mark l%d" d="M%d 58h%d"/>`, i, left, plotMark)
	write(`<text x="%d" y="62">%s</text>`, left+plotMark+6, html.EscapeString(l.name))
}

// A logScale maps figures between two powers of ten to positions of the picture.
type logScale struct {
	low, high float64 // exponents of ten, whole
	from, to  float64
}

// newLogScale takes in all figures. It panics without any.
func newLogScale(lines []line, figure func(point) float64, from, to float64) logScale {
	low, high := math.Inf(1), math.Inf(-1)
	for _, l := range lines {
		for _, p := range l.points {
			low, high = min(low, figure(p)), max(high, figure(p))
		}
	}
	if low > high || low <= 0 || math.IsInf(high, 1) {
		panic(fmt.Sprintf("bench: plot of figures from %g to %g: want them above 0", low, high))
	}
	s := logScale{low: math.Floor(math.Log10(low)), high: math.Ceil(math.Log10(high)), from: from, to: to}
	if s.low == s.high {
		s.high++
	}
	return s
}

func (s logScale) at(figure float64) float64 {
	return s.from + (s.to-s.from)*(math.Log10(figure)-s.low)/(s.high-s.low)
}

// ticks returns the powers of ten, and what lies between where there are few.
func (s logScale) ticks() []float64 {
	var all []float64
	for e := s.low; e < s.high; e++ {
		all = append(all, math.Pow(10, e))
		if s.high-s.low <= 2 {
			all = append(all, 2*math.Pow(10, e), 5*math.Pow(10, e))
		}
	}
	return append(all, math.Pow(10, s.high))
}

// grouped writes a figure with commas between its thousands.
func grouped(figure float64) string {
	text := strconv.FormatFloat(figure, 'f', -1, 64)
	if figure < 1000 {
		return text
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
