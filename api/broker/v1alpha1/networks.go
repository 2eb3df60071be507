package v1alpha1

import (
	"net/netip"
	"slices"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// CIDRs returns the networks that the member declared at its join, for Pods, Services and load balancers.
func (s *MemberSpec) CIDRs() []string {
	return slices.Concat(s.PodCIDRs, s.ServiceCIDRs, s.LoadBalancerCIDRs)
}

// Networks returns the networks that the member declared, nil only if m is nil. Only addresses in them are exported and
// imported (docs/spec/controller.md 9.3).
func (m *Member) Networks() []netip.Prefix {
	if m == nil {
		return nil
	}
	return broker.Prefixes(m.Spec.CIDRs())
}

// OwnNetworks returns the networks of Pods and Services: the member imports no address in them from others. Load
// balancers of several members may share a network.
func (m *Member) OwnNetworks() []netip.Prefix {
	return broker.Prefixes(slices.Concat(m.Spec.PodCIDRs, m.Spec.ServiceCIDRs))
}
