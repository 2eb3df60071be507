package exporter

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/metrics"
)

// quarantine is how long a released address is given to no other service: clients and data planes may still send to it what is meant for the one that had it.
const quarantine = 10 * time.Minute

// retryPool is when an export that got no clusterset IP is tried again, and when it is asked again whether other members export a service: no event
// tells.
const retryPool = time.Minute

// claims decides which clusterset IPs the inventory of this member gives to services (docs/spec/controller.md 5.7):
//
//	      a service lacks one,                    no member exports the service,
//	      and this member is to give it           or an older claim of another member stands
//	free ───────────────────────────────► claimed ─────────────────────────────────► released ───► free
//	                                         ▲                                          │  10 minutes
//	                                         └──────────────── it lacks one again ──────┘
//
// The inventory is the only state: this member alone gives addresses of its VIP CIDRs. What the inventory lost is claimed again by the notes of the
// own imports. Its methods may be called by several goroutines, but for choose.
type claims struct {
	broker    *broker.Broker
	member    *member.Cluster
	silent    func(cluster string) bool // whether a member is silent
	own       func(types.NamespacedName) (record *v1alpha1.ExportedService, readable bool)
	clusterID string
	options   merge.Options
	metrics   *metrics.Metrics
	retry     func(types.NamespacedName, time.Duration)
	now       func() time.Time

	owners  map[netip.Addr]types.NamespacedName // used by choose alone: see taken
	counted time.Time                           // when owners was made

	mu        sync.Mutex
	members   map[string]bool // all that this process has seen
	exhausted map[types.NamespacedName]exhaustion
}

// An exhaustion is why a service got no address, and when.
type exhaustion struct {
	text string
	at   time.Time
}

// A claimant is a service that may need clusterset IPs, and what decides on them.
type claimant struct {
	name   types.NamespacedName
	record *v1alpha1.ExportedService // what this cluster exports of it, nil if nothing
	vips   merge.VIPs
	pools  []merge.Pool // of this member
	now    time.Time
}

// A decision is what the inventory is to say about the clusterset IPs of a service.
type decision struct {
	claims []v1alpha1.Claim
	lacks  []merge.Pool  // of an address from each
	again  time.Duration // after which it may change without an event; 0 for never
	noVIP  string        // why there is none, in sentences
}

// retryIn makes the decision due again after a time, if it is not before.
func (d *decision) retryIn(wait time.Duration) {
	if d.again == 0 || wait < d.again {
		d.again = wait
	}
}

// wants returns the defaults of exports: nil if they say nothing about clusterset IPs. With another "vip" than cidr an export may still ask for one by
// annotation, for the members that have "vip cidr", if this member has a VIP CIDR.
func (c *claims) wants() *bool {
	if len(c.pools(c.options.VIPNetworks)) == 0 && c.options.VIP != merge.CIDR {
		return nil
	}
	wanted := c.options.VIP == merge.CIDR
	return &wanted
}

// pools returns the VIP CIDRs of this member.
func (c *claims) pools(within merge.VIPNetworks) []merge.Pool {
	return slices.DeleteFunc(merge.Pools(c.broker.Members(), within), func(p merge.Pool) bool { return p.Cluster != c.clusterID })
}

