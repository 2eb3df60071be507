package faults

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/controller"
)

// All records of a member are deleted at once while a controller watches, as when somebody deletes their definition. It does
// not act on that, and nothing flickers; one record is believed to be gone at once.
func TestRecordsAreDeleted(t *testing.T) {
	const ns = "bulk"
	names := strings.Split("abcdefghijkl", "") // one, and more than are believed
	for _, name := range names {
		export(t, east, ns, name, "10.21.0.1")
		export(t, west, ns, name, "10.22.0.1")
	}
	long := func(c *controller.Config) { c.TTL = time.Minute }
	w, e := run(t, west, long), run(t, east, long)
	for _, name := range names {
		sees(t, east, ns, name, "10.21.0.1 10.22.0.1")
	}
	w.stop()
	delRecords := clusters.Broker.Dynamic().Resource(records).Namespace(west.BrokerNamespace())
	if err := delRecords.Delete(t.Context(), "l."+ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	sees(t, east, ns, "l", "10.21.0.1")
	e.shows("frozen", "lost_records", 0)
	inEast := undisturbed(t, east, ns)
	if err := delRecords.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	e.shows("frozen", "lost_records", 1)
	run(t, west, long)
	e.shows("frozen", "lost_records", 0)
	for _, name := range names[:len(names)-1] {
		sees(t, east, ns, name, "10.21.0.1 10.22.0.1")
	}
	inEast()
}
