package merge

import (
	"hash/fnv"
	"math"
	"net/netip"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

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
