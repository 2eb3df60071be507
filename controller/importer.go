package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// reconcileImport makes this cluster have what the export records of a service come to, which may be nothing, and tells at
// our own ServiceExport what they disagree on (sections 4 to 6 and 8).
//
// A new service of n slices takes 2+n writes: import, slices, status; with a derived Service, whose addresses the import
// then gets, 4+n. A change of endpoints takes one for each slice that it is in, a change of ports one for the import and one
// for the derived Service.
func (s *session) reconcileImport(ctx context.Context, svc types.NamespacedName) error {
	id, settled := s.member.ClusterID(), s.member.Settled()
	switch {
	case isBrokerNamespace(s.local.Namespace(svc.Namespace)):
		return nil // what is there has our mark too, and is not ours
	case id == "" && !settled:
		return nil
	case id == "":
		return s.withdraw(ctx, svc)
	case !settled || !s.synced() || s.holds.any(holdBrokerIdentity, holdBrokerEmpty):
		return s.followOwn(ctx, svc)
	}
	own, exp := s.exported(svc)
	v := s.view(svc, own)
	if s.doubts(svc, v) {
		return s.followOwn(ctx, svc)
	}
	s.metrics.setService(svc, reasonsOf(v.conflicts), v.records)
	return errors.Join(s.newWriter(svc).write(ctx, v), s.tellConflicts(ctx, exp, own, v.conflicts))
}

// doubts reports whether what an import would lose may be what the broker has lost (section 8).
func (s *session) doubts(svc types.NamespacedName, v view) bool {
	imp := s.local.Import(svc)
	switch lacks := lacks(v.result, imp); {
	case s.holds.any(holdLostRecords):
		return lacks || lacksSlices(v.cluster.Sources, s.local.ImportedSlices(svc))
	case lacks:
		return !s.losses.believes(svc, imp)
	}
	return false
}

// withdraw removes the import of a cluster that is no member: slices, derived Service and import, in that order.
func (s *session) withdraw(ctx context.Context, svc types.NamespacedName) error {
	s.metrics.setService(svc, nil, 0)
	return errors.Join(s.newWriter(svc).write(ctx, view{}), s.tellConflicts(ctx, s.local.Export(svc), export.Result{}, nil))
}

// tellConflicts writes the condition Conflict of our own ServiceExport, or takes it away where nothing is exported.
func (s *session) tellConflicts(
	ctx context.Context, exp *mcsv1beta1.ServiceExport, own export.Result, conflicts []merge.Conflict,
) error {
	if exp == nil || exp.DeletionTimestamp != nil {
		return nil
	}
	var want []metav1.Condition
	if own.Record != nil {
		want = append(want, merge.Condition(conflicts, exp.Generation))
	}
	return s.setConditions(ctx, exp, merge.FieldManager, want)
}

func reasonsOf(conflicts []merge.Conflict) []string {
	var reasons []string
	for _, c := range conflicts {
		reasons = append(reasons, string(c.Reason))
	}
	return reasons
}

// lacks reports whether an import of ours has clusters that it would have no longer.
func lacks(r merge.Result, imp *mcsv1beta1.ServiceImport) bool {
	if !isOurs(imp) {
		return false
	}
	return slices.ContainsFunc(imp.Status.Clusters, func(c mcsv1beta1.ClusterStatus) bool {
		return r.Import == nil || !slices.Contains(r.Import.Status.Clusters, c)
	})
}

// lacksSlices reports whether a cluster has fewer slices than are imported from it: of what is put back to a broker that lost
// it, the record may be heard of first.
func lacksSlices(sources []merge.Source, imported []*discoveryv1.EndpointSlice) bool {
	left := make(map[string]int)
	for _, source := range sources {
		left[source.Cluster] = len(source.Slices)
	}
	return slices.ContainsFunc(imported, func(e *discoveryv1.EndpointSlice) bool {
		cluster := e.Labels[mcsv1beta1.LabelSourceCluster]
		left[cluster]--
		return left[cluster] < 0
	})
}

func isOurs(imp *mcsv1beta1.ServiceImport) bool {
	return imp != nil && imp.Labels[apibroker.LabelManagedBy] == apibroker.ManagedBy
}

// A view is what the export records of a service come to in this cluster. The zero value is that of a service that nobody
// exports.
type view struct {
	result  merge.Result
	cluster merge.Cluster // without what depends on the objects that exist
	// conflicts are those of all records, whichever this namespace takes: they are the same in every member.
	conflicts []merge.Conflict
	records   int  // that are accepted
	wanted    bool // the oldest export asks for a clusterset IP ("vip cidr")
}

