package status

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/clusterset-dns/clusterset/admin/networks"
	"github.com/clusterset-dns/clusterset/admin/read"
)

// A NetworkCheck keeps what [Read] found outside of the networks of a cluster for a minute, or until other networks
// are declared: to find it, all Pods are read. The zero value is ready to use.
type NetworkCheck struct {
	at       time.Time
	declared []string // Pods, then Services
	outside  *OutsideState
}

const networkCheckLife = time.Minute

// fresh returns nil if the kept state is too old, or about other networks.
func (k *NetworkCheck) fresh(declared []string, now time.Time) *OutsideState {
	if k == nil || now.Sub(k.at) >= networkCheckLife || !slices.Equal(k.declared, declared) {
		return nil
	}
	return k.outside
}

// readOutside reads the addresses outside of the networks of a Member.
func readOutside(ctx context.Context, c *read.Cluster, m *MemberState) (*OutsideState, error) {
	o := &OutsideState{declared: m.PodCIDRs}
	pods, services := networks.Valid(m.PodCIDRs), networks.Valid(m.ServiceCIDRs)
	o.Pods, o.Unread = c.PodsOutside(ctx, slices.Concat(pods, services))
	found, err := c.FindNetworks(ctx)
	for _, n := range found.Pods {
		if !slices.ContainsFunc(pods, func(p netip.Prefix) bool { return networks.IsWithin(n.Prefix, p) }) {
			state := networks.Declared{Of: "Pods", CIDR: n.Prefix.String(), Source: n.Source, PerNode: n.PerNode}
			o.Networks = append(o.Networks, state)
		}
	}
	return o, err
}
