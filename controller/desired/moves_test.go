package desired

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/test/harness/allocs"
)

// dividedOf reads slices of one cluster from a text such as "a=12 b=3": a has the endpoints 1 and 2.
func dividedOf(text string) (all []*discoveryv1.EndpointSlice) {
	for _, field := range strings.Fields(text) {
		name, endpoints, _ := strings.Cut(field, "=")
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{mcsv1beta1.LabelSourceCluster: "west"}}}
		for _, address := range endpoints {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{string(address)}})
		}
		all = append(all, s)
	}
	return all
}

func textOf(all []*discoveryv1.EndpointSlice) string {
	var text []string
	for _, s := range all {
		of := s.Name + "="
		for _, e := range s.Endpoints {
			of += strings.Join(e.Addresses, "")
		}
		text = append(text, of)
	}
	return strings.Join(text, " ")
}

// text returns which endpoints of the wanted slices are missing.
func (m *Moves) text(wanted []*discoveryv1.EndpointSlice) string {
	var missing []*discoveryv1.EndpointSlice
	for _, w := range wanted {
		of := &discoveryv1.EndpointSlice{ObjectMeta: w.ObjectMeta}
		for i, e := range w.Endpoints {
			if m.missing[w.Name][i] {
				of.Endpoints = append(of.Endpoints, e)
			}
		}
		if len(of.Endpoints) > 0 {
			missing = append(missing, of)
		}
	}
	return textOf(missing)
}

// docs/spec/controller.md 5.5: which endpoints of slices that change or go stay where they are, as their new place is
// not written.
func TestMovedEndpoints(t *testing.T) {
	for _, tt := range []struct {
		name                      string
		existing, wanted, updates string
		missing, retained         string
	}{
		{name: "nothing moves", existing: "a=12", wanted: "a=12", updates: "a=12", retained: "a=12"},
		{name: "one goes", existing: "a=12", wanted: "a=1", updates: "a=1", retained: "a=1"},
		{name: "one moves to a new slice", existing: "a=12", wanted: "a=1 b=23", updates: "a=1", missing: "b=23",
			retained: "a=12"},
		{name: "that exists", existing: "a=12 b=23", wanted: "a=1 b=23", updates: "a=1", retained: "a=1"},
		{name: "one moves to a slice that grows", existing: "a=12 b=3", wanted: "a=1 b=23", updates: "a=1 b=23",
			missing: "b=2", retained: "a=12 b=23"},
		{name: "two change places", existing: "a=12 b=34", wanted: "a=13 b=24", updates: "a=13 b=24", missing: "a=3 b=2",
			retained: "a=132 b=243"},
		{name: "one that is in both goes from one", existing: "a=12 b=2", wanted: "a=1 b=23", updates: "a=1", missing: "b=3",
			retained: "a=1"},
		{name: "one stays beside a copy that is missing", existing: "a=12", wanted: "a=12 b=2", updates: "a=12",
			missing: "b=2", retained: "a=12"},
	} {
		byName := make(map[string]*discoveryv1.EndpointSlice)
		for _, e := range dividedOf(tt.existing) {
			byName[e.Name] = e
		}
		wanted := dividedOf(tt.wanted)
		moves := NewMoves(wanted, func(name string) *discoveryv1.EndpointSlice { return byName[name] })
		if got := moves.text(wanted); got != tt.missing {
			t.Errorf("%s: missing %q, want %q", tt.name, got, tt.missing)
		}
		updates := dividedOf(tt.updates)
		var retained []*discoveryv1.EndpointSlice
		for _, o := range updates {
			r := moves.WithMissing(o, byName[o.Name])
			if changed := textOf(dividedOf(tt.updates)) != textOf(updates); changed ||
				(r != o) != (len(r.Endpoints) > len(o.Endpoints)) {
				t.Errorf("%s: an update was changed, or copied in vain", tt.name)
			}
			retained = append(retained, r)
		}
		if got := textOf(retained); got != tt.retained {
			t.Errorf("%s: updates %q, want %q", tt.name, got, tt.retained)
		}
		if !reflect.DeepEqual(wanted, dividedOf(tt.wanted)) {
			t.Errorf("%s: wanted slices were changed", tt.name)
		}
	}
	full := dividedOf("a=3")[0]
	full.Endpoints = slices.Repeat(full.Endpoints, broker.MaxEndpoints-1)
	none := func(string) *discoveryv1.EndpointSlice { return nil }
	if r := NewMoves(dividedOf("b=12"), none).WithMissing(full,
		dividedOf("a=12")[0]); len(r.Endpoints) != broker.MaxEndpoints {
		t.Errorf("%d endpoints in a slice that is full, want %d", len(r.Endpoints), broker.MaxEndpoints)
	}
	other := dividedOf("b=2")
	other[0].Labels[mcsv1beta1.LabelSourceCluster] = "north"
	if left := NewMoves(other, none).missingOf(dividedOf("a=12")[0]); len(left) > 0 {
		t.Errorf("%v stay in a slice of another cluster", left)
	}
	for text, want := range map[string]bool{"a=12": false, "a=21": false, "a=1": true, "a=13": true, "a=123": false} {
		if got := losesAddress(dividedOf(text)[0], dividedOf("a=12")[0]); got != want {
			t.Errorf("losesAddress(%s) = %t, want %t", text, got, want)
		}
	}
}

