package faults

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// One of many exports is withdrawn. It takes effect at once, but for DNS (docs/spec/controller.md 3.2,
// docs/spec/controller.md 8.6, docs/spec/dns.md 6.9), and the others stay. docs/controller.md has the times that are
// measured here.
func TestUnexport(t *testing.T) {
	const ns = "unexport"
	var names []string
	for i := range apiserver.WithholdFrom {
		names = append(names, fmt.Sprintf("web-%d", i))
		export(t, east, ns, names[i], fmt.Sprintf("10.21.2.%d", i))
	}
	west.Put(t, testclusterset.Namespace(ns))
	run(t, east)
	run(t, west)
	for i, name := range names {
		awaitImport(t, west, ns, name, fmt.Sprintf("10.21.2.%d", i))
	}
	inWest := steady(t, west, ns, names[1:]...)
	other := resolve(t, west, ns, names[1], "10.21.2.1", "none")
	servers[west.ID].Answers(t, "east."+names[0]+"."+ns, dns.TypeA, "NOERROR 10.21.2.0")

	begin := time.Now()
	east.Drop(t, testclusterset.Export(ns, names[0]))
	awaitRecord(t, east, ns, names[0], false)
	withdrawn := time.Since(begin)
	awaitImport(t, west, ns, names[0], "none")
	removed := time.Since(begin)
	servers[west.ID].Answers(t, names[0]+"."+ns, dns.TypeA, "NXDOMAIN")
	outages.Measured(
		t, "F23",
		"one of many exports deleted: withdrawn after %.1f s, import removed after %.1f s, no longer answered after %.1f s",
		withdrawn.Seconds(), removed.Seconds(), time.Since(begin).Seconds())
	other.end("F23")
	inWest()
}

// A thousand exports of a namespace end at once. Other members lose the endpoints of each before its import, and all of
// them (docs/spec/controller.md 3.2).
func TestThousandUnexports(t *testing.T) {
	tier.Nightly(t)
	const ns, n = "thousand", 1000
	east.Put(t, testclusterset.Namespace(ns))
	west.Put(t, testclusterset.Namespace(ns))
	var applying errgroup.Group
	applying.SetLimit(8)
	for i := range n {
		applying.Go(func() error {
			service := testclusterset.Service(ns, fmt.Sprintf("web-%d", i), testclusterset.Port("http", 80))
			slice := testclusterset.Slice(service, service.Name,
				testclusterset.Endpoint{Address: fmt.Sprintf("10.21.%d.%d", 4+i/250, 1+i%250)})
			return east.Apply(t.Context(), service, slice, testclusterset.Export(ns, service.Name))
		})
	}
	if err := applying.Wait(); err != nil {
		t.Fatal(err)
	}
	long := func(c *controller.Config) { c.TTL = time.Minute }
	run(t, east, long)
	run(t, west, long)
	inWest := west.Dynamic()
	// await waits until west has so many objects of a kind.
	await := func(kind schema.GroupVersionResource, want int) (version string) {
		t.Helper()
		until.OK(t, fmt.Sprintf("%d %s", want, kind.Resource), func(ctx context.Context) error {
			list, err := inWest.Resource(kind).Namespace(ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			if version = list.GetResourceVersion(); len(list.Items) != want {
				return fmt.Errorf("%d", len(list.Items))
			}
			return nil
		})
		return version
	}
	await(imports, n)
	version := await(endpoints, n)
	slices, gone := deletions(t, endpoints, ns, version, n), deletions(t, imports, ns, version, n)
	begin := time.Now()
	until.OK(t, "the end of all exports", func(ctx context.Context) error { // a request may take no longer than a minute
		return east.Dynamic().Resource(exports).Namespace(ns).DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{})
	})
	await(endpoints, 0)
	removed := time.Since(begin)
	await(imports, 0)
	outages.Measured(
		t, "F23", "%d exports deleted at once: the last endpoint removed after %.1f s, the last import after %.1f s", n,
		removed.Seconds(), time.Since(begin).Seconds())
	endpointsAt, importAt := <-slices, <-gone
	for service, at := range importAt {
		if first := endpointsAt[service]; first == 0 || first > at {
			t.Errorf("%s: the import went at version %d, the slice at %d, want the slice first", service, at, first)
		}
	}
	if len(importAt) != n {
		t.Errorf("the watch saw %d imports go, want %d", len(importAt), n)
	}
}

// deletions watches a kind in west from a version on. It sends the versions of the first n deletions, by the name of
// the service.
func deletions(t *testing.T, kind schema.GroupVersionResource, namespace, from string, n int) <-chan map[string]uint64 {
	t.Helper()
	w, err := west.Dynamic().Resource(kind).Namespace(namespace).Watch(t.Context(),
		metav1.ListOptions{ResourceVersion: from})
	if err != nil {
		t.Fatal(err)
	}
	found := make(chan map[string]uint64, 1)
	go func() {
		defer w.Stop()
		all := make(map[string]uint64)
		for event := range w.ResultChan() {
			if o, ok := event.Object.(*unstructured.Unstructured); ok && event.Type == watch.Deleted {
				all[cmp.Or(o.GetLabels()[mcsv1beta1.LabelServiceName],
					o.GetName())] = apiserver.VersionNumber(o.GetResourceVersion())
			}
			if len(all) == n {
				break
			}
		}
		found <- all
	}()
	return found
}
