package faults

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/test/harness/series"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A member loses the right to read its EndpointSlices. Its heartbeat is blind: for the others it is silent at once,
// what only it serves, headless too, is a last resort, and its endpoints are back when it sees them again and has
// written them (docs/spec/controller.md 8.1, docs/spec/controller.md 8.2).
func TestMemberIsBlind(t *testing.T) {
	const ns = "blind"
	export(t, east, ns, "web", "10.21.0.1")
	alone := testclusterset.Headless(ns, "alone", testclusterset.Port("http", 80))
	east.Put(t, alone, testclusterset.Slice(alone, "alone-east", testclusterset.Endpoint{Address: "10.21.0.9"}),
		testclusterset.Export(ns, "alone"))
	export(t, west, ns, "web", "10.22.0.1")
	e, w := run(t, east), run(t, west)
	awaitImport(t, west, ns, "web", "10.21.0.1 10.22.0.1")
	west.Put(t, testclusterset.Namespace(ns))
	awaitImport(t, west, ns, "alone", "10.21.0.9")
	w.awaitHeartbeat("east")
	ofWest, ofAlone := undisturbed(t, west, ns, "west"), steady(t, west, ns, "alone")

	restore := revoke(t, east, "endpointslices")
	defer restore()
	east.KillAPIServer() // watches that are open would go on
	if err := east.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitImport(t, west, ns, "web", "10.22.0.1")
	e.awaitMetric("frozen", "blind", 1)
	checkImport(t, west, ns, "alone", "10.21.0.9")
	servers["west"].Answers(t, "alone."+ns, dns.TypeA, answer("10.21.0.9"))
	serve(t, east, ns, "web", "10.21.0.2")
	returned := countChanges(t, west, ns, "east")
	restore()
	awaitImport(t, west, ns, "web", "10.21.0.2 10.22.0.1")
	if c := returned(); c.added != 1 {
		t.Errorf("%d slices of east were added, want one, with the endpoint of after the silence", c.added)
	}
	e.awaitMetric("frozen", "blind", 0)
	checkImport(t, west, ns, "alone", "10.21.0.9")

	t.Run("without its API server", func(t *testing.T) { // for longer than the TTL
		tier.Nightly(t)
		east.KillAPIServer()
		awaitImport(t, west, ns, "web", "10.22.0.1")
		checkImport(t, west, ns, "alone", "10.21.0.9")
		servers["west"].Answers(t, "alone."+ns, dns.TypeA, answer("10.21.0.9"))
		if err := east.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		serve(t, east, ns, "web", "10.21.0.3")
		east.Put(t, testclusterset.Slice(alone, "alone-east", testclusterset.Endpoint{Address: "10.21.0.8"}))
		awaitImport(t, west, ns, "web", "10.21.0.3 10.22.0.1")
		awaitImport(t, west, ns, "alone", "10.21.0.8")
		servers["west"].Answers(t, "alone."+ns, dns.TypeA, answer("10.21.0.8"))
	})
	ofWest()
	ofAlone()
}

// A member is blind every other moment. It is imported again ever more seldom (docs/spec/controller.md 8.2).
func TestBlindFlaps(t *testing.T) {
	tier.Nightly(t)
	const ns, ttls = "blind-flaps", 3
	export(t, west, ns, "web", "10.22.0.1")
	w := run(t, west)
	fake := newFakeMember(t, "blinking", "b1", ns, "web", "10.30.0.31")
	if err := heartbeat(t.Context(), fake.namespace, fake.id, time.Now()); err != nil {
		t.Fatal(err)
	}
	awaitImport(t, west, ns, "web", "10.22.0.1 10.30.0.31")
	w.awaitHeartbeat(fake.id)
	imported := countChanges(t, west, ns, fake.id)
	begin := time.Now()
	for n := 0; time.Since(begin) < ttls*ttl; n++ {
		if err := heartbeat(t.Context(), fake.namespace, fake.id, time.Now(), []string{"", "Service"}[n%2]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(renew)
	}
	elapsed := time.Since(begin)
	if err := heartbeat(t.Context(), fake.namespace, fake.id, time.Now(), "Service"); err != nil {
		t.Fatal(err)
	}
	awaitImport(t, west, ns, "web", "10.22.0.1")
	if c := imported(); c.added > int(elapsed/ttl)+1 || c.deleted == 0 {
		t.Errorf("its slices were added %d times in %s and deleted %d times, want at most once in a TTL of %s", c.added,
			elapsed, c.deleted, ttl)
	}
}

// revoke takes the rights to list and to watch a resource off the controller of a member, until restore is called.
func revoke(t *testing.T, m *testclusterset.Member, resource string) (restore func()) {
	t.Helper()
	roles := m.Dynamic().Resource(schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1",
		Resource: "clusterroles"})
	object, err := roles.Get(t.Context(), "clusterset-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.ClusterRole
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
		t.Fatal(err)
	}
	update := func(role rbacv1.ClusterRole) {
		t.Helper()
		m.Put(t, &rbacv1.ClusterRole{
			TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
			ObjectMeta: metav1.ObjectMeta{Name: role.Name}, Rules: role.Rules,
		})
	}
	blind := *role.DeepCopy()
	for i, rule := range blind.Rules {
		if slices.Contains(rule.Resources, resource) {
			blind.Rules[i].Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs),
				func(v string) bool { return v == "list" || v == "watch" })
		}
	}
	update(blind)
	return func() { t.Helper(); update(role) }
}

