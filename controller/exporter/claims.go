package exporter

import (
	"fmt"
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

// quarantine is the time before a released address goes to another service. Clients and data planes may still use it
// for the old one.
const quarantine = 10 * time.Minute

// retryPool is the time until the claims of a service are decided again without an event: a VIP CIDR may have room, or
// other members may have ended their exports.
const retryPool = time.Minute

// claims decides which clusterset IPs the inventory of this member gives to services (docs/spec/controller.md 5.7):
//
//	      a service lacks one,                    no member exports the service,
//	      and this member is to give it           or an older claim of another member stands
//	free ───────────────────────────────► claimed ─────────────────────────────────► released ───► free
//	                                         ▲                                          │  10 minutes
//	                                         └──────────────── it lacks one again ──────┘
//
// The inventory is the only state, since no other member claims addresses of these VIP CIDRs. After a restore of the
// broker, lost claims are made again from the notes of the own imports. Several goroutines may call the methods, and
// for each part of the inventory one choose, and then wrote or failed.
type claims struct {
	broker    *broker.Broker
	member    *member.Cluster
	silent    func(cluster string) bool                                                    // whether a member is silent
	export    func(types.NamespacedName) (record *v1alpha1.ExportedService, readable bool) // of this cluster
	clusterID string
	options   merge.Options
	metrics   *metrics.Metrics
	retry     func(types.NamespacedName, time.Duration)
	now       func() time.Time

	choosing sync.Mutex                                           // guards the next three; locked before mu
	owners   map[netip.Addr]types.NamespacedName                  // cache of taken
	counted  time.Time                                            // when owners was made
	chosen   map[string]map[types.NamespacedName][]v1alpha1.Claim // by part: those that are being written

	mu        sync.Mutex
	members   map[string]bool // seen by this process
	exhausted map[types.NamespacedName]exhaustion
}

// An exhaustion is a failed attempt to give a service an address.
type exhaustion struct {
	text string // the reason, for people
	at   time.Time
}

// A claimant is a service that may need clusterset IPs.
type claimant struct {
	name   types.NamespacedName
	record *v1alpha1.ExportedService // of this cluster; nil if it does not export the service
	vips   merge.VIPs
	pools  []merge.Pool // of this member
	now    time.Time
}

// A decision holds the claims of a service that the inventory shall have.
type decision struct {
	claims []v1alpha1.Claim
	lacks  []merge.Pool  // each has to give one more address
	again  time.Duration // until the decision may change without an event; 0 for never
	noVIP  string        // the reason why the service has no address, in sentences; "" if it has one, or needs none
}

// retryIn makes the decision due again after a time at the latest.
func (d *decision) retryIn(wait time.Duration) {
	if d.again == 0 || wait < d.again {
		d.again = wait
	}
}

// wants returns whether exports want a clusterset IP by default; nil if records do not mention it. Without "vip cidr"
// an export may still ask for one by annotation, for members with that option, if this member has a VIP CIDR.
func (c *claims) wants() *bool {
	wanted := c.options.VIP == merge.CIDR
	if !wanted && len(c.ownPools()) == 0 {
		return nil
	}
	return &wanted
}

// ownPools returns the pools of this member that count. It looks at the other members only if this one has a VIP CIDR:
// it is asked every second.
func (c *claims) ownPools() []merge.Pool {
	if m := c.broker.Members.Get(c.clusterID); m == nil || len(m.Spec.VIPCIDRs) == 0 {
		return nil
	}
	return c.own(merge.Pools(c.broker.Members.All(), c.options.VIPNetworks))
}

// own returns the pools of this member.
func (c *claims) own(pools []merge.Pool) []merge.Pool {
	return slices.DeleteFunc(slices.Clone(pools), func(p merge.Pool) bool { return p.Cluster != c.clusterID })
}

// decide decides on the claims of a service. record is this cluster's, or nil.
func (c *claims) decide(svc types.NamespacedName, record *v1alpha1.ExportedService, now time.Time) (d decision) {
	present, wanted := c.broker.Own.Claims(svc), record != nil && record.Spec.VIP != nil && record.Spec.VIP.Wanted
	noted := c.notedIn(svc)
	if len(present) == 0 && !wanted && len(noted) == 0 {
		return d
	}
	o := c.options
	o.VIP = merge.CIDR
	view, o := c.broker.View(svc, o)
	o.VIPs.Has = noted
	o.VIPs.Removed = c.broker.Members.RemovedAmong(noted)
	s := claimant{name: svc, record: record, vips: o.VIPs.AcceptedBy(c.member.Namespace(svc.Namespace)),
		pools: c.own(o.VIPs.Pools), now: now}
	present = append(slices.Clone(present), c.lostClaims(present, s)...)
	exported := len(present) == 0 || c.exported(svc, record, view)
	for _, x := range present {
		addr := addrOf(x)
		pool, ok := poolOf(s.pools, addr.Is4())
		first, some := s.vips.OldestClaim(addr.Is4(), true)
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

// lostClaims returns the claims that the own import notes, and that an inventory from before the note lacks: the
// broker was restored.
func (c *claims) lostClaims(present []v1alpha1.Claim, s claimant) (all []v1alpha1.Claim) {
	for _, a := range s.vips.Has {
		pool, ok := poolOf(s.pools, a.IP.Is4())
		known := slices.ContainsFunc(present, func(x v1alpha1.Claim) bool { return addrOf(x).Is4() == a.IP.Is4() })
		if !known && a.Cluster == c.clusterID && s.vips.Stamps[c.clusterID] < a.Stamp && (!ok || pool.Prefix.Contains(a.IP)) {
			all = append(all, v1alpha1.Claim{IP: a.IP.String(), Since: s.now.UnixMicro()})
		}
	}
	return all
}

func poolOf(pools []merge.Pool, v4 bool) (merge.Pool, bool) {
	at := slices.IndexFunc(pools, func(p merge.Pool) bool { return p.Prefix.Addr().Is4() == v4 })
	if at < 0 {
		return merge.Pool{}, false
	}
	return pools[at], true
}

// exported reports whether a member exports the service, or may do so. An address is released only after all members
// have listed their exports without it.
func (c *claims) exported(svc types.NamespacedName, record *v1alpha1.ExportedService, view broker.View) bool {
	others := slices.ContainsFunc(view.Records, func(r merge.Record) bool { return r.Cluster != c.clusterID })
	if record != nil || others || member.IsOurs(c.member.Import(svc)) || c.broker.Members.Get(c.clusterID) == nil {
		return true
	}
	members := c.broker.Members.All()
	return c.missing(members) || slices.ContainsFunc(members, func(m v1alpha1.Member) bool {
		e := c.broker.Entry(&m, svc)
		return m.Name != c.clusterID && (e.Stamp == 0 || e.UID != "" || c.silent(m.Name))
	})
}

// missing reports whether a Member has vanished that was not removed: the broker was restored.
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
		if c.broker.Members.Get(id) == nil && !c.broker.Members.Removed(id) {
			return true
		}
	}
	return false
}

// allocates reports whether this member has to give the service its addresses. Exports that the namespace does not
// accept have no part in it. All VIP CIDRs of Members count, so that members with different options come to the same
// result.
func (c *claims) allocates(svc types.NamespacedName, record *v1alpha1.ExportedService, view broker.View) bool {
	o := c.options
	o.VIPs = merge.VIPs{Pools: merge.Pools(c.broker.Members.All(), merge.VIPNetworks{})}
	records := c.broker.Replace(view.Records, record)
	if ns := c.member.Namespace(svc.Namespace); ns != nil {
		records = slices.DeleteFunc(records, func(r merge.Record) bool { return !apibroker.SourceAllowed(ns, r.Cluster) })
	}
	return merge.IsAllocator(svc, c.clusterID, records, c.broker.Selectable(records), o)
}

// give revives released claims of a service that lacks addresses, or sets lacks, or noVIP.
func (c *claims) give(d *decision, s claimant) {
	others := s.vips
	others.Has = slices.DeleteFunc(slices.Clone(others.Has),
		func(a merge.Address) bool { return a.Cluster == c.clusterID })
	some := false
	var without []corev1.IPFamily // no VIP CIDR
	for _, f := range s.record.Spec.IPFamilies {
		v4 := f == corev1.IPv4Protocol
		at := slices.IndexFunc(d.claims, func(x v1alpha1.Claim) bool { return addrOf(x).Is4() == v4 })
		pool, ok := poolOf(s.pools, v4)
		_, claimed := others.OldestClaim(v4, true)
		_, retained := others.RetainedAddress(v4)
		switch {
		case claimed, retained, at >= 0 && d.claims[at].Released == 0:
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
		d.noVIP = fmt.Sprintf("There is no clusterset IP, as this cluster has no VIP CIDR in %s: join it with --vip-cidr.",
			c.options.VIPNetworks)
	default:
		prefix := s.pools[0].Prefix
		d.noVIP = fmt.Sprintf("There is no clusterset IP, as the VIP CIDR %s is %s and the Service is not.", prefix,
			apibroker.FamilyOf(prefix.Addr()))
	}
}

// review decides on the claims of a service, and reports whether the inventory has to be written.
func (c *claims) review(svc types.NamespacedName, record *v1alpha1.ExportedService) (d decision, due bool) {
	d = c.decide(svc, record, c.now())
	if d.again > 0 {
		c.retry(svc, d.again)
	}
	due = len(d.lacks) > 0 || !slices.Equal(d.claims, c.broker.Own.Claims(svc))
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, failed := c.exhausted[svc]; failed && c.now().Sub(e.at) < retryPool {
		c.retry(svc, retryPool)
		return d, false
	}
	delete(c.exhausted, svc)
	return d, due
}

// wrote ends a choice that was written.
func (c *claims) wrote(part string) {
	c.choosing.Lock()
	defer c.choosing.Unlock()
	delete(c.chosen, part)
}

// failed drops the addresses that were chosen for a part, after a failed write.
func (c *claims) failed(part string) {
	c.choosing.Lock()
	defer c.choosing.Unlock()
	delete(c.chosen, part)
	c.owners = nil
}

// noted returns the services of a part of the inventory with claims there, or in the note of the own import.
func (c *claims) noted(part string) (services []types.NamespacedName) {
	for _, svc := range slices.Concat(c.member.Imports(), c.broker.Own.Services()) {
		if apibroker.InventoryPart(svc.Namespace, svc.Name) == part &&
			(len(c.notedIn(svc)) > 0 || len(c.broker.Own.Claims(svc)) > 0) {
			services = append(services, svc)
		}
	}
	return services
}

// choose returns the claims of services for the next write of their part of the inventory.
func (c *claims) choose(
	part string, services map[types.NamespacedName]struct{}) map[types.NamespacedName][]v1alpha1.Claim {
	if len(services) == 0 {
		return nil
	}
	c.choosing.Lock()
	defer c.choosing.Unlock()
	all := make(map[types.NamespacedName][]v1alpha1.Claim)
	used := c.usedAddresses()
	now := c.now()
	for svc := range services {
		record, readable := c.export(svc)
		if !readable {
			continue // it is reconciled again
		}
		d := c.decide(svc, record, now)
		var full []string
		d.claims = slices.DeleteFunc(d.claims, func(x v1alpha1.Claim) bool { // lost, and another service's meanwhile
			owner, found := used[addrOf(x)]
			if found && owner != svc {
				full = append(full, fmt.Sprintf("The clusterset IP %s is that of %s now.", x.IP, owner))
			}
			return found && owner != svc
		})
		for _, pool := range d.lacks {
			addr, ok := pool.Choose(svc, used)
			if !ok {
				full = append(full, fmt.Sprintf(
					"There is no %s clusterset IP, as the VIP CIDR %s is exhausted: export less, or join with a larger one.",
					apibroker.FamilyOf(pool.Prefix.Addr()), pool.Prefix))
				continue
			}
			d.claims = append(d.claims, v1alpha1.Claim{IP: addr.String(), Since: now.UnixMicro()})
		}
		for _, x := range c.broker.Own.Claims(svc) {
			delete(used, addrOf(x))
		}
		for _, x := range d.claims {
			used[addrOf(x)] = svc
		}
		c.note(svc, strings.Join(full, " "), now)
		all[svc] = d.claims
	}
	c.chosen[part] = all
	return all
}

// addrOf returns the address of a claim of this member.
func addrOf(x v1alpha1.Claim) netip.Addr {
	addr, _ := netip.ParseAddr(x.IP)
	return addr
}

// note records the reason why a service got no address, or with "" that it got one.
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

// ownersAge bounds the age of owners: making it reads all imports.
const ownersAge = 10 * time.Second

// usedAddresses returns the services that have an address, by the inventory or else by the notes of the own imports. It
// may be older by ownersAge; the caller keeps it up to date with its own choices.
func (c *claims) usedAddresses() map[netip.Addr]types.NamespacedName {
	if c.owners != nil && time.Since(c.counted) < ownersAge {
		return c.owners
	}
	all := make(map[netip.Addr]types.NamespacedName)
	for _, svc := range c.member.Imports() {
		for _, a := range c.notedIn(svc) {
			all[a.IP] = svc
		}
	}
	for svc, x := range c.all {
		all[addrOf(x)] = svc
	}
	for _, chosen := range c.chosen {
		for svc, claims := range chosen {
			for _, x := range claims {
				all[addrOf(x)] = svc
			}
		}
	}
	c.owners, c.counted = all, time.Now()
	return all
}

// all yields the claims in the inventory, with their services.
func (c *claims) all(yield func(types.NamespacedName, v1alpha1.Claim) bool) {
	for n := range apibroker.InventoryParts {
		part, _ := c.broker.Own.Inventory(apibroker.InventoryPartName(n))
		if part == nil {
			continue
		}
		for _, e := range part.Spec.Exports {
			svc, _ := broker.ServiceOf(e.Name)
			for _, x := range e.Claims {
				if !yield(svc, x) {
					return
				}
			}
		}
	}
}

// count sets the metric of the VIP CIDRs. A family without one has no addresses.
func (c *claims) count() {
	used, quarantined := make(map[bool]int), make(map[bool]int) // by IPv4
	for _, x := range c.all {
		if v4 := addrOf(x).Is4(); x.Released == 0 {
			used[v4]++
		} else {
			quarantined[v4]++
		}
	}
	pools := c.ownPools()
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		var free int
		v4 := family == corev1.IPv4Protocol
		if pool, ok := poolOf(pools, v4); ok {
			free = max(0, pool.Size()-used[v4]-quarantined[v4])
		}
		c.metrics.SetPool(family, used[v4], quarantined[v4], free)
	}
}
