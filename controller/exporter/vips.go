package exporter

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/metrics"
	"github.com/clusterset-dns/clusterset/controller/vip"
)

// retryPool is when an export that got no clusterset IP is reconciled again: an address may leave quarantine. retryLease is when that is as the
// quarantine could not be read.
const retryPool, retryLease = time.Minute, 10 * time.Second

// vips allocates clusterset IPs from the VIP CIDRs of this member, of each IP family by itself (docs/spec/controller.md 5, "VIP cidr").
//
// The records on the broker are the truth: an address that a record names is taken, whichever member wrote the record, and
// it is free again, after a quarantine, when the last record that names it is gone. An address that was allocated here and is
// not in a record yet is reserved:
//
//	        allocate             endReservation: the record is written
//	free -------------> reserved -------------------------------------> taken
//	  ^                     |                                             |
//	  |                     | endReservation: the export was withdrawn    | the last record is gone
//	  +--- quarantine <-----+---------------------------------------------+
//
// The methods may be called by several goroutines.
type vips struct {
	broker     *broker.Broker
	quarantine quarantine
	clusterID  string
	options    merge.Options // mode and networks of all VIP CIDRs
	metrics    *metrics.Metrics
	retry      func(types.NamespacedName, time.Duration)

	mu     sync.Mutex
	pools  vip.Pools    // nil while this member has no VIP CIDR, or not all records or the quarantine before it are known
	second netip.Prefix // of these, that of the second VIP CIDR
	// dropped holds the last pool of each family after its VIP CIDR disappeared: it may be back soon, with the Member that has it.
	dropped vip.Pools
	unread  error     // why the quarantine cannot be read
	unsaved bool      // the annotation with the quarantine is outdated
	saved   time.Time // the last check that found the annotation current
	// reserved has the allocations as they go into the record: a second attempt to write one states the time of the first.
	reserved map[types.NamespacedName][]merge.Allocation
	blamed   map[netip.Prefix]blame // what takenByOthers said last of each pool: it reads all records
}

// blame is what was said at a time.
type blame struct {
	text string
	at   time.Time
}

// of returns the clusterset IPs of an export: nil if its record is to say nothing about one. It only reads.
//
// With another "vip" than cidr an export may still ask for one by annotation, for the members that have "vip cidr", if this
// member got a VIP CIDR at the join.
func (v *vips) of(svc types.NamespacedName) *export.VIP {
	o := v.merging()
	if len(v.own(o.Pools)) == 0 && v.options.VIP != merge.CIDR {
		return nil
	}
	all := v.copied(svc, merge.Allocated(svc, v.claims(svc), o), o)
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, a := range v.reserved[svc] {
		if !hasFamily(all, apibroker.FamilyOf(a.IP)) && !v.superseded(svc, a) {
			all = append(all, a)
		}
	}
	x := &export.VIP{Wanted: v.options.VIP == merge.CIDR}
	if len(all) > 0 {
		allocation := merge.VIPOf(all)
		x.Allocation = &allocation
	}
	return x
}

// merging returns the options by which the clusterset IPs of a service follow from its claims.
func (v *vips) merging() merge.Options {
	o, members := v.options, v.broker.Members()
	o.Pools, o.Declared = merge.Pools(members, o.VIPNetworks), merge.Declared(members)
	return o
}

// choosing returns the options by which one member is chosen to allocate. All VIP CIDRs of Members count: by the option "vip cidr" of each member alone two
// could choose themselves while it is changed.
func (v *vips) choosing() merge.Options {
	o := v.options
	o.Pools = merge.Pools(v.broker.Members(), merge.VIPNetworks{})
	return o
}

// copied returns the allocations that the record of this member is to name. An allocation of a cluster that is no member stays in records that name
// it, and comes into no other: a record could name a cluster that never was, and its address would stay for ever, in copies of copies.
func (v *vips) copied(svc types.NamespacedName, all []merge.Allocation, o merge.Options) []merge.Allocation {
	var named []string
	if record, _ := v.broker.Own(svc); record != nil {
		named = record.Spec.VIP.Addresses()
	}
	return slices.DeleteFunc(all, func(a merge.Allocation) bool { return o.Left(a.By) && !slices.Contains(named, a.IP.String()) })
}

// own returns the VIP CIDRs of this member, the first one first.
func (v *vips) own(pools []merge.Pool) []merge.Pool {
	return slices.DeleteFunc(slices.Clone(pools), func(p merge.Pool) bool { return p.Cluster != v.clusterID || !p.Prefix.IsValid() })
}

