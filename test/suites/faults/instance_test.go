package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/series"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// An instance is a running controller of a member.
type instance struct {
	*testclusterset.Member
	t       testing.TB
	metrics *prometheus.Registry
	stop    func() // returns when it has ended
}

// run runs a controller until the test ends.
func run(t testing.TB, m *testclusterset.Member, change ...func(*controller.Config)) *instance {
	t.Helper()
	i := &instance{Member: m, t: t, metrics: prometheus.NewRegistry()}
	i.stop = m.Run(t, func(c *controller.Config) {
		c.Metrics = controller.NewMetrics(i.metrics)
		c.Renew, c.TTL = renew, ttl
		for _, to := range change {
			to(c)
		}
	})
	return i
}

// metric returns the value of a metric of the controller. label is the value of a label, "" if it has none.
func (i *instance) metric(name, label string) (float64, error) {
	all, err := series.Gather(i.metrics)
	if err != nil {
		return 0, err
	}
	found := all.Named(series.Controller + name).Of(label)
	if len(found) == 0 {
		return 0, fmt.Errorf("no metric %s{%s}", name, label)
	}
	return found.Sum(), nil
}

// awaitMetric waits until a metric has a value.
func (i *instance) awaitMetric(name, label string, want float64) {
	i.t.Helper()
	until.OK(i.t, fmt.Sprintf("%s: metric %s %s", i.ID, name, label), func(context.Context) error {
		got, err := i.metric(name, label)
		if err == nil && got != want {
			err = fmt.Errorf("%v, want %v", got, want)
		}
		return err
	})
}

// awaitKept waits until at least so many services stay imported from a cluster although the broker lost something.
func (i *instance) awaitKept(cluster string, least int) {
	i.t.Helper()
	until.OK(i.t, fmt.Sprintf("%s: %d kept imports of %s", i.ID, least, cluster), func(context.Context) error {
		got, err := i.metric("kept_imports", cluster)
		if err == nil && got < float64(least) {
			err = fmt.Errorf("%v", got)
		}
		return err
	})
}

// awaitHeartbeat waits until this instance knows the heartbeat of a member.
func (i *instance) awaitHeartbeat(cluster string) {
	i.t.Helper()
	until.OK(i.t, fmt.Sprintf("%s: heartbeat of %s", i.ID, cluster), func(context.Context) error {
		_, err := i.metric("lease_age_seconds", cluster)
		return err
	})
}

// awaitSilence waits until this instance has seen no heartbeat of a member for longer than the TTL.
func (i *instance) awaitSilence(cluster string) {
	i.t.Helper()
	until.OK(i.t, fmt.Sprintf("%s: silence of %s", i.ID, cluster), func(context.Context) error {
		age, err := i.metric("lease_age_seconds", cluster)
		if err == nil && age <= 1.5*ttl.Seconds() {
			err = fmt.Errorf("%v s, want more than 1.5 TTL", age)
		}
		return err
	})
}

// export makes a member export a service with endpoints.
func export(t testing.TB, m *testclusterset.Member, namespace, name string, addresses ...string) {
	t.Helper()
	m.Put(t, testclusterset.Namespace(namespace), testclusterset.Service(namespace, name, testclusterset.Port("http", 80)))
	serve(t, m, namespace, name, addresses...)
	m.Put(t, testclusterset.Export(namespace, name))
}

// serve sets the endpoints of a service in a member.
func serve(t testing.TB, m *testclusterset.Member, namespace, name string, addresses ...string) {
	t.Helper()
	var endpoints []testclusterset.Endpoint
	for _, a := range addresses {
		endpoints = append(endpoints, testclusterset.Endpoint{Address: a})
	}
	m.Put(t, testclusterset.Slice(testclusterset.Service(namespace, name, testclusterset.Port("http", 80)), name+"-"+m.ID,
		endpoints...))
}

// imported returns the addresses of an import, sorted, "none" if there is no import.
func imported(ctx context.Context, m *testclusterset.Member, namespace, name string) (string, error) {
	imp, err := m.Import(ctx, namespace, name)
	if testclusterset.Gone(imp, err) == nil {
		return "none", nil
	}
	if err != nil {
		return "", err
	}
	imported, err := m.Imported(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	var addresses []string
	for _, s := range imported {
		for _, e := range s.Endpoints {
			addresses = append(addresses, e.Addresses...)
		}
	}
	slices.Sort(addresses)
	return strings.Join(addresses, " "), nil
}

// awaitImport waits until the import of a service in a member has those addresses.
func awaitImport(t testing.TB, m *testclusterset.Member, namespace, name, want string) {
	t.Helper()
	until.OK(t, fmt.Sprintf("import %s/%s in %s", namespace, name, m.ID), func(ctx context.Context) error {
		got, err := imported(ctx, m, namespace, name)
		if err == nil && got != want {
			err = fmt.Errorf("%q, want %q", got, want)
		}
		return err
	})
}

// checkImport fails the test if the import of a service in a member does not have those addresses now.
func checkImport(t testing.TB, m *testclusterset.Member, namespace, name, want string) {
	t.Helper()
	if got, err := imported(t.Context(), m, namespace, name); err != nil || got != want {
		t.Errorf("import %s/%s in %s has %q (%v), want %q still", namespace, name, m.ID, got, err, want)
	}
}

var (
	imports = schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1beta1",
		Resource: "serviceimports"}
	exports = schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1beta1",
		Resource: "serviceexports"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	leases     = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	endpoints  = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	services   = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	records    = schema.GroupVersionResource{Group: "broker.clusterset-dns.io", Version: "v1alpha1",
		Resource: "exportedservices"}
)