// decide returns what the inventory is to say of a service. record is what this cluster exports of it, nil if nothing.
func (c *claims) decide(svc types.NamespacedName, record *v1alpha1.ExportedService, now time.Time) (d decision) {
	has, wanted := c.broker.OwnClaims(svc), record != nil && record.Spec.VIP != nil && record.Spec.VIP.Wanted
	noted := c.notedIn(svc)
	if len(has) == 0 && !wanted && len(noted) == 0 {
		return d
	}
	o := c.options
	o.VIP = merge.CIDR
	view, o := c.broker.MergeView(svc, o)
	o.VIPs.Has = noted
	for _, a := range noted {
		if c.broker.Removed(a.Cluster) {
			o.VIPs.Removed = append(o.VIPs.Removed, a.Cluster)
		}
	}
	s := claimant{name: svc, record: record, vips: o.VIPs, pools: c.pools(o.VIPNetworks), now: now}
	has = append(slices.Clone(has), c.lost(has, s)...)
	exported := len(has) == 0 || c.exported(svc, record, view)
	for _, x := range has {
		addr, _ := netip.ParseAddr(x.IP)
		pool, ok := poolOf(s.pools, addr.Is4())
		first, some := s.vips.First(addr.Is4())
		switch {
		case ok && !pool.Prefix.Contains(addr), s.vips.Foreign(merge.Address{IP: addr, Cluster: c.clusterID}):
			continue // the VIP CIDR is another one now, or another member's
		case x.Released == 0 && (!exported || ok && some && first.Cluster != c.clusterID):
			x.Released = now.UnixMicro()
		case x.Released != 0 && now.Sub(time.UnixMicro(x.Released)) >= quarantine:
			continue
		}
		if d.claims = append(d.claims, x); x.Released != 0 {
			d.retryIn(quarantine - now.Sub(time.UnixMicro(x.Released)))
		} else if record == nil {
			d.retryIn(retryPool)
		}
	}
	if wanted && c.allocates(svc, record, view) {
		c.give(&d, s)
	}
	return d
}

// notedIn returns the clusterset IPs of the own import of a service.
func (c *claims) notedIn(svc types.NamespacedName) []merge.Address {
	if imp := c.member.Import(svc); member.IsOurs(imp) {
		return merge.AddressesOf(imp, c.options.VIPNetworks)
	}
	return nil
}

// lost returns claims that the own import notes and an inventory before that note lacks: the broker was restored.
func (c *claims) lost(has []v1alpha1.Claim, s claimant) (all []v1alpha1.Claim) {
	for _, a := range s.vips.Has {
		pool, ok := poolOf(s.pools, a.IP.Is4())
		known := slices.ContainsFunc(has, func(x v1alpha1.Claim) bool { return isIPv4(x) == a.IP.Is4() })
		if !known && a.Cluster == c.clusterID && s.vips.Stamps[c.clusterID] < a.Stamp && (!ok || pool.Prefix.Contains(a.IP)) {
			all = append(all, v1alpha1.Claim{IP: a.IP.String(), Since: s.now.UnixMicro()})
		}
	}
	return all
}

func isIPv4(x v1alpha1.Claim) bool { return strings.Contains(x.IP, ".") }

func poolOf(pools []merge.Pool, v4 bool) (merge.Pool, bool) {
	at := slices.IndexFunc(pools, func(p merge.Pool) bool { return p.Prefix.Addr().Is4() == v4 })
	if at < 0 {
		return merge.Pool{}, false
	}
	return pools[at], true
}

// exported reports whether some member exports the service, or may: an address is released by what all members say, never by what is missing.
func (c *claims) exported(svc types.NamespacedName, record *v1alpha1.ExportedService, view broker.View) bool {
	others := slices.ContainsFunc(view.Records, func(r merge.Record) bool { return r.Cluster != c.clusterID })
	if record != nil || others || member.IsOurs(c.member.Import(svc)) || c.broker.Member(c.clusterID) == nil {
		return true
	}
	members := c.broker.Members()
	return c.missing(members) || slices.ContainsFunc(members, func(m v1alpha1.Member) bool {
		e := c.broker.Entry(&m, svc)
		return m.Name != c.clusterID && (e.Stamp == 0 || e.UID != "" || c.silent(m.Name))
	})
}

// missing reports whether a member of before is none now, and was not removed: the broker was restored.
func (c *claims) missing(members []v1alpha1.Member) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members == nil {
		c.members = make(map[string]bool)
	}
	for i := range members {
		c.members[members[i].Name] = true
	}
	for id := range c.members {
		if c.broker.Member(id) == nil && !c.broker.Removed(id) {
			return true
		}
	}
	return false
}

