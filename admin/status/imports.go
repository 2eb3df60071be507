package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	apireason "github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// labelOldImport is on the ServiceImports of Lighthouse before 0.15, one for each service and cluster.
const labelOldImport = "lighthouse.submariner.io/sourceCluster"

// importList holds the ServiceImports of a cluster, by writer.
type importList struct {
	ours, old, foreign []*mcsv1beta1.ServiceImport
}

// readImports reads the ServiceImports.
func readImports(ctx context.Context, c *read.Cluster) (importList, error) {
	var l importList
	all, err := read.List[mcsv1beta1.ServiceImport](ctx, c, read.ServiceImports, "", "")
	for i := range all {
		imp := &all[i]
		_, old := imp.Labels[labelOldImport]
		switch {
		case imp.Labels[broker.LabelManagedBy] == broker.ManagedBy:
			l.ours = append(l.ours, imp)
		case old:
			l.old = append(l.old, imp)
		default:
			l.foreign = append(l.foreign, imp)
		}
	}
	return l, err
}

// notReady returns the controller's imports that are not ready, except those that are pending for a short time.
func (l importList) notReady(now time.Time) []NotReadyImport {
	var all []NotReadyImport
	for _, imp := range l.ours {
		c := meta.FindStatusCondition(imp.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
		if c == nil || c.Status == metav1.ConditionTrue || imp.DeletionTimestamp != nil {
			continue
		}
		if c.Reason != string(mcsv1beta1.ServiceImportReasonPending) ||
			now.Sub(c.LastTransitionTime.Time) >= wellknown.PendingImport {
			all = append(all, NotReadyImport{imp.Namespace, imp.Name, c.Reason, c.Message})
		}
	}
	return all
}

// takenNames finds services that cannot be imported because a foreign ServiceImport has their name.
type takenNames struct {
	member     *read.Cluster
	own        *v1alpha1.Member // of this cluster
	controller string           // namespace of the controller
	chosen     wellknown.NamespaceChoice
}

// foreignImports returns the foreign imports that stand in the way of an export: it reaches this cluster, and the
// namespace accepts it.
func (t takenNames) foreignImports(ctx context.Context, foreign []*mcsv1beta1.ServiceImport, members []v1alpha1.Member,
	records []v1alpha1.ExportedService) ([]NotReadyImport, error) {
	var all []NotReadyImport
	for _, imp := range foreign {
		exporters := t.exporters(imp, members, records)
		if len(exporters) == 0 {
			continue
		}
		kind := corev1.SchemeGroupVersion.WithKind("Namespace")
		ns, err := read.As[corev1.Namespace](ctx, t.member, kind, "", imp.Namespace)
		if err != nil {
			return all, err
		}
		if ns == nil || wellknown.NeverTakesPart(ns.Name, ns.Annotations, t.controller) || !t.takesPart(ns) {
			continue
		}
		exporters = slices.DeleteFunc(exporters, func(id string) bool { return !broker.SourceAllowed(ns, id) })
		if len(exporters) == 0 {
			continue
		}
		all = append(all, NotReadyImport{imp.Namespace, imp.Name, "Foreign",
			apireason.With(fmt.Sprintf("It is not that of the controller, which leaves it alone, "+
				"though the service is exported by %s.", strings.Join(exporters, ", ")), apireason.ImportForeign)})
	}
	return all, nil
}

// exporters returns the clusters that export the service to this cluster.
func (t takenNames) exporters(imp *mcsv1beta1.ServiceImport, members []v1alpha1.Member,
	records []v1alpha1.ExportedService) (ids []string) {
	properties, _ := t.own.Status.ValidProperties()
	for i := range records {
		r := &records[i]
		at := slices.IndexFunc(members, func(m v1alpha1.Member) bool { return m.Spec.Namespace == r.Namespace })
		if at < 0 || r.Spec.Namespace != imp.Namespace || r.Spec.Name != imp.Name {
			continue
		}
		of := merge.Record{Cluster: members[at].Name, Spec: r.Spec}
		if len(merge.ReachedBy(of, map[string]map[string]string{t.own.Name: properties})) > 0 {
			ids = append(ids, of.Cluster)
		}
	}
	slices.Sort(ids)
	return ids
}

// takesPart reports whether the options of the controller select the namespace (docs/spec/controller.md 9.2).
func (t takenNames) takesPart(ns *corev1.Namespace) bool {
	if t.chosen.Restricts() {
		return t.chosen.Selects(ns.Name, ns.Labels)
	}
	return ns.Name != metav1.NamespaceDefault && ns.Labels[broker.LabelClusterID] == ""
}

func compareNotReadyImports(a, b NotReadyImport) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
