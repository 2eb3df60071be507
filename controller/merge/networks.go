package merge

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

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
	n, given := DefaultVIPNetworks, make(map[bool]string) // by whether it is IPv4
	for _, text := range texts {
		p, err := broker.ParsePrefix(text)
		if err != nil {
			return n, err
		}
		if before := given[p.Addr().Is4()]; before != "" {
			return n, fmt.Errorf("%q after %s: want one network of each IP family", text, before)
		}
		given[p.Addr().Is4()], n = text, n.WithNetwork(p)
	}
	return n, nil
}

// WithNetwork returns n with p in place of the network of its family.
func (n VIPNetworks) WithNetwork(p netip.Prefix) VIPNetworks {
	if p.Addr().Is4() {
		n.IPv4 = p
	} else {
		n.IPv6 = p
	}
	return n
}

// ForFamilyOf returns the network of the family of an address.
func (n VIPNetworks) ForFamilyOf(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return n.IPv4
	}
	return n.IPv6
}

// String returns the networks, separated by a comma.
func (n VIPNetworks) String() string {
	var texts []string
	for _, p := range []netip.Prefix{n.IPv4, n.IPv6} {
		if p.IsValid() {
			texts = append(texts, p.String())
		}
	}
	return strings.Join(texts, ",")
}

// Pools returns the VIP CIDRs of the members, sorted by cluster id and in the order of each list. If those of two
// members overlap, only the older member has its network (docs/spec/controller.md 2.1), or the lower cluster id if both
// are as old. It takes the network even while it is being deleted itself. A network that is not part of within does
// not count; the zero within has all.
func Pools(members []v1alpha1.Member, within VIPNetworks) []Pool {
	sorted := slices.Clone(members)
	slices.SortFunc(sorted, func(a, b v1alpha1.Member) int {
		return cmp.Or(cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix()), cmp.Compare(a.Name, b.Name))
	})
	var pools []Pool
	for i := range sorted {
		id := sorted[i].Name
		for _, prefix := range broker.Prefixes(sorted[i].Spec.VIPCIDRs) {
			overlaps := func(p Pool) bool { return p.Prefix.Overlaps(prefix) }
			if broker.IsClusterID(id) && within.contain(prefix) && !slices.ContainsFunc(pools, overlaps) {
				pools = append(pools, Pool{Cluster: id, Prefix: prefix})
			}
		}
	}
	slices.SortStableFunc(pools, func(a, b Pool) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return pools
}

// contain reports whether a VIP CIDR is part of the networks.
func (n VIPNetworks) contain(p netip.Prefix) bool {
	in := n.ForFamilyOf(p.Addr())
	return n == VIPNetworks{} || in.IsValid() && in.Bits() <= p.Bits() && in.Contains(p.Addr())
}

func contains(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}

// A Pool is a VIP CIDR: a network from which a member gives clusterset IPs to services.
type Pool struct {
	Cluster string
	Prefix  netip.Prefix
}

// Choose returns a free address for a service: the one at a hash of its name, or the next free one. So a member that
// lost its memory chooses the same address again. It returns false if all addresses are taken.
func (p Pool) Choose(service types.NamespacedName, used map[netip.Addr]types.NamespacedName) (netip.Addr, bool) {
	addr := p.preferred(service)
	// No more than these are in the way, with the two ends: the next one is free. A pool with addresses that no service
	// may have, such as a loopback network, counts as exhausted instead of being searched through.
	for range len(used) + 3 {
		if _, found := used[addr]; !found && p.usable(addr) {
			return addr, true
		}
		if addr = addr.Next(); !p.Prefix.Contains(addr) {
			addr = p.Prefix.Addr()
		}
	}
	return netip.Addr{}, false
}

// Size returns the number of addresses that services may have, at most the largest int.
func (p Pool) Size() int {
	size := math.MaxInt
	if bits := p.hostBits(); bits < strconv.IntSize-1 {
		size = 1 << bits
	}
	if p.hasEnds() {
		size -= 2
	}
	return size
}

func (p Pool) usable(a netip.Addr) bool {
	return a.IsGlobalUnicast() && (!p.hasEnds() || a != p.Prefix.Addr() && p.Prefix.Contains(a.Next()))
}

func (p Pool) hostBits() int { return p.Prefix.Addr().BitLen() - p.Prefix.Bits() }

// hasEnds reports whether the first and the last address mean the network and its broadcast to some data planes.
func (p Pool) hasEnds() bool { return p.Prefix.Addr().Is4() && p.hostBits() > 1 }

// preferred returns the address at a hash of the service's name.
func (p Pool) preferred(service types.NamespacedName) netip.Addr {
	h := fnv.New128a()
	h.Write([]byte(service.String()))
	addr, sum := p.Prefix.Addr().AsSlice(), h.Sum(nil)
	for i := range addr {
		// Of the octet, the bits that are the host's.
		host := byte(0xff) >> min(max(p.Prefix.Bits()-8*i, 0), 8)
		addr[i] |= sum[len(sum)-len(addr)+i] & host
	}
	a, _ := netip.AddrFromSlice(addr)
	return a
}
