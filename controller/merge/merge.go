// Package merge folds the export records of one service into the import that every member of the clusterset sees, and lists
// the objects to write for it (docs/spec/controller.md 4, docs/spec/controller.md 5, docs/spec/controller.md 6).
//
//	export records of all members            slices of all members      objects in this cluster
//	            │                                      │                          │
//	            ▼ Merge                                │                          │
//	  reject    records that are not valid             │                          │
//	  order     oldest first: claimed time, cluster id │                          │
//	  fold      type, families, ports, other fields    │                          │
//	  compare   one Conflict for each disagreement     │                          │
//	            │ Result                               │                          │
//	            └───────────────▶ Desired ◀────────────┘                          │
//	                                 │ ServiceImport, derived Service, slices     │
//	                                 └──────────────▶ Diff ◀──────────────────────┘
//	                                                   │ Changes: create, update, delete, foreign
//	                                                   ▼
//	                                                 Patch, for each update
//
// It is pure: it has no clock, no history and no preference for the cluster it runs in. The same records, in any order, give
// the same bytes in every member whose options are the same. It is total: no input of a hostile member makes it panic, and
// what it rejects affects that record alone (docs/spec/controller.md 9.1).
package merge

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// A Record is an export record with what the broker, not its writer, says about it.
type Record struct {
	Cluster  string      // id of the member, by the label of its broker namespace
	Admitted metav1.Time // creation of that namespace
	Created  metav1.Time // creation of the record; zero while the broker does not have it
	Spec     v1alpha1.ExportedServiceSpec
}

// A Result is what the export records of one service come to. It shares no memory with them.
type Result struct {
	// Import has its name, labels, annotations and spec, and status.clusters; nil if there is to be none.
	//
	// With [Derived] the addresses are those of the derived Service, which [Desired] fills in.
	Import *mcsv1beta1.ServiceImport

	Oldest    string     // cluster whose export comes first in precedence; "" if there is none
	Members   []Member   // one for each record that is not refused whole, sorted by cluster
	Conflicts []Conflict // in the order of the table in docs/spec/controller.md 6.2
	Refused   []Refusal  // sorted by cluster

	vip       VIPMode
	portNames []string // of the ports of Import, as the derived Service and the slices have them
}

// A Member says what one exporting cluster contributes to the import.
type Member struct {
	Cluster string
	LeftOut LeftOut
	Ports   []PortMapping // which ports of its slices count, in the order of its record
}

// LeftOut says why no endpoint of a member counts. It is empty if they do.
type LeftOut string

// The reasons for leaving a member out.
const (
	LeftOutType     LeftOut = "TypeConflict"     // "type_conflict exclude", and the type is another
	LeftOutFamily   LeftOut = "IPFamilyConflict" // no IP family in common with those before it
	LeftOutPorts    LeftOut = "PortConflict"     // no port that it serves is one of the import
	LeftOutConflict LeftOut = "Conflict"         // "on_conflict withhold", and there is a conflict
)

// A PortMapping says which port of the import one port of a member's slices is.
type PortMapping struct {
	From        string // name in the member's slices, which is that in its Service
	To          string // name in imported slices
	Protocol    corev1.Protocol
	AppProtocol *string
}

// A Refusal is something that a member wrote and that counts for nothing.
type Refusal struct {
	Cluster string
	Object  string // what was refused: the name of an export record or slice
	Reason  Reason
	Detail  string // for a log: the first value that was bad, cut, and what is wanted
}

// Reason is why something was refused; it is a label of a metric.
type Reason string

// The reasons of a [Refusal].
const (
	BadCluster  Reason = "cluster_id" // the writer has no valid cluster id
	BadRecord   Reason = "record"     // a value out of bounds
	BadName     Reason = "name"       // a name or label of another service or cluster than its place says
	Duplicate   Reason = "duplicate"  // a second record of one cluster
	BadSlice    Reason = "slice"      // a slice out of bounds
	BadAddress  Reason = "address"    // an address that no service may have
	AlienCIDR   Reason = "cidr"       // an address outside the networks that the member declared
	ServiceCIDR Reason = "own_cidr"   // an address in a service network of the importing cluster
	AlienVIP    Reason = "vip"        // a clusterset IP that its allocator may not give out, or that another service has
	NotTaken    Reason = "namespace"  // a namespace that takes no exports, or none of that cluster
)

