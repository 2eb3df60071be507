package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	got := table([][]string{{"question", "µs"}, {"A", "12.5"}, {"NXDOMAIN, mostly", "1"}})
	want := `| question         |   µs |
| ---------------- | ---: |
| A                | 12.5 |
| NXDOMAIN, mostly |    1 |
`
	if got != want {
		t.Errorf("table =\n%s\nwant\n%s", got, want)
	}
}

// testReport meets some targets and misses others.
func testReport() *report {
	flat := func(v float64) summary { return summary{v, v, v} }
	peers := func(over float64) map[string]peerResult {
		return map[string]peerResult{
			"baseline": {CPU: flat(10), OverBaseline: flat(1)}, "in-tree": {CPU: flat(20), OverBaseline: flat(2)},
			"ours": {CPU: flat(10 * over), OverBaseline: flat(over)},
		}
	}
	r := &report{}
	r.parts = append(r.parts, rowsPart{
		{Question: "met", Target: 1.1, Peers: peers(1.1)},
		{Question: "over it", Target: 1.1, Peers: peers(1.2)},
	})
	r.parts = append(r.parts, memoryPart{
		{Peer: "empty", Heap: flat(2e6), Resident: flat(30e6), Peak: flat(30e6)},
		{Peer: "in-tree", Heap: flat(202e6), Resident: flat(430e6), Peak: flat(430e6)},
		{Peer: "ours", Heap: flat(52e6), Resident: flat(141e6), Peak: flat(250e6)},
	})
	r.parts = append(r.parts, &freshPart{Delays: [][]freshResult{{
		{Peer: "in-tree", Wanted: 200, spans: spans{P50: 0.4, P99: 4, Max: 10}},
		{Peer: "ours", Wanted: 200, spans: spans{P50: 0.2, P99: 8, Max: 10}},
	}}})
	r.parts = append(r.parts, testGrowth())
	return r
}

func TestGoals(t *testing.T) {
	var missed []string
	all := testReport().goals()
	for _, g := range all {
		if g.Missed {
			missed = append(missed, g.What)
		}
	}
	want := "over it: CPU over baseline; resident over empty, octets; p99 from change to answer over in-tree, 200 changes/s; " +
		"VIP A: CPU with 1,000,000 endpoints over 1,000; CPU of a slice change with 100,000 services, µs"
	if got := strings.Join(missed, "; "); got != want || len(all) != 13 {
		t.Errorf("of %d goals missed %q, want of 13 %q", len(all), got, want)
	}
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	var out strings.Builder
	if err := testReport().write(&out, dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "bench.md"))
	if err != nil || string(text) != out.String() {
		t.Errorf("bench.md differs from the standard output: %v", err)
	}
	for _, want := range []string{
		"| over it  |   10.0 (0 %) |    20.0 (0 %) | 12.0 (0 %) |        2.00 (0 %) |     1.20 (0 %) | ≤ 1.10 **missed** |",
		"| ours over empty    |          50.0 |           111.0 |             220.0 |                |",
		"| ours / in-tree |  |  |         |           |    0.50 |              2.00 |    1.00 |",
		"8 of 13 met.",
	} {
		if !strings.Contains(squeeze(out.String()), squeeze(want)) {
			t.Errorf("report lacks %q:\n%s", want, out.String())
		}
	}
	if drawn, err := os.ReadFile(filepath.Join(dir, "growth-services-cpu.svg")); err != nil || len(drawn) == 0 {
		t.Errorf("a plot is not beside the report: %v", err)
	}
}

// squeeze leaves one blank where there were several: widths are the matter of TestTable.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }
