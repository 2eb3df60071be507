package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// The link of a member to the broker is up for a second and down for the next one. Whether its heartbeats get through
// or not, answers do not oscillate: they change at most once in a TTL (docs/spec/controller.md 8.2), and are right when
// the link is.
func TestLinkFlaps(t *testing.T) {
	tier.Nightly(t)
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
			t.Errorf("slices in %s were %d times added and %d times deleted in %d TTLs, want one change in a TTL at most", m,
				c.added, c.deleted, ttls)
		}
		outages.Measured(t, "F12", "%d changes of slices in %s in %d TTLs", c.added+c.deleted, m, ttls)
	}
	askEast.finish("F12")
	askWest.finish("F12")
	serve(t, east, ns, "web", "10.21.0.2")
	awaitImport(t, west, ns, "web", "10.21.0.2 10.22.0.1")
}

// A tenant makes and ends exports as fast as it can. Others do not import all of them each time. Exports of another
// tenant begin and end there meanwhile (docs/spec/controller.md 8.6, docs/spec/controller.md 9.6,
// docs/spec/controller.md 10.3).
func TestTenantFlapsExports(t *testing.T) {
	tier.Nightly(t)
	const ns, other, n = "flapping", "beside-flapping", 20
	name := func(i int) string { return fmt.Sprintf("web-%d-%s", i, strings.Repeat("long", 10)) }
	for i := range n {
		export(t, east, ns, name(i), fmt.Sprintf("10.21.3.%d", i))
	}
	for _, name := range []string{"web", "ended"} {
		export(t, east, other, name, "10.21.0.1")
	}
	west.Put(t, testclusterset.Namespace(ns), testclusterset.Namespace(other))
	run(t, east)
	w := run(t, west)
	for _, name := range []string{"web", "ended"} {
		awaitImport(t, west, other, name, "10.21.0.1")
	}
	inWest, imported, begin := steady(t, west, other, "web"), countChangesOf(t, west, imports, ns, ""), time.Now()
	ctx, stop := context.WithCancel(t.Context())
	var tenant sync.WaitGroup
	tenant.Go(func() {
		for i := 0; ctx.Err() == nil; i = (i + 1) % n {
			// Each is gone for as long as the others take, so that others see it. Errors are those of the end.
			_ = east.Apply(ctx, testclusterset.Export(ns, name(i)))
			_ = east.Delete(ctx, testclusterset.Export(ns, name((i+n/2)%n)))
		}
	})
	until.OK(t, "exports that wait for their turn", func(context.Context) error {
		waiting, err := w.metric("rejected_objects_total", "limit")
		if err == nil && waiting == 0 {
			err = errors.New("none")
		}
		return err
	})
	east.Drop(t, testclusterset.Export(other, "ended"))
	awaitImport(t, west, other, "ended", "none")
	serve(t, east, other, "web", "10.21.0.2")
	awaitImport(t, west, other, "web", "10.21.0.2")
	stop()
	tenant.Wait()
	for i := range n {
		east.Put(t, testclusterset.Export(ns, name(i)))
	}
	for i := range n {
		awaitImport(t, west, ns, name(i), fmt.Sprintf("10.21.3.%d", i))
	}
	list, err := clusters.Broker.Dynamic().Resource(records).Namespace(east.BrokerNamespace()).List(t.Context(),
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// 100 more than twice its records, twice those that it ended and made again meanwhile, and one in a second.
	if got, most := imported().added, 100+2*(len(list.Items)+n)+int(time.Since(begin).Seconds())+1; got > most {
		t.Errorf("exports of the tenant were imported %d times, want at most %d", got, most)
	}
	inWest()
}

// changes are how often objects came and went.
type changes struct{ added, deleted int }

// countChanges watches the slices that a member imports of some clusters. count ends that and returns what changed
// since.
func countChanges(t testing.TB, m *testclusterset.Member, namespace string, of ...string) (count func() changes) {
	t.Helper()
	return countChangesOf(t, m, endpoints, namespace, mcsv1beta1.LabelSourceCluster+" in ("+strings.Join(of, ",")+")")
}

// countChangesOf watches the objects of a kind in a namespace, like countChanges.
func countChangesOf(t testing.TB, m *testclusterset.Member, resource schema.GroupVersionResource, namespace,
	selector string) (count func() changes) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	objects, options := m.Dynamic().Resource(resource).Namespace(namespace), metav1.ListOptions{LabelSelector: selector}
	list, err := objects.List(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	options.ResourceVersion = list.GetResourceVersion() // a watch without one begins with what there is
	w, err := objects.Watch(ctx, options)
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
