package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/deploy"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// upgrades makes the broker and the member older, changed and newer than this program. docs/spec/operations.md 5.
func upgrades(t *testing.T, hub, east *controlplane.ControlPlane, member, broker string) {
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	policies := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}
	roles := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	patch := func(c *controlplane.ControlPlane, r schema.GroupVersionResource, name, text string) {
		t.Helper()
		if _, err := c.Dynamic().Resource(r).Patch(t.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	version := func(v string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{"clusterset-dns.io/version":%s}}}`, v)
	}
	const records = "exportedservices.broker.clusterset-dns.io"
	program := ". member east: roll out the controller, then DNS (an image of version " + programVersion() + ")\n   - its controller has never run\n"
	plan := func(want string) {
		t.Helper()
		code, out, errOut := command(t, "upgrade", "--check", member, broker)
		if code != exitProblems || out != want {
			t.Errorf("exit code %d, printed\n%s%swant\n%s", code, out, errOut, want)
		}
	}
	plan("1" + program)

	patch(hub, crds, records, version("null"))
	patch(east, policies, "clusterset-membership", version(`"1"`))
	if err := east.ApplyYAML(t.Context(), append(append(append([]byte{}, deploy.Namespace...), "\n---\n"...), deploy.DNSRBAC...)); err != nil {
		t.Fatal(err)
	}
	patch(east, roles, "clusterset-dns", `{"rules":[]}`)
	plan(fmt.Sprintf("1. broker: update CRDs, policies and rights (clusterset broker init)\n   - CustomResourceDefinition %s is of version 1, and this program brings version %d\n", records, deploy.Version) +
		"2. member east: update rights (kubectl apply -f deploy/dns/rbac.yaml)\n   - ClusterRole clusterset-dns differs from that of this program\n" +
		fmt.Sprintf("3. member east: update policies, rights and quota (clusterset join, with the flags of the first join)\n"+
			"   - ValidatingAdmissionPolicy clusterset-membership is of version 1, and this program brings version %d\n", deploy.Version) + "4" + program)

	// What the plan says is what it takes.
	want(t, exitOK, nil, "broker", "init", broker)
	if err := east.ApplyYAML(t.Context(), deploy.DNSRBAC); err != nil {
		t.Fatal(err)
	}
	want(t, exitOK, nil, "join", broker, member, "--components=none")
	plan("1" + program)
	// The credential of the member is enough, as soon as the API server knows its rights.
	until.OK(t, "upgrade --check with the credential of the member", func(context.Context) error {
		if code, out, errOut := command(t, "upgrade", "--check", member); code != exitProblems || !strings.Contains(out, program) {
			return fmt.Errorf("exit code %d\n%s%s", code, out, errOut)
		}
		return nil
	})

	patch(hub, crds, records, version(`"99"`))
	want(t, exitError, []string{"error: upgrade: broker: CustomResourceDefinition " + records + " is of version 99, and this program has version "}, "upgrade", "--check", member, broker)
	patch(hub, crds, records, fmt.Sprintf(version(`"%d"`), deploy.Version))
	want(t, exitError, []string{"error: no --check: "}, "upgrade", member)
}
