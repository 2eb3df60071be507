package faults

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

// The link of a member to the broker is up for a second and down for the next one. Whether its heartbeats get through or not, answers do not oscillate:
// they change at most once in a TTL (docs/spec/controller.md 8.2), and are right when the link is.
func TestLinkFlaps(t *testing.T) {
	tier.All(t)
	const ns, ttls = "flaps", 3
	link := newRelay(t, strings.TrimPrefix(clusters.Broker.Config().Host, "https://"))
	export(t, east, ns, "web", "10.21.0.1")
	export(t, west, ns, "web", "10.22.0.1")
	e := run(t, east, func(c *controller.Config) { c.Broker = via(t, c.Broker, link.url(), nil) })
	w := run(t, west)
	for _, m := range clusters.Members {
		awaitImport(t, m, ns, "web", "10.21.0.1 10.22.0.1")
	}
	e.awaitHeartbeat("west")
	w.awaitHeartbeat("east")
	inEast, inWest := countChanges(t, east, ns, "east", "west"), countChanges(t, west, ns, "east", "west")
	askEast, askWest := resolveBoth(t, ns, "web")
	// Once away and back is all that fits between two right states.
	askEast.change("west", "none")
	askEast.change("west", "10.22.0.1")
	askWest.change("east", "none")
	askWest.change("east", "10.21.0.1")

	for begin := time.Now(); time.Since(begin) < ttls*ttl; {
		link.sever()
		time.Sleep(time.Second)
		link.mend()
		time.Sleep(time.Second)
	}
	e.awaitMetric("broker_connected", "", 1)
	for _, m := range clusters.Members {
		awaitImport(t, m, ns, "web", "10.21.0.1 10.22.0.1")
	}
	for m, c := range map[string]changes{"east": inEast(), "west": inWest()} {
		if n := c.added + c.deleted; n > ttls {
			t.Errorf("slices in %s were %d times added and %d times deleted in %d TTLs, want one change in a TTL at most", m, c.added, c.deleted, ttls)
		}
		outages.Measured(t, "F12", "%d changes of slices in %s in %d TTLs", c.added+c.deleted, m, ttls)
	}
	askEast.finish("F12")
	askWest.finish("F12")
	serve(t, east, ns, "web", "10.21.0.2")
	awaitImport(t, west, ns, "web", "10.21.0.2 10.22.0.1")
}

// changes are how often slices of an import came and went.
type changes struct{ added, deleted int }

// countChanges watches the slices that a member imports of some clusters. count ends that and returns what changed since.
func countChanges(t testing.TB, m *testclusterset.Member, namespace string, of ...string) (count func() changes) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	slices := m.Dynamic().Resource(endpoints).Namespace(namespace)
	options := metav1.ListOptions{LabelSelector: mcsv1beta1.LabelSourceCluster + " in (" + strings.Join(of, ",") + ")"}
	list, err := slices.List(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	options.ResourceVersion = list.GetResourceVersion() // a watch without one begins with what there is
	w, err := slices.Watch(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	counted := make(chan changes, 1)
	go func() {
		var c changes
		for event := range w.ResultChan() {
			switch event.Type {
			case watch.Added:
				c.added++
			case watch.Deleted:
				c.deleted++
			}
		}
		counted <- c
	}()
	return func() changes {
		cancel()
		w.Stop()
		return <-counted
	}
}
