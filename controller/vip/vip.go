// Package vip allocates the clusterset IPs of one member (docs/spec/controller.md 5.7).
//
// Each address of the member's VIP CIDRs is in one of these states:
//
//	        Allocate
//	free ─────────────▶ reserved: given out, and kept for its service until Release
//	 ▲                     │  ▲
//	 │                Name │  │ Name
//	 │                     ▼  │
//	 │                  named: export records on the broker name it
//	 │                     │
//	 │ 10 minutes          │ no record names it and no service reserves it
//	 └── quarantine ◀──────┘
//
// [Pool.Quarantined] and [Pool.Restore] carry the quarantine over a restart.
//
// An address may be named and reserved at once. Only the service that had an address gets it again during the quarantine, as long as there is
// another one: what only other members have named is given out before a pool counts as exhausted. They could keep it so by naming ever more.
//
// The package is pure: the caller passes the time and the addresses that records name.
package vip

import (
	"cmp"
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

// A Pool is a VIP CIDR of a member, with the state of each address. It is for one goroutine at a time.
type Pool struct {
	prefix     netip.Prefix
	quarantine time.Duration

	named    map[types.NamespacedName][]netip.Addr // in the export records of a service, of any cluster
	reserved map[types.NamespacedName]netip.Addr
	taken    map[netip.Addr]int  // by how many services it is named or reserved
	ours     map[netip.Addr]bool // those of them that were reserved, or that records of this member named
	freed    map[netip.Addr]freed
	changed  bool // freed has another address than Quarantined returned last
}

// freed is an address in quarantine.
type freed struct {
	service types.NamespacedName // the last that had it
	until   time.Time
	foreign bool // only records of other members named it
}

// A Freed is an address in quarantine, as a later Pool gets it.
type Freed struct {
	Addr    netip.Addr
	Service types.NamespacedName // the last that had it
	Until   time.Time
}

// compare sorts those first that are in quarantine for longest still.
func (f Freed) compare(g Freed) int { return cmp.Or(g.Until.Compare(f.Until), f.Addr.Compare(g.Addr)) }

// New returns a pool of free addresses. The caller passes the addresses of all records to [Pool.Name] before the first
// [Pool.Allocate].
func New(prefix netip.Prefix, quarantine time.Duration) *Pool {
	return &Pool{
		prefix: prefix.Masked(), quarantine: quarantine,
		named: make(map[types.NamespacedName][]netip.Addr), reserved: make(map[types.NamespacedName]netip.Addr),
		taken: make(map[netip.Addr]int), ours: make(map[netip.Addr]bool), freed: make(map[netip.Addr]freed),
	}
}

// Prefix returns the network of the pool.
func (p *Pool) Prefix() netip.Prefix { return p.prefix }

// Name sets the addresses that the records of a service name; addresses outside the pool are ignored. An address that is
// neither named nor reserved any more enters quarantine.
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

// Own says that records of this member name addresses, of those that were given to [Pool.Name].
func (p *Pool) Own(addrs []netip.Addr) {
	for _, a := range addrs {
		if p.taken[a] > 0 {
			p.ours[a] = true
		}
	}
}

// Allocate returns the address that is reserved for the service, or else reserves one. It returns false if all addresses are
// taken or in quarantine.
//
// The first choice is a hash of the service's name, so that two instances that overlap, or one before and after a crash,
// choose the same address. A service may get back the address that it had before the quarantine.
func (p *Pool) Allocate(service types.NamespacedName, now time.Time) (netip.Addr, bool) {
	if a, ok := p.reserved[service]; ok {
		return a, true
	}
	addr, ok := p.first(service, func(a netip.Addr) bool { return p.free(a, service, now) })
	if !ok {
		addr, ok = p.first(service, func(a netip.Addr) bool { return p.usable(a) && p.freed[a].foreign })
	}
	if ok {
		p.reserved[service] = addr
		p.take(addr)
		p.ours[addr] = true
	}
	return addr, ok
}

// first returns the first address that is good for a service, from its preferred one on.
func (p *Pool) first(service types.NamespacedName, good func(netip.Addr) bool) (netip.Addr, bool) {
	addr := p.preferred(service)
	// No more than these are in the way, with the two ends: the next one is free. A pool with addresses that no service may
	// have, such as a loopback network, counts as exhausted instead of being searched through.
	for range len(p.taken) + len(p.freed) + 3 {
		if good(addr) {
			return addr, true
		}
		if addr = addr.Next(); !p.prefix.Contains(addr) {
			addr = p.prefix.Addr()
		}
	}
	return netip.Addr{}, false
}

// Release ends the reservation of the service. The caller has then written the records that name its address, or removed
// them.
func (p *Pool) Release(service types.NamespacedName, now time.Time) {
	if a, ok := p.reserved[service]; ok {
		delete(p.reserved, service)
		p.drop(service, a, now)
	}
}

// Usage returns how many addresses are taken, in quarantine, and free; a free count beyond the largest int is
// the largest int. The two ends of an IPv4 network are never free.
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

// Quarantined returns at most limit addresses in quarantine, those first that are in it for longest still, and whether one came to them
// since the last call. Those that only other members have named are left out: nothing is lost that another service may not have.
func (p *Pool) Quarantined(now time.Time, limit int) (all []Freed, changed bool) {
	for a, f := range p.freed {
		if now.Before(f.until) && !f.foreign {
			all = append(all, Freed{Addr: a, Service: f.service, Until: f.until})
		}
	}
	slices.SortFunc(all, Freed.compare)
	changed, p.changed = p.changed, false
	return all[:min(limit, len(all))], changed
}

// Restore puts addresses into quarantine that were in that of an earlier Pool, unless they are taken. No clock makes one stay longer
// than the quarantine.
func (p *Pool) Restore(all []Freed, now time.Time) {
	for _, f := range all {
		if !p.prefix.Contains(f.Addr) || p.taken[f.Addr] > 0 || !now.Before(f.Until) {
			continue
		}
		until := f.Until
		if last := now.Add(p.quarantine); until.After(last) {
			until = last
		}
		p.freed[f.Addr] = freed{service: f.Service, until: until}
	}
}

// Continue puts the addresses into quarantine that are in that of before, an earlier Pool, or that before had and no record names any more:
// their records may have gone while there was no Pool. It reports whether there are any. Before is of no use afterwards.
func (p *Pool) Continue(before *Pool, now time.Time) bool {
	for service := range before.named {
		before.Name(service, p.named[service], now)
	}
	for service := range before.reserved {
		before.Release(service, now)
	}
	all, _ := before.Quarantined(now, math.MaxInt)
	p.Restore(all, now)
	return len(all) > 0
}

func (p *Pool) take(a netip.Addr) {
	p.taken[a]++
	if f, waits := p.freed[a]; waits && !f.foreign {
		p.ours[a] = true // a copy that comes late does not end what the address was
	}
	delete(p.freed, a)
}

func (p *Pool) drop(service types.NamespacedName, a netip.Addr, now time.Time) {
	if p.taken[a]--; p.taken[a] > 0 {
		return
	}
	f := freed{service: service, until: now.Add(p.quarantine), foreign: !p.ours[a]}
	delete(p.taken, a)
	delete(p.ours, a)
	p.freed[a], p.changed = f, p.changed || !f.foreign
}

// usable reports whether a service may have the address, but for the quarantine.
func (p *Pool) usable(a netip.Addr) bool {
	return p.taken[a] == 0 && a.IsGlobalUnicast() && (!p.hasEnds() || a != p.prefix.Addr() && p.prefix.Contains(a.Next()))
}

// free reports whether the service may have the address.
func (p *Pool) free(a netip.Addr, service types.NamespacedName, now time.Time) bool {
	f, waits := p.freed[a]
	return p.usable(a) && (!waits || f.service == service || !now.Before(f.until))
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
