package merge

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// Options decide where the sources disagree (docs/spec/controller.md 11). The zero value is the
// default.
type Options struct {
	OnConflict   OnConflict
	PortMerge    PortMerge
	TypeConflict TypeConflict
	Precedence   Precedence
	VIP          VIPMode

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
	// derived Service would take the traffic to what has the address. No other member has the same ones, so they are not hashed.
	Reserved []netip.Prefix
}

// OnConflict says what happens to a service whose exports disagree.
type OnConflict string

// The values of "on_conflict".
const (
	OldestWins OnConflict = "oldest"   // the oldest export decides, traffic goes on (current KEP-1645)
	Withhold   OnConflict = "withhold" // no import until the exports agree (first version of KEP-1645)
)

// PortMerge says which ports an import has.
type PortMerge string

// The values of "port_merge".
const (
	Union        PortMerge = "union"        // every port that an export has (KEP-1645)
	Intersection PortMerge = "intersection" // every port that all exports have (first Lighthouse document); without one, those of the oldest
)

// TypeConflict says what becomes of an export that is Headless while the oldest is not, or the other way round.
type TypeConflict string

// The values of "type_conflict".
const (
	Keep    TypeConflict = "keep"    // its endpoints count (KEP-1645)
	Exclude TypeConflict = "exclude" // it is left out (first Lighthouse document)
)

// Precedence says by which time one export is older than another.
type Precedence string

// The values of "precedence".
const (
	Claimed  Precedence = "claimed" // creation of the ServiceExport, within what the broker saw itself
	ByBroker Precedence = "broker"  // creation of the export record on the broker
)

// VIPMode says where the addresses of a ClusterSetIP import come from.
type VIPMode string

// The values of "vip".
const (
	Derived VIPMode = "derived" // cluster IPs of a Service that is derived from the import
	CIDR    VIPMode = "cidr"    // allocated by an exporter from its VIP CIDR (second Lighthouse document)
	NoVIP   VIPMode = "none"    // no addresses
)

// Hash is 16 hex digits that are the same for options which merge alike, with defaults spelled out or not.
func (o Options) Hash() string {
	vip := "none"
	if o.VIP == CIDR {
		vip = string(CIDR) + " " + o.VIPNetworks.hashed() // derived addresses are each member's own affair
	}
	return broker.Hash(16,
		string(cmp.Or(o.OnConflict, OldestWins)), string(cmp.Or(o.PortMerge, Union)),
		string(cmp.Or(o.TypeConflict, Keep)), string(cmp.Or(o.Precedence, Claimed)), vip)
}

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
