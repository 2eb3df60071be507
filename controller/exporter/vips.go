package exporter

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// vips allocates clusterset IPs from the VIP CIDR of this member (docs/spec/controller.md 5, "VIP cidr").
//
// The records on the broker are the truth: an address that a record names is taken, whichever member wrote the record, and
// it is free again, after a quarantine, when the last record that names it is gone. An address that was allocated here and is
// not in a record yet is reserved:
//
//	        allocate                settle: the record is written
//	free -------------> reserved ---------------------------------> taken
//	  ^                     |                                         |
//	  |                     | settle: the export was withdrawn        | the last record is gone
//	  +--- quarantine <-----+-----------------------------------------+
//
// The methods may be called by several goroutines.
type vips struct {
	broker     *broker.Broker
	quarantine quarantine
	clusterID  string
	options    merge.Options // mode and network of all VIP CIDRs
	metrics    *metrics.Metrics
	retry      func(types.NamespacedName, time.Duration)

	mu   sync.Mutex
	pool *vip.Pool // nil while this member has no VIP CIDR, or not all records or the quarantine before it are known
	// dropped is the pool before, nil if there was none: a VIP CIDR may be away for a moment, as its Member is.
	dropped *vip.Pool
	unread  error // why the quarantine cannot be read
	// unsaved says that what is saved of the quarantine is not up to date, saved when it was known to be.
	unsaved bool
	saved   time.Time
	// reserved has the allocations as they go into the record: a second attempt to write one states the time of the first.
	reserved map[types.NamespacedName]v1alpha1.VIP
	blame    string    // what takenByOthers said last,
	blamed   time.Time // and when: it reads all records
}

