package importer

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/about"
	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/identity"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/safety"
	"github.com/clusterset-dns/clusterset/controller/selection"
)

// A plan is what the export records of a service come to in this cluster. The zero value belongs to a service without exports:
// its import is removed.
type plan struct {
	result  merge.Result
	cluster merge.Cluster // without what depends on the objects that exist
	// conflicts are those between all records that reach this cluster, whether this namespace accepts them or not, and those of its own export
	// in the clusters that it reaches.
	conflicts []merge.Conflict
	exporters []string       // clusters of the records that are valid and reach this cluster
	records   []merge.Record // those that the namespace accepts, also of exports that do not reach this cluster
	wanted    bool           // the oldest export asks for a clusterset IP ("vip cidr")
	prefers   preferences
}

// specOf returns the record of a cluster whose endpoints count, else nil.
func (p plan) specOf(cluster string) *v1alpha1.ExportedServiceSpec {
	if slices.ContainsFunc(p.result.Members, func(m merge.Member) bool { return m.Cluster == cluster && m.LeftOut != "" }) {
		return nil
	}
	for i := range p.records {
		if p.records[i].Cluster == cluster {
			return &p.records[i].Spec
		}
	}
	return nil
}

// A planner makes plans from what is known now. It only reads, but for the rejections that it reports.
type planner struct {
	member     *member.Cluster
	broker     *broker.Broker
	expiry     *safety.Expiry
	rejections *Rejections
	limits     *limits
	retry      func(types.NamespacedName, time.Duration)
	clusterID  string // of this cluster
	policy     member.Policy
	options    merge.Options
	selectors  selection.Selectors // of services about which neither Namespace nor exports say something

	ignoreExported bool // what exports say about clusters has no effect
}

// plan merges the records of a service; own is what this cluster exports, has what the broker has.
func (p planner) plan(svc types.NamespacedName, own export.Result, has broker.View) plan {
	records, o := p.broker.Replace(has.Records, own.Record), p.broker.MergeOptions(svc, p.options)
	o.Reserved = p.reserved()
	properties := p.broker.Selectable(records)
	if properties != nil {
		properties[p.clusterID] = p.publishedProperties()
	}
	seen := merge.Seen(records, p.clusterID, properties[p.clusterID])
	all := merge.Merge(svc, seen, o)
	for _, r := range all.Rejected {
		p.rejections.Report(r)
	}
	made := plan{result: all, conflicts: all.Conflicts, exporters: exportersOf(all.Members)}
	if properties != nil && own.Record != nil {
		made.conflicts = merge.ConflictsOf(svc, p.clusterID, records, properties, o)
	}
	accepted := p.acceptedRecords(svc, seen)
	made.records = accepted
	switch {
	case len(accepted) == 0:
		made.result = merge.Result{}
	case len(accepted) < len(records):
		made.result = merge.Merge(svc, accepted, o)
	}
	made.wanted = slices.ContainsFunc(accepted, func(r merge.Record) bool {
		return r.Cluster == made.result.Oldest && r.Spec.VIP != nil && r.Spec.VIP.Wanted
	})
	if made.prefers = p.preferencesOf(svc, made.result, has); made.result.Import != nil {
		made.prefers.annotate(made.result.Import)
	}
	made.cluster = merge.Cluster{Sources: p.sources(svc, own, made.result, has), Families: p.families()}
	return made
}

func exportersOf(members []merge.Member) []string {
	var ids []string
	for _, m := range members {
		ids = append(ids, m.Cluster)
	}
	return ids
}

