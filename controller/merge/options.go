package merge

import (
	"net/netip"
	"slices"
)

// Options decide where the sources disagree (docs/spec/controller.md 11). The zero value is the
// default.
type Options struct {
	Mode Mode
	VIP  VIPMode

	// The next three are for [CIDR]. VIPNetworks are the networks that contain the VIP CIDRs of all members, also of those that
	// left. Without them, the allocations of members that left no longer count.
	VIPNetworks VIPNetworks
	// Pools are the VIP CIDRs of the members.
	Pools []Pool
	// Claims are what other records say about the addresses that the merged records claim: records of other services, and records of
	// the same service that the importing cluster does not accept. Claims on other addresses do no harm.
	Claims []Claim
	// Declared are the networks of Pods and Services of all members, with [CIDR]. What a cluster that left has allocated there does not count: the
	// traffic of others to these would go to the derived Service.
	Declared []netip.Prefix
	// Reserved are the networks of the Pods and Services of the importing cluster. It has no clusterset IP there, whoever allocates one: the
	// derived Service would take the traffic to what has the address.
	Reserved []netip.Prefix
}

// Mode is the option "merge": which document decides where exports disagree. The zero value is [KEP]. In each mode the oldest export has precedence.
type Mode string

// The values of "merge".
const (
	KEP        Mode = "kep"        // KEP-1645 as it is: the oldest export decides, ports are united, endpoints of the other type count
	Lighthouse Mode = "lighthouse" // first Lighthouse document: ports that all exports have, and no export of the other type
	First      Mode = "first"      // first version of KEP-1645: no import until the exports agree
)

// Modes are all modes, the default first.
var Modes = []Mode{KEP, Lighthouse, First}

func (m Mode) withholds() bool  { return m == First }
func (m Mode) intersects() bool { return m == Lighthouse }
func (m Mode) excludes() bool   { return m == Lighthouse }

// VIPMode says where the addresses of a ClusterSetIP import come from.
type VIPMode string

// The values of "vip".
const (
	Derived VIPMode = "derived" // cluster IPs of a Service that is derived from the import
	CIDR    VIPMode = "cidr"    // allocated by an exporter from its VIP CIDR (second Lighthouse document)
	NoVIP   VIPMode = "none"    // no addresses
)

// Left reports whether a cluster is no member, though it may have been one.
func (o Options) Left(cluster string) bool {
	return !slices.ContainsFunc(o.Pools, func(p Pool) bool { return p.Cluster == cluster })
}

// reserves reports whether an address is in a network of the importing cluster itself.
func (o Options) reserves(a netip.Addr) bool {
	return contains(o.Reserved, a)
}

func contains(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}
