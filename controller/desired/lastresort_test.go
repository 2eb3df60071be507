package desired

import (
	"fmt"
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// lastResortSlice is an imported slice: "<cluster>@<stamp> <v4|v6> <ports> <endpoints>", with + for a ready endpoint
// and - for another.
func lastResortSlice(text string) *discoveryv1.EndpointSlice {
	words := strings.Split(text, " ")
	cluster, stamp, _ := strings.Cut(words[0], "@")
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{mcsv1beta1.LabelSourceCluster: cluster},
			Annotations: map[string]string{broker.AnnotationSource: "hash uid 0 " + stamp},
		},
		AddressType: map[string]discoveryv1.AddressType{"v4": discoveryv1.AddressTypeIPv4,
			"v6": discoveryv1.AddressTypeIPv6}[words[1]],
	}
	for _, name := range strings.Split(words[2], ",") {
		if name != "none" {
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: new(name), Protocol: new(corev1.ProtocolTCP)})
		}
	}
	for _, ready := range words[3] {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: new(
			ready == '+')}})
	}
	return s
}

func lastResortText(all []*discoveryv1.EndpointSlice) string {
	var text []string
	for _, s := range all {
		line := s.Labels[mcsv1beta1.LabelSourceCluster] + " "
		for i, p := range s.Ports {
			line += strings.Repeat(",", min(i, 1)) + *p.Name
		}
		line += " "
		for _, e := range s.Endpoints {
			line += map[bool]string{true: "+", false: "-"}[*e.Conditions.Ready]
		}
		text = append(text, line)
	}
	return strings.Join(text, "; ")
}

// docs/spec/controller.md 8.2: for each port and IP family, ready endpoints of a silent cluster stay where no other
// cluster has a ready one.
func TestLastResort(t *testing.T) {
	silent := func(clusters ...string) (all []Source) {
		for _, c := range clusters {
			all = append(all, Source{Cluster: c, LastResort: math.MaxInt64})
		}
		return all
	}
	for _, tt := range []struct {
		name           string
		sources        []Source
		slices, beside []string
		want           string
	}{
		{name: "nobody is silent", slices: []string{"a@1 v4 http +-", "b@1 v4 http +"}, want: "a http +-; b http +"},
		{name: "only the silent one has a ready endpoint", sources: silent("a"),
			slices: []string{"a@1 v4 http +-", "b@1 v4 http -"}, want: "a http +; b http -"},
		{name: "another has one", sources: silent("a"), slices: []string{"a@1 v4 http +", "b@1 v4 http -+"},
			want: "b http -+"},
		{name: "two are silent", sources: silent("a", "b"), slices: []string{"a@1 v4 http +", "b@1 v4 http +"},
			want: "a http +; b http +"},
		{name: "not ready", sources: silent("a"), slices: []string{"a@1 v4 http -"}},
		{name: "by port", sources: silent("a"), slices: []string{"a@1 v4 http,dns +", "b@1 v4 http +"},
			want: "a dns +; b http +"},
		{name: "by family", sources: silent("a"), slices: []string{"a@1 v4 http +", "a@1 v6 http +", "b@1 v6 http +"},
			want: "a http +; b http +"},
		{name: "without ports", sources: silent("a"), slices: []string{"a@1 v4 none +", "b@1 v4 none +"}, want: "b  +"},
		{name: "without ports, and alone", sources: silent("a"), slices: []string{"a@1 v4 none +"}, want: "a  +"},
		{name: "one that stays as it is has one", sources: silent("a"), slices: []string{"a@1 v4 http +"},
			beside: []string{"c@1 v4 http +"}},
		{name: "behind: what was written since counts", sources: []Source{{Cluster: "a", LastResort: 5}},
			slices: []string{"a@4 v4 http +", "a@5 v4 http +"}, want: "a http +"},
		{name: "behind, and alone", sources: []Source{{Cluster: "a", LastResort: 5}},
			slices: []string{"a@4 v4 http +-", "b@1 v4 dns +"}, want: "a http +; b dns +"},
	} {
		var slices, beside []*discoveryv1.EndpointSlice
		for _, text := range tt.slices {
			slices = append(slices, lastResortSlice(text))
		}
		for _, text := range tt.beside {
			beside = append(beside, lastResortSlice(text))
		}
		before := fmt.Sprint(slices)
		if got := lastResortText(LastResort(tt.sources, slices, beside)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if fmt.Sprint(slices) != before {
			t.Errorf("%s: what was given is changed", tt.name)
		}
	}
}
