package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/deploy"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// inventory names every object of a cluster, of every kind that can be listed, except those that the API server makes
// and removes by itself: Events, Leases, and the IPAddresses of Services.
func inventory(ctx context.Context, c *controlplane.ControlPlane) (map[string]bool, error) {
	client, err := discovery.NewDiscoveryClientForConfig(c.Config())
	if err != nil {
		return nil, err
	}
	lists, err := client.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range l.APIResources {
			if !slices.Contains(r.Verbs, "list") || slices.Contains([]string{"events", "leases", "componentstatuses",
				"ipaddresses"}, r.Name) {
				continue
			}
			found, err := c.Dynamic().Resource(gv.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", r.Name, err)
			}
			for _, o := range found.Items {
				all[fmt.Sprintf("%s.%s %s/%s", r.Name, gv.Group, o.GetNamespace(), o.GetName())] = true
			}
		}
	}
	return all, nil
}

// mustInventory waits until the API server serves all kinds that it names.
func mustInventory(t *testing.T, c *controlplane.ControlPlane) (all map[string]bool) {
	t.Helper()
	until.OK(t, "the API server lists everything", func(ctx context.Context) (err error) {
		all, err = inventory(ctx, c)
		return err
	})
	return all
}

// leftByVerify is a namespace of clusterset verify.
const leftByVerify = `
apiVersion: v1
kind: Namespace
metadata:
  name: clusterset-verify-killed
  labels: {app.kubernetes.io/managed-by: clusterset-verify}
  annotations: {clusterset-dns.io/verify-until: "2026-03-01T09:00:00Z"}
`

// undoesWiring: uninstall finds the DNS server of a cluster in another namespace, undoes what dns apply has written
// there, and names what was pasted by hand.
func undoesWiring(t *testing.T, east *controlplane.ControlPlane, member string) {
	t.Helper()
	text, err := os.ReadFile("../../admin/wiring/testdata/kubeadm.yaml")
	must(t, err)
	server := strings.NewReplacer("kube-system", "shop", "10.96.0.10", "10.97.0.11").Replace(string(text))
	must(t, east.ApplyYAML(t.Context(), []byte(server)))
	const flag = "--dns-namespace=shop"
	want(t, exitOK, []string{"configmap/coredns -n shop updated"}, "dns", "apply", member, flag, "--wait=false",
		"--ask=127.0.0.1:1")
	_, out, _ := command(t, "uninstall", member, flag, "--dry-run")
	if !strings.Contains(out, "configmap/coredns -n shop updated (data.Corefile) (client dry run)") {
		t.Errorf("uninstall %s printed\n%s\nwant it to undo the wiring", flag, out)
	}
	want(t, exitOK, nil, "dns", "undo", member, flag)
	pasted := strings.Replace(server, `Corefile: "`, `Corefile: "clusterset.local:53 {\n    forward . 10.97.0.53\n}\n`, 1)
	must(t, east.ApplyYAML(t.Context(), []byte(pasted)))
	const left = "left: deployment/coredns forwards or serves clusterset.local by a configuration that clusterset has not written: "
	want(t, exitProblems, []string{left}, "uninstall", member, flag, "--dry-run")
	if _, _, errOut := command(t, "uninstall", member, "--dry-run"); strings.Contains(errOut, left) {
		t.Errorf("uninstall said\n%s\nwant nothing of a DNS server in another namespace", errOut)
	}
	must(t, east.DeleteYAML(t.Context(), []byte(pasted)))
}

// createdByController is a namespace of "import_namespaces create".
const createdByController = `
apiVersion: v1
kind: Namespace
metadata:
  name: bank
  labels: {app.kubernetes.io/managed-by: controller.clusterset-dns.io}
  annotations: {clusterset-dns.io/created-for: west}
`

// namesCreated: uninstall leaves namespaces that the controller has created, and warns of them.
func namesCreated(t *testing.T, east *controlplane.ControlPlane, member string) {
	t.Helper()
	must(t, east.ApplyYAML(t.Context(), []byte(createdByController)))
	want(t, exitOK, []string{"warning: Namespace bank was created for imports, and stays: "}, "uninstall", member,
		"--delete-exports", "--dry-run")
	must(t, east.DeleteYAML(t.Context(), []byte(createdByController)))
}

