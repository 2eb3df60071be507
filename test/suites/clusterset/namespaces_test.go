package clusterset

import (
	"context"
	"fmt"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/deploy"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// TestCreateNamespaces: with "import_namespaces create" a missing namespace appears, once the controller has the right
// that the manifests grant for it (docs/spec/controller.md 5.9). It appears again after it was deleted, and stays when
// the export ends.
func TestCreateNamespaces(t *testing.T) {
	tier.All(t)
	start(t, east)
	meter, stop := start(t, west, "import_namespaces create")
	s := scriptIn(t, "create-namespaces", east, "")
	defer s.withdraw(t)
	west.Drop(t, testclusterset.Namespace(s.namespace))
	s.change(t, east, webOfEast)
	awaitNamespaceEvent(
		t, west, s.namespace,
		"Warning NamespaceNotCreated: For services of cluster \"east\": not created: namespaces is forbidden")
	if rejected, err := meter.values("rejected_objects_total", "reason"); err != nil || rejected["namespace"] == 0 {
		t.Errorf("rejected objects %v, error %v, want those of a namespace", rejected, err)
	}

	grant(t, west, true)
	defer grant(t, west, false)
	stop()
	start(t, west, "import_namespaces create") // it would try again after ten minutes
	s.awaitImports(t, webImported, west)
	awaitNamespaceEvent(t, west, s.namespace, `Normal NamespaceCreated: Created, as cluster "east" exports services of it.`)
	west.Drop(t, testclusterset.Namespace(s.namespace))
	s.awaitImports(t, webImported, west)

	s.change(t, east, "-Export web")
	s.awaitImports(t, "", west)
	ns, err := west.Dynamic().Resource(spacesGVR).Get(t.Context(), s.namespace, metav1.GetOptions{})
	if err != nil || ns.GetLabels()[broker.LabelManagedBy] != broker.ManagedBy ||
		ns.GetAnnotations()[broker.AnnotationCreatedFor] != "east" {
		t.Errorf("namespace %v, error %v, want it to stay, with our label and the cluster", ns, err)
	}
}

// grant applies the rights of the controller, with or without those to create namespaces.
func grant(t *testing.T, m *testclusterset.Member, create bool) {
	t.Helper()
	rights, err := deploy.Rights(deploy.Options{Mode: deploy.OnlyController,
		Values: map[string]any{"createNamespaces": create}})
	if err == nil {
		err = m.ApplyYAML(context.WithoutCancel(t.Context()), rights)
	}
	if err != nil {
		t.Error(err)
	}
}

// awaitNamespaceEvent waits for an Event about a namespace that begins with want.
func awaitNamespaceEvent(t *testing.T, m *testclusterset.Member, namespace, want string) {
	t.Helper()
	until.OK(t, want, func(ctx context.Context) error {
		events, err := list[eventsv1.Event](ctx, m, "events.k8s.io/v1", "events", metav1.NamespaceDefault)
		if err != nil {
			return err
		}
		var all []string
		for _, e := range events {
			if e.Regarding.Kind == "Namespace" && e.Regarding.Name == namespace {
				all = append(all, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Note))
			}
		}
		if !strings.Contains("\n"+strings.Join(all, "\n"), "\n"+want) {
			return fmt.Errorf("events %q", all)
		}
		return nil
	})
}
