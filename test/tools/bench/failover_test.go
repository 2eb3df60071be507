package main

import (
	"strings"
	"testing"
	"time"
)

func TestFailoverReport(t *testing.T) {
	moves := &failoverPart{
		Proxy: "kube-proxy of Kubernetes v1.36.3",
		Moves: []moveResult{
			newMoveResult("own cluster", "its default", []time.Duration{900 * time.Millisecond, 1100 * time.Millisecond}),
			newMoveResult("other cluster", "its default", []time.Duration{90 * time.Millisecond}),
		},
		Drains: []drainedResult{{"own cluster", "its default", 3, 1000, 0}, {"other cluster", "its default", 3, 1000, 1}},
	}
	together := &togetherPart{Services: 5000, Changes: []togetherResult{
		{What: "hidden", Shown: 12, Slices: 5000, Most: 1},
		{What: "moved", Written: 5, Shown: 12, Landed: 31, Slices: 5000, Most: 2, Others: map[string]float64{"local ServiceImport patch": 5000}},
	}}
	var missed []string
	all := append(moves.goals(), together.goals()...)
	for _, g := range all {
		if g.Missed {
			missed = append(missed, g.What)
		}
	}
	want := "p99 from the loss in the own cluster to the next cluster, kube-proxy with its default, ms; " +
		"failed connections while the other cluster is drained, kube-proxy with its default; " +
		"moved: until it is in effect, s; moved: writes of one slice"
	if got := strings.Join(missed, "; "); got != want || len(all) != 8 {
		t.Errorf("of %d goals missed %q, want of 8 %q", len(all), got, want)
	}
	text := squeeze(moves.markdown() + together.markdown())
	for _, want := range []string{
		"| own cluster | its default | 2 | 900 | 1100 | 1100 | ≤ 1000 **missed** |",
		"| other cluster | its default | 3 | 1000 | 1 | ≤ 0 **missed** |",
		"| hidden | 0.0 | 12.0 | – | ≤ 30 | 5000 | 1 | ≤ 1 | none |",
		"| moved | 5.0 | 12.0 | 31.0 | ≤ 30 **missed** | 5000 | 2 | ≤ 1 **missed** | 5000 local ServiceImport patch |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("report lacks %q:\n%s", want, text)
		}
	}
}
