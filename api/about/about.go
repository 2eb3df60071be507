// Package about names what all versions of the API group about.k8s.io (KEP-2149) share.
package about

// GroupName is the API group of ClusterProperty.
const GroupName = "about.k8s.io"

// The well-known names of ClusterProperty objects (KEP-2149, "Well known properties").
const (
	// ClusterIDName is the property that holds the clusterID: unique within the clusterset, and constant while the
	// cluster is a member of it.
	ClusterIDName = "cluster.clusterset.k8s.io"

	// ClusterSetName is the property that holds the clusterset. It exists exactly while the cluster is a member.
	ClusterSetName = "clusterset.k8s.io"
	// RegionName is the property that holds the region of the cluster, by which KEP-5939 selects clusters.
	RegionName = "region.topology.k8s.io"
)
