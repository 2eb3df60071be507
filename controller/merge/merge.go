// Package merge folds the export records of one service into the import that every member of the clusterset sees
// (docs/spec/controller.md 4, docs/spec/controller.md 6). Package desired makes the objects of it.
//
//	export records of all members
//	            │
//	            ▼ Merge
//	  reject    records that are not valid
//	  order     oldest first: claimed time, cluster id
//	  fold      type, families, ports, other fields
//	  compare   one Conflict for each disagreement
//	            │
//	            ▼ Result
//
// It is pure: it has no clock, no history and no preference for the cluster it runs in. The same records, in any order,
// give the same bytes in every member whose options are the same. It is total: no input of a hostile member makes it
// panic, and what it rejects affects that record alone (docs/spec/controller.md 9.1).
package merge

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// Merge folds the export records of one service into its import, and lists their conflicts.
//
// Ports are united or intersected, and the IP families of a Headless service united; any other property is taken from
// the oldest export, by creation time and then by cluster id (docs/spec/controller.md 4.2). Without a record that
// counts there is no import. [RecordsFor] returns the records that reach the importing cluster.
func Merge(service types.NamespacedName, records []Record, o Options) Result {
	entries, rejected := admit(service, records)
	r := Result{Rejected: rejected, vip: o.VIP}
	m := &merger{o: o, all: entries}
	if len(entries) == 0 {
		return r
	}
	m.oldest = m.all[0]
	m.mergeTypes()
	m.mergeFamilies()
	m.mergePorts()
	m.compareProperties()
	m.vips = m.mergeVIP(broker.RecordName(service.Namespace, service.Name))
	slices.SortFunc(m.conflicts, func(a, b Conflict) int {
		return cmp.Compare(slices.Index(reasons, a.Reason), slices.Index(reasons, b.Reason))
	})

	r.Oldest, r.Conflicts, r.Selectors = m.oldest.Cluster, m.conflicts, m.oldest.Spec.ClusterSelectors
	r.Rejected = append(r.Rejected, m.rejected...)
	slices.SortFunc(r.Rejected, compareRejections)
	if o.Mode == First && slices.ContainsFunc(m.conflicts, func(c Conflict) bool { return c.unresolved }) {
		for _, e := range m.all { // KEP-1645, first version, "Global Properties"
			e.out = LeftOutConflict
		}
	} else {
		r.Import = m.newImport(service)
		r.PortNames = m.portNames()
	}
	r.Members = m.members(r.PortNames)
	return r
}

// mergeTypes compares the types; "merge lighthouse" leaves out the clusters that disagree.
func (m *merger) mergeTypes() {
	var disagree int
	for _, e := range m.all {
		if e.Spec.Type == m.oldest.Spec.Type {
			continue
		}
		disagree++
		if m.o.Mode == Lighthouse {
			e.out = LeftOutType
		}
	}
	if disagree > 0 {
		m.conflict(finding{
			reason: mcsv1beta1.ServiceExportReasonTypeConflict, what: "type", using: string(m.oldest.Spec.Type),
			disagree: disagree, leftOut: m.leftOut(LeftOutType), unresolved: true,
		})
	}
}

// mergeFamilies takes the families of the oldest export: otherwise the newest could take a family, and its address,
// from everyone. A cluster without any of these families is left out. One that lacks a family is not reached over it. A
// Headless service has an address for each backend, so there the families are united.
func (m *merger) mergeFamilies() {
	m.families = slices.Clone(m.oldest.Spec.IPFamilies)
	headless := m.oldest.Spec.Type == v1alpha1.Headless
	for _, e := range m.entries()[1:] {
		switch {
		case headless:
			m.families = unite(m.families, e.Spec.IPFamilies)
		case !slices.ContainsFunc(m.families, e.contains):
			e.out = LeftOutFamily
		}
	}
	var disagree int
	for _, e := range m.all {
		lacks := func(f corev1.IPFamily) bool { return !e.contains(f) }
		if e.out != LeftOutType && slices.ContainsFunc(m.families, lacks) {
			disagree++
		}
	}
	if disagree == 0 {
		return
	}
	f := finding{
		reason: mcsv1beta1.ServiceExportReasonIPFamilyConflict, what: "IP families",
		using:    enumerate(m.families, 2, func(f corev1.IPFamily) string { return string(f) }),
		disagree: disagree, leftOut: m.leftOut(LeftOutFamily),
	}
	f.unresolved = len(f.leftOut) > 0
	if !headless {
		f.unreached = m.unreached()
	}
	m.conflict(f)
}

// unreached returns a sentence for each family, with the members that get traffic only of another one.
func (m *merger) unreached() (sentences []string) {
	for _, f := range m.families {
		var without []string
		for _, e := range m.entries() {
			if !e.contains(f) {
				without = append(without, e.Cluster)
			}
		}
		if slices.Sort(without); len(without) > 0 {
			sentences = append(sentences, fmt.Sprintf("Not reached by %s: %s.", f, quotedList(without)))
		}
	}
	return sentences
}

func (m *merger) newImport(service types.NamespacedName) *mcsv1beta1.ServiceImport {
	spec := &m.oldest.Spec
	imp := &mcsv1beta1.ServiceImport{
		TypeMeta: metav1.TypeMeta{APIVersion: mcsv1beta1.GroupVersion.String(), Kind: mcsv1beta1.ServiceImportKindName},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: service.Name,
			Labels: map[string]string{broker.LabelManagedBy: broker.ManagedBy},
		},
		Spec: mcsv1beta1.ServiceImportSpec{
			Type:                  mcsv1beta1.ServiceImportType(spec.Type),
			Ports:                 m.importPorts(),
			IPFamilies:            slices.Clone(m.families),
			SessionAffinity:       cmp.Or(spec.SessionAffinity, corev1.ServiceAffinityNone),
			SessionAffinityConfig: spec.SessionAffinityConfig,
			InternalTrafficPolicy: spec.InternalTrafficPolicy,
			TrafficDistribution:   spec.TrafficDistribution,
		},
	}
	for _, l := range spec.Labels {
		if !broker.IsReservedKey(l.Key) {
			imp.Labels[l.Key] = l.Value
		}
	}
	var size int
	for _, a := range spec.Annotations {
		if more := len(a.Key) + len(a.Value); !broker.IsReservedKey(a.Key) && size+more <= broker.MaxAnnotations {
			size += more
			metav1.SetMetaDataAnnotation(&imp.ObjectMeta, a.Key, a.Value)
		}
	}
	if m.o.VIP == CIDR && spec.Type == v1alpha1.ClusterSetIP {
		metav1.SetMetaDataAnnotation(&imp.ObjectMeta, broker.AnnotationUseVIP, strconv.FormatBool(m.usesVIPs))
	}
	setVIPs(imp, m.vips)
	for _, e := range m.entries() {
		imp.Status.Clusters = append(imp.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: e.Cluster})
	}
	slices.SortFunc(imp.Status.Clusters, func(a, b mcsv1beta1.ClusterStatus) int {
		return cmp.Compare(a.Cluster, b.Cluster)
	})
	return imp
}

func (m *merger) members(portNames []string) []Member {
	members := make([]Member, 0, len(m.all))
	for _, e := range m.all {
		member := Member{Cluster: e.Cluster, LeftOut: e.out}
		if e.out == "" {
			member.Ports = m.portMap(e, portNames)
		}
		members = append(members, member)
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return members
}
