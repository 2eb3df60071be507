package join

import (
	"context"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/admin/dns"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/deploy"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// endWithoutEmptying takes the finalizer of a namespace away and leaves its objects.
func endWithoutEmptying(t *testing.T, c *controlplane.ControlPlane, name string) {
	t.Helper()
	all := c.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	until.OK(t, "namespace "+name+" is gone", func(ctx context.Context) error {
		if err := all.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		_, err := all.Update(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}, "spec": map[string]any{},
		}}, metav1.UpdateOptions{}, "finalize")
		return err
	})
}

// TestUninstallRemovesImports: imports in a missing namespace, which the API server keeps while the policy about the
// controller exists, are a warning of leave, and uninstall deletes them. So does it with imports that the controller
// wrote after leave has looked.
func TestUninstallRemovesImports(t *testing.T) {
	tier.All(t)
	all := startControlPlanes(t, 2)
	onBroker, east := all[0], all[1]
	initBroker(t, onBroker)
	joined := mustJoin(t, onBroker, east, options("east"))
	if err := east.ApplyYAML(t.Context(), deploy.ControllerRBAC); err != nil {
		t.Fatal(err)
	}
	addServices(t, onBroker, east, joined.Namespace)
	endWithoutEmptying(t, east, "shop")
	left := mustLeave(t, onBroker, east)
	for _, name := range []string{"imported-0123456789abcdef", desired.DerivedName("shop", "db"), "db"} {
		if warnings := strings.Join(left.Warnings, "\n"); !strings.Contains(warnings,
			name+" was not deleted: its namespace does not exist") {
			t.Errorf("leave warned of\n%s\nwant of %s", warnings, name)
		}
	}
	// the controller was late
	if err := east.ApplyYAML(t.Context(), []byte(strings.ReplaceAll(imported, " shop", " bank"))); err != nil {
		t.Fatal(err)
	}
	east.EndNamespacesT(t)
	got, err := Uninstall(t.Context(), east.Config(), UninstallOptions{Namespace: wellknown.ControllerNamespace,
		DNS: dns.Defaults()})
	if err != nil {
		t.Fatal(err)
	}
	if find(t, east, "serviceimports", "shop", "db") != nil || find(t, east, "serviceimports", "bank", "db") != nil {
		t.Error("want the imports deleted")
	}
	if find(t, east, "serviceimports", "bank", "other") == nil {
		t.Error("an import that the controller did not write was deleted")
	}
	if want := "CustomResourceDefinition serviceimports.multicluster.x-k8s.io has objects, 3 of them"; !slices.Equal(
		got.Left, []string{want}) {
		t.Errorf("left %q, want %q: those of others", got.Left, want)
	}
}
