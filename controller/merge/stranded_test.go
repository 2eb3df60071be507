package merge

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// dividedOf reads slices of one cluster from a text such as "a=12 b=3": a has the endpoints 1 and 2.
func dividedOf(text string) (all []*discoveryv1.EndpointSlice) {
	for _, field := range strings.Fields(text) {
		name, endpoints, _ := strings.Cut(field, "=")
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{mcsv1beta1.LabelSourceCluster: "west"}}}
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

// docs/spec/controller.md 5.5: which endpoints of slices that change or go stay where they are, as their new place is not written.
func TestMovedEndpoints(t *testing.T) {
	for _, tt := range []struct {
		name                      string
		existing, wanted, updates string
		missing, retained         string
	}{
		{name: "nothing moves", existing: "a=12", wanted: "a=12", updates: "a=12", retained: "a=12"},
		{name: "one goes", existing: "a=12", wanted: "a=1", updates: "a=1", retained: "a=1"},
		{name: "one moves to a new slice", existing: "a=12", wanted: "a=1 b=23", updates: "a=1", missing: "b=23", retained: "a=12"},
		{name: "that exists", existing: "a=12 b=23", wanted: "a=1 b=23", updates: "a=1", retained: "a=1"},
		{name: "one moves to a slice that grows", existing: "a=12 b=3", wanted: "a=1 b=23", updates: "a=1 b=23", missing: "b=2", retained: "a=12 b=23"},
		{name: "two change places", existing: "a=12 b=34", wanted: "a=13 b=24", updates: "a=13 b=24", missing: "a=3 b=2", retained: "a=132 b=243"},
		{name: "one that is in both goes from one", existing: "a=12 b=2", wanted: "a=1 b=23", updates: "a=1", missing: "b=3", retained: "a=1"},
		{name: "one stays beside a copy that is missing", existing: "a=12", wanted: "a=12 b=2", updates: "a=12", missing: "b=2", retained: "a=12"},
	} {
		byName := make(map[string]*discoveryv1.EndpointSlice)
		for _, e := range dividedOf(tt.existing) {
			byName[e.Name] = e
		}
		wanted := dividedOf(tt.wanted)
		missing := Unwritten(wanted, func(name string) *discoveryv1.EndpointSlice { return byName[name] })
		if got := textOf(missing); got != tt.missing {
			t.Errorf("%s: missing %q, want %q", tt.name, got, tt.missing)
		}
		updates := dividedOf(tt.updates)
		var retained []*discoveryv1.EndpointSlice
		for _, o := range updates {
			r := Retained(o, byName[o.Name], missing)
			if changed := textOf(dividedOf(tt.updates)) != textOf(updates); changed || (r != o) != (len(r.Endpoints) > len(o.Endpoints)) {
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
	if r := Retained(full, dividedOf("a=12")[0], dividedOf("b=12")); len(r.Endpoints) != broker.MaxEndpoints {
		t.Errorf("%d endpoints in a slice that is full, want %d", len(r.Endpoints), broker.MaxEndpoints)
	}
	other := dividedOf("b=2")
	other[0].Labels[mcsv1beta1.LabelSourceCluster] = "north"
	if left := Stranded(dividedOf("a=12")[0], other); len(left) > 0 {
		t.Errorf("%v stay in a slice of another cluster", left)
	}
	for text, want := range map[string]bool{"a=12": false, "a=21": false, "a=1": true, "a=13": true, "a=123": false} {
		if got := Loses(dividedOf(text)[0], dividedOf("a=12")[0]); got != want {
			t.Errorf("Loses(%s) = %t, want %t", text, got, want)
		}
	}
}
