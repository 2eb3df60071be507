package export

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// declared removes from a slice for the broker the addresses outside of the networks that the cluster declared, and
// endpoints that have no other: the broker would deny the whole slice for one of them, and keep the endpoints of before
// (docs/spec/controller.md 3.4).
func (x *exporter) declared(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	if x.o.Networks == nil {
		return s
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		e.Addresses = slices.DeleteFunc(e.Addresses, x.isUndeclared)
	}
	s.Endpoints = slices.DeleteFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return len(e.Addresses) == 0 })
	return s
}

// isUndeclared notes an address that is not exported.
func (x *exporter) isUndeclared(text string) bool {
	addr, err := broker.ParseAddress(text)
	if err == nil && x.isDeclared(addr) {
		return false
	}
	x.undeclared = append(x.undeclared, text)
	return true
}

func (x *exporter) isDeclared(addr netip.Addr) bool {
	return slices.ContainsFunc(x.o.Networks, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// dropUndeclared reports the addresses that are left out; it returns their number.
func (x *exporter) dropUndeclared() int {
	const maxShown = 3
	slices.Sort(x.undeclared)
	all := slices.Compact(x.undeclared)
	if len(all) == 0 {
		return 0
	}
	text := strings.Join(all[:min(len(all), maxShown)], ", ")
	if more := len(all) - maxShown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	x.drop("Addresses in none of the networks that this cluster declared are not exported: %s. Join again with all networks of its endpoints.", text)
	return len(all)
}
