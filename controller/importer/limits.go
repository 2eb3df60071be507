package importer

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// limitRetry is the time until a service with a rejection by a limit is reconciled again: others may have made room.
const limitRetry = 10 * time.Minute

// limits bound the imports from other members (docs/spec/controller.md 9.6), so that a hostile or broken member can
// fill neither this cluster nor the room of the others.
//
// Existing imports count from the start, so that a restart changes nothing: they stay, and new ones beyond a limit are
// rejected. A record counts from [limits.admit] on, its endpoints from [limits.fit] on, both until [limits.release]. A
// plan that is not carried out frees nothing: see [limits.keep]. Several goroutines may call the methods.
//
// The counts of the start are those of the existing objects. Plans may count more: clusters with an import that was
// incomplete when a process ended, and endpoints with rejected addresses. That matters only beyond a limit, where such
// a service or slice counts as new.
type limits struct {
	services, endpoints, ofService int        // the most of each that all members have together
	addresses                      func() int // the most cluster IPs, as they are known now
	members                        func() int // how many members there are beside this cluster
	records                        func(cluster string) int

	mu          sync.Mutex
	held        map[types.NamespacedName]map[string]contribution // by service and cluster
	total       usage
	byCluster   map[string]usage         // by cluster
	inNamespace map[clusterNamespace]int // cluster IPs
	turns       map[string]*turns        // by cluster
}

// A contribution is what counts of one member for one service.
type contribution struct {
	endpoints int
	address   bool // the service has a cluster IP here
	imported  bool // the import had it once
}

// A usage is what counts of one member, or of all. A service that several members export counts once for each of them,
// and once in the total.
type usage struct{ services, addresses, endpoints int }

type clusterNamespace struct{ cluster, namespace string }

// newLimits returns the limits for a cluster, in which everything counts that it has imported from members other than
// itself.
func newLimits(m *member.Cluster, clusterID string, members func() int, records func(cluster string) int) *limits {
	l := &limits{
		services: apibroker.MaxImports, endpoints: apibroker.MaxImportedEndpoints, ofService: apibroker.MaxServiceEndpoints,
		addresses: func() int { return addressLimit(m.ServiceCIDRs()) }, members: members, records: records,
		held: make(map[types.NamespacedName]map[string]contribution), byCluster: make(map[string]usage),
		inNamespace: make(map[clusterNamespace]int),
		turns:       make(map[string]*turns),
	}
	for _, svc := range m.Imports() {
		imp := m.Import(svc)
		if !member.IsOurs(imp) {
			continue
		}
		derived := m.Derived(svc)
		// A derived Service that was deleted meanwhile is made again.
		address := len(imp.Spec.IPs) > 0 || derived != nil && desired.IsDerived(derived)
		for _, c := range imp.Status.Clusters {
			if c.Cluster != clusterID {
				l.set(svc, c.Cluster, contribution{address: address, imported: true})
			}
		}
		for _, s := range m.ImportedSlices(svc) {
			cluster := s.Labels[mcsv1beta1.LabelSourceCluster]
			if c, ok := l.held[svc][cluster]; ok {
				c.endpoints += len(s.Endpoints)
				l.set(svc, cluster, c)
			}
		}
	}
	return l
}

// addressLimit returns how many addresses of the Service network imports may take: half of it, and of two families the
// smaller half. Without a known network it is not limited.
func addressLimit(networks []netip.Prefix) int {
	size := map[bool]float64{}
	for _, p := range networks {
		size[p.Addr().Is4()] += math.Exp2(float64(p.Addr().BitLen() - p.Bits()))
	}
	limit := math.Inf(1)
	for _, n := range size {
		limit = min(limit, n/2)
	}
	return int(min(limit, math.MaxInt32))
}

// fits reports whether a member that has own of something may have n more. A member has at most half of the limit.
// Within that it may have the rest of the total, and always its equal share.
func (l *limits) fits(limit, own, total, n int) bool {
	return own+n <= limit/2 && (total+n <= limit || own+n <= limit/max(1, l.members()))
}

// turn returns how long a new record of a cluster has to wait; 0 if it counts already, or may begin now. giveBack
// returns the turn if the record is rejected after all. imported reports whether the import contains the cluster.
func (l *limits) turn(svc types.NamespacedName, cluster string, imported bool, now time.Time) (wait time.Duration,
	giveBack func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	giveBack = func() {}
	current, known := l.held[svc][cluster]
	if begins := !imported && (!known || current.imported); begins {
		t := l.turns[cluster]
		if t == nil {
			t = &turns{}
			l.turns[cluster] = t
		}
		if wait := t.wait(svc, func() int { return l.records(cluster) }, now); wait > 0 {
			return wait, giveBack
		}
		giveBack = func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			t.used--
		}
	}
	if known {
		current.imported = imported
		l.set(svc, cluster, current)
	}
	return 0, giveBack
}