// nothingLeft fails the test unless a cluster has what it had before, and besides only objects in the namespaces that
// the test has made for itself, or with their names.
func nothingLeft(t *testing.T, c *controlplane.ControlPlane, before map[string]bool, made ...string) {
	t.Helper()
	until.OK(t, "everything is gone", func(ctx context.Context) error {
		after, err := inventory(ctx, c)
		if err != nil {
			return err
		}
		var left []string
		for name := range after {
			own := slices.ContainsFunc(made, func(m string) bool {
				return strings.Contains(name, " "+m+"/") || strings.HasSuffix(name, "/"+m)
			})
			if !before[name] && !own {
				left = append(left, name)
			}
		}
		if len(left) > 0 {
			slices.Sort(left)
			return fmt.Errorf("left are\n%s", strings.Join(left, "\n"))
		}
		return nil
	})
}

// uninstalls removes everything from a cluster that has left and then from the broker. before is what both had at
// first. docs/spec/operations.md 6.
func uninstalls(t *testing.T, hub, east *controlplane.ControlPlane, member, broker string, before [2]map[string]bool) {
	// The rest of a killed verify.
	if err := east.ApplyYAML(t.Context(), []byte(leftByVerify)); err != nil {
		t.Fatal(err)
	}
	// The other parts of a whole installation.
	for _, manifest := range [][]byte{deploy.ControllerRBAC, deploy.DNSRBAC, deploy.AllInOneRBAC} {
		if err := east.ApplyYAML(t.Context(), manifest); err != nil {
			t.Fatal(err)
		}
	}
	full := mustInventory(t, east)
	out := want(t, exitProblems, []string{"namespace/clusterset-system deleted (client dry run)",
		"customresourcedefinition.apiextensions.k8s.io/clusterproperties.about.k8s.io deleted (client dry run)",
		"left: CustomResourceDefinition serviceexports.multicluster.x-k8s.io has objects, 1 of them; --delete-exports deletes them\n"},
		"uninstall", member, "--dry-run")
	if n := strings.Count(out, "clusterset-view"); n != 1 {
		t.Errorf("the dry run names ClusterRole clusterset-view %d times, want once:\n%s", n, out)
	}
	now := mustInventory(t, east)
	for name := range full {
		if !now[name] {
			t.Errorf("the dry run deleted %s", name)
		}
	}
	east.EndNamespacesT(t)
	undoesWiring(t, east, member)
	namesCreated(t, east, member)
	want(t, exitProblems, []string{"clusterrole.rbac.authorization.k8s.io/clusterset-dns deleted",
		"left: CustomResourceDefinition serviceexports.multicluster.x-k8s.io has objects, 1 of them; --delete-exports deletes them\n"},
		"uninstall", member)
	// While the cluster is a broker, too, the CRD of the imports is that of the broker.
	if err := east.ApplyYAML(t.Context(), crd.Members); err != nil {
		t.Fatal(err)
	}
	out = want(
		t, exitProblems,
		[]string{"left: CustomResourceDefinition serviceimports.multicluster.x-k8s.io is that of a broker, too\n"},
		"uninstall", member, "--delete-exports", "--dry-run")
	if strings.Contains(
		out, "customresourcedefinition.apiextensions.k8s.io/serviceimports.multicluster.x-k8s.io deleted") {
		t.Errorf("the CRD of a broker is deleted:\n%s", out)
	}
	definitions := east.Dynamic().Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	if err := definitions.Delete(t.Context(), "members.broker.clusterset-dns.io", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until.OK(t, "the CRD is gone", func(ctx context.Context) error {
		_, err := definitions.Get(ctx, "members.broker.clusterset-dns.io", metav1.GetOptions{})
		return gone(err)
	})
	want(t, exitOK, []string{"serviceexport.multicluster.x-k8s.io/db -n shop deleted", "Nothing of clusterset is left."},
		"uninstall", member, "--delete-exports")
	want(t, exitOK, []string{"Nothing of clusterset is left."}, "uninstall", member)
	nothingLeft(t, east, before[1], "shop", "kube-system", "planted")

	want(t, exitOK, []string{"customresourcedefinition.apiextensions.k8s.io/members.broker.clusterset-dns.io deleted",
		"Nothing of clusterset is left."}, "broker", "uninstall", broker)
	want(t, exitOK, []string{"Nothing of clusterset is left."}, "broker", "uninstall", broker)
	nothingLeft(t, hub, before[0], "planted")
}