func prefixesOf(pools []merge.Pool) []netip.Prefix {
	var all []netip.Prefix
	for _, p := range pools {
		all = append(all, p.Prefix)
	}
	return all
}

// current returns the networks of the VIP CIDRs of this member as the Members are now.
func (v *vips) current() []netip.Prefix {
	return prefixesOf(v.own(merge.Pools(v.broker.Members(), v.options.VIPNetworks)))
}

// superseded reports that our record on the broker has this IP, although it is not the allocation: merge assigned it to another service.
func (v *vips) superseded(svc types.NamespacedName, reserved merge.Allocation) bool {
	record, _ := v.broker.Own(svc)
	return record != nil && slices.Contains(record.Spec.VIP.Addresses(), reserved.IP.String())
}

func hasFamily(all []merge.Allocation, family corev1.IPFamily) bool {
	return slices.ContainsFunc(all, func(a merge.Allocation) bool { return apibroker.FamilyOf(a.IP) == family })
}

// sync updates the pool with the addresses of a service's records. The first time, and when the VIP CIDR changed, it makes the
// pool from all records and the quarantine of the instance before; nothing is allocated before, and all else goes on.
func (v *vips) sync(ctx context.Context, svc types.NamespacedName) {
	if !v.broker.Synced() || v.update(svc) {
		return
	}
	// What is saved meanwhile is of the pools, and a pool that exists is not made again. The VIP CIDRs are read again with the lock held.
	before, err := v.quarantine.load(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.unread = err; err == nil {
		v.rebuild(before)
	}
}

// update is sync for a pool that exists. It reports false if it has to be made.
func (v *vips) update(svc types.NamespacedName) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	// Read while the pool cannot change: a CIDR that was read before would replace that of a later call.
	switch prefixes := v.current(); {
	case len(prefixes) == 0:
		v.drop()
		v.count()
		return true
	case !slices.Equal(v.pools.Prefixes(), prefixes):
		return false
	}
	v.name(svc, time.Now())
	v.count()
	return true
}

// drop takes the pools out of use. The caller holds v.mu.
func (v *vips) drop() {
	v.pools, v.dropped = nil, v.pools.Or(v.dropped)
	clear(v.reserved)
}

// save writes the quarantine if an address came to it, and looks now and then whether it is still there: with the Lease it may have been
// deleted.
func (v *vips) save(ctx context.Context) error {
	now := time.Now()
	all, due := v.toSave(now)
	if !due {
		return nil
	}
	err := v.quarantine.save(ctx, all)
	v.wrote(now, err)
	return err
}

// toSave returns the quarantine and whether it has to be written, which the caller does. What changes from now on has to be written again.
func (v *vips) toSave(now time.Time) (all []vip.Freed, due bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.pools == nil {
		return nil, false
	}
	all, changed := v.pools.Quarantined(now, maxQuarantine)
	due = v.unsaved || changed || len(all) > 0 && now.Sub(v.saved) >= retryPool
	v.unsaved = false
	return all, due
}

// wrote says what became of the quarantine that toSave returned.
func (v *vips) wrote(at time.Time, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		v.unsaved = true
	} else {
		v.saved = at
	}
}

// observe updates the pools, if there are any, when the records of a service changed: those of other members may appear after
// ours is gone, and outlive it.
func (v *vips) observe(svc types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.pools != nil {
		v.name(svc, time.Now())
		v.count()
	}
}

// rebuild makes the pools of the VIP CIDRs, if there are some and they have none: from all records, the quarantine of the instance before, and
// that of the pools before, of which the latest may not be saved. The caller holds v.mu.
func (v *vips) rebuild(before []vip.Freed) {
	own := v.own(merge.Pools(v.broker.Members(), v.options.VIPNetworks))
	prefixes := prefixesOf(own)
	if len(prefixes) == 0 || slices.Equal(v.pools.Prefixes(), prefixes) {
		return
	}
	v.drop()
	v.second = netip.Prefix{}
	if i := slices.IndexFunc(own, func(p merge.Pool) bool { return p.Second }); i >= 0 {
		v.second = own[i].Prefix
	}
	v.pools = vip.NewPools(prefixes, vip.Quarantine)
	named, ours := make(map[types.NamespacedName][]netip.Addr), []netip.Addr(nil)
	for addr, claims := range v.broker.VIPs() {
		for _, c := range claims {
			named[c.Service] = append(named[c.Service], addr)
			if c.Cluster == v.clusterID {
				ours = append(ours, addr)
			}
		}
	}
	now := time.Now()
	for svc, addrs := range named {
		v.pools.Name(svc, addrs, now)
	}
	v.pools.Own(ours)
	v.pools.Restore(before, now)
	v.unsaved = v.pools.Continue(v.dropped, now) || v.unsaved
	v.count()
}

