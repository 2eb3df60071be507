package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

// apply creates or updates objects.
func apply(t *testing.T, manifests ...string) {
	t.Helper()
	for _, m := range manifests {
		must(t, api(t).ApplyYAML(t.Context(), []byte(m)))
	}
}

// remove deletes them.
func remove(t *testing.T, manifests ...string) {
	t.Helper()
	for _, m := range manifests {
		must(t, api(t).DeleteYAML(t.Context(), []byte(m)))
	}
}

// namespace creates a namespace and returns its name.
func namespace(t *testing.T, name string) string {
	t.Helper()
	apply(t, namespaceYAML(name))
	return name
}

func namespaceYAML(name string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}\n", name)
}

// vip is a ClusterSetIP import with one port, "http" 80/TCP.
func vip(ns, name string, ips ...string) string {
	return fmt.Sprintf(`{apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceImport, metadata: {name: %s, namespace: %s},
  spec: {type: ClusterSetIP, ips: [%s], ports: [{name: http, port: 80, protocol: TCP}]}}
`, name, ns, quote(ips))
}

// headless is a Headless import with the same port.
func headless(ns, name string) string {
	return fmt.Sprintf(`{apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceImport, metadata: {name: %s, namespace: %s},
  spec: {type: Headless, ports: [{name: http, port: 80, protocol: TCP}]}}
`, name, ns)
}

// slice is an EndpointSlice of a service from a cluster. An address with "-" in front is not ready.
func slice(ns, name, service, cluster string, addresses ...string) string {
	var endpoints []string
	for _, a := range addresses {
		address, notReady := strings.CutPrefix(a, "-")
		endpoints = append(endpoints, fmt.Sprintf("{addresses: [%s], conditions: {ready: %t}}", address, !notReady))
	}
	return fmt.Sprintf(`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4,
  metadata: {name: %s, namespace: %s, labels: {multicluster.kubernetes.io/service-name: %s,
    multicluster.kubernetes.io/source-cluster: %s}},
  endpoints: [%s], ports: [{name: http, port: 80, protocol: TCP}]}
`, name, ns, service, cluster, strings.Join(endpoints, ", "))
}

func quote(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(quoted, ", ")
}
