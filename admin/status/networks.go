package status

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/clusterset-dns/clusterset/admin/networks"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/broker"
)

// SlowChecks keeps results of many requests for a minute: addresses outside of the declared networks, for which all
// Pods are read, and answers of DNS servers. Other networks end the former. The zero value is ready to use.
type SlowChecks struct {
	at       time.Time
	declared []string // Pods, then Services
	outside  *OutsideState

	dnsAt time.Time
	dns   read.Result
}

const slowCheckLife = time.Minute

// fresh returns nil if the kept state is too old, or about other networks.
func (k *SlowChecks) fresh(declared []string, now time.Time) *OutsideState {
	if now.Sub(k.at) >= slowCheckLife || !slices.Equal(k.declared, declared) {
		return nil
	}
	return k.outside
}

// readOutside reads the addresses outside of the networks of a Member.
func readOutside(ctx context.Context, c *read.Cluster, m *MemberState) (*OutsideState, error) {
	o := &OutsideState{declared: m.PodCIDRs}
	pods, services := broker.Prefixes(m.PodCIDRs), broker.Prefixes(m.ServiceCIDRs)
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
