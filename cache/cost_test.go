package cache

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/clusterset-dns/clusterset/test/harness/allocs"
)

// A change costs what its service holds, and the path to it in the index, whatever else the zone holds: counted is what is
// allocated from the event of a slice to the published state.
func TestChangeAllocations(t *testing.T) {
	// The slice as it is read from the event and as it is packed; the service with its tables; the path of the index, which
	// grows with the logarithm; the state.
	const most = 100
	var counts []float64
	for _, services := range []int{100, 10_000} {
		s, p := changing(t, services)
		const runs = 50
		var events []*discoveryv1.EndpointSlice
		for i := range 2 * runs { // some are not counted
			events = append(events, changedSlice(i))
		}
		got := allocs.PerRun(runs, func() {
			before := s.State()
			if err := s.stores[1].Update(events[0]); err != nil {
				t.Fatal(err)
			}
			events = events[1:]
			p.round()
			if s.State() == before {
				t.Fatal("not published")
			}
		})
		t.Logf("%d services: %.0f allocations", services, got)
		counts = append(counts, got)
	}
	if counts[1] > most {
		t.Errorf("%.0f allocations for a change, want at most %d", counts[1], most)
	}
	const more = 16 // the path, and what the race detector takes out of pools
	if counts[1] > counts[0]+more {
		t.Errorf("%.0f allocations for a change among 10,000 services, %.0f among 100: want at most %d more", counts[1], counts[0], more)
	}
}
