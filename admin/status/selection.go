package status

import (
	"cmp"
	"context"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/broker"
)

// readSelection reads which clusters the imports prefer and use. Without the right to list slices it returns nil.
func readSelection(ctx context.Context, c *read.Cluster, imports []*mcsv1beta1.ServiceImport) (states []SelectionState,
	err error) {
	preferred := make(map[types.NamespacedName]string)
	for _, imp := range imports {
		if text := cause.Preferred(imp); text != "" {
			preferred[types.NamespacedName{Namespace: imp.Namespace, Name: imp.Name}] = text
		}
	}
	if len(preferred) == 0 {
		return nil, nil
	}
	all, err := read.List[discoveryv1.EndpointSlice](ctx, c, read.EndpointSlices, "",
		discoveryv1.LabelManagedBy+"="+broker.ManagedBy)
	if err != nil {
		return nil, err
	}
	imported := make(map[types.NamespacedName][]*discoveryv1.EndpointSlice)
	for i := range all {
		of := types.NamespacedName{Namespace: all[i].Namespace, Name: all[i].Labels[mcsv1beta1.LabelServiceName]}
		imported[of] = append(imported[of], &all[i])
	}
	for svc, text := range preferred {
		is := cause.SelectedBy(imported[svc])
		state := SelectionState{Namespace: svc.Namespace, Name: svc.Name, Preferred: text, InUse: is.InUse, Hidden: is.Hidden}
		if !is.Since.IsZero() {
			state.Since = &is.Since
		}
		states = append(states, state)
	}
	slices.SortFunc(states, func(a, b SelectionState) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return states, nil
}