// docs/spec/controller.md 5.5: writes, failures and changes by others decide which endpoints are missing from then on.
func TestMovesFollowWhatIsWritten(t *testing.T) {
	for _, tt := range []struct {
		name             string
		existing, wanted string
		written          string // one after the other; "b=" for a slice that is gone
		slice, want      string // a slice that loses all, and what stays in it; nothing if it can go
	}{
		{name: "nothing is written", existing: "a=12", wanted: "b=12", slice: "a=12", want: "12"},
		{name: "one of two", existing: "a=12", wanted: "b=1 c=2", written: "b=1", slice: "a=12", want: "2"},
		{name: "both", existing: "a=12", wanted: "b=1 c=2", written: "c=2 b=1", slice: "a=12"},
		{name: "two slices should have it, one does", existing: "a=1", wanted: "b=1 c=1", written: "b=1", slice: "a=1",
			want: "1"},
		{name: "both do", existing: "a=1", wanted: "b=1 c=1", written: "b=1 c=1", slice: "a=1"},
		{name: "it is written twice", existing: "a=1", wanted: "b=1 c=1", written: "b=1 b=1", slice: "a=1", want: "1"},
		{name: "it is written without it", existing: "a=1", wanted: "b=12", written: "b=2", slice: "a=1", want: "1"},
		{name: "someone else takes it away", existing: "a=1 b=1", wanted: "b=1", written: "b=2", slice: "a=1", want: "1"},
		{name: "and gives it back", existing: "a=1 b=1", wanted: "b=1", written: "b=2 b=1", slice: "a=1"},
		{name: "its slice goes", existing: "a=1 b=1", wanted: "b=1", written: "b=", slice: "a=1", want: "1"},
		{name: "another slice is written", existing: "a=1", wanted: "b=1", written: "c=1", slice: "a=1", want: "1"},
	} {
		byName := make(map[string]*discoveryv1.EndpointSlice)
		for _, e := range dividedOf(tt.existing) {
			byName[e.Name] = e
		}
		moves := NewMoves(dividedOf(tt.wanted), func(name string) *discoveryv1.EndpointSlice { return byName[name] })
		for _, s := range dividedOf(tt.written) {
			if len(s.Endpoints) == 0 {
				moves.Record(s.Name, nil)
				continue
			}
			moves.Record(s.Name, s)
		}
		s := dividedOf(tt.slice)[0]
		var got string
		for _, e := range moves.missingOf(s) {
			got += e.Addresses[0]
		}
		if got != tt.want {
			t.Errorf("%s: %q stay, want %q", tt.name, got, tt.want)
		}
		if deleted, _ := moves.DivideUnwanted([]*discoveryv1.EndpointSlice{s}); (len(deleted) > 0) != (tt.want == "") {
			t.Errorf("%s: deleted %q, want that: %t", tt.name, textOf(deleted), tt.want == "")
		}
	}
}

// swapped returns the work of writing n slices, of which each two neighbors swap their endpoint.
func swapped(n int) func() {
	var existing, wanted []*discoveryv1.EndpointSlice
	slice := func(i, endpoint int) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("slice-", i),
				Labels: map[string]string{mcsv1beta1.LabelSourceCluster: "west"}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{fmt.Sprint("10.2.", endpoint/256, ".", endpoint%256)}}},
		}
	}
	byName := make(map[string]*discoveryv1.EndpointSlice, n)
	for i := range n {
		existing, wanted = append(existing, slice(i, i)), append(wanted, slice(i, i^1))
		byName[existing[i].Name] = existing[i]
	}
	return func() {
		moves := NewMoves(wanted, func(name string) *discoveryv1.EndpointSlice { return byName[name] })
		for i, w := range wanted {
			moves.Record(w.Name, moves.WithMissing(w, existing[i]))
		}
	}
}

// A member that has its endpoints in many small slices and swaps them costs no more than in proportion to the slices.
func TestMovesAreLinear(t *testing.T) {
	of := func(n int) float64 { return allocs.PerRun(5, swapped(n)) }
	few, many := of(100), of(1000)
	t.Logf("%.0f allocations with 100 slices, %.0f with 1,000", few, many)
	if many > 11*few {
		t.Errorf("%.0f allocations with 1,000 slices and %.0f with 100, want at most eleven times as many", many, few)
	}
}

// BenchmarkMoves works out which endpoints stay where slices swap theirs.
func BenchmarkMoves(b *testing.B) {
	for _, n := range []int{500, 5000} {
		b.Run(fmt.Sprintf("slices=%d", n), func(b *testing.B) {
			work := swapped(n)
			b.ReportAllocs()
			for b.Loop() {
				work()
			}
		})
	}
}