// view merges what is known now; own is what this cluster exports.
func (s *session) view(svc types.NamespacedName, own export.Result) view {
	records, o := s.recordsWith(svc, own.Record), s.mergeOptions(svc)
	all := merge.Merge(svc, records, o)
	for _, r := range all.Refused {
		s.refused(r)
	}
	v := view{result: all, conflicts: all.Conflicts, records: len(all.Members)}
	taken := s.taking(svc.Namespace, records)
	switch {
	case len(taken) == 0:
		v.result = merge.Result{}
	case len(taken) < len(records):
		v.result = merge.Merge(svc, taken, o)
	}
	v.wanted = slices.ContainsFunc(taken, func(r merge.Record) bool {
		return r.Cluster == v.result.Oldest && r.Spec.VIP != nil && r.Spec.VIP.Wanted
	})
	v.cluster = merge.Cluster{Sources: s.sources(svc, own, v.result), Families: s.families()}
	return v
}

// families returns those in which Services get addresses here. If that is not known the API server decides.
func (s *session) families() []corev1.IPFamily {
	if families := s.local.Families(); len(families) > 0 {
		return families
	}
	return []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
}

// taking returns the records that a namespace takes, and tells of those that it never takes (section 9).
func (s *session) taking(namespace string, records []merge.Record) []merge.Record {
	ns := s.local.Namespace(namespace)
	policy := s.cfg.namespacePolicy(ns)
	refuse := func(r merge.Record, detail string) {
		if r.Cluster != s.member.ClusterID() {
			name := apibroker.RecordName(namespace, r.Spec.Name)
			s.refused(merge.Refusal{Cluster: r.Cluster, Object: name, Reason: merge.NotTaken, Detail: detail})
		}
	}
	var taken []merge.Record
	for _, r := range records {
		switch {
		case policy == export.Allowed && sourceAllowed(ns, r.Cluster):
			taken = append(taken, r)
		case policy == export.Allowed:
			refuse(r, fmt.Sprintf("namespace %s: want a cluster that its annotation %s names", namespace, apibroker.AnnotationAllowedSources))
		case policy == export.NotAllowed && !s.cfg.leftOut(namespace):
			refuse(r, fmt.Sprintf("namespace %s: want one that takes part", namespace))
		}
	}
	return taken
}

// sources returns the slices of all members that count, and what is believed of them.
func (s *session) sources(svc types.NamespacedName, own export.Result, r merge.Result) []merge.Source {
	var sources []merge.Source
	reserved := s.local.ServiceCIDRs()
	for _, m := range r.Members {
		if m.Cluster == s.member.ClusterID() {
			sources = append(sources, merge.Source{Cluster: m.Cluster, Slices: own.Local, Local: true})
			continue
		}
		sources = append(sources, merge.Source{
			Cluster: m.Cluster, Slices: s.endpoints(svc, m.Cluster), Declared: declared(s.broker.Member(m.Cluster)), Reserved: reserved,
		})
	}
	return sources
}

// declared returns the networks of a member. Without a member, nil, there are none.
func declared(m *v1alpha1.Member) []netip.Prefix {
	if m == nil {
		return nil
	}
	var networks []netip.Prefix
	for _, text := range slices.Concat(m.Spec.PodCIDRs, m.Spec.ServiceCIDRs) {
		if p, err := apibroker.ParsePrefix(text); err == nil {
			networks = append(networks, p)
		}
	}
	return networks
}

// ready is the condition Ready of the import (section 6). taken are the names of desired objects that others have, failure
// is why the derived Service could not be written.
//
// It has no observedGeneration: nobody but us writes the spec, so with one each change of it would be two writes.
func (v view) ready(o merge.Objects, taken []string, failure error) metav1.Condition {
	spec := &o.Import.Spec
	pending := func(format string, args ...any) metav1.Condition {
		return metav1.Condition{
			Type: string(mcsv1beta1.ServiceImportConditionReady), Status: metav1.ConditionFalse,
			Reason: string(mcsv1beta1.ServiceImportReasonPending), Message: fmt.Sprintf(format, args...),
		}
	}
	switch families := v.result.Families(v.cluster.Families); {
	case len(families) == 0:
		c := pending("The service has %s, and this cluster has %s.",
			familyText(v.result.Import.Spec.IPFamilies), familyText(v.cluster.Families))
		c.Reason = string(mcsv1beta1.ServiceImportReasonIPFamilyNotSupported)
		return c
	case len(taken) > 0:
		return pending("Waiting for a name that is taken by an object which is not ours: %s.", strings.Join(taken, ", "))
	case failure != nil:
		return pending("Waiting for the derived Service: %s.",
			cmp.Or(refusal(failure), "the last attempt to write it failed and is repeated"))
	case len(spec.Ports) == 0 && spec.Type == mcsv1beta1.ClusterSetIP:
		return pending("Waiting for a port: the exports have none in common.")
	case len(spec.IPs) == 0 && o.Service != nil:
		return pending("Waiting for the addresses of the derived Service.")
	case len(spec.IPs) == 0 && v.wanted && spec.Type == mcsv1beta1.ClusterSetIP:
		return pending("Waiting for an exporter to allocate a clusterset IP.")
	}
	return metav1.Condition{
		Type: string(mcsv1beta1.ServiceImportConditionReady), Status: metav1.ConditionTrue,
		Reason: string(mcsv1beta1.ServiceImportReasonReady), Message: "The service can be used in this cluster.",
	}
}

