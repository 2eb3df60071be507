package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestPlot(t *testing.T) {
	p := plot{
		title: "CPU <time>", x: "endpoints", y: "µs",
		lines: []line{
			{"ours", []point{{1e3, 10}, {1e6, 12.5}}},
			{"in-tree", []point{{1e3, 20}, {1e6, 950}}},
		},
	}
	text := string(p.svg())
	d := xml.NewDecoder(strings.NewReader(text))
	lines, marks := 0, 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not well-formed: %v\n%s", err, text)
		}
		if start, ok := token.(xml.StartElement); ok {
			switch start.Name.Local {
			case "polyline":
				lines++
			case "circle":
				marks++
			}
		}
	}
	if lines != 2 || marks != 4 || strings.Contains(text, "%!") {
		t.Errorf("%d lines and %d marks, want 2 and 4:\n%s", lines, marks, text)
	}
	for _, want := range []string{
		"CPU &lt;time&gt;", ">1,000<", ">1,000,000<", ">10<", ">1,000<", ">endpoints<", ">µs<", ">ours<", ">in-tree<",
		"prefers-color-scheme: dark",
		// From the lower left corner of the area nearly level to the right edge.
		`<polyline class="l0" points="80.0,364.0 696.0,350.6"/>`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("plot lacks %q:\n%s", want, text)
		}
	}
}

func TestLogScale(t *testing.T) {
	lineOf := func(figures ...float64) []line {
		var l line
		for _, f := range figures {
			l.points = append(l.points, point{x: f, y: 1})
		}
		return []line{l}
	}
	x := func(p point) float64 { return p.x }
	for _, tt := range []struct {
		name    string
		figures []float64
		ticks   []float64
	}{
		{"powers of ten", []float64{1e3, 1e6}, []float64{1e3, 1e4, 1e5, 1e6}},
		{"between them", []float64{12, 80}, []float64{10, 20, 50, 100}},
		{"one figure, a power of ten", []float64{100}, []float64{100, 200, 500, 1000}},
		{"below one", []float64{0.5, 2}, []float64{0.1, 0.2, 0.5, 1, 2, 5, 10}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newLogScale(lineOf(tt.figures...), x, 0, 100)
			near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9*b }
			if got := s.ticks(); !slices.EqualFunc(got, tt.ticks, near) {
				t.Errorf("ticks of %v = %v, want %v", tt.figures, got, tt.ticks)
			}
			for _, f := range tt.figures {
				if at := s.at(f); at < 0 || at > 100 {
					t.Errorf("%g stands at %g: want it within 0 and 100", f, at)
				}
			}
		})
	}
}