// claims returns the claims that decide on the allocation of a service. The record that this instance wrote counts before the
// watch delivers it, so that a service is not allocated twice.
func (v *vips) claims(svc types.NamespacedName) []merge.Claim {
	own := merge.Claim{Service: svc, Cluster: v.clusterID}
	claims := slices.DeleteFunc(v.broker.Claims(svc), func(c merge.Claim) bool {
		if c.Service != svc || c.Cluster != own.Cluster {
			return false
		}
		own.Admitted = c.Admitted
		return true
	})
	if record, _ := v.broker.Own(svc); record != nil && record.Spec.VIP != nil {
		own.Created, own.VIP = record.CreationTimestamp, *record.Spec.VIP
		claims = append(claims, own)
	}
	return claims
}

// name gives the addresses in the records of a service to the pools. The caller holds v.mu.
func (v *vips) name(svc types.NamespacedName, now time.Time) {
	var own, others []netip.Addr
	for _, r := range v.broker.Records(svc) {
		if r.Cluster != v.clusterID {
			others = append(others, addresses(r.Spec.VIP)...)
		}
	}
	if record, _ := v.broker.Own(svc); record != nil {
		own = addresses(record.Spec.VIP)
	}
	v.pools.Name(svc, slices.Concat(own, others), now)
	v.pools.Own(own)
}