// admit decides whether a record of a cluster counts, and counts it. needsAddress: the import lacks a cluster IP that
// it needs. It returns the reason of a rejection, or "".
func (l *limits) admit(svc types.NamespacedName, cluster string, hasAddress, needsAddress bool) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	current, known := l.held[svc][cluster]
	own := l.byCluster[cluster]
	others := l.total.services
	if len(l.held[svc]) > 0 {
		others-- // the import exists
	}
	if !known && !l.fits(l.services, own.services, others, 1) {
		return fmt.Sprintf("%d services are imported, %d of this cluster: want at most %d, half of them of one cluster",
			l.total.services, own.services, l.services)
	}
	if needsAddress && !l.hasAddress(svc) {
		limit, inNamespace := l.addresses(), l.inNamespace[clusterNamespace{cluster, svc.Namespace}]
		if inNamespace >= limit/4 || !l.fits(limit, own.addresses, l.total.addresses, 1) {
			return fmt.Sprintf(
				"imports have %d cluster IPs, %d of this cluster, %d of it in namespace %s: want at most %d, half of the "+
					"Service network, half of them of one cluster, and half of these in one namespace",
				l.total.addresses, own.addresses, inNamespace, svc.Namespace, limit)
		}
	}
	current.address = hasAddress || needsAddress
	l.set(svc, cluster, current)
	return ""
}

// fit returns those slices of a cluster for a service that are within the limits, and those that are rejected: the
// newest.
func (l *limits) fit(svc types.NamespacedName, cluster string, all []*discoveryv1.EndpointSlice) (fits,
	rejected []*discoveryv1.EndpointSlice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	after := l.held[svc][cluster]
	before := after.endpoints // existing imports stay
	after.endpoints = 0
	l.set(svc, cluster, after)
	var ofService int
	for _, c := range l.held[svc] {
		ofService += c.endpoints
	}
	within := func(n int) bool {
		return n <= before || l.fits(l.endpoints, l.byCluster[cluster].endpoints, l.total.endpoints, n) &&
			l.fits(l.ofService, 0, ofService, n)
	}
	var sum int
	for _, s := range all {
		sum += len(s.Endpoints)
	}
	if within(sum) {
		after.endpoints = sum
		l.set(svc, cluster, after)
		return all, nil
	}
	oldestFirst := slices.SortedStableFunc(slices.Values(all), func(a, b *discoveryv1.EndpointSlice) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	for _, s := range oldestFirst {
		n := after.endpoints + len(s.Endpoints)
		if !within(n) {
			rejected = append(rejected, s)
			continue
		}
		fits = append(fits, s)
		after.endpoints = n
	}
	l.set(svc, cluster, after)
	slices.SortFunc(fits, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	return fits, rejected
}

// contributions returns what counts for a service, by cluster.
func (l *limits) contributions(svc types.NamespacedName) map[string]contribution {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.held[svc])
}

// keep makes the counts from before a plan count still, beside those of the plan: as it was not carried out, all of it
// is still imported, and has to have its place when the broker has it again.
func (l *limits) keep(svc types.NamespacedName, before map[string]contribution) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for cluster, previous := range before {
		after, ok := l.held[svc][cluster]
		if !ok {
			after.imported = previous.imported
		}
		l.set(svc, cluster, contribution{endpoints: max(previous.endpoints, after.endpoints), address: previous.address ||
			after.address, imported: after.imported})
	}
}

// release ends the contributions to a service for which gone is true.
func (l *limits) release(svc types.NamespacedName, gone func(cluster string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for cluster := range l.held[svc] {
		if gone(cluster) {
			l.remove(svc, cluster)
		}
	}
}

// set counts what a cluster contributes to a service.
func (l *limits) set(svc types.NamespacedName, cluster string, c contribution) {
	l.remove(svc, cluster)
	if l.held[svc] == nil {
		l.held[svc] = make(map[string]contribution)
	}
	l.count(svc, cluster, c, 1)
	l.held[svc][cluster] = c
}

func (l *limits) remove(svc types.NamespacedName, cluster string) {
	c, ok := l.held[svc][cluster]
	if !ok {
		return
	}
	delete(l.held[svc], cluster)
	l.count(svc, cluster, c, -1)
	if len(l.held[svc]) == 0 {
		delete(l.held, svc)
	}
}

// count adds sign times what c is to the sums; the service has only its other contributions.
func (l *limits) count(svc types.NamespacedName, cluster string, c contribution, sign int) {
	own := l.byCluster[cluster]
	own.services += sign
	own.endpoints += sign * c.endpoints
	l.total.endpoints += sign * c.endpoints
	if len(l.held[svc]) == 0 {
		l.total.services += sign
	}
	if c.address {
		own.addresses += sign
		l.inNamespace[clusterNamespace{cluster, svc.Namespace}] += sign
		if !l.hasAddress(svc) {
			l.total.addresses += sign
		}
	}
	if l.byCluster[cluster] = own; own == (usage{}) {
		delete(l.byCluster, cluster)
	}
	if in := (clusterNamespace{cluster, svc.Namespace}); l.inNamespace[in] == 0 {
		delete(l.inNamespace, in)
	}
}

func (l *limits) hasAddress(svc types.NamespacedName) bool {
	for _, c := range l.held[svc] {
		if c.address {
			return true
		}
	}
	return false
}
