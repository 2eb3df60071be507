package member

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// The loss of the last ready endpoint is one of a Service of this cluster (docs/spec/controller.md 10.3).
func TestLosesEndpoints(t *testing.T) {
	slice := func(label string, ready ...bool) *discoveryv1.EndpointSlice {
		e := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{label: "web"}}}
		for _, r := range ready {
			e.Endpoints = append(e.Endpoints, discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: &r}})
		}
		return e
	}
	const source, imported = discoveryv1.LabelServiceName, mcsv1beta1.LabelServiceName
	for _, tt := range []struct {
		name    string
		was, is *discoveryv1.EndpointSlice
		want    bool
	}{
		{"the last one is not ready", slice(source, true, false), slice(source, false, false), true},
		{"the last one is removed", slice(source, true), slice(source), true},
		{"one of two", slice(source, true, true), slice(source, true, false), false},
		{"none was ready", slice(source, false), slice(source), false},
		{"one gets ready", slice(source, false), slice(source, true), false},
		{"an import follows its exporter", slice(imported, true), slice(imported, false), false},
	} {
		if got := losesEndpoints(tt.was, tt.is); got != tt.want {
			t.Errorf("%s: loses its last ready endpoint = %t, want %t", tt.name, got, tt.want)
		}
	}
	if !losesEndpoints(slice(source, true), nil) || losesEndpoints(slice(source, false), nil) {
		t.Error("a slice that is deleted does not lose what was ready")
	}
}
