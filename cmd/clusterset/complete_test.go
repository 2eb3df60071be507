package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// TestCompleteOldVersion: names are completed in a cluster that serves the kinds at v1alpha1 alone.
func TestCompleteOldVersion(t *testing.T) {
	c := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{onlyV1alpha1(t, mcscrd.ServiceExportCRD),
		onlyV1alpha1(t, mcscrd.ServiceImportCRD)}})
	must(t, c.ApplyYAML(t.Context(), []byte(`
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceExport
metadata: {name: db, namespace: shop}
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceImport
metadata: {name: db, namespace: shop}
spec: {type: Headless, ports: [{port: 5432}]}
`)))
	member := "--kubeconfig=" + c.Kubeconfig()
	completes(t, "db\n", "unexport", member, "-n", "shop", "")
	completes(t, "db.shop.svc.clusterset.local", "explain", member, "-n", "shop", "")
	for _, typed := range []string{"shop.db", "db.shp", "bd.shop"} {
		want(t, exitProblems, []string{"the cluster imports db.shop.svc.clusterset.local. If it is right: "}, "explain", member,
			typed, "--timeout=1m")
	}
	if out := want(t, exitProblems, nil, "explain", member, "service", "db", "-n", "shop", "--timeout=1m"); strings.Contains(out,
		"the cluster imports") {
		t.Errorf("explain of an import printed\n%s\nwant no other name", out)
	}
}

// onlyV1alpha1 returns a CRD that serves no other version.
func onlyV1alpha1(t *testing.T, manifest []byte) []byte {
	t.Helper()
	var crd unstructured.Unstructured
	must(t, yaml.Unmarshal(manifest, &crd.Object))
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	must(t, err)
	for _, v := range versions {
		if v := v.(map[string]any); v["name"] != "v1alpha1" {
			v["served"] = false
		}
	}
	must(t, unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"))
	text, err := yaml.Marshal(crd.Object)
	must(t, err)
	return text
}
