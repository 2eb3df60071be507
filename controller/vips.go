package controller

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/vip"
)

// poolRetry is when an export is looked at again that got no clusterset IP: only time may bring one.
const poolRetry = time.Minute

// vips gives out the VIP CIDR of this member (section 5, "VIP cidr"). Its methods may be called from several goroutines.
type vips struct {
	s *session

	mu   sync.Mutex
	pool *vip.Pool // nil while there is none, or not all records are known
	// given are the addresses that are held in the pool, as the record is to have them: a second attempt to write them
	// states the time of the first.
	given map[types.NamespacedName]v1alpha1.VIP
}

func newVIPs(s *session) *vips {
	return &vips{s: s, given: make(map[types.NamespacedName]v1alpha1.VIP)}
}

// of returns what decides about the clusterset IP of an export: nil if nothing is said about one. It only reads.
//
// With another "vip" an export may still ask for one by annotation, for members that have "vip cidr", if a VIP CIDR was
// given at the join.
func (v *vips) of(svc types.NamespacedName) *export.VIP {
	cfg := &v.s.cfg
	pools := v.pools()
	if !v.prefix(pools).IsValid() && cfg.VIP != merge.CIDR {
		return nil
	}
	decided := &export.VIP{Wanted: cfg.VIP == merge.CIDR}
	o := cfg.mergeOptions()
	o.Pools = pools
	if a := merge.Allocated(svc, v.claims(svc), o); a != nil {
		decided.Allocation = &v1alpha1.VIP{IPs: a.IPs, AllocatedBy: a.By, At: &a.At}
		return decided
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if given, ok := v.given[svc]; ok && !v.lost(svc, given) {
		decided.Allocation = &given
	}
	return decided
}

func (v *vips) pools() []merge.Pool { return merge.Pools(v.s.broker.Members(), v.s.cfg.VIPPool) }

// prefix returns the VIP CIDR of this member, the zero value if it has none.
func (v *vips) prefix(pools []merge.Pool) netip.Prefix {
	for _, p := range pools {
		if p.Cluster == v.s.member.id {
			return p.Prefix
		}
	}
	return netip.Prefix{}
}

// lost reports that the broker has our record with the given addresses. Since they are not the allocation nevertheless,
// somebody has a better right to them.
func (v *vips) lost(svc types.NamespacedName, given v1alpha1.VIP) bool {
	record, _ := v.s.broker.Own(svc)
	return record != nil && record.Spec.VIP != nil && slices.Equal(record.Spec.VIP.IPs, given.IPs)
}

// note tells the pool which addresses the records of a service name. The first time, and when the VIP CIDR is another one,
// it tells of all records: nothing is given out before.
func (v *vips) note(svc types.NamespacedName) {
	if !v.s.broker.Synced() {
		return
	}
	prefix := v.prefix(v.pools())
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case !prefix.IsValid():
		v.pool = nil
		clear(v.given)
		v.s.metrics.setPool(0, 0, 0)
		return
	case v.pool == nil || v.pool.Prefix() != prefix:
		v.rebuild(prefix)
	default:
		v.pool.Name(svc, v.named(svc), time.Now())
	}
	v.count()
}

// heard tells the pool which addresses the records of a service name, whoever exports it: those of others may come after ours
// went, and outlive it. A pool that is not there yet is told of all.
func (v *vips) heard(svc types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.pool != nil {
		v.pool.Name(svc, v.named(svc), time.Now())
		v.count()
	}
}

func (v *vips) rebuild(prefix netip.Prefix) {
	v.pool = vip.New(prefix, vip.Quarantine)
	clear(v.given)
	named := make(map[types.NamespacedName][]netip.Addr)
	for addr, claims := range v.s.broker.VIPs() {
		for _, c := range claims {
			named[c.Service] = append(named[c.Service], addr)
		}
	}
	now := time.Now()
	for svc, addrs := range named {
		v.pool.Name(svc, addrs, now)
	}
}

// claims returns what decides about the allocation of a service. What this instance has written itself counts before the
// watch tells of it, lest it is allocated twice.
func (v *vips) claims(svc types.NamespacedName) []merge.Claim {
	own := merge.Claim{Service: svc, Cluster: v.s.member.id}
	claims := slices.DeleteFunc(v.s.broker.Claims(svc), func(c merge.Claim) bool {
		if c.Service != svc || c.Cluster != own.Cluster {
			return false
		}
		own.Admitted = c.Admitted
		return true
	})
	if record, _ := v.s.broker.Own(svc); record != nil && record.Spec.VIP != nil {
		own.Created, own.VIP = record.CreationTimestamp, *record.Spec.VIP
		claims = append(claims, own)
	}
	return claims
}

// named returns the addresses that the records of a service name.
func (v *vips) named(svc types.NamespacedName) []netip.Addr {
	var ips []string
	for _, r := range v.s.broker.Records(svc) {
		if r.Cluster != v.s.member.id && r.Spec.VIP != nil {
			ips = append(ips, r.Spec.VIP.IPs...)
		}
	}
	if own, _ := v.s.broker.Own(svc); own != nil && own.Spec.VIP != nil {
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

// allocate gives a record that is about to be written a clusterset IP, if it is for this cluster to choose one: it has the
// oldest export, and wants one. It returns, in one sentence, why there is none that should be.
func (v *vips) allocate(svc types.NamespacedName, record *v1alpha1.ExportedService) string {
	if record == nil || record.Spec.VIP == nil || !record.Spec.VIP.Wanted || len(record.Spec.VIP.IPs) > 0 {
		return ""
	}
	s := v.s
	if merge.Merge(svc, s.recordsWith(svc, record), s.mergeOptions(svc)).Oldest != s.member.id {
		return ""
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.pool == nil {
		const none = "There is no clusterset IP, as this cluster has no VIP CIDR in %s: join it with --vip-cidr."
		return fmt.Sprintf(none, s.cfg.VIPPool)
	}
	prefix := v.pool.Prefix()
	if family := familyOf(prefix.Addr()); !slices.Contains(record.Spec.IPFamilies, family) {
		return fmt.Sprintf("There is no clusterset IP, as the VIP CIDR %s is %s and the Service is not.", prefix, family)
	}
	now := time.Now()
	if _, lost := v.given[svc]; lost {
		v.release(svc, now)
	}
	addr, ok := v.pool.Allocate(svc, now)
	if !ok {
		s.exports.AddAfter(svc, poolRetry)
		const exhausted = "There is no clusterset IP, as the VIP CIDR %s is exhausted: export less, or join with a larger one."
		return fmt.Sprintf(exhausted, prefix)
	}
	at := metav1.NewTime(now).Rfc3339Copy()
	given := v1alpha1.VIP{IPs: []string{addr.String()}, AllocatedBy: s.member.id, At: &at}
	v.given[svc] = given
	given.Wanted, record.Spec.VIP = true, &given
	v.count()
	return ""
}

// settle holds nothing for the service any more, once the broker has its record, or has none: what that names is taken
// because of it.
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
	delete(v.given, svc)
	v.pool.Release(svc, now)
}

func (v *vips) count() { v.s.metrics.setPool(v.pool.Usage(time.Now())) }

func familyOf(addr netip.Addr) corev1.IPFamily {
	if addr.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
