package faults

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// While the broker is away, a member removes nothing, its own endpoints stay up to date, and conditions and metrics
// give the reason (docs/spec/controller.md 5, docs/spec/controller.md 8). When it is back, every member gets the
// changes of the meantime.
func TestBrokerIsAway(t *testing.T) {
	tier.Nightly(t)
	for _, tt := range []struct {
		name, namespace string
		away, back      func(t *testing.T)
		restart         bool // the controller starts while the broker is away
	}{
		{name: "down at start", namespace: "down", away: killBroker, back: startBroker, restart: true},
		{name: "lost", namespace: "lost", away: killBroker, back: startBroker},
		{name: "frozen", namespace: "frozen", away: freezeBroker, back: thawBroker},
	} {
		t.Run(tt.name, func(t *testing.T) {
			export(t, east, tt.namespace, "web", "10.21.0.1")
			export(t, west, tt.namespace, "web", "10.22.0.1")
			e, w := run(t, east), run(t, west)
			awaitImport(t, east, tt.namespace, "web", "10.21.0.1 10.22.0.1")
			awaitImport(t, west, tt.namespace, "web", "10.21.0.1 10.22.0.1")
			e.awaitHeartbeat("west")
			w.awaitHeartbeat("east")
			inEast, inWest := undisturbed(t, east, tt.namespace), undisturbed(t, west, tt.namespace)
			askEast, askWest := resolveBoth(t, tt.namespace, "web")
			if tt.restart {
				e.stop()
			}
			tt.away(t)
			back := false
			defer func() {
				if !back {
					tt.back(t)
				}
			}()
			if tt.restart {
				e = run(t, east)
				e.awaitMetric("frozen", "not_synced", 1)
			} else {
				e.awaitSilence("west")
			}
			w.awaitSilence("east")
			e.awaitMetric("broker_connected", "", 0)
			askEast.change("east", "10.21.0.2")
			serve(t, east, tt.namespace, "web", "10.21.0.2")
			awaitImport(t, east, tt.namespace, "web", "10.21.0.2 10.22.0.1")
			askEast.await()
			checkImport(t, west, tt.namespace, "web", "10.21.0.1 10.22.0.1")
			export(t, east, tt.namespace, "new", "10.21.0.3")
			awaitPending(t, east, tt.namespace, "new")

			askWest.change("east", "10.21.0.2")
			tt.back(t)
			back = true
			e.awaitMetric("broker_connected", "", 1)
			e.awaitMetric("frozen", "not_synced", 0)
			awaitImport(t, west, tt.namespace, "web", "10.21.0.2 10.22.0.1")
			awaitImport(t, west, tt.namespace, "new", "10.21.0.3")
			askEast.end("F10")
			askWest.end("F10")
			inEast()
			inWest()
		})
	}
}