// preferencesOf returns what an import follows: the annotations of its Namespace, else the selectors of the oldest export, else the default
// of this cluster. An annotation that is malformed keeps out what other clusters ask for, too.
func (p planner) preferencesOf(svc types.NamespacedName, r merge.Result, has broker.View) preferences {
	if r.Import == nil || r.Import.Spec.Type != mcsv1beta1.ClusterSetIP {
		return preferences{}
	}
	selectors := p.selectors
	if len(r.Selectors) > 0 && !p.ignoreExported {
		selectors = selection.FromRecord(r.Selectors)
	}
	if ns := p.member.Namespace(svc.Namespace); ns != nil {
		own, given, err := selection.Of(ns.Annotations)
		switch {
		case err != nil:
			selectors = p.selectors
			p.rejections.Report(merge.Rejection{
				Cluster: merge.Local, Object: "Namespace " + ns.Name, Reason: merge.BadSelector, Detail: err.Error(),
			})
		case given:
			selectors = own
		}
	}
	prefers := preferences{weights: p.weightsOf(svc)}
	if len(selectors) == 0 {
		return prefers
	}
	own := p.ownProperties()
	clusters := make(map[string]map[string]string)
	for _, m := range r.Members {
		switch {
		case m.LeftOut != "":
		case m.Cluster == p.clusterID:
			clusters[m.Cluster] = own
		default:
			clusters[m.Cluster] = nil
			if other := has.Member(m.Cluster); other != nil {
				clusters[m.Cluster], _ = other.Status.ValidProperties() // the broker's watch reports the others
			}
		}
	}
	prefers.selectors, prefers.results = selectors.String(), selectors.Evaluate(clusters, own)
	return prefers
}

// weightsOf returns the weights of clusters for imports of the Namespace of svc, "" without any.
func (p planner) weightsOf(svc types.NamespacedName) string {
	ns := p.member.Namespace(svc.Namespace)
	if ns == nil {
		return ""
	}
	weights, err := apibroker.ParseWeights(ns.Annotations[apibroker.AnnotationWeights])
	if err != nil {
		p.rejections.Report(merge.Rejection{
			Cluster: merge.Local, Object: "Namespace " + ns.Name, Reason: merge.BadWeights,
			Detail: fmt.Sprintf("annotation %s: %v", apibroker.AnnotationWeights, err),
		})
	}
	return weights.String()
}

// ownProperties returns the ClusterProperties of this cluster.
func (p planner) ownProperties() map[string]string {
	own := map[string]string{}
	for _, property := range p.member.Properties() {
		own[property.Name] = property.Spec.Value
	}
	own[about.ClusterIDName] = p.clusterID
	return own
}

// publishedProperties returns those of them that other members see, as they see them: which exports reach this cluster follows from these. They
// come from the own API server: a broker that was restored may not have them for a moment.
func (p planner) publishedProperties() map[string]string {
	published, _ := identity.Published(p.member, p.broker.Member(p.clusterID)) // the heartbeat reports the others
	own := make(map[string]string, len(published))
	for _, property := range published {
		own[property.Name] = property.Value
	}
	return own
}

// families returns the IP families in which Services get addresses here. While they are unknown the API server decides.
func (p planner) families() []corev1.IPFamily {
	if families := p.member.Families(); len(families) > 0 {
		return families
	}
	return []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
}

// acceptedRecords returns the records that a namespace accepts and the limits have room for, and reports the others
// (docs/spec/controller.md 9). What an export that does not reach this cluster says about clusterset IPs counts on the same terms, but for the limits.
func (p planner) acceptedRecords(svc types.NamespacedName, records []merge.Record) []merge.Record {
	ns := p.member.Namespace(svc.Namespace)
	policy := p.policy.Of(ns)
	var accepted []merge.Record
	for _, r := range records {
		switch {
		case policy == export.Allowed && member.SourceAllowed(ns, r.Cluster):
			if r.Elsewhere || r.Cluster == p.clusterID || p.admit(svc, r) {
				accepted = append(accepted, r)
			}
		case r.Elsewhere: // not meant for this cluster, so no rejection
		case policy == export.Allowed:
			p.reject(svc, r.Cluster, merge.NotTaken, fmt.Sprintf("namespace %s: want a cluster that its annotation %s names",
				svc.Namespace, apibroker.AnnotationAllowedSources))
		case policy == export.NotAllowed && !p.policy.LeftOut(svc.Namespace):
			p.report(svc, merge.Rejection{
				Cluster: r.Cluster, Reason: merge.NotTaken, Code: reason.NamespaceExcluded, Detail: fmt.Sprintf("namespace %s: want one that takes part", svc.Namespace),
			})
		}
	}
	imp := p.member.Import(svc)
	p.limits.release(svc, func(cluster string) bool {
		return !hasCluster(imp, cluster) && !slices.ContainsFunc(accepted, func(r merge.Record) bool { return r.Cluster == cluster && !r.Elsewhere })
	})
	return accepted
}

