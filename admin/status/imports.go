package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
		case read.IsManaged(imp):
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
func (l importList) notReady(now time.Time) []ServiceState {
	var all []ServiceState
	for _, imp := range l.ours {
		c := meta.FindStatusCondition(imp.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
		if c == nil || c.Status == metav1.ConditionTrue || imp.DeletionTimestamp != nil {
			continue
		}
		if c.Reason != string(mcsv1beta1.ServiceImportReasonPending) ||
			now.Sub(c.LastTransitionTime.Time) >= wellknown.PendingImport {
			all = append(all, ServiceState{imp.Namespace, imp.Name, c.Reason, c.Message})
		}
	}
	return all
}

// missingImports finds services that this cluster does not import.
type missingImports struct {
	member     *read.Cluster
	controller string // namespace of the controller
	chosen     wellknown.NamespaceChoice
	exporters  map[types.NamespacedName][]string // the clusters with an export of a service to this cluster
}

// exportersTo returns the clusters that export each service to a cluster with these properties, by its ID.
func exportersTo(properties map[string]map[string]string, members []v1alpha1.Member,
	records []v1alpha1.ExportedService) map[types.NamespacedName][]string {
	cluster := make(map[string]string) // by broker namespace
	for i := range members {
		if namespace := members[i].Spec.Namespace; cluster[namespace] == "" {
			cluster[namespace] = members[i].Name
		}
	}
	exporters := make(map[types.NamespacedName][]string)
	for i := range records {
		of := merge.Record{Cluster: cluster[records[i].Namespace], Spec: records[i].Spec}
		if of.Cluster != "" && len(merge.ReachedBy(of, properties)) > 0 {
			service := types.NamespacedName{Namespace: of.Spec.Namespace, Name: of.Spec.Name}
			exporters[service] = append(exporters[service], of.Cluster)
		}
	}
	return exporters
}

// namespaces returns the namespaces of exports to this cluster that it lacks and would choose.
func (t missingImports) namespaces(ctx context.Context) ([]string, error) {
	lacks := make(map[string]bool)
	for service := range t.exporters {
		if t.takesPart(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: service.Namespace}}) {
			lacks[service.Namespace] = true
		}
	}
	if len(lacks) == 0 {
		return nil, nil
	}
	has, err := t.member.ListObjects(ctx, read.Namespaces, "", "")
	if err != nil {
		return nil, err
	}
	for _, ns := range has {
		delete(lacks, ns.GetName())
	}
	return slices.Sorted(maps.Keys(lacks)), nil
}

// foreign returns the foreign imports that stand in the way of an export: it reaches this cluster, and the namespace
// accepts it.
func (t missingImports) foreign(ctx context.Context, foreign []*mcsv1beta1.ServiceImport) ([]ServiceState, error) {
	var all []ServiceState
	for _, imp := range foreign {
		exporters := t.exporters[types.NamespacedName{Namespace: imp.Namespace, Name: imp.Name}]
		if len(exporters) == 0 {
			continue
		}
		kind := corev1.SchemeGroupVersion.WithKind("Namespace")
		ns, err := read.As[corev1.Namespace](ctx, t.member, kind, "", imp.Namespace)
		if err != nil {
			return all, err
		}
		if ns == nil || !t.takesPart(ns) {
			continue
		}
		exporters = slices.DeleteFunc(slices.Clone(exporters), func(id string) bool { return !broker.SourceAllowed(ns, id) })
		if len(exporters) == 0 {
			continue
		}
		slices.Sort(exporters)
		all = append(all, ServiceState{imp.Namespace, imp.Name, "Foreign",
			apireason.With(fmt.Sprintf("It is not that of the controller, which leaves it alone, "+
				"though the service is exported by %s.", strings.Join(exporters, ", ")), apireason.ImportForeign)})
	}
	return all, nil
}

// takesPart reports whether the options of the controller select the namespace (docs/spec/controller.md 9.2).
func (t missingImports) takesPart(ns *corev1.Namespace) bool {
	switch {
	case wellknown.NeverTakesPart(ns.Name, ns.Annotations, t.controller):
		return false
	case t.chosen.Restricts():
		return t.chosen.Selects(ns.Name, ns.Labels)
	}
	return ns.Name != metav1.NamespaceDefault && ns.Labels[broker.LabelClusterID] == ""
}
