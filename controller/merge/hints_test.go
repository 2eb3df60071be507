package merge

import (
	"fmt"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// docs/spec/controller.md 5.6: which hints endpoints get. An endpoint without a zone takes no hint from others; hints for nodes are complete or left out.
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
		name             string
		distribution     string
		imported, beside []*discoveryv1.EndpointSlice
		want             string // of each endpoint "<zones>/<nodes>"
	}{
		{"no distribution", "", all(of("a/n")), nil, "-"},
		{"one of another implementation", "example.com/near", all(of("a/n")), nil, "-"},
		{"own zones, of two clusters", "PreferClose", all(of("a/n", "b/m"), of("a")), nil, "[a]/[] [b]/[] [a]/[]"},
		{"PreferSameZone", "PreferSameZone", all(of("a/n")), nil, "[a]/[]"},
		{"one without a zone", "PreferClose", all(of("a/n", "b/m"), of("")), nil, "[a]/[] [b]/[] -"},
		{"one beside without a zone", "PreferClose", all(of("a/n")), all(of("")), "[a]/[]"},
		{"one beside without a node", "PreferSameNode", all(of("a/n")), all(of("")), "[a]/[]"},
		{"nodes, and one without a zone", "PreferSameNode", all(of("a/n", "/m")), nil, "[a]/[n] []/[m]"},
		{"own nodes", "PreferSameNode", all(of("a/n", "b/m")), nil, "[a]/[n] [b]/[m]"},
		{"nodes, and another cluster: zones alone", "PreferSameNode", all(of("a/n"), of("b")), nil, "[a]/[] [b]/[]"},
		{"nodes without zones", "PreferSameNode", all(of("/n")), nil, "[]/[n]"},
		{"no endpoints", "PreferClose", all(of()), nil, ""},
	} {
		SetHints(&tt.distribution, tt.imported, tt.beside)
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