// The broker has two API servers behind one address, over one etcd. One after the other is killed and comes back, while
// a member changes five times a second: changes go on, and no member removes anything.
func TestOneOfTwoAPIServers(t *testing.T) {
	tier.Nightly(t)
	const ns = "available"
	second, err := clusters.Broker.StartReplica(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(second.Kill)
	front := newRelay(t, strings.TrimPrefix(clusters.Broker.Config().Host, "https://"), second.Address())
	behind := func(c *controller.Config) { c.Broker = via(t, c.Broker, front.url(), nil) }
	export(t, east, ns, "web", "10.21.0.1")
	export(t, west, ns, "web", "10.22.0.1")
	e, w := run(t, east, behind), run(t, west, behind)
	for _, m := range clusters.Members {
		awaitImport(t, m, ns, "web", "10.21.0.1 10.22.0.1")
	}
	e.awaitHeartbeat("west")
	w.awaitHeartbeat("east")
	inEast, inWest := undisturbed(t, east, ns), undisturbed(t, west, ns)
	askEast, askWest := resolveBoth(t, ns, "web")
	often := keepChanging(t, ns, 200*time.Millisecond)
	connected := func() {
		t.Helper()
		often.await(40)
		for _, i := range []*instance{e, w} {
			i.awaitMetric("broker_connected", "", 1)
		}
	}
	connected()
	killBroker(t)
	defer startBroker(t)
	connected()
	startBroker(t)
	connected()
	second.Kill()
	connected()
	made, median, p99 := often.end()
	outages.Took(t, "F35", p99, 5*time.Second, fmt.Sprintf(
		"p99 until %d exports and changes of endpoints were answered, half of them in %.2g s", made, median.Seconds()))
	askEast.end("F35")
	askWest.end("F35")
	inEast()
	inWest()
}

// The broker can be read and takes no writes, or not those of one kind. Nothing is withdrawn, be there two members, but
// an export that is behind is a last resort. Without heartbeats the reason is given (docs/spec/controller.md 8.2,
// docs/spec/controller.md 8.3).
func TestBrokerTakesNoWrites(t *testing.T) {
	tier.Nightly(t)
	for _, tt := range []struct {
		name, namespace     string
		heartbeats, exports bool // what is written still
		denied              []admissionv1.NamedRuleWithOperations
	}{
		{name: "of any kind", namespace: "unwritable", denied: writesOf("*", "*/*")},
		{name: "of heartbeats", namespace: "unwritable-leases", exports: true,
			denied: writesOf(leases.Group, leases.Resource)},
		{name: "of exports", namespace: "unwritable-exports", heartbeats: true, denied: append(
			writesOf(records.Group, records.Resource), writesOf(endpoints.Group, endpoints.Resource)...)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := tt.namespace
			export(t, east, ns, "web", "10.21.0.1")
			export(t, west, ns, "web", "10.22.0.1")
			e, w := run(t, east), run(t, west)
			for _, m := range clusters.Members {
				awaitImport(t, m, ns, "web", "10.21.0.1 10.22.0.1")
			}
			e.awaitHeartbeat("west")
			w.awaitHeartbeat("east")
			inEast, inWest := undisturbed(t, east, ns), undisturbed(t, west, ns, "west")
			askEast, askWest := resolveBoth(t, ns, "web")
			allow := denyWrites(t, "", tt.denied)
			askEast.change("east", "10.21.0.2")
			if tt.heartbeats {
				askWest.change("east", "none")
			} else {
				askWest.change("east", "10.21.0.2")
			}
			if tt.heartbeats {
				awaitRenewals(t, ttl)
			} else {
				awaitOwnSilence(e, w)
			}
			serve(t, east, ns, "web", "10.21.0.2")
			awaitImport(t, east, ns, "web", "10.21.0.2 10.22.0.1")
			askEast.await()
			switch {
			case tt.exports:
				awaitImport(t, west, ns, "web", "10.21.0.2 10.22.0.1")
			case tt.heartbeats: // the inventory marks the export as behind
				awaitImport(t, west, ns, "web", "10.22.0.1")
				askWest.await()
				askWest.change("east", "10.21.0.2")
			default:
				checkImport(t, west, ns, "web", "10.21.0.1 10.22.0.1")
			}

			allow()
			e.awaitMetric("frozen", "own_heartbeat", 0)
			w.awaitMetric("frozen", "own_heartbeat", 0)
			awaitImport(t, west, ns, "web", "10.21.0.2 10.22.0.1")
			askEast.end("F11")
			askWest.end("F11")
			inEast()
			inWest()
		})
	}
}

// awaitOwnSilence waits until both instances know that no heartbeat comes back, and that the broker can be read.
func awaitOwnSilence(e, w *instance) {
	e.t.Helper()
	e.awaitSilence("west")
	w.awaitSilence("east")
	for _, i := range []*instance{e, w} {
		i.awaitMetric("frozen", "own_heartbeat", 1)
		i.awaitMetric("broker_connected", "", 1)
	}
}

