// Package vip allocates the clusterset IPs of one member (docs/spec/controller.md 5.7).
//
// It is pure: it has no clock, and what it knows of the broker it is told.
package vip

import (
	"fmt"
	"hash/fnv"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Quarantine is how long an address that became free is given to no other service: clients and data planes may still send
// to it what is meant for the one that had it.
const Quarantine = 10 * time.Minute

// A Pool is the VIP CIDR of a member. An address in it is taken while an export record names it, whoever wrote that, or
// while it is held: given out, and not yet seen in a record, or not yet withdrawn from one.
//
// A Pool is for one goroutine at a time.
type Pool struct {
	prefix     netip.Prefix
	quarantine time.Duration

	named map[types.NamespacedName][]netip.Addr // in the records of a service
	held  map[types.NamespacedName]netip.Addr
	taken map[netip.Addr]int // by how many services it is named or held
	freed map[netip.Addr]freed
}

// freed is an address in quarantine.
type freed struct {
	service types.NamespacedName // who had it
	until   time.Time
}

// New returns a pool of which nothing is taken. What records name is to be told by [Pool.Name] before the first
// [Pool.Allocate].
func New(prefix netip.Prefix, quarantine time.Duration) *Pool {
	return &Pool{
		prefix: prefix.Masked(), quarantine: quarantine,
		named: make(map[types.NamespacedName][]netip.Addr), held: make(map[types.NamespacedName]netip.Addr),
		taken: make(map[netip.Addr]int), freed: make(map[netip.Addr]freed),
	}
}

// Prefix returns the network of the pool.
func (p *Pool) Prefix() netip.Prefix { return p.prefix }

// Name says which addresses the records of a service name now; those outside the pool do not count. An address that no
// service names any more, and that is not held, is in quarantine from now on.
func (p *Pool) Name(service types.NamespacedName, addrs []netip.Addr, now time.Time) {
	var named []netip.Addr
	for _, a := range addrs {
		if p.prefix.Contains(a) && !slices.Contains(named, a) {
			named = append(named, a)
			p.take(a)
		}
	}
	for _, a := range p.named[service] {
		p.drop(service, a, now)
	}
	delete(p.named, service)
	if len(named) > 0 {
		p.named[service] = named
	}
}

// Allocate returns the address that is held for the service, or else holds one for it. It is false if all are taken or in
// quarantine.
//
// The address follows from the name of the service as far as it is free, and so two instances that overlap, or one before
// and after a crash, choose the same. A service may have back what is in quarantine because of it.
func (p *Pool) Allocate(service types.NamespacedName, now time.Time) (netip.Addr, bool) {
	if a, ok := p.held[service]; ok {
		return a, true
	}
	addr := p.preferred(service)
	// No more than these are in the way, with the two ends: the next one is free. A pool with addresses that no service may
	// have, such as a loopback network, counts as exhausted instead of being searched through.
	for range len(p.taken) + len(p.freed) + 3 {
		if p.free(addr, service, now) {
			delete(p.freed, addr)
			p.held[service] = addr
			p.take(addr)
			return addr, true
		}
		if addr = addr.Next(); !p.prefix.Contains(addr) {
			addr = p.prefix.Addr()
		}
	}
	return netip.Addr{}, false
}

// Release holds nothing for the service any more: what its records are to name has been written.
func (p *Pool) Release(service types.NamespacedName, now time.Time) {
	if a, ok := p.held[service]; ok {
		delete(p.held, service)
		p.drop(service, a, now)
	}
}

// Usage returns how many addresses are taken, in quarantine, and free; more than an int holds count as that many. The two
// ends of an IPv4 network are never free.
func (p *Pool) Usage(now time.Time) (used, quarantined, free int) {
	for a, f := range p.freed {
		if !now.Before(f.until) {
			delete(p.freed, a)
		}
	}
	size := math.MaxInt
	if bits := p.hostBits(); bits < strconv.IntSize-1 {
		size = 1 << bits
	}
	if p.hasEnds() {
		size -= 2
	}
	used, quarantined = len(p.taken), len(p.freed)
	return used, quarantined, max(0, size-used-quarantined)
}

func (p *Pool) take(a netip.Addr) {
	p.taken[a]++
	delete(p.freed, a)
}

func (p *Pool) drop(service types.NamespacedName, a netip.Addr, now time.Time) {
	if p.taken[a]--; p.taken[a] > 0 {
		return
	}
	delete(p.taken, a)
	p.freed[a] = freed{service, now.Add(p.quarantine)}
}

// free reports whether the service may have the address.
func (p *Pool) free(a netip.Addr, service types.NamespacedName, now time.Time) bool {
	if p.taken[a] > 0 || !a.IsGlobalUnicast() || p.hasEnds() && (a == p.prefix.Addr() || !p.prefix.Contains(a.Next())) {
		return false
	}
	f, waits := p.freed[a]
	return !waits || f.service == service || !now.Before(f.until)
}

func (p *Pool) hostBits() int { return p.prefix.Addr().BitLen() - p.prefix.Bits() }

// hasEnds reports whether the first and the last address mean the network and its broadcast to some data planes.
func (p *Pool) hasEnds() bool { return p.prefix.Addr().Is4() && p.hostBits() > 1 }

// preferred returns the address in the pool that a hash of the service's name says.
func (p *Pool) preferred(service types.NamespacedName) netip.Addr {
	h := fnv.New128a()
	fmt.Fprintf(h, "%s/%s", service.Namespace, service.Name)
	addr, sum := p.prefix.Addr().AsSlice(), h.Sum(nil)
	for i := range addr {
		// Of the octet, the bits that are the host's.
		host := byte(0xff) >> min(max(p.prefix.Bits()-8*i, 0), 8)
		addr[i] |= sum[len(sum)-len(addr)+i] & host
	}
	a, _ := netip.AddrFromSlice(addr)
	return a
}
