package v1alpha1

import (
	"net/netip"
	"slices"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// Networks returns the networks that the member declared at its join, for Pods and for Services: it is never nil. Only
// addresses in them are exported and imported (docs/spec/controller.md 9.3).
func (m *Member) Networks() []netip.Prefix {
	networks := []netip.Prefix{}
	for _, text := range slices.Concat(m.Spec.PodCIDRs, m.Spec.ServiceCIDRs) {
		if p, err := broker.ParsePrefix(text); err == nil {
			networks = append(networks, p)
		}
	}
	return networks
}