// undisturbed watches the imports of a namespace and the imported slices; with clusters only the slices of these. check
// fails the test if an object was deleted, or a slice lost its last endpoint, in the meantime.
func undisturbed(t testing.TB, m *testclusterset.Member, namespace string, clusters ...string) (check func()) {
	t.Helper()
	slicesOf := mcsv1beta1.LabelSourceCluster
	if len(clusters) > 0 {
		slicesOf += " in (" + markCluster + "," + strings.Join(clusters, ",") + ")"
	}
	return watchLosses(t, m, namespace, slicesOf, func(*unstructured.Unstructured) bool { return true })
}

// steady is undisturbed for some services of a namespace.
func steady(t testing.TB, m *testclusterset.Member, namespace string, names ...string) (check func()) {
	t.Helper()
	return watchLosses(t, m, namespace, mcsv1beta1.LabelSourceCluster, func(o *unstructured.Unstructured) bool {
		name := o.GetName()
		if o.GetKind() == "EndpointSlice" {
			name = o.GetLabels()[mcsv1beta1.LabelServiceName]
		}
		return slices.Contains(names, name)
	})
}

// watchLosses watches the imports of a namespace and the slices of a selector. check fails the test if meanwhile an
// import that counts was deleted or got another clusterset IP, or a slice lost its last endpoint. It reads the watch up
// to a mark that it writes last.
func watchLosses(
	t testing.TB, m *testclusterset.Member, namespace, slicesOf string, counts func(*unstructured.Unstructured) bool,
) (check func()) {
	t.Helper()
	watches := losses{mark: fmt.Sprintf("%s%d", markPrefix, marksMade.Add(1)), counts: counts}
	lost := make(chan error, 2)
	for resource, selector := range map[schema.GroupVersionResource]string{imports: "", endpoints: slicesOf} {
		// Without a version a watch begins with all objects that there are now.
		w, err := m.Dynamic().Resource(resource).Namespace(namespace).Watch(t.Context(),
			metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			t.Fatal(err)
		}
		go func() { lost <- watches.until(w) }()
	}
	return func() {
		t.Helper()
		meta := metav1.ObjectMeta{Namespace: namespace, Name: watches.mark,
			Labels: map[string]string{mcsv1beta1.LabelSourceCluster: markCluster}}
		m.Put(t, &mcsv1beta1.ServiceImport{ObjectMeta: meta, Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.Headless, Ports: []mcsv1beta1.ServicePort{},
		}},
			&discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4})
		for range 2 {
			if err := <-lost; err != nil {
				t.Errorf("%s: %v", m.ID, err)
			}
		}
	}
}

// Marks are the objects at which a watch for losses ends. Each watch has its own.
const (
	markPrefix  = "last-object-"
	markCluster = "none"
)

var marksMade atomic.Int64

// losses are what a watch for them looks at.
type losses struct {
	mark   string
	counts func(*unstructured.Unstructured) bool
}

// until returns the losses until the mark comes.
func (l losses) until(w watch.Interface) (lost error) {
	defer w.Stop()
	ips := make(map[string][]string) // by import
	for {
		event, open := <-w.ResultChan()
		if !open {
			return errors.Join(lost, errors.New("the watch ended early"))
		}
		o, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		if o.GetName() == l.mark {
			return lost
		}
		if strings.HasPrefix(o.GetName(), markPrefix) || !l.counts(o) {
			continue
		}
		if now, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "ips"); o.GetKind() == "ServiceImport" {
			if was := ips[o.GetName()]; len(was) > 0 && !slices.Equal(now, was) {
				lost = errors.Join(lost, fmt.Errorf("import %s has IPs %q, had %q", o.GetName(), now, was))
			}
			ips[o.GetName()] = now
		}
		left, _, err := unstructured.NestedSlice(o.Object, "endpoints")
		switch {
		case event.Type == watch.Deleted:
			lost = errors.Join(lost, fmt.Errorf("%s %s was deleted", o.GetKind(), o.GetName()))
		case err == nil && o.GetKind() == "EndpointSlice" && len(left) == 0:
			lost = errors.Join(lost, fmt.Errorf("slice %s lost its endpoints", o.GetName()))
		}
	}
}
