package importer

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/liveness"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/selection"
)

// A plan is the import that the export records of a service produce in this cluster. The zero value belongs to a
// service without exports: its import is removed.
type plan struct {
	result  merge.Result
	cluster desired.ImportingCluster // without what depends on the objects that exist
	// conflicts are those between all records that reach this cluster, whether this namespace accepts them or not, and
	// those of its own export in the clusters that it reaches.
	conflicts []merge.Conflict
	exporters []string       // clusters of the records that are valid and reach this cluster
	records   []merge.Record // those that the namespace accepts
	wanted    bool           // the oldest export asks for a clusterset IP ("vip cidr")
	prefers   preferences
	rejected  []merge.Rejection // what does not count of what members wrote, to be reported
	shares    map[string]share  // of the other clusters, to be noted
	again     time.Duration     // until the turn of a new record; 0 if no record waits
}

// specOf returns the record of a cluster if its endpoints count, else nil.
func (p plan) specOf(cluster string) *v1alpha1.ExportedServiceSpec {
	if slices.ContainsFunc(p.result.Members, func(m merge.Member) bool {
		return m.Cluster == cluster && m.LeftOut != ""
	}) {
		return nil
	}
	for i := range p.records {
		if p.records[i].Cluster == cluster {
			return &p.records[i].Spec
		}
	}
	return nil
}

// accepts reports whether the plan has a record of a cluster.
func (p plan) accepts(cluster string) bool {
	return slices.ContainsFunc(p.records, func(r merge.Record) bool { return r.Cluster == cluster })
}

// sourceOf returns the slices of a cluster.
func (p plan) sourceOf(cluster string) desired.Source {
	at := slices.IndexFunc(p.cluster.Sources, func(s desired.Source) bool { return s.Cluster == cluster })
	if at < 0 {
		return desired.Source{Cluster: cluster}
	}
	return p.cluster.Sources[at]
}

// A planner makes plans: it decides which import the export records of one service produce in this cluster, and writes
// nothing. Its fields are the same for all services. It reads nothing: a plan follows from its inputs, and from the
// limits.
//
//	inputs.records ─► those that reach this cluster ─► acceptedRecords: policy of the namespace, limits ─► merge.Merge
//	       ─► untilAllocated: is the clusterset IP there? ─► preferencesOf, distribute: which clusters are preferred ─► plan
//
// The importer calls plan at each reconcile, for several services at the same time.
type planner struct {
	clusterID string // of this cluster
	policy    member.Policy
	selectors selection.Selectors // of services about which neither Namespace nor exports say something
	onExpiry  liveness.OnExpiry
	limits    *limits // count what a plan takes as it is decided: other services are planned at the same time

	exportedAffinity bool // imports follow the clusters and zones that exports prefer
}

