package main

import (
	"strings"
	"testing"
)

func testRow(mode, name string, peers map[string]peerResult, notes ...string) rowResult {
	return rowResult{Mode: mode, Question: name, Rounds: 5, Peers: peers, Notes: notes}
}

func TestRowsMarkdown(t *testing.T) {
	flat := func(v float64) summary { return summary{v, v, v} }
	half := peerResult{CPU: flat(10), OverBaseline: flat(1), P50: flat(40), P99: flat(90)}
	alone := peerResult{CPU: flat(20), P50: flat(50), P99: flat(95)}
	all := rowsPart{
		testRow("UDP", "A", map[string]peerResult{"baseline": half, "ours": half, "NSD": half}),
		testRow("UDP", "AAAA", map[string]peerResult{"baseline": half, "ours": half}, "why not", "and this"),
		testRow("UDP", "SRV", map[string]peerResult{"baseline": half, "ours": half}, "why not"),
		testRow("TCP", "A", map[string]peerResult{"baseline": half, "ours": half}),
		testRow("TCP", "large", map[string]peerResult{"ours": alone}),
	}
	got := squeeze(all.markdown())
	for _, want := range []string{
		"## CPU time of the server per query, UDP 5 rounds.",
		"UDP 5 rounds. | question | baseline, µs | ours, µs | NSD, µs | ours / baseline | NSD / baseline | target |",
		"| AAAA | 10.0 (0 %) | 10.0 (0 %) | – | 1.00 (0 %) | – | |",
		"- why not - and this ## Throughput, latency, answer size, UDP",
		"| A | NSD | 0 (0 %) | 0 (0 %) | 40 (0 %) | 90 (0 %) | 0 |",
		"## CPU time of the server per query, TCP 5 rounds. | question | baseline, µs | ours, µs | ours / baseline | target |",
		"| large | – | 20.0 (0 %) | – | |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("report lacks %q:\n%s", want, all.markdown())
		}
	}
	if goals := all.goals(); len(goals) > 0 {
		t.Errorf("goals of rows without a target: %v", goals)
	}
}
