package importer

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// losesClusters reports whether imp, if it is ours, has clusters that r does not have.
func losesClusters(r merge.Result, imp *mcsv1beta1.ServiceImport) bool {
	if !member.IsOurs(imp) {
		return false
	}
	return slices.ContainsFunc(imp.Status.Clusters, func(c mcsv1beta1.ClusterStatus) bool {
		return r.Import == nil || !slices.Contains(r.Import.Status.Clusters, c)
	})
}

// losesSlices reports whether a cluster has fewer slices than are imported from it. When a member restores its objects on the
// broker, the record may arrive before all slices have.
func losesSlices(sources []merge.Source, imported []*discoveryv1.EndpointSlice) bool {
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