// awaitRenewals waits until both members have renewed their heartbeats for so long.
func awaitRenewals(t *testing.T, d time.Duration) {
	t.Helper()
	begin := time.Now()
	for _, m := range clusters.Members {
		until.OK(t, "heartbeats of "+m.ID, func(ctx context.Context) error {
			lease, err := clusters.Broker.Dynamic().Resource(leases).Namespace(m.BrokerNamespace()).Get(ctx,
				broker.HeartbeatName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			text, _, _ := unstructured.NestedString(lease.Object, "spec", "renewTime")
			renewed, err := time.Parse(time.RFC3339, text)
			if err == nil && renewed.Sub(begin) < d {
				err = fmt.Errorf("renewed at %s, want %s after %s", renewed, d, begin)
			}
			return err
		})
	}
}

// The broker takes no writes of one member. That looks like a member that is dead: after the TTL the other removes its
// endpoints. It keeps what it had itself, and its own endpoints are current (docs/spec/controller.md 8.3).
func TestBrokerTakesWritesOfOne(t *testing.T) {
	tier.Nightly(t)
	const ns = "one-writes"
	export(t, east, ns, "web", "10.21.0.1")
	export(t, west, ns, "web", "10.22.0.1")
	e, w := run(t, east), run(t, west)
	for _, m := range clusters.Members {
		awaitImport(t, m, ns, "web", "10.21.0.1 10.22.0.1")
	}
	e.awaitHeartbeat("west")
	w.awaitHeartbeat("east")
	inEast, ofWest := undisturbed(t, east, ns), undisturbed(t, west, ns, "west")
	askEast, askWest := resolveBoth(t, ns, "web")
	askWest.change("east", "none")
	allow := denyWrites(t, "east", writesOf("*", "*/*"))
	awaitImport(t, west, ns, "web", "10.22.0.1")
	askWest.await()
	e.awaitMetric("frozen", "own_heartbeat", 1)
	askEast.change("east", "10.21.0.2")
	serve(t, east, ns, "web", "10.21.0.2")
	awaitImport(t, east, ns, "web", "10.21.0.2 10.22.0.1")
	askEast.await()

	askWest.change("east", "10.21.0.2")
	allow()
	awaitImport(t, west, ns, "web", "10.21.0.2 10.22.0.1")
	askEast.end("F11")
	askWest.end("F11")
	inEast()
	ofWest()
}

// writesOf matches all writes of a resource.
func writesOf(group, resource string) []admissionv1.NamedRuleWithOperations {
	return []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.OperationAll},
		Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
	}}}
}