// addresses returns the valid clusterset IPs of a record.
func addresses(v *v1alpha1.VIP) (addrs []netip.Addr) {
	for _, ip := range v.Addresses() {
		if addr, err := netip.ParseAddr(ip); err == nil {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// allocate gives a record that is about to be written a clusterset IP of each family that the service has and lacks an address of, if this
// cluster has to choose: it has the oldest export, and wants one. If an address should be there and is missing, it returns the reason.
func (v *vips) allocate(svc types.NamespacedName, record *v1alpha1.ExportedService) (noVIP string) {
	if record == nil || record.Spec.VIP == nil || !record.Spec.VIP.Wanted {
		return ""
	}
	lacking, records := v.missing(svc, record), v.broker.Replace(v.broker.Records(svc), record)
	if len(lacking) == 0 || !merge.Allocates(svc, v.clusterID, records, v.broker.Selectable(records), v.choosing()) {
		return ""
	}
	some := len(record.Spec.VIP.Addresses()) > 0
	v.mu.Lock()
	defer v.mu.Unlock()
	if why := v.unavailable(svc, lacking, some); why != "" {
		return why
	}
	now := time.Now()
	all := merge.AllocationsOf(record.Spec.VIP)
	var exhausted []string
	for _, family := range lacking {
		pool := v.pools.Of(family == corev1.IPv4Protocol)
		if pool == nil {
			continue // the other family has an address: a member without a second VIP CIDR gives one of its family alone
		}
		if a, ok := v.choose(svc, pool, now); ok {
			all = append(all, a)
		} else {
			v.retry(svc, retryPool)
			exhausted = append(exhausted, fmt.Sprintf("There is no %s clusterset IP, as the VIP CIDR %s is exhausted: export less, or join with a larger one.%s",
				family, pool.Prefix(), v.takenByOthers(pool, now)))
		}
	}
	if len(all) > 0 {
		allocated := merge.VIPOf(all)
		allocated.Wanted, record.Spec.VIP = true, &allocated
	}
	v.count()
	return strings.Join(exhausted, " ")
}

// missing returns the families of a record that neither it nor another one of the service has a clusterset IP of. One that only other records say
// a cluster has allocated which is no member does not count: any member can write such a record, also one that no importer takes.
func (v *vips) missing(svc types.NamespacedName, record *v1alpha1.ExportedService) []corev1.IPFamily {
	o := v.merging()
	has := append(merge.AllocationsOf(record.Spec.VIP), v.copied(svc, merge.Allocated(svc, v.claims(svc), o), o)...)
	return slices.DeleteFunc(slices.Clone(record.Spec.IPFamilies), func(f corev1.IPFamily) bool { return hasFamily(has, f) })
}

// unavailable says, in one sentence, why there is nothing to allocate from, "" if there is. It is no fault that a service which has some
// address gets none of another family, as this cluster has no VIP CIDR of it. The caller holds v.mu.
func (v *vips) unavailable(svc types.NamespacedName, families []corev1.IPFamily, some bool) string {
	unread := v.pools == nil && v.unread != nil
	if unread {
		v.retry(svc, retryLease)
	}
	switch {
	case some:
		return ""
	case unread:
		return fmt.Sprintf("There is no clusterset IP yet, as it is not known which ones are in quarantine: %v.", v.unread)
	case v.pools == nil:
		return fmt.Sprintf("There is no clusterset IP, as this cluster has no VIP CIDR in %s: join it with --vip-cidr.", v.options.VIPNetworks)
	case !slices.ContainsFunc(families, func(f corev1.IPFamily) bool { return v.pools.Of(f == corev1.IPv4Protocol) != nil }):
		prefix := v.pools.Prefixes()[0]
		return fmt.Sprintf("There is no clusterset IP, as the VIP CIDR %s is %s and the Service is not.", prefix, apibroker.FamilyOf(prefix.Addr()))
	}
	return ""
}

// choose reserves an address of the pool for a service. One that is reserved already was superseded. The caller holds v.mu.
func (v *vips) choose(svc types.NamespacedName, pool *vip.Pool, now time.Time) (merge.Allocation, bool) {
	family := apibroker.FamilyOf(pool.Prefix().Addr())
	if hasFamily(v.reserved[svc], family) {
		v.reserved[svc] = slices.DeleteFunc(v.reserved[svc], func(a merge.Allocation) bool { return apibroker.FamilyOf(a.IP) == family })
		pool.Release(svc, now)
	}
	addr, ok := pool.Allocate(svc, now)
	if !ok {
		return merge.Allocation{}, false
	}
	a := merge.Allocation{IP: addr, By: v.clusterID, At: metav1.NewTime(now).Rfc3339Copy(), Second: v.second == pool.Prefix()}
	v.reserved[svc] = append(v.reserved[svc], a)
	return a, true
}

// takenByOthers returns one sentence, after a blank: how many addresses of a pool only other clusters name, and which cluster names most of
// them. It returns "" if they name none. An address in a record counts as taken even if it is only a copy of one that was allocated here, so a
// member can take addresses by writing them.
func (v *vips) takenByOthers(pool *vip.Pool, now time.Time) string {
	if last, ok := v.blamed[pool.Prefix()]; ok && now.Sub(last.at) < retryPool {
		return last.text
	}
	var all int
	of := make(map[string]int)
	for addr, claims := range v.broker.VIPs() {
		own := slices.ContainsFunc(claims, func(c merge.Claim) bool { return c.Cluster == v.clusterID })
		if own || !pool.Prefix().Contains(addr) {
			continue
		}
		all++
		for _, c := range claims {
			of[c.Cluster]++
		}
	}
	var text string
	if all > 0 {
		most := slices.MaxFunc(slices.Sorted(maps.Keys(of)), func(a, b string) int { return cmp.Compare(of[a], of[b]) })
		text = fmt.Sprintf(" Records of other clusters alone have %d addresses of it, %d of them those of %q.", all, of[most], most)
	}
	if v.blamed == nil {
		v.blamed = make(map[netip.Prefix]blame)
	}
	v.blamed[pool.Prefix()] = blame{text, now}
	return text
}

// endReservation ends the reservation of a service once the broker has its record, or has none: from then on the records decide.
func (v *vips) endReservation(svc types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.pools == nil {
		return
	}
	now := time.Now()
	v.name(svc, now)
	v.release(svc, now)
	v.count()
}

func (v *vips) release(svc types.NamespacedName, now time.Time) {
	delete(v.reserved, svc)
	v.pools.Release(svc, now)
}

// count records the use of the pools. A family without a pool has no addresses.
func (v *vips) count() {
	now := time.Now()
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		var used, quarantined, free int
		if pool := v.pools.Of(family == corev1.IPv4Protocol); pool != nil {
			used, quarantined, free = pool.Usage(now)
		}
		v.metrics.SetPool(family, used, quarantined, free)
	}
}
