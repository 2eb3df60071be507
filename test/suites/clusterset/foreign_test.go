package clusterset

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// Another implementation works in the same cluster: it has an import of a name that east exports, and its own opinion
// of an export. It writes both again and again. Our controller leaves the import alone, and does not fight for the
// condition: it soon writes nothing (docs/spec/controller.md 6.4).
func TestAnotherImplementation(t *testing.T) {
	tier.All(t)
	const ns, quiet = "another", 20 * time.Second
	s := &script{namespace: ns}
	web, db := testclusterset.Service(ns, "web", testclusterset.Port("http", 80)),
		testclusterset.Service(ns, "db", testclusterset.Port("pg", 5432))
	west.Put(t, testclusterset.Namespace(ns), db, testclusterset.Export(ns, "db"))
	other := startOther(t, ns)
	east.Put(t, testclusterset.Namespace(ns), web, testclusterset.Slice(web, "web-1",
		testclusterset.Endpoint{Address: "10.21.0.1"}),
		testclusterset.Export(ns, "web"))
	ours, stop := start(t, west)
	start(t, east)
	start(t, north)
	ours.awaitIdle(t)

	last, since, theirs := "", time.Now(), 0
	until.OK(t, "a controller that writes nothing", func(context.Context) error {
		now, err := ours.writes()
		if err != nil {
			return err
		}
		if now != last {
			last, since, theirs = now, time.Now(), other.count()
		}
		if took := time.Since(since); last == "" || took < quiet || other.count() < theirs+20 {
			return fmt.Errorf("writes %q, none for %s while the other wrote %d times", now, took, other.count()-theirs)
		}
		return nil
	})
	outages.Measured(t, "F32", "0 writes of ours in %s, %d of the other implementation", quiet, other.count()-theirs)
	imp, err := west.Import(t.Context(), ns, "web")
	if err != nil || imp.Spec.Type != mcsv1beta1.Headless || len(imp.Status.Clusters) != 1 ||
		imp.Status.Clusters[0].Cluster != "theirs" {
		t.Errorf("import %+v of clusters %v (%v), want that of the other implementation", imp.Spec, imp.Status.Clusters, err)
	}
	exp, err := west.ServiceExport(t.Context(), ns, "db")
	if err == nil {
		err = testclusterset.Condition(exp.Status.Conditions, "Valid=False/Theirs")
	}
	if err != nil {
		t.Error(err)
	}
	other.stop()
	stop()
	// Both have written the condition: what is left of it cannot be taken apart when the namespace no longer takes part.
	ours, _ = start(t, west, "import_namespaces elsewhere")
	ours.awaitIdle(t)
	west.Drop(t, imp)
	s.withdraw(t)
}

// An otherImplementation writes an import "web" and a condition of the export "db" of west five times a second.
type otherImplementation struct {
	stop   func() // waits for its last write
	mu     sync.Mutex
	writes int
}

func (o *otherImplementation) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writes
}

// startOther starts one that ends with the test. It has its import first.
func startOther(t *testing.T, namespace string) *otherImplementation {
	t.Helper()
	o := &otherImplementation{}
	if err := o.write(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := o.write(ctx, namespace); err != nil && ctx.Err() == nil {
				t.Errorf("the other implementation: %v", err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	o.stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(o.stop)
	return o
}

func (o *otherImplementation) write(ctx context.Context, namespace string) error {
	meta := func(kind, name string, fields map[string]any) *unstructured.Unstructured {
		object := map[string]any{
			"apiVersion": mcsv1beta1.GroupVersion.String(), "kind": kind,
			"metadata": map[string]any{"namespace": namespace, "name": name},
		}
		for field, value := range fields {
			object[field] = value
		}
		return &unstructured.Unstructured{Object: object}
	}
	of := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: mcsv1beta1.GroupName, Version: "v1beta1", Resource: resource}
	}
	options := metav1.ApplyOptions{FieldManager: "other-implementation", Force: true}
	imports, exports := west.Dynamic().Resource(of("serviceimports")).Namespace(namespace),
		west.Dynamic().Resource(of("serviceexports")).Namespace(namespace)
	spec := map[string]any{"type": "Headless", "ports": []any{map[string]any{"name": "http", "protocol": "TCP",
		"port": int64(81)}}}
	if _, err := imports.Apply(ctx, "web", meta("ServiceImport", "web", map[string]any{"spec": spec}),
		options); err != nil {
		return err
	}
	status := map[string]any{"clusters": []any{map[string]any{"cluster": "theirs"}}}
	if _, err := imports.ApplyStatus(ctx, "web", meta("ServiceImport", "web", map[string]any{"status": status}),
		options); err != nil {
		return err
	}
	condition := map[string]any{
		"type": "Valid", "status": "False", "reason": "Theirs", "message": "Not valid for another implementation.",
		"lastTransitionTime": "2026-01-01T00:00:00Z",
	}
	status = map[string]any{"conditions": []any{condition}}
	if _, err := exports.ApplyStatus(ctx, "db", meta("ServiceExport", "db", map[string]any{"status": status}),
		options); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writes++
	return nil
}