// plan merges the records of a service.
func (p planner) plan(in inputs) plan {
	in.options.VIPs = in.options.VIPs.AcceptedBy(in.namespace)
	seen := merge.RecordsFor(in.records, p.clusterID, in.reach[p.clusterID])
	all := merge.Merge(in.service, seen, in.options)
	out := plan{result: all, conflicts: all.Conflicts, exporters: exportersOf(all.Members), rejected: all.Rejected}
	if in.reach != nil && in.own.Record != nil {
		out.conflicts = merge.ConflictsOf(in.service, p.clusterID, in.records, in.reach, in.options)
	}
	switch out.records, out.again = p.acceptedRecords(in, seen, &out.rejected); {
	case len(out.records) == 0:
		out.result = merge.Result{}
	case len(out.records) < len(seen):
		out.result = merge.Merge(in.service, out.records, in.options)
	}
	out.wanted = slices.ContainsFunc(out.records, func(r merge.Record) bool {
		return r.Cluster == out.result.Oldest && r.Spec.VIP != nil && r.Spec.VIP.Wanted
	})
	out.result = untilAllocated(in, out)
	if out.prefers = p.preferencesOf(in, out.result, &out.rejected); out.result.Import != nil {
		out.prefers.annotate(out.result.Import)
		p.distribute(in, &out)
	}
	out.cluster = desired.ImportingCluster{Sources: p.sources(in, out.result, &out.rejected), Families: in.families}
	if len(in.families) == 0 { // the API server decides
		out.cluster.Families = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
	return out
}

// untilAllocated returns the result of a plan. A plan that waits for its first clusterset IP becomes one with the
// derived Service that has the addresses of the import.
func untilAllocated(in inputs, out plan) merge.Result {
	if !out.wanted || !keepsDerived(in, out.result) {
		return out.result
	}
	o := in.options
	o.VIP = merge.Derived
	retained := merge.Merge(in.service, out.records, o)
	metav1.SetMetaDataAnnotation(&retained.Import.ObjectMeta, apibroker.AnnotationUseVIP, "true")
	return retained
}

// keepsDerived reports whether r, which was merged with "vip cidr", has no clusterset IP yet while the import has the
// addresses of a derived Service, from the time of "vip derived": clients use them until there are others. A Service
// that was deleted is made again, and may well get the same addresses.
func keepsDerived(in inputs, r merge.Result) bool {
	if in.options.VIP != merge.CIDR || r.Import == nil || len(r.Import.Spec.IPs) > 0 || in.imported == nil ||
		len(in.imported.Spec.IPs) == 0 {
		return false
	}
	if in.derived == nil {
		return in.imported.Annotations[apibroker.AnnotationAllocatedBy] == "" // else they were clusterset IPs
	}
	return desired.IsDerived(in.derived) && in.derived.Spec.Type == corev1.ServiceTypeClusterIP
}

func exportersOf(members []merge.Member) []string {
	var ids []string
	for _, m := range members {
		ids = append(ids, m.Cluster)
	}
	return ids
}

// preferencesOf returns what an import follows: the annotations of its Namespace, else the selectors of the oldest
// export, else the default of this cluster. An annotation that is malformed keeps out what other clusters ask for, too.
func (p planner) preferencesOf(in inputs, r merge.Result, rejected *[]merge.Rejection) preferences {
	if r.Import == nil || r.Import.Spec.Type != mcsv1beta1.ClusterSetIP {
		return preferences{}
	}
	selectors := p.selectors
	if len(r.Selectors) > 0 && p.exportedAffinity {
		selectors = selection.FromRecord(r.Selectors)
	}
	prefers := preferences{}
	if ns := in.namespace; ns != nil {
		own, given, err := selection.FromAnnotations(ns.Annotations)
		switch {
		case err != nil:
			selectors = p.selectors
			*rejected = append(*rejected, ofNamespace(ns, merge.BadSelector, err.Error()))
		case given:
			selectors = own
		}
		weights, err := apibroker.ParseWeights(ns.Annotations[apibroker.AnnotationWeights])
		if err != nil {
			*rejected = append(*rejected, ofNamespace(ns, merge.BadWeights,
				fmt.Sprintf("annotation %s: %v", apibroker.AnnotationWeights, err)))
		}
		prefers.weights = weights.String()
	}
	if len(selectors) > 0 {
		prefers.selectors, prefers.results = selectors.String(), selectors.Evaluate(p.selectable(in, r), in.properties)
	}
	return prefers
}

// distribute gives the import of a plan its traffic distribution.
func (p planner) distribute(in inputs, out *plan) {
	spec := &out.result.Import.Spec
	if !p.exportedAffinity {
		spec.TrafficDistribution = nil
	}
	var err error
	if spec.TrafficDistribution, err = distributionOf(in.namespace, spec.TrafficDistribution); err != nil {
		out.rejected = append(out.rejected, ofNamespace(in.namespace, merge.BadDistribution, err.Error()))
	}
}

// ofNamespace returns the rejection of an annotation of a Namespace of this cluster.
func ofNamespace(ns *corev1.Namespace, why merge.Reason, detail string) merge.Rejection {
	return merge.Rejection{Cluster: merge.Local, Object: "Namespace " + ns.Name, Reason: why, Detail: detail}
}

// selectable returns the ClusterProperties of the clusters with endpoints that count in r, by their ids.
func (p planner) selectable(in inputs, r merge.Result) map[string]map[string]string {
	clusters := make(map[string]map[string]string)
	for _, m := range r.Members {
		switch {
		case m.LeftOut != "":
		case m.Cluster == p.clusterID:
			clusters[m.Cluster] = in.properties
		default:
			clusters[m.Cluster] = nil
			if other := in.broker.Members[m.Cluster]; other != nil {
				clusters[m.Cluster], _ = other.Status.ValidProperties() // the broker's watch reports the others
			}
		}
	}
	return clusters
}

// acceptedRecords returns the records that the namespace accepts and the limits have room for
// (docs/spec/controller.md 9).
func (p planner) acceptedRecords(in inputs, records []merge.Record,
	rejected *[]merge.Rejection) (accepted []merge.Record, again time.Duration) {
	for _, r := range records {
		takes, why := p.takes(in, r.Cluster)
		if takes && r.Cluster != p.clusterID {
			var wait time.Duration
			if why, wait = p.beyondLimit(in, r); wait > 0 && (again == 0 || wait < again) {
				again = wait
			}
		}
		switch {
		case takes && why.Reason == "":
			accepted = append(accepted, r)
		case why.Reason != "" && r.Cluster != p.clusterID:
			why.Cluster, why.Object = r.Cluster, apibroker.RecordName(in.service.Namespace, in.service.Name)
			*rejected = append(*rejected, why)
		}
	}
	p.limits.release(in.service, func(cluster string) bool {
		return !hasCluster(in.imported, cluster) && !slices.ContainsFunc(accepted,
			func(r merge.Record) bool { return r.Cluster == cluster })
	})
	return accepted, again
}

// takes reports whether the namespace takes exports of a cluster, and the reason to report if not.
func (p planner) takes(in inputs, cluster string) (bool, merge.Rejection) {
	switch policy := p.policy.Of(in.namespace); {
	case policy == export.Allowed && apibroker.SourceAllowed(in.namespace, cluster):
		return true, merge.Rejection{}
	case policy == export.Allowed:
		return false, merge.Rejection{Reason: merge.NotTaken, Detail: fmt.Sprintf(
			"namespace %s: want a cluster that its annotation %s names",
			in.service.Namespace, apibroker.AnnotationAllowedSources)}
	case policy == export.NotAllowed && !p.policy.LeftOut(in.namespace):
		return false, merge.Rejection{Reason: merge.NotTaken, Code: reason.NamespaceExcluded,
			Detail: fmt.Sprintf("namespace %s: want one that takes part", in.service.Namespace)}
	}
	return false, merge.Rejection{}
}

// withoutEmpty drops unknown shares that would freeze the import for nothing: those of clusters that the namespace no
// longer accepts, and, if others export the service, those of clusters without any endpoint that counts. Known shares
// are rejected by their records.
func (p planner) withoutEmpty(in inputs, shares map[string]share) map[string]share {
	others := in.own.Record != nil
	for _, s := range shares {
		others = others || !s.unknown
	}
	maps.DeleteFunc(shares, func(cluster string, s share) bool {
		accepted, _ := p.takes(in, cluster)
		return s.unknown && (!accepted || others && in.silent.Part(cluster) == liveness.Nothing)
	})
	return shares
}

// beyondLimit counts the record of another cluster, unless the limits have no room for it, or it has to wait for its
// turn to begin: then it returns why the record is rejected, and for how long it has to wait.
func (p planner) beyondLimit(in inputs, r merge.Record) (merge.Rejection, time.Duration) {
	wait, giveBack := p.limits.turn(in.service, r.Cluster, hasCluster(in.imported, r.Cluster), in.now)
	if wait > 0 {
		return merge.Rejection{Reason: merge.BeyondLimit, Detail: "its exports begin too often: it is imported later"}, wait
	}
	found := in.derived != nil && desired.IsDerived(in.derived)
	makes := in.options.VIP == merge.Derived || in.options.VIP == merge.CIDR &&
		in.options.VIPs.HasAddress(in.options.Reserved, r.Spec.VIP != nil && r.Spec.VIP.Wanted)
	why := p.limits.admit(in.service, r.Cluster, found, !found && makes && r.Spec.Type == v1alpha1.ClusterSetIP)
	if why == "" {
		return merge.Rejection{}, 0
	}
	giveBack()
	return merge.Rejection{Reason: merge.BeyondLimit, Detail: why}, 0
}

// sources returns the slices of all members in r that count, and the addresses that each member may use. Endpoints of
// other clusters may not have addresses in the networks of this cluster's Pods and Services: traffic to those never
// leaves this cluster, and would reach a Pod or Service that has nothing to do with it. Clusterset IPs are rejected
// too: traffic to such an IP would go to the endpoint.
func (p planner) sources(in inputs, r merge.Result, rejected *[]merge.Rejection) []desired.Source {
	var sources []desired.Source
	for _, m := range r.Members {
		if m.Cluster == p.clusterID {
			sources = append(sources, desired.Source{Cluster: m.Cluster, Slices: in.own.Local, Local: true})
			continue
		}
		all, retained := p.slicesOf(in, m.Cluster, rejected)
		sources = append(sources, desired.Source{
			Cluster: m.Cluster, Slices: all, Kept: retained, From: int64(in.shares[m.Cluster].noted.From),
			Declared: in.broker.Members[m.Cluster].Networks(), Reserved: in.options.Reserved,
			LastResort: p.lastResort(in, m.Cluster),
		})
	}
	return sources
}

// slicesOf returns the slices of another cluster that fit the limits, and the imported slices that stay. Endpoints of a
// silent cluster keep their place within the limits, also over a restart.
func (p planner) slicesOf(in inputs, cluster string, rejected *[]merge.Rejection) (all,
	retained []*discoveryv1.EndpointSlice) {
	s := in.shares[cluster]
	fit, beyond := p.limits.fit(in.service, cluster, slices.Concat(s.slices, s.kept))
	for _, s := range beyond {
		*rejected = append(*rejected, merge.Rejection{
			Cluster: cluster, Object: s.Name, Reason: merge.BeyondLimit,
			Detail: fmt.Sprintf("%d endpoints: want at most %d of all services, "+
				"%d of one, half of them of one cluster", len(s.Endpoints), p.limits.endpoints, p.limits.ofService),
		})
	}
	for _, e := range p.current(in, cluster, fit) {
		if desired.IsImported(e) {
			retained = append(retained, e)
		} else {
			all = append(all, e)
		}
	}
	return all, retained
}

// current drops the slices of a cluster that no longer count, because it is silent or behind with the service.
func (p planner) current(in inputs, cluster string, all []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	switch {
	case in.silent.Part(cluster) == liveness.Nothing:
		return nil
	case p.behind(in, cluster) == liveness.Nothing:
		return slices.DeleteFunc(slices.Clone(all), func(s *discoveryv1.EndpointSlice) bool {
			return desired.StampOf(s) < int64(in.entries[cluster].Behind)
		})
	}
	return all
}

// lastResort returns the stamp below which the slices of a cluster are a last resort.
func (p planner) lastResort(in inputs, cluster string) int64 {
	switch {
	case in.silent.Part(cluster) == liveness.LastResort:
		return math.MaxInt64
	case p.behind(in, cluster) == liveness.LastResort:
		return int64(in.entries[cluster].Behind)
	}
	return 0
}

// behind returns which part counts of the slices that a cluster could not write.
func (p planner) behind(in inputs, cluster string) liveness.Part {
	if since := in.entries[cluster].Behind; since != 0 {
		return p.onExpiry.Part(in.now.Sub(time.UnixMicro(int64(since))))
	}
	return liveness.All
}
