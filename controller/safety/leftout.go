package safety

import (
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// An importedService is what this cluster has of one service: the clusters that export it, and their slices here.
type importedService struct {
	clusters []mcsv1beta1.ClusterStatus
	slices   []*discoveryv1.EndpointSlice
}

// imported returns all that is imported.
func imported(m *member.Cluster) (all []importedService) {
	for _, svc := range m.Imports() {
		if imp := m.Import(svc); member.IsOurs(imp) {
			all = append(all, importedService{imp.Status.Clusters, m.ImportedSlices(svc)})
		}
	}
	return all
}

// leftOut returns the clusters, sorted, that look as o leaves those that expired: they export services that are imported, and
// none of their endpoints is here, or none that is ready. So what was expired is known after a restart and in another
// instance. A cluster that only looks so is back with its next heartbeat.
func leftOut(all []importedService, self string, o OnExpiry) []string {
	out := make(map[string]bool)
	for _, s := range all {
		for _, c := range s.clusters {
			if c.Cluster != self && o != Retain {
				out[c.Cluster] = true
			}
		}
	}
	for _, s := range all {
		for _, slice := range s.slices {
			if o == Remove || slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return apibroker.IsReady(e.Conditions) }) {
				delete(out, slice.Labels[mcsv1beta1.LabelSourceCluster])
			}
		}
	}
	return slices.Sorted(maps.Keys(out))
}
