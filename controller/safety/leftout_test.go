package safety

import (
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// docs/spec/controller.md 8.2: what an earlier process left expired is known from what is imported.
func TestLeftOut(t *testing.T) {
	slice := func(cluster string, ready ...bool) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{mcsv1beta1.LabelSourceCluster: cluster}}}
		for _, r := range ready {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: &r}})
		}
		return s
	}
	service := func(clusters []string, s ...*discoveryv1.EndpointSlice) importedService {
		i := importedService{slices: s}
		for _, c := range clusters {
			i.clusters = append(i.clusters, mcsv1beta1.ClusterStatus{Cluster: c})
		}
		return i
	}
	for _, tt := range []struct {
		name  string
		given []importedService
		o     OnExpiry
		want  []string
	}{
		{name: "nothing imported", o: Remove},
		{name: "all in", given: []importedService{service([]string{"self", "a"}, slice("a", true))}, o: Remove},
		{name: "one out", given: []importedService{service([]string{"self", "a", "b"}, slice("a", true))}, o: Remove, want: []string{"b"}},
		{name: "this cluster is never out", given: []importedService{service([]string{"self"})}, o: Remove},
		{name: "in with another service", given: []importedService{service([]string{"a"}), service([]string{"a"}, slice("a"))}, o: Remove},
		{name: "not ready", given: []importedService{service([]string{"a", "b"}, slice("a", false), slice("b", false, true))}, o: NotReady, want: []string{"a"}},
		{name: "not ready, and removed", given: []importedService{service([]string{"a"}, slice("a", false))}, o: Remove},
		{name: "kept", given: []importedService{service([]string{"a"})}, o: Retain},
	} {
		if got := leftOut(tt.given, "self", tt.o); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