// allocates reports whether this member is to give the service its addresses. All VIP CIDRs of Members count: by the option "vip cidr" of each member
// alone two could choose themselves while it is changed.
func (c *claims) allocates(svc types.NamespacedName, record *v1alpha1.ExportedService, view broker.View) bool {
	o := c.options
	o.VIPs = merge.VIPs{Pools: merge.Pools(c.broker.Members(), merge.VIPNetworks{})}
	records := c.broker.Replace(view.Records, record)
	return merge.Allocates(svc, c.clusterID, records, c.broker.Selectable(records), o)
}

// give adds to a decision the addresses that the service lacks.
func (c *claims) give(d *decision, s claimant) {
	others := s.vips
	others.Has = slices.DeleteFunc(slices.Clone(others.Has), func(a merge.Address) bool { return a.Cluster == c.clusterID })
	some := false
	var without []corev1.IPFamily // no VIP CIDR
	for _, f := range s.record.Spec.IPFamilies {
		v4 := f == corev1.IPv4Protocol
		at := slices.IndexFunc(d.claims, func(x v1alpha1.Claim) bool { return isIPv4(x) == v4 })
		pool, ok := poolOf(s.pools, v4)
		_, claimed := others.First(v4)
		_, kept := others.Keeps(v4)
		switch {
		case claimed, kept, at >= 0 && d.claims[at].Released == 0:
			some = true
		case at >= 0:
			d.claims[at].Released, d.claims[at].Since = 0, s.now.UnixMicro()
			some = true
		case ok:
			d.lacks = append(d.lacks, pool)
		default:
			without = append(without, f)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e := c.exhausted[s.name]; {
	case len(d.lacks) > 0 && s.now.Sub(e.at) < retryPool:
		d.lacks, d.noVIP = nil, e.text
		d.retryIn(retryPool - s.now.Sub(e.at))
	case len(d.lacks) > 0 || some || len(without) == 0:
	case len(s.pools) == 0:
		d.noVIP = fmt.Sprintf("There is no clusterset IP, as this cluster has no VIP CIDR in %s: join it with --vip-cidr.", c.options.VIPNetworks)
	default:
		prefix := s.pools[0].Prefix
		d.noVIP = fmt.Sprintf("There is no clusterset IP, as the VIP CIDR %s is %s and the Service is not.", prefix, apibroker.FamilyOf(prefix.Addr()))
	}
}

// review returns what the inventory is to say of a service, and whether it has to be written.
func (c *claims) review(svc types.NamespacedName, record *v1alpha1.ExportedService) (d decision, due bool) {
	d = c.decide(svc, record, c.now())
	if d.again > 0 {
		c.retry(svc, d.again)
	}
	due = len(d.lacks) > 0 || !slices.Equal(d.claims, c.broker.OwnClaims(svc))
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, failed := c.exhausted[svc]; failed && c.now().Sub(e.at) < retryPool {
		c.retry(svc, retryPool)
		return d, false
	}
	delete(c.exhausted, svc)
	return d, due
}

// failed forgets who has which address: what was chosen could not be written.
func (c *claims) failed() { c.owners = nil }

// noted returns the services of a part of the inventory for which this member has claims, or had by the notes of the own imports.
func (c *claims) noted(part string) (services []types.NamespacedName) {
	for _, svc := range slices.Concat(c.member.Imports(), c.broker.OwnServices()) {
		if apibroker.InventoryPart(svc.Namespace, svc.Name) == part && (len(c.notedIn(svc)) > 0 || len(c.broker.OwnClaims(svc)) > 0) {
			services = append(services, svc)
		}
	}
	return services
}

// choose returns the claims of services in a part of the inventory that is about to be written. One goroutine calls it.
func (c *claims) choose(services map[types.NamespacedName]struct{}) map[types.NamespacedName][]v1alpha1.Claim {
	if len(services) == 0 {
		return nil
	}
	all := make(map[types.NamespacedName][]v1alpha1.Claim)
	taken := c.taken()
	now := c.now()
	for svc := range services {
		record, readable := c.own(svc)
		if !readable {
			continue // it is reconciled again
		}
		d := c.decide(svc, record, now)
		var full []string
		d.claims = slices.DeleteFunc(d.claims, func(x v1alpha1.Claim) bool { // lost, and another service's meanwhile
			owner, is := taken[addrOf(x)]
			if is && owner != svc {
				full = append(full, fmt.Sprintf("The clusterset IP %s is that of %s now.", x.IP, owner))
			}
			return is && owner != svc
		})
		for _, pool := range d.lacks {
			addr, ok := pool.Choose(svc, taken)
			if !ok {
				full = append(full, fmt.Sprintf("There is no %s clusterset IP, as the VIP CIDR %s is exhausted: export less, or join with a larger one.",
					apibroker.FamilyOf(pool.Prefix.Addr()), pool.Prefix))
				continue
			}
			d.claims = append(d.claims, v1alpha1.Claim{IP: addr.String(), Since: now.UnixMicro()})
		}
		for _, x := range c.broker.OwnClaims(svc) {
			delete(taken, addrOf(x))
		}
		for _, x := range d.claims {
			taken[addrOf(x)] = svc
		}
		c.note(svc, strings.Join(full, " "), now)
		all[svc] = d.claims
	}
	return all
}

// addrOf returns the address of a claim of this member.
func addrOf(x v1alpha1.Claim) netip.Addr {
	addr, _ := netip.ParseAddr(x.IP)
	return addr
}

// note records why a service got no address, or with "" that it did.
func (c *claims) note(svc types.NamespacedName, text string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.exhausted, svc); text != "" {
		if c.exhausted == nil {
			c.exhausted = make(map[types.NamespacedName]exhaustion)
		}
		c.exhausted[svc] = exhaustion{text, now}
	}
}

// ownersAge is how old the result of taken may be: it reads all imports.
const ownersAge = 10 * time.Second

// taken returns which service has an address, or had it some seconds ago: by the inventory, or else by the notes of the own imports. The caller adds what it
// gives.
func (c *claims) taken() map[netip.Addr]types.NamespacedName {
	if c.owners != nil && time.Since(c.counted) < ownersAge {
		return c.owners
	}
	all := make(map[netip.Addr]types.NamespacedName)
	for _, svc := range c.member.Imports() {
		for _, a := range c.notedIn(svc) {
			all[a.IP] = svc
		}
	}
	for n := range apibroker.InventoryParts {
		part, _ := c.broker.OwnInventory(apibroker.InventoryPartName(n))
		if part == nil {
			continue
		}
		for _, e := range part.Spec.Exports {
			if svc, ok := broker.ServiceOf(e.Name); ok {
				for _, x := range e.Claims {
					all[addrOf(x)] = svc
				}
			}
		}
	}
	c.owners, c.counted = all, time.Now()
	return all
}

// count records the use of the VIP CIDRs. A family without one has no addresses.
func (c *claims) count() {
	used, quarantined := make(map[bool]int), make(map[bool]int) // by whether they are IPv4
	for n := range apibroker.InventoryParts {
		if part, _ := c.broker.OwnInventory(apibroker.InventoryPartName(n)); part != nil {
			for _, e := range part.Spec.Exports {
				for _, x := range e.Claims {
					if v4 := isIPv4(x); x.Released == 0 {
						used[v4]++
					} else {
						quarantined[v4]++
					}
				}
			}
		}
	}
	pools := c.pools(c.options.VIPNetworks)
	for v4, family := range maps.All(map[bool]corev1.IPFamily{true: corev1.IPv4Protocol, false: corev1.IPv6Protocol}) {
		var free int
		if pool, ok := poolOf(pools, v4); ok {
			free = max(0, pool.Size()-used[v4]-quarantined[v4])
		}
		c.metrics.SetPool(family, used[v4], quarantined[v4], free)
	}
}
