package desired

import (
	"fmt"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// docs/spec/controller.md 5.6: which hints endpoints get. Each endpoint has those of its own zone and node, whatever
// others have.
func TestSetHints(t *testing.T) {
	// of makes a slice of endpoints "<zone>/<node>".
	of := func(endpoints ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{}
		for _, text := range endpoints {
			zone, node, _ := strings.Cut(text, "/")
			e := discoveryv1.Endpoint{}
			if zone != "" {
				e.Zone = &zone
			}
			if node != "" {
				e.NodeName = &node
			}
			s.Endpoints = append(s.Endpoints, e)
		}
		return s
	}
	all := func(s ...*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice { return s }
	for _, tt := range []struct {
		name         string
		distribution string
		imported     []*discoveryv1.EndpointSlice
		want         string // of each endpoint "<zones>/<nodes>"
	}{
		{"no distribution", "", all(of("a/n")), "-"},
		{"one of another implementation", "example.com/near", all(of("a/n")), "-"},
		{"own zones, of two clusters", "PreferClose", all(of("a/n", "b/m"), of("a")), "[a]/[] [b]/[] [a]/[]"},
		{"PreferSameZone", "PreferSameZone", all(of("a/n")), "[a]/[]"},
		{"one without a zone", "PreferClose", all(of("a/n", "b/m"), of("")), "[a]/[] [b]/[] -"},
		{"nodes, and one without a zone", "PreferSameNode", all(of("a/n", "/m")), "[a]/[n] []/[m]"},
		{"own nodes", "PreferSameNode", all(of("a/n", "b/m")), "[a]/[n] [b]/[m]"},
		{"nodes, and another cluster", "PreferSameNode", all(of("a/n"), of("b"), of("")), "[a]/[n] [b]/[] -"},
		{"nodes without zones", "PreferSameNode", all(of("/n")), "[]/[n]"},
		{"no endpoints", "PreferClose", all(of()), ""},
	} {
		SetHints(&tt.distribution, tt.imported)
		var got []string
		for _, s := range tt.imported {
			for _, e := range s.Endpoints {
				if e.Hints == nil {
					got = append(got, "-")
					continue
				}
				zones, nodes := []string{}, []string{}
				for _, z := range e.Hints.ForZones {
					zones = append(zones, z.Name)
				}
				for _, n := range e.Hints.ForNodes {
					nodes = append(nodes, n.Name)
				}
				got = append(got, fmt.Sprintf("%v/%v", zones, nodes))
			}
		}
		if text := strings.Join(got, " "); text != tt.want {
			t.Errorf("%s: hints = %s, want %s", tt.name, text, tt.want)
		}
	}
}