func familyText(families []corev1.IPFamily) string {
	if len(families) == 0 {
		return "no IP family"
	}
	text := make([]string, len(families))
	for i, f := range families {
		text[i] = string(f)
	}
	slices.Sort(text)
	return strings.Join(text, " and ")
}

// followOwn makes the slices of this cluster in an existing import what they should be, while what the broker says is not
// known or not believed: our own endpoints are true whatever becomes of the link (section 5). All else is left as it is.
func (s *session) followOwn(ctx context.Context, svc types.NamespacedName) error {
	imp, id := s.local.Import(svc), s.member.ClusterID()
	if !isOurs(imp) || imp.DeletionTimestamp != nil || s.namespacePolicy(svc.Namespace) != export.Allowed ||
		!slices.Contains(imp.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: id}) {
		return nil
	}
	own, _ := s.exported(svc)
	w := s.newWriter(svc)
	w.now.Slices = slices.DeleteFunc(slices.Clone(w.now.Slices), func(e *discoveryv1.EndpointSlice) bool {
		return e.Labels[mcsv1beta1.LabelSourceCluster] != id
	})
	var desired merge.Objects
	if own.Record != nil {
		records := []merge.Record{{Cluster: id, Spec: own.Record.Spec}}
		r := under(imp, w.now.Service, merge.Merge(svc, records, s.cfg.mergeOptions()))
		all, refused := merge.Desired(r, merge.Cluster{
			Sources: []merge.Source{{Cluster: id, Slices: own.Local, Local: true}}, Owner: imp.UID,
		})
		desired.Slices = all.Slices
		for _, no := range refused {
			s.refused(no)
		}
	}
	err := w.round(ctx, w.fresh(merge.Diff(desired, merge.Objects{Slices: w.now.Slices})))
	if errors.Is(err, errNamespace) {
		return nil
	}
	return err
}

// under returns what one cluster's own record contributes to an import that stays as it is: r, which was merged from that
// record alone, with the spec of the import and the ports that it has of it. derived may be nil.
func under(imp *mcsv1beta1.ServiceImport, derived *corev1.Service, r merge.Result) merge.Result {
	if r.Import == nil || len(r.Members) != 1 {
		return merge.Result{}
	}
	served := r.Import.Spec.Ports
	r.Import.Spec = *imp.Spec.DeepCopy()
	mapped := make([]merge.PortMapping, 0, len(served))
	for _, p := range served {
		at := portOf(imp.Spec.Ports, p)
		if at < 0 {
			continue
		}
		to := imp.Spec.Ports[at]
		m := merge.PortMapping{From: p.Name, To: to.Name, Protocol: to.Protocol, AppProtocol: to.AppProtocol}
		if derived != nil {
			for _, d := range derived.Spec.Ports {
				if d.Protocol == to.Protocol && d.Port == to.Port {
					m.To = d.Name
				}
			}
		}
		mapped = append(mapped, m)
	}
	r.Members[0].Ports = mapped
	if len(mapped) == 0 && len(imp.Spec.Ports) > 0 {
		r.Members[0].LeftOut = merge.LeftOutPorts
	}
	return r
}

// portOf returns which port of an import p is, -1 if none: by name first, then by protocol and number (section 4).
func portOf(ports []mcsv1beta1.ServicePort, p mcsv1beta1.ServicePort) int {
	same := func(q mcsv1beta1.ServicePort) bool { return q.Protocol == p.Protocol && q.Port == p.Port }
	if at := slices.IndexFunc(ports, func(q mcsv1beta1.ServicePort) bool { return q.Name == p.Name }); at >= 0 {
		if !same(ports[at]) {
			return -1
		}
		return at
	}
	return slices.IndexFunc(ports, same)
}
