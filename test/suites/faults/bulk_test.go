package faults

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

// All records of a member are deleted at once while a controller watches, as by the deletion of their CRD. The controller freezes its
// imports and removes none. The deletion of a single record takes effect at once.
func TestRecordsAreDeleted(t *testing.T) {
	tier.All(t)
	const ns = "bulk"
	// The last one is deleted first, and then many more than take effect at once: on a busy machine their deletions come with pauses.
	names := strings.Split("abcdefghijklmnopqrstuvwxyz", "")
	single := names[len(names)-1]
	for _, name := range names {
		export(t, east, ns, name, "10.21.0.1")
		export(t, west, ns, name, "10.22.0.1")
	}
	long := func(c *controller.Config) { c.TTL = time.Minute }
	w, e := run(t, west, long), run(t, east, long)
	for _, name := range names {
		awaitImport(t, east, ns, name, "10.21.0.1 10.22.0.1")
	}
	w.stop()
	delRecords := clusters.Broker.Dynamic().Resource(records).Namespace(west.BrokerNamespace())
	if err := delRecords.Delete(t.Context(), single+"."+ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitImport(t, east, ns, single, "10.21.0.1")
	e.awaitMetric("frozen", "lost_records", 0)
	inEast := undisturbed(t, east, ns)
	askEast := resolve(t, east, ns, names[0], "10.21.0.1", "10.22.0.1")
	if err := delRecords.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	e.awaitMetric("frozen", "lost_records", 1)
	run(t, west, long)
	e.awaitMetric("frozen", "lost_records", 0)
	for _, name := range names[:len(names)-1] {
		awaitImport(t, east, ns, name, "10.21.0.1 10.22.0.1")
	}
	askEast.end("F23")
	inEast()
}