// A member was away for longer than its TTL. The broker rejects one of its slices, or answers that with an error. The
// member returns with all other services; the old endpoint of this one is a last resort (docs/spec/controller.md 8.2).
func TestExportIsBehind(t *testing.T) {
	for _, tt := range []struct {
		name, namespace, why string
		nightly              bool
		deny                 func(t *testing.T, slices []string) (allow func())
	}{
		{name: "rejected", namespace: "behind", why: "no writes", deny: func(t *testing.T, slices []string) func() {
			denied := writesOf(endpoints.Group, endpoints.Resource)
			denied[0].ResourceNames = slices
			return denyWrites(t, "east", denied)
		}},
		{name: "failing webhook", nightly: true, namespace: "behind-webhook", why: "other clusters have an older state",
			deny: failWrites},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.nightly {
				tier.Nightly(t)
			}
			ns := tt.namespace
			for _, name := range []string{"web", "stuck"} {
				export(t, east, ns, name, "10.21.0.1")
				export(t, west, ns, name, "10.22.0.1")
			}
			export(t, east, ns, "stuck-alone", "10.21.0.1")
			west.Put(t, testclusterset.Namespace(ns))
			e, w := run(t, east), run(t, west)
			for _, name := range []string{"web", "stuck"} {
				awaitImport(t, west, ns, name, "10.21.0.1 10.22.0.1")
			}
			awaitImport(t, west, ns, "stuck-alone", "10.21.0.1")
			w.awaitHeartbeat("east")
			allow := tt.deny(t, append(slicesOf(t, east, "stuck"), slicesOf(t, east, "stuck-alone")...))
			e.stop()
			for _, name := range []string{"web", "stuck"} {
				awaitImport(t, west, ns, name, "10.22.0.1")
			}
			for _, name := range []string{"web", "stuck", "stuck-alone"} {
				serve(t, east, ns, name, "10.21.0.2")
			}
			ended := watchesEnded(t, records.Resource)
			run(t, east)
			awaitImport(t, west, ns, "web", "10.21.0.2 10.22.0.1")
			awaitBehind(t, east, ns, "stuck", tt.why)
			awaitBehind(t, east, ns, "stuck-alone", tt.why)
			awaitRenewals(t, ttl)
			if n := watchesEnded(t, records.Resource) - ended; n > 3 {
				t.Errorf("%g watches of records ended, want that they go on beside a request that fails", n)
			}
			checkImport(t, west, ns, "stuck", "10.22.0.1")
			checkImport(t, west, ns, "stuck-alone", "10.21.0.1")
			allow()
			awaitImport(t, west, ns, "stuck", "10.21.0.2 10.22.0.1")
			awaitImport(t, west, ns, "stuck-alone", "10.21.0.2")
		})
	}
}

// failWrites makes the broker answer writes of these slices with status 500, until allow is called: a webhook that has
// to admit them cannot be reached.
func failWrites(t *testing.T, names []string) (allow func()) {
	t.Helper()
	webhook := &admissionv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: "unreachable"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "unreachable.clusterset-dns.io", ClientConfig: admissionv1.WebhookClientConfig{URL: new(
				"https://127.0.0.1:1/")},
			Rules: []admissionv1.RuleWithOperations{writesOf(endpoints.Group, endpoints.Resource)[0].RuleWithOperations},
			MatchConditions: []admissionv1.MatchCondition{{
				Name: "names", Expression: "request.name in ['" + strings.Join(names, "', '") + "']",
			}},
			SideEffects: new(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}
	if err := clusters.Broker.Apply(t.Context(), webhook); err != nil {
		t.Fatal(err)
	}
	allow = sync.OnceFunc(func() {
		if err := clusters.Broker.Delete(context.WithoutCancel(t.Context()), webhook); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(allow)
	return allow
}

// watchesEnded returns how many watches of a resource the broker has ended.
func watchesEnded(t *testing.T, resource string) float64 {
	t.Helper()
	all, err := series.OfAPIServer(t.Context(), clusters.Broker.Config())
	if err != nil {
		t.Fatal(err)
	}
	return all.Named("apiserver_request_total").With("resource", resource).With("verb", "WATCH").Sum()
}

// slicesOf returns the names of the slices of a service that a member has on the broker.
func slicesOf(t *testing.T, m *testclusterset.Member, service string) (names []string) {
	t.Helper()
	until.OK(t, "slices of "+service, func(ctx context.Context) error {
		list, err := clusters.Broker.Dynamic().Resource(endpoints).Namespace(m.BrokerNamespace()).
			List(ctx, metav1.ListOptions{LabelSelector: mcsv1beta1.LabelServiceName + "=" + service})
		if err != nil {
			return err
		}
		for _, s := range list.Items {
			names = append(names, s.GetName())
		}
		return nil
	})
	return names
}
