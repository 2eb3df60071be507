package vip

import (
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Pools are those of the VIP CIDRs of a member, at most one of each IP family. They are for one goroutine at a time.
type Pools []*Pool

// NewPools returns pools of free addresses, as [New] does.
func NewPools(prefixes []netip.Prefix, quarantine time.Duration) Pools {
	all := make(Pools, len(prefixes))
	for i, p := range prefixes {
		all[i] = New(p, quarantine)
	}
	return all
}

// Of returns the pool of IPv4 or IPv6, nil if it does not exist.
func (ps Pools) Of(v4 bool) *Pool {
	for _, p := range ps {
		if p.prefix.Addr().Is4() == v4 {
			return p
		}
	}
	return nil
}

// Prefixes returns the networks of the pools.
func (ps Pools) Prefixes() []netip.Prefix {
	var all []netip.Prefix
	for _, p := range ps {
		all = append(all, p.prefix)
	}
	return all
}

// Name is [Pool.Name] for each pool.
func (ps Pools) Name(service types.NamespacedName, addrs []netip.Addr, now time.Time) {
	for _, p := range ps {
		p.Name(service, addrs, now)
	}
}

// Own is [Pool.Own] for each pool.
func (ps Pools) Own(addrs []netip.Addr) {
	for _, p := range ps {
		p.Own(addrs)
	}
}

// Release is [Pool.Release] for each pool.
func (ps Pools) Release(service types.NamespacedName, now time.Time) {
	for _, p := range ps {
		p.Release(service, now)
	}
}

// Quarantined is [Pool.Quarantined] of all pools together.
func (ps Pools) Quarantined(now time.Time, limit int) (all []Freed, changed bool) {
	for _, p := range ps {
		of, has := p.Quarantined(now, limit)
		all, changed = append(all, of...), changed || has
	}
	slices.SortFunc(all, Freed.compare)
	return all[:min(limit, len(all))], changed
}

// Restore is [Pool.Restore] for each pool.
func (ps Pools) Restore(all []Freed, now time.Time) {
	for _, p := range ps {
		p.Restore(all, now)
	}
}

// Continue is [Pool.Continue] for each pool and the one before of its family.
func (ps Pools) Continue(before Pools, now time.Time) bool {
	var some bool
	for _, p := range ps {
		if of := before.Of(p.prefix.Addr().Is4()); of != nil {
			some = p.Continue(of, now) || some
		}
	}
	return some
}

// Or returns ps, and of other the pools of families that ps lacks.
func (ps Pools) Or(other Pools) Pools {
	all := slices.Clone(ps)
	for _, p := range other {
		if ps.Of(p.prefix.Addr().Is4()) == nil {
			all = append(all, p)
		}
	}
	return all
}
