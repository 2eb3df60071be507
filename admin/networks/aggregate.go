package networks

import (
	"cmp"
	"net/netip"
	"slices"
)

// Aggregate returns the smallest set of networks with exactly the same addresses, sorted, IPv4 first.
func Aggregate(all []netip.Prefix) []netip.Prefix {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var stack []netip.Prefix
	for _, p := range all {
		if n := len(stack); n > 0 && stack[n-1].Overlaps(p) {
			continue // in this order the one before is larger and contains p
		}
		stack = append(stack, p)
		for n := len(stack); n > 1; n = len(stack) {
			parent, ok := parentOf(stack[n-2], stack[n-1])
			if !ok {
				break
			}
			stack = append(stack[:n-2], parent)
		}
	}
	return stack
}

// parentOf returns the network with the halves a and b, or false if there is no such network.
func parentOf(a, b netip.Prefix) (netip.Prefix, bool) {
	if a.Bits() != b.Bits() || a.Bits() == 0 || a.Addr().BitLen() != b.Addr().BitLen() {
		return netip.Prefix{}, false
	}
	parent := netip.PrefixFrom(a.Addr(), a.Bits()-1).Masked()
	return parent, parent == netip.PrefixFrom(b.Addr(), b.Bits()-1).Masked() && a != b
}

// IsWithin reports whether pool contains all of p.
func IsWithin(p, pool netip.Prefix) bool { return pool.Bits() <= p.Bits() && pool.Contains(p.Addr()) }

// A Declared is a network that a cluster declares, with its source.
type Declared struct {
	Of      string `json:"of"` // Pods or Services
	CIDR    string `json:"cidr"`
	Source  string `json:"source"`            // an object, a flag, or the join before
	PerNode bool   `json:"perNode,omitempty"` // part of the network of all Pods: each new Node adds one
}