// denyWrites makes the broker deny writes of a member, of all for "", until allow is called.
func denyWrites(t *testing.T, cluster string, writes []admissionv1.NamedRuleWithOperations) (allow func()) {
	t.Helper()
	users := "system:serviceaccount:" + join.DefaultPrefix + "-"
	if cluster != "" {
		users = "system:serviceaccount:" + broker.NamespaceName(join.DefaultPrefix, cluster) + ":"
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: "no-writes"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: writes},
			MatchConditions: []admissionv1.MatchCondition{{
				Name: "members", Expression: "request.userInfo.username.startsWith('" + users + "')",
			}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "no writes"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: "no-writes"},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "no-writes", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	if err := clusters.Broker.Apply(t.Context(), policy, binding); err != nil {
		t.Fatal(err)
	}
	allow = sync.OnceFunc(func() {
		if err := clusters.Broker.Delete(context.WithoutCancel(t.Context()), binding, policy); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(allow)
	return allow
}

// awaitPending waits until an export waits for the broker, by its condition.
func awaitPending(t *testing.T, m *testclusterset.Member, namespace, name string) {
	t.Helper()
	until.OK(t, "condition of "+name, func(ctx context.Context) error {
		exp, err := m.ServiceExport(ctx, namespace, name)
		if err != nil {
			return err
		}
		ready := meta.FindStatusCondition(exp.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady))
		if ready != nil && strings.HasPrefix(ready.Message, "Waiting for the broker") {
			return testclusterset.Condition(exp.Status.Conditions, "Ready=Unknown/Pending")
		}
		return testclusterset.Condition(exp.Status.Conditions, "Ready=Unknown/Pending with its reason")
	})
}

func killBroker(*testing.T) { clusters.Broker.KillAPIServer() }

func startBroker(t *testing.T) {
	t.Helper()
	// The next test needs the broker even if this one was canceled.
	if err := clusters.Broker.StartAPIServer(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func freezeBroker(t *testing.T) {
	t.Helper()
	if err := clusters.Broker.Freeze(); err != nil {
		t.Fatal(err)
	}
}

func thawBroker(t *testing.T) {
	t.Helper()
	if err := clusters.Broker.Thaw(); err != nil {
		t.Fatal(err)
	}
}

// One member is cut off. After the TTL the others remove its endpoints, but its older export still decides the
// properties of the import; the endpoints are back with its next heartbeat, which comes after all that changed
// meanwhile. The member that is cut off removes nothing (docs/spec/controller.md 8).
func TestMemberIsCutOff(t *testing.T) {
	tier.Nightly(t)
	const ns = "cut"
	link := newRelay(t, strings.TrimPrefix(clusters.Broker.Config().Host, "https://"))
	export(t, east, ns, "web", "10.21.0.1")
	e := run(t, east, func(c *controller.Config) { c.Broker = via(t, c.Broker, link.url(), nil) })
	w := run(t, west)
	awaitImport(t, east, ns, "web", "10.21.0.1")
	west.Put(t, testclusterset.Namespace(ns))
	awaitImport(t, west, ns, "web", "10.21.0.1")
	export(t, west, ns, "web", "10.22.0.1")
	changed := testclusterset.Service(ns, "web", testclusterset.Port("http", 80))
	changed.Spec.SessionAffinity = "ClientIP"
	west.Put(t, changed)
	awaitImport(t, east, ns, "web", "10.21.0.1 10.22.0.1")
	awaitImport(t, west, ns, "web", "10.21.0.1 10.22.0.1")
	exportMany(t, ns, "10.21.1.1")
	awaitMany(t, west, ns, "10.21.1.1")
	inEast := undisturbed(t, east, ns)
	askEast, askWest := resolveBoth(t, ns, "web")

	cut := time.Now()
	askWest.change("east", "none")
	link.sever()
	awaitImport(t, west, ns, "web", "10.22.0.1")
	askWest.await()
	outages.Since(t, "F9", cut.Add(ttl), 10*time.Second, "endpoints of the member removed, after its TTL")
	e.awaitMetric("broker_connected", "", 0)
	e.awaitSilence("west")
	askEast.change("east", "10.21.0.2")
	serve(t, east, ns, "web", "10.21.0.2")
	awaitImport(t, east, ns, "web", "10.21.0.2 10.22.0.1")
	askEast.await()
	checkOldest(t, west, ns)
	// Another instance knows that east is expired: its endpoints do not come back for a moment.
	w.stop()
	returned := countChanges(t, west, ns, "east")
	w = run(t, west)
	w.awaitHeartbeat("east")
	askWest.change("west", "10.22.0.2")
	serve(t, west, ns, "web", "10.22.0.2")
	awaitImport(t, west, ns, "web", "10.22.0.2")
	if c := returned(); c.added > 0 {
		t.Errorf("%d slices of east came back with a restart, want none before its heartbeat", c.added)
	}
	askWest.await()
	askWest.change("west", "10.22.0.1")
	serve(t, west, ns, "web", "10.22.0.1")

	askWest.change("east", "10.21.0.2")
	written := watchReturn(t, east)
	exportMany(t, ns, "10.21.1.2")
	link.mend()
	awaitImport(t, west, ns, "web", "10.21.0.2 10.22.0.1")
	e.awaitMetric("broker_connected", "", 1)
	written(many + 1)
	askEast.end("F9")
	askWest.end("F9")
	inEast()
}

// The controller of a member does not run for longer than the TTL. Its next instance has what changed meanwhile
// written, and what was withdrawn deleted, before its first heartbeat (docs/spec/controller.md 8.2).
func TestControllerIsDownForLong(t *testing.T) {
	tier.Nightly(t)
	const ns, other = "down-for-long", "down-for-long-withdrawn"
	export(t, east, ns, "web", "10.21.0.1")
	export(t, east, other, "db", "10.21.0.3")
	export(t, west, ns, "web", "10.22.0.1")
	exportMany(t, ns, "10.21.1.1")
	e := run(t, east)
	run(t, west)
	for _, m := range clusters.Members {
		awaitImport(t, m, ns, "web", "10.21.0.1 10.22.0.1")
	}
	awaitMany(t, west, ns, "10.21.1.1")
	west.Put(t, testclusterset.Namespace(other))
	awaitImport(t, west, other, "db", "10.21.0.3")
	ofWest := undisturbed(t, west, ns, "west")
	_, askWest := resolveBoth(t, ns, "web")
	askWest.change("east", "none")
	e.stop()
	awaitImport(t, west, ns, "web", "10.22.0.1")
	askWest.await()
	serve(t, east, ns, "web", "10.21.0.2")
	exportMany(t, ns, "10.21.1.2")
	east.Drop(t, testclusterset.Export(other, "db"))
	returned := countChanges(t, west, ns, "east")
	written := watchReturn(t, east)
	askWest.change("east", "10.21.0.2")
	// the exports take longer than until the first heartbeat
	run(t, east, func(c *controller.Config) { c.QPS, c.Burst = 10, 5 })
	awaitImport(t, west, ns, "web", "10.21.0.2 10.22.0.1")
	awaitImport(t, west, other, "db", "none")
	written(many + 1 + 2) // with the record and the slice that are deleted
	awaitMany(t, west, ns, "10.21.1.2")
	if c := returned(); c.added != 1 {
		t.Errorf("%d slices of east came back, want 1: the others were a last resort, and stayed", c.added)
	}
	askWest.end("F9")
	ofWest()
}

// many is how many further services [exportMany] exports: writing them takes long enough for a heartbeat to come
// between.
const many = 30

// exportMany makes east export some services, each with one endpoint.
func exportMany(t testing.TB, namespace, address string) {
	t.Helper()
	for n := range many {
		export(t, east, namespace, fmt.Sprintf("many-%d", n), address)
	}
}

// awaitMany waits until a member imports the services of exportMany with that address.
func awaitMany(t testing.TB, m *testclusterset.Member, namespace, address string) {
	t.Helper()
	for n := range many {
		awaitImport(t, m, namespace, fmt.Sprintf("many-%d", n), address)
	}
}

// watchReturn watches what a member writes to the broker. check waits until it has written or deleted so many records
// and slices, and fails the test if one was written after its heartbeat.
func watchReturn(t testing.TB, m *testclusterset.Member) (check func(objects int)) {
	t.Helper()
	var mu sync.Mutex
	var heartbeat uint64           // version of the first heartbeat
	changed := map[string]uint64{} // version of the last change, by resource and name
	for _, resource := range []schema.GroupVersionResource{leases, records, endpoints} {
		client := clusters.Broker.Dynamic().Resource(resource).Namespace(m.BrokerNamespace())
		list, err := client.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		renewed := map[any]bool{} // the heartbeats of before; a Lease may change without a renewal
		for _, o := range list.Items {
			renewed[renewTime(&o)] = true
		}
		w, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		go func() {
			for event := range w.ResultChan() {
				o, ok := event.Object.(*unstructured.Unstructured)
				if !ok {
					continue // a watch that ends
				}
				version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				switch {
				case resource != leases:
					changed[resource.Resource+" "+o.GetName()] = version
				case heartbeat == 0 && !renewed[renewTime(o)]:
					heartbeat = version
				}
				mu.Unlock()
			}
		}()
	}
	return func(objects int) {
		t.Helper()
		until.OK(t, fmt.Sprintf("a heartbeat of %s and %d objects", m.ID, objects), func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if heartbeat == 0 || len(changed) < objects {
				return fmt.Errorf("heartbeat at version %d, %d objects", heartbeat, len(changed))
			}
			return nil
		})
		mu.Lock()
		defer mu.Unlock()
		for name, version := range changed {
			if version > heartbeat {
				t.Errorf("%s: %s was written at version %d, after the heartbeat at version %d", m.ID, name, version, heartbeat)
			}
		}
	}
}

// checkOldest fails the test unless the import "web" has the properties of the export of east, the older one.
func checkOldest(t *testing.T, m *testclusterset.Member, namespace string) {
	t.Helper()
	imp, err := m.Import(t.Context(), namespace, "web")
	if err != nil {
		t.Fatal(err)
	}
	if imp.Spec.SessionAffinity == "ClientIP" || len(imp.Status.Clusters) != 2 {
		t.Errorf("import in %s has session affinity %q, clusters %v: want those of an import whose oldest export is east's",
			m.ID, imp.Spec.SessionAffinity, imp.Status.Clusters)
	}
}

func renewTime(lease *unstructured.Unstructured) any {
	at, _, _ := unstructured.NestedFieldNoCopy(lease.Object, "spec", "renewTime")
	return at
}
