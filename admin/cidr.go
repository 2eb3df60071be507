package admin

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// parseCIDRs returns the networks that texts say.
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

// aggregate returns the fewest networks that hold exactly the same addresses, sorted, IPv4 first.
func aggregate(all []netip.Prefix) []netip.Prefix {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var stack []netip.Prefix
	for _, p := range all {
		if n := len(stack); n > 0 && stack[n-1].Overlaps(p) {
			continue // sorted like this, the one before is the larger
		}
		stack = append(stack, p)
		for n := len(stack); n > 1; n = len(stack) {
			parent, ok := union(stack[n-2], stack[n-1])
			if !ok {
				break
			}
			stack = append(stack[:n-2], parent)
		}
	}
	return stack
}

// union returns the network whose halves are a and b.
func union(a, b netip.Prefix) (netip.Prefix, bool) {
	if a.Bits() != b.Bits() || a.Bits() == 0 || a.Addr().BitLen() != b.Addr().BitLen() {
		return netip.Prefix{}, false
	}
	parent := netip.PrefixFrom(a.Addr(), a.Bits()-1).Masked()
	return parent, parent == netip.PrefixFrom(b.Addr(), b.Bits()-1).Masked() && a != b
}

func texts(all []netip.Prefix) []string {
	var s []string
	for _, p := range all {
		s = append(s, p.String())
	}
	return s
}

// A claim is a network that somebody has.
type claim struct {
	network netip.Prefix
	by      string // who, as "member \"east\""
}

// overlap returns the first claim that has an address in p.
func overlap(p netip.Prefix, claims []claim) (claim, bool) {
	i := slices.IndexFunc(claims, func(c claim) bool { return c.network.Overlaps(p) })
	if i < 0 {
		return claim{}, false
	}
	return claims[i], true
}

// within reports whether all of p lies in pool.
func within(p, pool netip.Prefix) bool { return pool.Bits() <= p.Bits() && pool.Contains(p.Addr()) }

// firstFree returns the first network of pool that nobody claims: a /16, for IPv6 a /112, or all of a smaller pool.
func firstFree(pool netip.Prefix, claims []claim) (netip.Prefix, error) {
	size := pool.Addr().BitLen() - 16
	if pool.Addr().Is4() {
		size = 16
	}
	size = max(size, pool.Bits())
	for next := pool.Addr(); next.IsValid() && pool.Contains(next); {
		p := netip.PrefixFrom(next, size)
		taken, ok := overlap(p, claims)
		if !ok {
			return p, nil
		}
		// Networks nest: what claims all of p may claim more, and then p starts it or lies in it.
		if taken.network.Bits() > p.Bits() {
			taken.network = p
		}
		next = last(taken.network).Next()
	}
	return netip.Prefix{}, fmt.Errorf("vip cidr: no /%d of %s is free: want a larger --vip-cidr-pool, or members that leave", size, pool)
}

// last returns the highest address of p.
func last(p netip.Prefix) netip.Addr {
	octets := p.Masked().Addr().AsSlice()
	for i := range octets {
		host := min(max((i+1)*8-p.Bits(), 0), 8)
		octets[i] |= byte(0xff) >> (8 - host)
	}
	addr, ok := netip.AddrFromSlice(octets)
	if !ok {
		panic("membership: as many octets as the address had")
	}
	return addr
}
