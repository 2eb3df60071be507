package deploy_test

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/deploy"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

func property(version, name, value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": about.GroupName + "/" + version, "kind": "ClusterProperty",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"value": value},
	}}
}

const (
	badID       = "a cluster id is one RFC 1123 label"
	badSet      = "1 to 253 visible ASCII characters"
	reserved    = "are reserved"
	stays       = `the cluster id "east" stays while the cluster is a member`
	leaveFirst  = "changes its clusterset by leaving"
	foreignName = "fingerprint.example.org"
)

// KEP-2149, at each version that clusters serve: who writes does not matter.
func TestMember(t *testing.T) {
	for _, tt := range []struct {
		version  string
		crd      []byte
		policies []byte
	}{
		{"v1beta1", crd.ClusterProperties, deploy.Member},
		{"v1alpha1", onlyV1alpha1(t), deploy.MemberV1alpha1()},
	} {
		t.Run(tt.version, func(t *testing.T) {
			c := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{tt.crd}})
			applyYAML(t, c, tt.policies)
			client := c.Dynamic().Resource(schema.GroupVersionResource{Group: about.GroupName, Version: tt.version,
				Resource: "clusterproperties"})
			testValues(t, client, tt.version)
			testClusterID(t, client, tt.version)
		})
	}
}

// onlyV1alpha1 is the definition as clusters have it that know no v1beta1.
func onlyV1alpha1(t *testing.T) []byte {
	t.Helper()
	alpha, rest, ok := strings.Cut(string(crd.ClusterProperties), "  - additionalPrinterColumns:\n")
	first, _, more := strings.Cut(rest, "  - additionalPrinterColumns:\n")
	if !ok || !more {
		t.Fatal("the definition of ClusterProperty has not two versions")
	}
	return []byte(alpha + "  - additionalPrinterColumns:\n" + strings.Replace(first, "storage: false", "storage: true", 1))
}

func testValues(t *testing.T, client dynamic.ResourceInterface, version string) {
	create := func(ctx context.Context, name, value string) error {
		_, err := client.Create(ctx, property(version, name, value), metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	label := strings.Repeat("x", 63)
	for _, tt := range []struct{ name, value, rejected string }{
		{about.ClusterIDName, "east", ""},
		{about.ClusterIDName, "721ab723-13bc-11e5-aec2-42010af0021e", ""},
		{about.ClusterIDName, "east.registry1", ""},
		{about.ClusterIDName, label, ""},
		{about.ClusterIDName, label + "x", badID},
		{about.ClusterIDName, "a.b.c", badID},
		{about.ClusterIDName, "East", badID},
		{about.ClusterIDName, "-east", badID},
		{about.ClusterIDName, "east.", badID},
		{about.ClusterIDName, "east\n", badID},
		{about.ClusterIDName, strings.Repeat("x", 128_000), badID},
		{about.ClusterSetName, "production", ""},
		{about.ClusterSetName, "projects/1/fleets/Main_2", ""},
		{about.ClusterSetName, "two words", badSet},
		{about.ClusterSetName, "line\n", badSet},
		{about.ClusterSetName, strings.Repeat("x", 254), badSet},
		{about.ClusterSetName, strings.Repeat("x", 128_000), badSet},
		{foreignName, "anything at all, Ä\n", ""},
		{"k8s.io.example.org", "x", ""},
		{"other.clusterset.k8s.io", "x", reserved},
		{"x.k8s.io", "x", reserved},
		{"x.kubernetes.io", "x", reserved},
	} {
		if err := rejected(create(t.Context(), tt.name, tt.value), tt.rejected); err != nil {
			t.Errorf("%s = %.80q: %v", tt.name, tt.value, err)
		}
	}
}

// testClusterID plays a life: the id changes freely, is fixed by joining, and free again after leaving.
func testClusterID(t *testing.T, client dynamic.ResourceInterface, version string) {
	set := func(ctx context.Context, name, value string) error {
		p, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		p.SetAnnotations(map[string]string{"example.org/note": value})
		p.Object["spec"] = map[string]any{"value": value}
		_, err = client.Update(ctx, p, metav1.UpdateOptions{DryRun: dryRun})
		return err
	}
	remove := func(ctx context.Context) error {
		return client.Delete(ctx, about.ClusterIDName, metav1.DeleteOptions{DryRun: dryRun})
	}
	removeAll := func(ctx context.Context) error {
		return client.DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{})
	}
	free := func(when string) {
		t.Helper()
		for what, f := range map[string]func(context.Context) error{
			"change": func(ctx context.Context) error { return set(ctx, about.ClusterIDName, "west") }, "delete": remove,
			"delete all": removeAll,
		} {
			until.OK(t, when+": "+what, func(ctx context.Context) error { return rejected(f(ctx), "") })
		}
	}
	create := func(name, value string) {
		t.Helper()
		if _, err := client.Create(t.Context(), property(version, name, value), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(about.ClusterIDName, "east")
	create(foreignName, "x")
	free("before the join")
	create(about.ClusterSetName, "production")
	// The property is found a moment later.
	until.OK(t, "policy", func(ctx context.Context) error {
		return rejected(set(ctx, about.ClusterIDName, "west"), stays)
	})
	for _, tt := range []struct {
		name     string
		err      error
		rejected string
	}{
		{"change", set(t.Context(), about.ClusterIDName, "west"), stays},
		{"not valid either", set(t.Context(), about.ClusterIDName, "a.b.c"), "denied request"},
		{"same id, another annotation", set(t.Context(), about.ClusterIDName, "east"), ""},
		{"delete", remove(t.Context()), stays},
		{"delete all", removeAll(t.Context()), stays},
		{"another property", set(t.Context(), foreignName, "y"), ""},
		{"another clusterset", set(t.Context(), about.ClusterSetName, "staging"), leaveFirst},
		{"same clusterset, another annotation", set(t.Context(), about.ClusterSetName, "production"), ""},
	} {
		if err := rejected(tt.err, tt.rejected); err != nil {
			t.Errorf("as a member: %s: %v", tt.name, err)
		}
	}
	testMembership(t, client)
	if err := client.Delete(t.Context(), about.ClusterSetName, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("leave: %v", err)
	}
	free("after leaving")
}

// testMembership ends with the property marked as leave does it. Before that, one that is ours cannot be deleted.
func testMembership(t *testing.T, client dynamic.ResourceInterface) {
	remove := func(ctx context.Context) error {
		return client.Delete(ctx, about.ClusterSetName, metav1.DeleteOptions{DryRun: dryRun})
	}
	mark := func(labels, annotations map[string]string) {
		t.Helper()
		p, err := client.Get(t.Context(), about.ClusterSetName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.SetLabels(labels)
		p.SetAnnotations(annotations)
		if _, err := client.Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const leave = `run "clusterset leave"`
	if err := rejected(remove(t.Context()), ""); err != nil {
		t.Errorf("of another implementation: %v", err)
	}
	ours := map[string]string{broker.LabelManagedBy: broker.ManagedBy}
	mark(ours, nil)
	if err := rejected(remove(t.Context()), leave); err != nil {
		t.Errorf("delete: %v", err)
	}
	all := client.DeleteCollection(t.Context(), metav1.DeleteOptions{DryRun: dryRun},
		metav1.ListOptions{FieldSelector: "metadata.name=" + about.ClusterSetName})
	if err := rejected(all, leave); err != nil {
		t.Errorf("delete all: %v", err)
	}
	mark(ours, map[string]string{broker.AnnotationLeaving: "true"})
	if err := rejected(remove(t.Context()), ""); err != nil {
		t.Errorf("while leaving: %v", err)
	}
}
