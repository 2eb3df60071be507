// Package security tests what a member can do to the others: a malicious member that writes what it may not, or floods
// the broker, and members whose credential expires or is revoked.
package security

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/series"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// The resources that the tests read.
var (
	imports = schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1beta1",
		Resource: "serviceimports"}
	exported    = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	joined      = schema.GroupVersionResource{Group: "broker.clusterset-dns.io", Version: "v1alpha1", Resource: "members"}
	inventories = schema.GroupVersionResource{Group: "broker.clusterset-dns.io", Version: "v1alpha1",
		Resource: "inventories"}
	records = schema.GroupVersionResource{Group: "broker.clusterset-dns.io", Version: "v1alpha1",
		Resource: "exportedservices"}
	services = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	accounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	secrets  = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// shared is the clusterset of all tests: two honest members that are joined, east and west, and mallory, the malicious
// one. The broker serves few requests at a time, so that mallory can flood it.
var shared struct {
	once       sync.Once
	quotas     sync.Once // starts what enforces quotas on the broker
	clusterset *testclusterset.Clusterset
	err        error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.clusterset != nil {
		if err := shared.clusterset.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// start returns the clusterset. mallory is not a member when a test begins, also if an earlier test has let her join:
// no claim of hers counts as older than her join (docs/spec/controller.md 4.2), so a test in which she has to come
// later exports first.
func start(t *testing.T) *testclusterset.Clusterset {
	t.Helper()
	shared.once.Do(func() {
		shared.clusterset, shared.err = testclusterset.Start(context.Background(), testclusterset.Options{
			IDs: []string{"east", "west", "mallory"},
			Broker: controlplane.Options{
				APIServerArgs: []string{"--max-requests-inflight=20", "--max-mutating-requests-inflight=10"},
			},
		})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	for _, m := range shared.clusterset.Members[:2] {
		joinMember(t, m, func(o *join.Options) { o.VIPCIDR = join.VIPAuto })
	}
	_, _, mallory := members(shared.clusterset)
	_, err := shared.clusterset.Broker.Dynamic().Resource(joined).Get(t.Context(), mallory.ID, metav1.GetOptions{})
	switch {
	case err == nil:
		mallory.Leave(t)
	case !apierrors.IsNotFound(err):
		t.Fatal(err)
	}
	return shared.clusterset
}

func members(f *testclusterset.Clusterset) (east, west, mallory *testclusterset.Member) {
	return f.Members[0], f.Members[1], f.Members[2]
}

func joinMember(t *testing.T, m *testclusterset.Member, change ...func(*join.Options)) {
	t.Helper()
	defer shared.clusterset.Broker.EndNamespacesT(t)() // of a mallory that left
	if _, err := m.Join(t.Context(), change...); err != nil {
		t.Fatalf("join %s: %v", m.ID, err)
	}
}

// A member is an honest member with a controller and its metrics.
type member struct {
	*testclusterset.Member
	metrics *prometheus.Registry
}

func run(t *testing.T, m *testclusterset.Member, change ...func(*controller.Config)) member {
	t.Helper()
	v := member{m, prometheus.NewRegistry()}
	m.Run(t, append([]func(*controller.Config){func(c *controller.Config) {
		c.Metrics = controller.NewMetrics(v.metrics)
	}}, change...)...)
	return v
}

// metric returns the sum of a metric of the controller over all series with the label value; 0 if there is none.
func (v member) metric(t *testing.T, name, label string) float64 {
	t.Helper()
	all, err := series.Gather(v.metrics)
	if err != nil {
		t.Fatal(err)
	}
	return all.Named(series.Controller + name).Of(label).Sum()
}

// rejections returns how many objects the member has rejected for the reason.
func (v member) rejections(t *testing.T, reason string) float64 {
	t.Helper()
	return v.metric(t, "rejected_objects_total", reason)
}

// exportService makes a member export a service with one endpoint.
func exportService(t *testing.T, m *testclusterset.Member, namespace, name, address string) {
	t.Helper()
	s := testclusterset.Service(namespace, name, testclusterset.Port("http", 80))
	m.Put(t, s, testclusterset.Slice(s, name+"-1", testclusterset.Endpoint{Address: address}),
		testclusterset.Export(namespace, name))
}

// imported waits until a member has imported the addresses, sorted, for the service, and the import is ready.
func imported(t *testing.T, m *testclusterset.Member, namespace, name string, want ...string) {
	t.Helper()
	until.OK(t, fmt.Sprintf("%s imports %s/%s", m.ID, namespace, name), func(ctx context.Context) error {
		imp, err := m.Import(ctx, namespace, name)
		if err != nil {
			return err
		}
		got, err := addresses(ctx, m, namespace, name)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("addresses %v, want %v", got, want)
		}
		if err != nil {
			return err
		}
		return testclusterset.Condition(imp.Status.Conditions, "Ready=True/Ready")
	})
}

func addresses(ctx context.Context, m *testclusterset.Member, namespace, name string) ([]string, error) {
	all, err := m.Imported(ctx, namespace, name)
	var found []string
	for _, s := range all {
		for _, e := range s.Endpoints {
			found = append(found, e.Addresses...)
		}
	}
	slices.Sort(found)
	return found, err
}

// versions returns UID and version of all objects of the resources outside of one namespace, by resource, namespace and
// name.
func versions(t *testing.T, c *controlplane.ControlPlane, besides string,
	resources ...schema.GroupVersionResource) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for _, r := range resources {
		list, err := c.Dynamic().Resource(r).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			if o.GetNamespace() != besides {
				key := r.Resource + " " + o.GetNamespace() + "/" + o.GetName()
				found[key] = string(o.GetUID()) + " " + o.GetResourceVersion()
			}
		}
	}
	return found
}

// importedVersions returns the versions of all that a member has imported, except the marks.
func importedVersions(t *testing.T, m *testclusterset.Member) map[string]string {
	t.Helper()
	return versions(t, m.ControlPlane, marks, imports, exported, services)
}

// compare fails the test for each difference between was and is.
func compare(t *testing.T, what string, was, is map[string]string) {
	t.Helper()
	for key, version := range was {
		if is[key] == "" {
			t.Errorf("%s: %s is gone", what, key)
		} else if is[key] != version {
			t.Errorf("%s: %s was changed", what, key)
		}
	}
	for key := range is {
		if was[key] == "" {
			t.Errorf("%s: %s was created", what, key)
		}
	}
}

// marks is the namespace of the services that mark changes.
const marks = "marks"

// marksMade counts the marks, each of which needs addresses of its own.
var marksMade int

// mark changes an endpoint of a service in both honest members and waits until the other one has imported it: by then
// both have handled all that was written before.
func mark(t *testing.T, a, b *testclusterset.Member) {
	t.Helper()
	marksMade++
	n := marksMade
	pair := []*testclusterset.Member{a, b}
	for _, m := range pair {
		m.Put(t, testclusterset.Namespace(marks))
	}
	for _, m := range pair {
		exportService(t, m, marks, "from-"+m.ID, m.PodIP(n, corev1.IPv4Protocol))
	}
	for i, m := range pair {
		imported(t, pair[1-i], marks, "from-"+m.ID, m.PodIP(n, corev1.IPv4Protocol))
	}
}
