package merge

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// DefaultVIPNetworks are the networks of the VIP CIDRs of all members: for IPv4 that of the second Lighthouse document
// ("VIP CIDR and allocation"), for IPv6 a unique local one (RFC 4193).
var DefaultVIPNetworks = VIPNetworks{
	IPv4: netip.MustParsePrefix("243.0.0.0/8"), IPv6: netip.MustParsePrefix("fd17:87d8:f436::/48"),
}

// VIPNetworks are the networks that the VIP CIDRs of all members are part of, one of each IP family. The zero Prefix
// has no address.
type VIPNetworks struct {
	IPv4, IPv6 netip.Prefix
}

// ParseVIPNetworks returns the networks that the texts name, at most one of each IP family, and of a family that they
// lack the default.
func ParseVIPNetworks(texts []string) (VIPNetworks, error) {
	n := DefaultVIPNetworks
	for i, text := range texts {
		p, err := broker.ParsePrefix(text)
		if err != nil {
			return n, err
		}
		if before := slices.IndexFunc(texts[:i], func(s string) bool {
			q, err := broker.ParsePrefix(s)
			return err == nil && q.Addr().Is4() == p.Addr().Is4()
		}); before >= 0 {
			return n, fmt.Errorf("%q after %s: want one network of each IP family", text, texts[before])
		}
		n = n.With(p)
	}
	return n, nil
}

// With returns n with p in place of the network of its family.
func (n VIPNetworks) With(p netip.Prefix) VIPNetworks {
	if p.Addr().Is4() {
		n.IPv4 = p
	} else {
		n.IPv6 = p
	}
	return n
}

// Of returns the network of the family of an address.
func (n VIPNetworks) Of(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return n.IPv4
	}
	return n.IPv6
}

// String returns the networks, separated by a comma.
func (n VIPNetworks) String() string {
	return strings.Join(networkTexts(n.IPv4, n.IPv6), ",")
}

func networkTexts(all ...netip.Prefix) (texts []string) {
	for _, p := range all {
		if p.IsValid() {
			texts = append(texts, p.String())
		}
	}
	return texts
}

// Pools returns the VIP CIDRs of the members, sorted by cluster id, the first one first. Of two members whose networks
// overlap only the one that was created first has its own, by cluster id among equals (docs/spec/controller.md 2.1); it
// takes the network even while it is being deleted itself. A network that is not part of within does not count; the
// zero within has all.
func Pools(members []v1alpha1.Member, within VIPNetworks) []Pool {
	sorted := slices.Clone(members)
	slices.SortFunc(sorted, func(a, b v1alpha1.Member) int {
		return cmp.Or(cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix()), cmp.Compare(a.Name, b.Name))
	})
	var pools []Pool
	for i := range sorted {
		id := sorted[i].Name
		for _, text := range []string{sorted[i].Spec.VIPCIDR, sorted[i].Spec.SecondVIPCIDR} {
			prefix, err := broker.ParsePrefix(text)
			overlaps := func(p Pool) bool { return p.Prefix.Overlaps(prefix) }
			if err == nil && broker.IsClusterID(id) && within.contain(prefix) && !slices.ContainsFunc(pools, overlaps) {
				pools = append(pools, Pool{Cluster: id, Prefix: prefix})
			}
		}
	}
	slices.SortStableFunc(pools, func(a, b Pool) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return pools
}

// contain reports whether a VIP CIDR is part of the networks.
func (n VIPNetworks) contain(p netip.Prefix) bool {
	in := n.Of(p.Addr())
	return n == VIPNetworks{} || in.IsValid() && in.Bits() <= p.Bits() && in.Contains(p.Addr())
}

func contains(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}
