package join

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/clusterset-dns/clusterset/admin/networks"
	"github.com/clusterset-dns/clusterset/api/broker"
)

// parseCIDRs returns an error for the first text that is not a network.
func parseCIDRs(texts []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, s := range texts {
		p, err := broker.ParsePrefix(s)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func prefixStrings(all []netip.Prefix) []string {
	var s []string
	for _, p := range all {
		s = append(s, p.String())
	}
	return s
}

// A claim is a network that is in use.
type claim struct {
	network netip.Prefix
	by      string // the user, in the words of messages: member "east"
}

// overlappingClaim returns the first claim that overlaps with p.
func overlappingClaim(p netip.Prefix, claims []claim) (claim, bool) {
	i := slices.IndexFunc(claims, func(c claim) bool { return c.network.Overlaps(p) })
	if i < 0 {
		return claim{}, false
	}
	return claims[i], true
}

// firstFree returns the first network of pool that overlaps with no claim: a /16, for IPv6 a /112, or all of a smaller
// pool.
func firstFree(pool netip.Prefix, claims []claim) (netip.Prefix, error) {
	size := pool.Addr().BitLen() - 16
	if pool.Addr().Is4() {
		size = 16
	}
	size = max(size, pool.Bits())
	for next := pool.Addr(); next.IsValid() && pool.Contains(next); {
		p := netip.PrefixFrom(next, size)
		taken, ok := overlappingClaim(p, claims)
		if !ok {
			return p, nil
		}
		// Two networks that overlap contain one another. Go on after the larger of the two.
		if taken.network.Bits() > p.Bits() {
			taken.network = p
		}
		next = lastAddress(taken.network).Next()
	}
	return netip.Prefix{}, fmt.Errorf("vip CIDR: no /%d in %s is free: want a larger --vip-cidr-pool", size, pool)
}

// lastAddress returns the highest address of p.
func lastAddress(p netip.Prefix) netip.Addr {
	octets := p.Masked().Addr().AsSlice()
	for i := range octets {
		host := min(max((i+1)*8-p.Bits(), 0), 8)
		octets[i] |= byte(0xff) >> (8 - host)
	}
	addr, ok := netip.AddrFromSlice(octets)
	if !ok {
		panic("join: the address has as many octets as before")
	}
	return addr
}

// declaredCIDRs returns the networks that a member declares: those given by the user, else those that were found and
// those declared before: the network of a node that is away for a moment must not be lost. what is "pod" or "service".
func declaredCIDRs(what string, given, declared []string, found []netip.Prefix) ([]netip.Prefix, error) {
	all, err := parseCIDRs(given)
	if err != nil {
		return nil, err
	}
	if len(given) == 0 {
		if all, err = parseCIDRs(declared); err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if all = networks.Aggregate(all); len(all) > broker.MaxCIDRs {
		return nil, fmt.Errorf("%d %s CIDRs: want at most %d; give the network that contains them with --%s-cidr", len(all),
			what, broker.MaxCIDRs, what)
	}
	return all, nil
}
