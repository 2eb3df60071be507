package importer

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/safety"
)

// A plan is what the export records of a service come to in this cluster. The zero value belongs to a service without exports:
// its import is removed.
type plan struct {
	result  merge.Result
	cluster merge.Cluster // without what depends on the objects that exist
	// conflicts are those between all records, whether this namespace accepts them or not: they are the same in every member.
	conflicts []merge.Conflict
	accepted  int            // number of records that are valid
	records   []merge.Record // those that the namespace accepts
	wanted    bool           // the oldest export asks for a clusterset IP ("vip cidr")
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
	clusterID  string // of this cluster
	policy     member.Policy
	options    merge.Options
}

// plan merges the records of a service; own is what this cluster exports.
func (p planner) plan(svc types.NamespacedName, own export.Result) plan {
	records, o := p.broker.RecordsWith(svc, own.Record), p.broker.MergeOptions(svc, p.options)
	all := merge.Merge(svc, records, o)
	for _, r := range all.Rejected {
		p.rejections.Report(r)
	}
	made := plan{result: all, conflicts: all.Conflicts, accepted: len(all.Members)}
	accepted := p.acceptedRecords(svc.Namespace, records)
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
	made.cluster = merge.Cluster{Sources: p.sources(svc, own, made.result), Families: p.families()}
	return made
}

// families returns the IP families in which Services get addresses here. While they are unknown the API server decides.
func (p planner) families() []corev1.IPFamily {
	if families := p.member.Families(); len(families) > 0 {
		return families
	}
	return []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
}

// acceptedRecords returns the records that a namespace accepts, and reports those that it never accepts
// (docs/spec/controller.md 9).
func (p planner) acceptedRecords(namespace string, records []merge.Record) []merge.Record {
	ns := p.member.Namespace(namespace)
	policy := p.policy.Of(ns)
	reject := func(r merge.Record, detail string) {
		if r.Cluster != p.clusterID {
			name := apibroker.RecordName(namespace, r.Spec.Name)
			p.rejections.Report(merge.Rejection{Cluster: r.Cluster, Object: name, Reason: merge.NotTaken, Detail: detail})
		}
	}
	var accepted []merge.Record
	for _, r := range records {
		switch {
		case policy == export.Allowed && member.SourceAllowed(ns, r.Cluster):
			accepted = append(accepted, r)
		case policy == export.Allowed:
			reject(r, fmt.Sprintf("namespace %s: want a cluster that its annotation %s names", namespace, apibroker.AnnotationAllowedSources))
		case policy == export.NotAllowed && !p.policy.LeftOut(namespace):
			reject(r, fmt.Sprintf("namespace %s: want one that takes part", namespace))
		}
	}
	return accepted
}

// sources returns the slices of all members in r that count, and the addresses that each member may use.
func (p planner) sources(svc types.NamespacedName, own export.Result, r merge.Result) []merge.Source {
	var sources []merge.Source
	// Traffic to such an address never leaves this cluster: it would go to a Pod or Service here that has nothing to do with it.
	reserved := append(networksOf(p.broker.Member(p.clusterID)), p.member.ServiceCIDRs()...)
	for _, m := range r.Members {
		if m.Cluster == p.clusterID {
			sources = append(sources, merge.Source{Cluster: m.Cluster, Slices: own.Local, Local: true})
			continue
		}
		sources = append(sources, merge.Source{
			Cluster: m.Cluster, Slices: p.expiry.Slices(svc, m.Cluster), Declared: networksOf(p.broker.Member(m.Cluster)), Reserved: reserved,
		})
	}
	return sources
}

// networksOf returns the networks that a member declared; m may be nil.
func networksOf(m *v1alpha1.Member) []netip.Prefix {
	if m == nil {
		return nil
	}
	return m.Networks()
}
