// Package nodeenv gives members of a testclusterset nodes in network namespaces: kube-proxy runs there, and Services
// have Pods that accept connections. So tests and benchmarks send real packets. It needs what package netns needs.
package nodeenv
