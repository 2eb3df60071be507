package merge

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// An Address is a clusterset IP of a service. The import of the service notes it.
type Address struct {
	IP      netip.Addr `json:"ip"`
	Cluster string     `json:"cluster"` // the member that claims it
	Stamp   int64      `json:"stamp"`   // of the inventory by which the import got it
	// Exported is set once the member was seen to export the service. Then the claim stands after the end of that export,
	// too.
	Exported bool `json:"exported,omitempty"`
}

// A Claim is a clusterset IP that the inventory of a member gives to a service.
type Claim struct {
	Address
	Since    metav1.Time
	Admitted metav1.Time // as in Record
	Created  metav1.Time // of the member's export record of the service; zero without one
}

// VIPs is the state for the clusterset IPs of one service, with [CIDR] (docs/spec/controller.md 5.7). The zero value
// gives no IPs.
type VIPs struct {
	// Pools are the VIP CIDRs of the members, as function [Pools] returns them.
	Pools []Pool
	// Claims of members; released ones are left out.
	Claims []Claim
	// Stamps of the newest known inventories, by member.
	Stamps map[string]int64
	// Removed are the clusters of Has that were removed from the clusterset.
	Removed []string
	// Has are the addresses that the import has, at most one of each family.
	Has []Address
	// Taken are addresses of other imports of this cluster. An address in Has is taken only if the other import is first
	// by name.
	Taken []netip.Addr
}

// AcceptedBy returns v without claims and addresses of clusters that a namespace, which may be nil, does not accept.
func (v VIPs) AcceptedBy(ns *corev1.Namespace) VIPs {
	if ns == nil {
		return v
	}
	v.Claims = slices.DeleteFunc(slices.Clone(v.Claims),
		func(c Claim) bool { return !broker.SourceAllowed(ns, c.Cluster) })
	v.Has = slices.DeleteFunc(slices.Clone(v.Has), func(a Address) bool { return !broker.SourceAllowed(ns, a.Cluster) })
	return v
}

// exports reports whether the member of a claim exports the service. Any member can claim an address for any service.
func (c Claim) exports() bool { return !c.Created.IsZero() }

// when returns the time of a claim, in seconds since 1970. Claims are no older than the admission of the member, and
// than its export record.
func (c Claim) when() int64 {
	return max(c.Since.Unix(), c.Admitted.Unix(), c.Created.Unix())
}

// valid reports whether the address of a claim is in a VIP CIDR of its member.
func (v VIPs) valid(c Claim) bool {
	return slices.ContainsFunc(v.Pools, func(p Pool) bool { return p.Cluster == c.Cluster && p.Prefix.Contains(c.IP) })
}

// Foreign reports whether an address is in a VIP CIDR of a member that does not claim it.
func (v VIPs) Foreign(a Address) bool {
	return slices.ContainsFunc(v.Pools, func(p Pool) bool { return p.Cluster != a.Cluster && p.Prefix.Contains(a.IP) })
}

// OldestClaim returns the oldest valid claim of an IP family, of members that export the service or of those that do
// not. Other members give way to the oldest of an exporting one.
func (v VIPs) OldestClaim(v4, exporting bool) (first Claim, ok bool) {
	for _, c := range v.Claims {
		older := !ok || cmp.Or(cmp.Compare(c.when(), first.when()), cmp.Compare(c.Cluster, first.Cluster),
			c.IP.Compare(first.IP)) < 0
		if c.IP.Is4() == v4 && c.exports() == exporting && v.valid(c) && older {
			first, ok = c, true
		}
	}
	return first, ok
}

// claimOf returns the claim of an address of the import.
func (v VIPs) claimOf(a Address) (Claim, bool) {
	at := slices.IndexFunc(v.Claims, func(c Claim) bool { return c.IP == a.IP && c.Cluster == a.Cluster })
	if at < 0 {
		return Claim{}, false
	}
	return v.Claims[at], true
}

// mayKeep reports whether the import may keep an address: the claim is there, or the known inventory is older than the
// note.
func (v VIPs) mayKeep(a Address) bool {
	_, claimed := v.claimOf(a)
	return !v.Foreign(a) && (claimed || v.Stamps[a.Cluster] < a.Stamp && !slices.Contains(v.Removed, a.Cluster))
}

// RetainedAddress returns the address of an IP family that the import keeps despite all other claims.
func (v VIPs) RetainedAddress(v4 bool) (a Address, ok bool) {
	for _, a := range v.Has {
		if c, _ := v.claimOf(a); a.IP.Is4() == v4 && (a.Exported || c.exports()) && v.mayKeep(a) {
			a.Exported = true
			return a, true
		}
	}
	return a, false
}

// address returns the clusterset IP of an IP family, in this order: the address that the import keeps; the oldest claim
// of an exporting member; another address of the import; if wanted, the oldest other claim.
func (v VIPs) address(v4, wanted bool) (a Address, ok bool) {
	if a, ok = v.RetainedAddress(v4); ok {
		return a, true
	}
	if c, ok := v.OldestClaim(v4, true); ok {
		c.Exported = true
		return c.Address, true
	}
	for _, a := range v.Has {
		gone := a.Stamp == 0 || slices.Contains(v.Removed, a.Cluster)
		if gone {
			a.Stamp, a.Exported = 0, false // also when the mark of the removal is gone
		}
		if a.IP.Is4() == v4 && (v.mayKeep(a) || gone && !v.Foreign(a)) {
			return a, true
		}
	}
	c, ok := v.OldestClaim(v4, false)
	return c.Address, ok && wanted
}

// HasAddress reports whether the service has a clusterset IP. reserved holds the networks of the importing cluster;
// wanted is set if an export wants one.
func (v VIPs) HasAddress(reserved []netip.Prefix, wanted bool) bool {
	counts, _ := v.split(reserved)
	_, four := counts.address(true, wanted)
	_, six := counts.address(false, wanted)
	return four || six
}

// split drops claims and addresses that this cluster must not use. rejected has the wanted state for each dropped
// claim.
func (v VIPs) split(reserved []netip.Prefix) (counts VIPs, rejected map[Address]string) {
	counts, rejected = v, make(map[Address]string)
	counts.Claims = nil
	for _, c := range v.Claims {
		found := slices.ContainsFunc(v.Has, func(a Address) bool {
			return a.IP == c.IP && a.Cluster == c.Cluster && !v.Foreign(a)
		})
		switch {
		case contains(reserved, c.IP):
			rejected[c.Address] = "one outside of the networks of Pods and Services of this cluster"
		case slices.Contains(v.Taken, c.IP):
			rejected[c.Address] = "one that no other service has"
		case !found && !v.valid(c):
			rejected[c.Address] = fmt.Sprintf("one in a VIP CIDR of %.80q", c.Cluster)
		default:
			counts.Claims = append(counts.Claims, c)
		}
	}
	counts.Has = slices.DeleteFunc(slices.Clone(v.Has), func(a Address) bool {
		return contains(reserved, a.IP) || slices.Contains(v.Taken, a.IP)
	})
	return counts, rejected
}
