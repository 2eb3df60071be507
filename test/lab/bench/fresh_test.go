package main

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
)

var errTest = errors.New("no more")

// Each thing is changed once before any is changed again, never more at a time than allowed, and the first error ends
// it.
func TestPace(t *testing.T) {
	for _, rate := range []int{mostChanges, 1_000_000} {
		p := pace{rate: rate, things: 10, outstanding: 1}
		stop := make(chan struct{})
		var order []int // one change at a time
		n, err := p.run(t.Context(), stop, func(_ context.Context, i int) error {
			if order = append(order, i); len(order) == 25 {
				close(stop)
			}
			return nil
		})
		if err != nil || n < 25 || len(order) != n {
			t.Errorf("rate %d: %d changes, %d made, %v, want 25 or more", rate, n, len(order), err)
		}
		for _, round := range [][]int{order[:10], order[10:20]} {
			seen := map[int]bool{}
			for _, i := range round {
				seen[i] = true
			}
			if len(seen) != p.things {
				t.Errorf("rate %d: changed %v, want each thing once", rate, round)
			}
		}
	}
}

func TestPaceFails(t *testing.T) {
	var under, most atomic.Int64
	p := pace{things: 100, outstanding: 4}
	_, err := p.run(t.Context(), nil, func(_ context.Context, i int) error {
		defer under.Add(-1)
		if now := under.Add(1); now > most.Load() {
			most.Store(now)
		}
		if i == 50 {
			return errTest
		}
		return nil
	})
	if !errors.Is(err, errTest) || most.Load() > 4 {
		t.Errorf("error %v with %d changes at a time, want %v and 4 at most", err, most.Load(), errTest)
	}
}

// testLoss is of servers of which ours answers twice as much and changes take too much of at the highest rate.
func testLoss() lossResults {
	trial := func(p peer, rate int, changes, qps, cpu float64) *lossTrial {
		return &lossTrial{server: &server{peer: p}, rate: rate, changes: []float64{changes}, qps: []float64{qps},
			cpu: []float64{cpu}}
	}
	return newLossResults([]*lossTrial{
		trial(inTreePeer, noChanges, 0, 20_000, 40), trial(ourPeer, noChanges, 0, 40_000, 20),
		trial(inTreePeer, freshRate, 200, 15_000, 40), trial(ourPeer, freshRate, 200, 30_000, 25),
		trial(inTreePeer, mostChanges, 2400, 10_000, 80), trial(ourPeer, mostChanges, 2400, 30_000, 21),
	}, map[string]float64{inTreePeer.name: 80, ourPeer.name: 40})
}

func TestLoss(t *testing.T) {
	all := testLoss()
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-9 }
	for _, tt := range []struct {
		name string
		got  float64
		want float64
	}{
		{"queries/s of ours over in-tree, no changes", all[1].QPSRatio.Median, 2},
		{"queries/s that in-tree loses at 200/s, %", all[2].QPSLoss.Median, 25},
		{"queries of a second of CPU that ours loses at 200/s, %", all[3].CPULoss.Median, 20},
		{"CPU time that 200 changes/s take of ours, %", all[3].ChangeLoss, 1},
		{"queries of a second of CPU that in-tree loses at most, %", all[4].CPULoss.Median, 50},
	} {
		if !near(tt.got, tt.want) {
			t.Errorf("%s = %g, want %g", tt.name, tt.got, tt.want)
		}
	}
	goals := all.goals()
	if len(goals) != 2 || goals[0].Missed || !goals[1].Missed {
		t.Errorf("goals %v, want the second of two missed", goals)
	}
	text, want := squeeze(lossTable(
		all)), "| 30000 (0 %) | 2.00 | 25.0 (25.0 to 25.0) | 25.0 (0 %) | 20.0 (20.0 to 20.0) | 40 | 1.0 | ≤ 10 |"
	if !strings.Contains(text, want) {
		t.Errorf("table lacks %q:\n%s", want, text)
	}
}