// of returns the clusterset IP of an export: nil if its record is to say nothing about one. It only reads.
//
// With another "vip" than cidr an export may still ask for one by annotation, for the members that have "vip cidr", if this
// member got a VIP CIDR at the join.
func (v *vips) of(svc types.NamespacedName) *export.VIP {
	pools := v.pools()
	if !v.prefix(pools).IsValid() && v.options.VIP != merge.CIDR {
		return nil
	}
	x := &export.VIP{Wanted: v.options.VIP == merge.CIDR}
	o := v.options
	o.Pools = pools
	if a := merge.Allocated(svc, v.claims(svc), o); a != nil {
		x.Allocation = &v1alpha1.VIP{IPs: a.IPs, AllocatedBy: a.By, At: &a.At}
		return x
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if reserved, ok := v.reserved[svc]; ok && !v.superseded(svc, reserved) {
		x.Allocation = &reserved
	}
	return x
}

func (v *vips) pools() []merge.Pool { return merge.Pools(v.broker.Members(), v.options.VIPPool) }

// prefix returns the VIP CIDR of this member, the zero value if it has none.
func (v *vips) prefix(pools []merge.Pool) netip.Prefix {
	for _, p := range pools {
		if p.Cluster == v.clusterID {
			return p.Prefix
		}
	}
	return netip.Prefix{}
}

// superseded reports that our record on the broker has these IPs, although they are not the allocation: merge assigned them to
// another service.
func (v *vips) superseded(svc types.NamespacedName, reserved v1alpha1.VIP) bool {
	record, _ := v.broker.Own(svc)
	return record != nil && record.Spec.VIP != nil && slices.Equal(record.Spec.VIP.IPs, reserved.IPs)
}

// sync updates the pool with the addresses of a service's records. The first time, and when the VIP CIDR changed, it makes the
// pool from all records and the quarantine of the instance before; nothing is allocated before, and all else goes on.
func (v *vips) sync(ctx context.Context, svc types.NamespacedName) {
	if !v.broker.Synced() || v.update(svc) {
		return
	}
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
	switch prefix := v.prefix(v.pools()); {
	case !prefix.IsValid():
		v.drop()
		v.metrics.SetPool(0, 0, 0)
		return true
	case v.pool == nil || v.pool.Prefix() != prefix:
		return false
	}
	v.pool.Name(svc, v.named(svc), time.Now())
	v.count()
	return true
}

// drop takes the pool out of use. The caller holds v.mu.
func (v *vips) drop() {
	if v.pool != nil {
		v.dropped = v.pool
	}
	v.pool = nil
	clear(v.reserved)
}

// save writes the quarantine if an address came to it, and looks now and then whether it is still there: with the Lease it may have been
// deleted.
func (v *vips) save(ctx context.Context) error {
	v.mu.Lock()
	if v.pool == nil {
		v.mu.Unlock()
		return nil
	}
	now := time.Now()
	all, changed := v.pool.Quarantined(now, maxQuarantine)
	v.unsaved = v.unsaved || changed || len(all) > 0 && now.Sub(v.saved) >= retryPool
	unsaved := v.unsaved
	v.mu.Unlock()
	if !unsaved {
		return nil
	}
	if err := v.quarantine.save(ctx, all); err != nil {
		return err
	}
	v.mu.Lock()
	v.unsaved, v.saved = false, now
	v.mu.Unlock()
	return nil
}

// observe updates the pool, if there is one, when the records of a service changed: those of other members may appear after
// ours is gone, and outlive it.
func (v *vips) observe(svc types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.pool != nil {
		v.pool.Name(svc, v.named(svc), time.Now())
		v.count()
	}
}

// rebuild makes the pool of the VIP CIDR, if there is one and it has none: from all records, the quarantine of the instance before, and that of
// the pool before, of which the latest may not be saved. The caller holds v.mu.
func (v *vips) rebuild(before []vip.Freed) {
	prefix := v.prefix(v.pools())
	if !prefix.IsValid() || v.pool != nil && v.pool.Prefix() == prefix {
		return
	}
	v.drop()
	v.pool = vip.New(prefix, vip.Quarantine)
	named := make(map[types.NamespacedName][]netip.Addr)
	for addr, claims := range v.broker.VIPs() {
		for _, c := range claims {
			named[c.Service] = append(named[c.Service], addr)
		}
	}
	now := time.Now()
	for svc, addrs := range named {
		v.pool.Name(svc, addrs, now)
	}
	v.pool.Restore(before, now)
	if v.dropped != nil {
		v.unsaved = v.pool.Continue(v.dropped, now) || v.unsaved
	}
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

// named returns the addresses in the records of a service.
func (v *vips) named(svc types.NamespacedName) []netip.Addr {
	var ips []string
	for _, r := range v.broker.Records(svc) {
		if r.Cluster != v.clusterID && r.Spec.VIP != nil {
			ips = append(ips, r.Spec.VIP.IPs...)
		}
	}
	if own, _ := v.broker.Own(svc); own != nil && own.Spec.VIP != nil {
		ips = append(ips, own.Spec.VIP.IPs...)
	}
	var addrs []netip.Addr
	for _, ip := range ips {
		if addr, err := netip.ParseAddr(ip); err == nil {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// allocate gives a record that is about to be written a clusterset IP, if this cluster has to choose one: it has the oldest
// export, and wants one. It returns, in one sentence, why there is none although there should be.
func (v *vips) allocate(svc types.NamespacedName, record *v1alpha1.ExportedService) string {
	if record == nil || record.Spec.VIP == nil || !record.Spec.VIP.Wanted || len(record.Spec.VIP.IPs) > 0 {
		return ""
	}
	if merge.Merge(svc, v.broker.RecordsWith(svc, record), v.broker.MergeOptions(svc, v.options)).Oldest != v.clusterID {
		return ""
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.pool == nil && v.unread != nil {
		v.retry(svc, retryLease)
		return fmt.Sprintf("There is no clusterset IP yet, as it is not known which ones are in quarantine: %v.", v.unread)
	}
	if v.pool == nil {
		const none = "There is no clusterset IP, as this cluster has no VIP CIDR in %s: join it with --vip-cidr."
		return fmt.Sprintf(none, v.options.VIPPool)
	}
	prefix := v.pool.Prefix()
	if family := familyOf(prefix.Addr()); !slices.Contains(record.Spec.IPFamilies, family) {
		return fmt.Sprintf("There is no clusterset IP, as the VIP CIDR %s is %s and the Service is not.", prefix, family)
	}
	now := time.Now()
	if _, superseded := v.reserved[svc]; superseded {
		v.release(svc, now)
	}
	addr, ok := v.pool.Allocate(svc, now)
	if !ok {
		v.retry(svc, retryPool)
		return fmt.Sprintf("There is no clusterset IP, as the VIP CIDR %s is exhausted: export less, or join with a larger one.%s",
			prefix, v.takenByOthers(now))
	}
	at := metav1.NewTime(now).Rfc3339Copy()
	reserved := v1alpha1.VIP{IPs: []string{addr.String()}, AllocatedBy: v.clusterID, At: &at}
	v.reserved[svc] = reserved
	reserved.Wanted, record.Spec.VIP = true, &reserved
	v.count()
	return ""
}

// takenByOthers returns one sentence, after a blank: how many addresses of the pool only other clusters name, and which cluster names most of
// them. It returns "" if they name none. An address in a record counts as taken even if it is only a copy of one that was allocated here, so a
// member can take addresses by writing them.
func (v *vips) takenByOthers(now time.Time) string {
	if now.Sub(v.blamed) < retryPool {
		return v.blame
	}
	var all int
	of := make(map[string]int)
	for addr, claims := range v.broker.VIPs() {
		own := slices.ContainsFunc(claims, func(c merge.Claim) bool { return c.Cluster == v.clusterID })
		if own || !v.pool.Prefix().Contains(addr) {
			continue
		}
		all++
		for _, c := range claims {
			of[c.Cluster]++
		}
	}
	v.blame, v.blamed = "", now
	if all > 0 {
		most := slices.MaxFunc(slices.Sorted(maps.Keys(of)), func(a, b string) int { return cmp.Compare(of[a], of[b]) })
		v.blame = fmt.Sprintf(" Records of other clusters alone have %d addresses of it, %d of them those of %q.", all, of[most], most)
	}
	return v.blame
}

// settle ends the reservation of a service once the broker has its record, or has none: from then on the records decide.
func (v *vips) settle(svc types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.pool == nil {
		return
	}
	now := time.Now()
	v.pool.Name(svc, v.named(svc), now)
	v.release(svc, now)
	v.count()
}

func (v *vips) release(svc types.NamespacedName, now time.Time) {
	delete(v.reserved, svc)
	v.pool.Release(svc, now)
}

func (v *vips) count() { v.metrics.SetPool(v.pool.Usage(time.Now())) }

func familyOf(addr netip.Addr) corev1.IPFamily {
	if addr.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
