package main

import (
	"slices"
	"strings"
	"testing"
)

// testGrowth misses two goals: VIP A costs more with many endpoints, and so does a slice change with many services.
func testGrowth() *growthPart {
	flat := func(v float64) summary { return summary{v, v, v} }
	result := func(axis string, size int, p peer, cpu, megabytes, change float64) growthResult {
		return growthResult{
			Axis: axis, Size: size, Peer: p.name,
			Memory:      memoryResult{Peer: p.name, Resident: flat(megabytes * 1e6)},
			CPU:         map[string]summary{growthVIP: flat(cpu), growthHost: flat(10)},
			Growth:      map[string]summary{growthVIP: flat(cpu / 10), growthHost: flat(1)},
			SliceChange: flat(change), ImportChange: flat(50),
		}
	}
	return &growthPart{
		Empty: memoryResult{Peer: "empty", Resident: flat(50e6)},
		Results: []growthResult{
			result(axisServices, 100, inTreePeer, 10, 60, 40), result(axisServices, 100, ourPeer, 10, 60, 40),
			result(axisServices, 100_000, inTreePeer, 30, 300, 90), result(axisServices, 100_000, ourPeer, 10.5, 90, 101),
			result(axisEndpoints, 1_000, inTreePeer, 10, 60, 40), result(axisEndpoints, 1_000, ourPeer, 10, 60, 40),
			result(axisEndpoints, 1_000_000, inTreePeer, 30, 900, 90), result(axisEndpoints, 1_000_000, ourPeer, 12, 250, 40),
		},
	}
}

func TestGrowthMarkdown(t *testing.T) {
	text := squeeze(testGrowth().markdown())
	for _, want := range []string{
		"| 100,000 | ours | 10.5 (0 %) | 10.0 (0 %) | 90.0 (0 %) | 0.0 (0 %) | 0.0 (0 %) | 0.00 (0 %) | 101 (0 %) | 50 (0 %) |",
		"| CPU per query | peer | 1,000,000 over 1,000 endpoints | target |",
		"| VIP A | ours | 1.20 (0 %) | ≤ 1.10 **missed** |",
		"| VIP A | in-tree | 3.00 (0 %) | |",
		"serves nothing: 50.0 (0 %) MB resident",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("report lacks %q:\n%s", want, testGrowth().markdown())
		}
	}
}

// A zone that grew step by step holds what one of the last size holds.
func TestGrowthSteps(t *testing.T) {
	for _, a := range growthAxes() {
		t.Run(a.name, func(t *testing.T) {
			var grown []string
			owner := func(s service) string { return s.owner() }
			have := growthSize{}
			for _, size := range a.sizes {
				for _, s := range size.since(have) {
					grown = append(grown, owner(s))
				}
				if a.size(size) <= a.size(have) {
					t.Errorf("size %v does not follow %v", size, have)
				}
				have = size
			}
			var want []string
			virtual, many := have.services()
			ips := map[string]bool{}
			for _, s := range slices.Concat(virtual, many) {
				want = append(want, owner(s))
				ips[s.ip.String()] = true
			}
			slices.Sort(grown)
			slices.Sort(want)
			if !slices.Equal(grown, want) {
				t.Errorf("%d services in steps, want %d", len(grown), len(want))
			}
			// All headless services share the zero address.
			if len(ips) != len(virtual)+1 {
				t.Errorf("%d addresses of %d VIPs", len(ips)-1, len(virtual))
			}
		})
	}
}

// The same number of names is asked for at every size, so that the processor's cache helps all alike; no zone has fewer.
func TestGrowthQuestions(t *testing.T) {
	for _, a := range growthAxes() {
		for _, size := range a.sizes[:3] {
			for _, r := range size.rows() {
				most := growthNames
				if r.name == growthVIP {
					most = min(most, size.vips)
				}
				if len(r.questions) != most {
					t.Errorf("%d %s, %s: %d questions, want %d", a.size(size), a.name, r.name, len(r.questions), most)
				}
			}
		}
	}
}
