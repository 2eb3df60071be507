package main

import (
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// Names are completed, and services exported, in a cluster that serves the kinds at a version other than v1beta1.
func TestOtherVersions(t *testing.T) {
	c := controlplane.StartT(t, controlplane.Options{})
	member := "--kubeconfig=" + c.Kubeconfig()
	for _, version := range []string{"v1alpha1", "v1"} {
		for _, manifest := range controlplane.MCSCRDs() {
			must(t, c.InstallCRDs(t.Context(), controlplane.Serving(manifest, version)))
		}
		must(t, c.ApplyYAML(t.Context(), []byte(strings.ReplaceAll(`
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: multicluster.x-k8s.io/VERSION
kind: ServiceImport
metadata: {name: db, namespace: shop}
spec: {type: Headless, ports: [{port: 5432}]}
`, "VERSION", version))))
		want(t, exitOK, []string{"db -n shop created"}, "export", "db", member, "-n", "shop", "--wait=false")
		want(t, exitOK, []string{"db -n shop unchanged"}, "export", "db", member, "-n", "shop", "--wait=false")
		completes(t, "db\n", "unexport", member, "-n", "shop", "")
		completes(t, "db.shop.svc.clusterset.local", "explain", member, "-n", "shop", "")
		want(t, exitOK, []string{"db -n shop deleted"}, "unexport", "db", member, "-n", "shop")
	}
	for _, typed := range []string{"shop.db", "db.shp", "bd.shop", "db"} {
		want(t, exitProblems, []string{"the cluster imports or exports db.shop.svc.clusterset.local. If it is right: "}, "explain", member,
			typed, "--timeout=1m")
	}
	if out := want(t, exitProblems, nil, "explain", member, "service", "db", "-n", "shop", "--timeout=1m"); strings.Contains(out,
		"the cluster imports or exports") {
		t.Errorf("explain of an import printed\n%s\nwant no other name", out)
	}
}