// Merge folds the export records of one service into its import, and lists what they disagree on.
//
// Ports are united or intersected, IP families intersected (for Headless united); any other property is taken from the
// oldest export, by creation time and then by cluster id (docs/spec/controller.md 4.2). Without a record that counts there is no import.
func Merge(service types.NamespacedName, records []Record, o Options) Result {
	entries, refused := admit(service, records, o)
	r := Result{Refused: refused, vip: o.VIP}
	if len(entries) == 0 {
		return r
	}
	m := &merging{o: o, all: entries, oldest: entries[0]}
	m.mergeTypes()
	m.mergeFamilies()
	m.mergePorts()
	m.compareProperties()
	vip := m.mergeVIP(service)
	m.orderConflicts()

	r.Oldest, r.Conflicts = m.oldest.Cluster, m.conflicts
	r.Refused = append(r.Refused, m.refused...)
	slices.SortFunc(r.Refused, compareRefusals)
	if o.OnConflict == Withhold && slices.ContainsFunc(m.conflicts, func(c Conflict) bool { return c.unresolved }) {
		m.withhold()
	} else {
		r.Import = m.newImport(service, vip)
		r.portNames = m.portNames()
	}
	r.Members = m.members(r.portNames)
	return r
}

// merging is the state of one call of Merge.
type merging struct {
	o         Options
	all       []*entry // oldest first
	oldest    *entry
	families  []corev1.IPFamily
	ports     []unionPort
	conflicts []Conflict
	refused   []Refusal // of what a record says, while the record counts
}

// An entry is a record that counts, and what became of it.
type entry struct {
	Record
	when   moment
	out    LeftOut
	serves []int // for each port of the record, its index in the union, or -1
}

// in returns the entries that are not left out, oldest first. There is always one, the oldest.
func (m *merging) in() []*entry {
	return slices.DeleteFunc(slices.Clone(m.all), func(e *entry) bool { return e.out == LeftOutType || e.out == LeftOutFamily })
}

// mergeTypes compares the types; under "type_conflict exclude" whoever disagrees is left out.
func (m *merging) mergeTypes() {
	var disagree int
	for _, e := range m.all {
		if e.Spec.Type == m.oldest.Spec.Type {
			continue
		}
		disagree++
		if m.o.TypeConflict == Exclude {
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

// mergeFamilies intersects the families, so that each reaches every backend behind one address. A Headless service has
// an address for each backend, so there they are united.
func (m *merging) mergeFamilies() {
	m.families = slices.Clone(m.oldest.Spec.IPFamilies)
	headless := m.oldest.Spec.Type == v1alpha1.Headless
	for _, e := range m.in()[1:] {
		if headless {
			m.families = unite(m.families, e.Spec.IPFamilies)
			continue
		}
		common := slices.DeleteFunc(slices.Clone(m.families), func(f corev1.IPFamily) bool {
			return !slices.Contains(e.Spec.IPFamilies, f)
		})
		if len(common) == 0 {
			e.out = LeftOutFamily
			continue
		}
		m.families = common
	}
	var disagree int
	for _, e := range m.all {
		if e.out != LeftOutType && slices.ContainsFunc(m.families, func(f corev1.IPFamily) bool {
			return !slices.Contains(e.Spec.IPFamilies, f)
		}) {
			disagree++
		}
	}
	if disagree > 0 {
		m.conflict(finding{
			reason: mcsv1beta1.ServiceExportReasonIPFamilyConflict, what: "IP families", using: join(m.families),
			disagree: disagree, leftOut: m.leftOut(LeftOutFamily), unresolved: !headless,
		})
	}
}

// unite appends to a what only b has.
func unite(a, b []corev1.IPFamily) []corev1.IPFamily {
	for _, f := range b {
		if !slices.Contains(a, f) {
			a = append(a, f)
		}
	}
	return a
}

// leftOut returns the ids of the clusters that are left out for one reason, sorted.
func (m *merging) leftOut(why LeftOut) []string {
	var clusters []string
	for _, e := range m.all {
		if e.out == why {
			clusters = append(clusters, e.Cluster)
		}
	}
	slices.Sort(clusters)
	return clusters
}

// withhold leaves everybody out (KEP-1645, first version, "Global Properties").
func (m *merging) withhold() {
	for _, e := range m.all {
		e.out = LeftOutConflict
	}
}

func (m *merging) newImport(service types.NamespacedName, vip *Allocation) *mcsv1beta1.ServiceImport {
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
			SessionAffinityConfig: spec.SessionAffinityConfig.DeepCopy(),
			InternalTrafficPolicy: clone(spec.InternalTrafficPolicy),
			TrafficDistribution:   clone(spec.TrafficDistribution),
		},
	}
	for _, l := range spec.Labels {
		imp.Labels[l.Key] = l.Value
	}
	for _, a := range spec.Annotations {
		metav1.SetMetaDataAnnotation(&imp.ObjectMeta, a.Key, a.Value)
	}
	if vip != nil {
		metav1.SetMetaDataAnnotation(&imp.ObjectMeta, broker.AnnotationAllocatedBy, vip.By)
		setIPs(imp, vip.IPs)
	}
	for _, e := range m.in() {
		imp.Status.Clusters = append(imp.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: e.Cluster})
	}
	slices.SortFunc(imp.Status.Clusters, func(a, b mcsv1beta1.ClusterStatus) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return imp
}

func (m *merging) members(portNames []string) []Member {
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

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
