// Package netns makes network namespaces the nodes of clusters, so that tests send real packets: a namespace for each
// cluster, joined by a bridge in one more. Every address of a cluster's pods is local to its node, where one listener
// answers for all of them; kube-proxy makes the cluster IPs work.
//
// It needs Linux, root, and the programs ip, nft and nsenter. The namespaces have no names and nothing of them is
// visible on the host: they live as long as this process holds them or a child is in them, and children die with this
// process. So the kernel removes everything, however a test ends.
package netns
