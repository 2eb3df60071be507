package cache

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/test/harness/allocs"
)

// A change costs its service and the path to it in the index, whatever else the zone holds: the test counts allocations
// from the event of a slice to the published state.
func TestChangeAllocations(t *testing.T) {
	// The slice as it is read from the event and as it is packed; the service with its tables; the path of the index,
	// which grows with the logarithm; the state.
	const most = 100
	var counts []float64
	for _, services := range []int{100, 10_000} {
		s, p := changing(t, services, smallChange)
		const runs = 50
		var events []*discoveryv1.EndpointSlice
		for i := range 2 * runs { // some are not counted
			events = append(events, smallChange.slice(i))
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
		t.Errorf("%.0f allocations for a change among 10,000 services, %.0f among 100: want at most %d more", counts[1],
			counts[0], more)
	}
}

// With `namespaces`, too, the cost of deletions grows with the number of imports: four times as many take four times
// the allocations. To list the imports of the namespace at each deletion would take sixteen times as many.
func TestDeletionAllocations(t *testing.T) {
	few, many := deletionAllocations(t, 500), deletionAllocations(t, 2000)
	t.Logf("500 imports: %.0f allocations; 2,000: %.0f", few, many)
	if many > 6*few {
		t.Errorf("%.0f allocations with 2,000 imports, %.0f with 500: want four times as many", many, few)
	}
}

// deletionAllocations counts the allocations of serving imports and deleting all of them.
func deletionAllocations(t *testing.T, imports int) float64 {
	t.Helper()
	return allocs.PerRun(1, func() {
		s, err := New(Config{REST: &rest.Config{Host: "https://127.0.0.1:1"}, Namespaces: []string{"shop"}})
		must(t, err)
		defer s.client.Close()
		w := s.stores[0] // of ServiceImports
		var all []*customObject
		for i := range imports {
			all = append(all, &customObject{customMeta: customMeta{Namespace: "shop", Name: fmt.Sprint("db-", i)},
				Spec: []byte(headlessSpec)})
			add(w, all[i])
		}
		for _, w := range s.all {
			w.progress = listed
		}
		s.publisher.round()
		for _, o := range all {
			must(t, w.Delete(o))
		}
		if n := w.gone.Len(); n != imports {
			t.Fatalf("the deletions of %d of %d imports wait", n, imports)
		}
		w.gone.Release(time.Now().Add(time.Hour), 0, true, func(key string) { s.objects.remove(ServiceImport, key) })
		if s.publisher.round(); s.State().Index.Len() > 0 {
			t.Fatalf("%d services are left", s.State().Index.Len())
		}
	})
}

// A change of a large service allocates its tables. It does not build all hosts anew.
func TestLargeChange(t *testing.T) {
	const runs, most = 5, 4 << 20
	s, p := changing(t, 1, largeChange)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range runs {
		if err := s.stores[1].Update(largeChange.slice(i)); err != nil {
			t.Fatal(err)
		}
		p.round()
	}
	runtime.ReadMemStats(&after)
	got := (after.TotalAlloc - before.TotalAlloc) / runs
	t.Logf("%d octets", got)
	if got > most {
		t.Errorf("%d octets for a change among 40,000 endpoints, want at most %d", got, most)
	}
}