// admit reports whether the limits have room for a record.
func (p planner) admit(svc types.NamespacedName, r merge.Record) bool {
	derived := p.member.Derived(svc)
	has := derived != nil && merge.IsDerived(derived)
	makes := p.options.VIP == merge.Derived || p.options.VIP == merge.CIDR && len(r.Spec.VIP.Addresses()) > 0
	why := p.limits.admit(svc, r.Cluster, has, !has && makes && r.Spec.Type == v1alpha1.ClusterSetIP)
	if why != "" {
		p.reject(svc, r.Cluster, merge.BeyondLimit, why)
		p.retry(svc, limitRetry)
	}
	return why == ""
}

// reject reports that the record of another cluster does not count.
func (p planner) reject(svc types.NamespacedName, cluster string, why merge.Reason, detail string) {
	p.report(svc, merge.Rejection{Cluster: cluster, Reason: why, Detail: detail})
}

func (p planner) report(svc types.NamespacedName, r merge.Rejection) {
	if r.Cluster != p.clusterID {
		r.Object = apibroker.RecordName(svc.Namespace, svc.Name)
		p.rejections.Report(r)
	}
}

// sources returns the slices of all members in r that count, and the addresses that each member may use.
func (p planner) sources(svc types.NamespacedName, own export.Result, r merge.Result, has broker.View) []merge.Source {
	var sources []merge.Source
	reserved := p.reserved()
	for _, m := range r.Members {
		if m.Cluster == p.clusterID {
			sources = append(sources, merge.Source{Cluster: m.Cluster, Slices: own.Local, Local: true})
			continue
		}
		sources = append(sources, merge.Source{
			Cluster: m.Cluster, Slices: p.slicesOf(svc, m.Cluster, has.Slices(m.Cluster)), Declared: networksOf(has.Member(m.Cluster)), Reserved: reserved,
		})
	}
	return sources
}

// reserved returns the networks of this cluster's own Pods and Services. An endpoint of another cluster has no address there, as traffic to it
// never leaves this cluster: it would go to a Pod or Service here that has nothing to do with it. Nor is one a clusterset IP, to which the
// traffic of these would go.
func (p planner) reserved() []netip.Prefix {
	return slices.Concat(networksOf(p.broker.Member(p.clusterID)), p.member.ServiceCIDRs())
}

// slicesOf returns which of the slices of another cluster count. While it is expired, its endpoints keep their place within the limits.
func (p planner) slicesOf(svc types.NamespacedName, cluster string, all []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	left, expired := p.expiry.Left(cluster, all)
	if expired {
		return left
	}
	fit, rejected := p.limits.fit(svc, cluster, left)
	for _, s := range rejected {
		p.rejections.Report(merge.Rejection{
			Cluster: cluster, Object: s.Name, Reason: merge.BeyondLimit, Detail: fmt.Sprintf("%d endpoints: want at most %d of all services, "+
				"%d of one, half of them of one cluster", len(s.Endpoints), p.limits.endpoints, p.limits.ofService),
		})
		p.retry(svc, limitRetry)
	}
	return fit
}

// networksOf returns the networks that a member declared; m may be nil.
func networksOf(m *v1alpha1.Member) []netip.Prefix {
	if m == nil {
		return nil
	}
	return m.Networks()
}
