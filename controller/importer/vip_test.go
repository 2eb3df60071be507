package importer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/safety"
)

// ingressOf returns the addresses that a Service carries, with their mode.
func ingressOf(s *corev1.Service) (all []string) {
	if s == nil {
		return nil
	}
	for _, i := range s.Status.LoadBalancer.Ingress {
		mode := "-"
		if i.IPMode != nil {
			mode = string(*i.IPMode)
		}
		all = append(all, fmt.Sprint(i.IP, " ", mode))
	}
	return all
}

// setIngress writes the status of the derived Service as a controller of load balancers does.
func (i importing) setIngress(ip string) {
	i.Helper()
	_, err := i.Server.Dynamic().Resource(corev1.SchemeGroupVersion.WithResource("services")).Namespace("shop").Patch(
		i.Context(),
		desired.DerivedName("shop", "db"), types.MergePatchType, []byte(`{"status":{"loadBalancer":{"ingress":[{"ip":"`+ip+`"}]}}}`), metav1.PatchOptions{}, "status")
	if err != nil {
		i.Fatal(err)
	}
}

// docs/spec/controller.md 5.7: with "vip cidr" the derived Service carries the clusterset IPs of the import; it is made
// once, and again where someone changes or deletes it, and goes with the addresses.
func TestVIPsAreRouted(t *testing.T) {
	b := newEnv(t)
	west := partner{b, "west", b.AddMember("west", "243.7.0.0/16")}
	record := west.claiming("243.7.0.9")
	b.Create(record, west.slice("a", "10.2.0.1"))
	var waits []time.Duration
	i := b.start(func(c *Config) {
		c.Merge.VIP, c.Retry = merge.CIDR, func(_ types.NamespacedName, d time.Duration) { waits = append(waits, d) }
	})
	const want = "243.7.0.9 VIP"
	is := func(what string) {
		t.Helper()
		o := i.read()
		if o.Service == nil || !slices.Equal(ingressOf(o.Service), []string{want}) || o.Service.Spec.Ports[0].NodePort != 0 ||
			o.Service.Spec.ClusterIP == "243.7.0.9" {
			t.Errorf("%s: derived Service = %+v, want it to carry %s, without a node port", what, o.Service, want)
		}
		if !slices.Equal(o.Import.Spec.IPs, []string{"243.7.0.9"}) {
			t.Errorf("%s: ips of the import = %v", what, o.Import.Spec.IPs)
		}
	}
	serviceStatus := derivedWrite("PATCH") + "/status"
	i.Expect("a new service", i.do("record", func() bool { return i.addressOf("west") != "" }),
		newImportWrite, newServiceWrite, newSliceWrite, importWrite, serviceStatus, importStatus)
	is("new")
	i.Expect("again", i.do("", always))

	// A controller of load balancers writes other addresses, again and again: ours are written again ever more rarely, and
	// somebody has to know it.
	for range 3 {
		i.setIngress("192.0.2.1")
		i.do("addresses of someone", func() bool { return !slices.Equal(ingressOf(i.Member.Derived(db)), []string{want}) })
		i.Await("ours again", func() bool {
			i.do("", always)
			return slices.Equal(ingressOf(i.Member.Derived(db)), []string{want})
		})
	}
	if i.Log.Count("someone else overwrites the addresses in the status of derived Service "+desired.DerivedName("shop",
		"db")) != 1 {
		t.Errorf("log = %s, want once that someone else overwrites the addresses", i.Log)
	}
	if len(waits) == 0 || slices.Min(waits) <= 0 {
		t.Errorf("waits = %v, want some, and none that ends at once", waits)
	}
	is("drift of the status")
	i.Delete(i.read().Service)
	i.do("Service deleted", func() bool { return i.Member.Derived(db) == nil })
	is("made again")
	i.Expect("again", i.do("", always))

	// Without an address there is no Service.
	west.claim()
	i.do("no address", func() bool { return len(i.claims()) == 0 })
	if o := i.read(); o.Service != nil || len(o.Import.Spec.IPs) > 0 {
		t.Errorf("derived Service = %+v and ips %v without an address, want neither", o.Service, o.Import.Spec.IPs)
	}
}

// claiming is a record that wants a clusterset IP; the partner claims these for it.
func (p partner) claiming(ips ...string) *v1alpha1.ExportedService {
	record := p.record()
	record.Spec.VIP = &v1alpha1.VIP{Wanted: true}
	p.claim(ips...)
	return record
}

// claim makes the partner claim these clusterset IPs for db, and no others.
func (p partner) claim(ips ...string) {
	p.Helper()
	p.Claim(p.namespace, db, time.Now(), ips...)
}

// claims returns the claims for db.
func (i importing) claims() []merge.Claim {
	_, o := i.Broker.View(db, merge.Options{VIP: merge.CIDR})
	return o.VIPs.Claims
}

// docs/spec/controller.md 5.7: an import keeps its clusterset IP until the claiming member releases it, whatever the
// broker loses. No two imports have one address.
func TestVIPsStay(t *testing.T) {
	b := newEnv(t)
	west := partner{b, "west", b.AddMember("west", "243.7.0.0/16")}
	b.Create(west.claiming("243.7.0.9"), west.slice("a", "10.2.0.1"))
	retried := make(map[types.NamespacedName]time.Duration)
	cidr := func(c *Config) {
		c.Merge.VIP, c.Retry = merge.CIDR, func(svc types.NamespacedName, d time.Duration) { retried[svc] = d }
	}
	i := b.start(cidr)
	ips := func(what, want string) {
		t.Helper()
		if got := strings.Join(i.read().Import.Spec.IPs, " "); got != want {
			t.Errorf("%s: ips = %q, want %q", what, got, want)
		}
	}
	i.do("record", func() bool { return i.addressOf("west") != "" })
	ips("new", "243.7.0.9")

	patch := func(spec string) {
		t.Helper()
		if err := i.Admin.Patch(i.Context(), &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: "west"}}, []byte(`{"spec":`+spec+`}`)); err != nil {
			t.Fatal(err)
		}
	}
	patch(`{"vipCIDRs":null}`)
	i.do("no VIP CIDR", func() bool { return i.Broker.Members.Get("west").Spec.VIPCIDRs == nil })
	ips("a Member from before the VIP CIDR", "243.7.0.9")
	part := &v1alpha1.Inventory{ObjectMeta: metav1.ObjectMeta{Namespace: west.namespace,
		Name: apibroker.InventoryPart(db.Namespace, db.Name)}}
	i.End()
	b.Lose(part)
	i = b.start(cidr)
	if err := i.Reconcile(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	ips("no inventory", "243.7.0.9")

	// Another service with a claim of the same address gets it after db has lost it.
	app := types.NamespacedName{Namespace: "shop", Name: "app"}
	patch(`{"vipCIDRs":["243.7.0.0/16"]}`)
	west.claim("243.7.0.9")
	b.Claim(west.namespace, app, time.Now(), "243.7.0.9")
	record := west.recordOf("app")
	record.Spec.VIP = &v1alpha1.VIP{Wanted: true}
	b.Create(record)
	i.Await("app", func() bool {
		return len(i.Broker.Records(app)) == 1 && i.Broker.Members.Get("west").Spec.VIPCIDRs != nil && i.Listed(app) &&
			i.Listed(db)
	})
	has := func(what string, svc types.NamespacedName, want int) {
		t.Helper()
		if err := i.Reconcile(i.Context(), svc); err != nil {
			t.Fatal(err)
		}
		if imp := i.Member.Import(svc); imp == nil || len(imp.Spec.IPs) != want {
			t.Errorf("%s: import of %s = %+v, want %d addresses", what, svc, imp, want)
		}
	}
	has("both claim one address", app, 0)
	has("both claim one address", db, 1)
	if d := retried[app]; len(retried) != 1 || d <= 0 || d > vipRetry {
		t.Errorf("retried %v, want app within %s: no event of its own tells it that the address is released", retried,
			vipRetry)
	}
	west.claim()
	i.Await("released", func() bool { return len(i.claims()) == 0 })
	has("released", db, 0)
	has("released", app, 1)
}

// docs/spec/controller.md 5.7, docs/spec/controller.md 9.2: which clusterset IPs do not count here, whatever the
// records say.
func TestVIPsThatDoNotCount(t *testing.T) {
	b := newEnv(t)
	north := partner{b, "north", b.AddMember("north", "10.96.0.0/24")}
	b.Create(north.claiming("10.96.0.10"), north.slice("a", "10.2.0.1"))
	i := b.start(func(c *Config) {
		c.Merge.VIP, c.Merge.VIPNetworks = merge.CIDR, merge.DefaultVIPNetworks.WithNetwork(netip.MustParsePrefix("10.0.0.0/8"))
	}, netip.MustParsePrefix("10.96.0.0/16"))
	check := func(what string, ips ...string) {
		t.Helper()
		o := i.read()
		if o.Import == nil || !slices.Equal(o.Import.Spec.IPs, ips) || (o.Service != nil) != (len(ips) > 0) {
			t.Errorf("%s: import = %+v, derived Service = %+v; want ips %q", what, o.Import, o.Service, ips)
		}
	}
	i.do("record", func() bool { return i.addressOf("north") != "" })
	check("an address of a Service here")
	if i.Log.Count(`rejected of cluster "north": db.shop (vip)`) != 1 {
		t.Errorf("the address is not rejected: %s", i.Log)
	}

	west := partner{b, "west", b.AddMember("west", "10.200.0.0/16")}
	i.annotate("north")
	record := west.claiming("10.200.0.9")
	record.Spec.ToClusters = toProperty("cluster.clusterset.k8s.io", "north")
	b.Create(record)
	i.do("west", func() bool { return i.allowed() == "north" && len(i.Broker.Records(db)) == 2 })
	check("an export elsewhere, of a cluster that the namespace does not take")
	if i.Log.Count(`rejected of cluster "west"`) > 0 {
		t.Errorf("an export that does not reach this cluster is rejected: %s", i.Log)
	}
	i.annotate("north,west")
	i.do("west allowed", func() bool {
		return i.allowed() == "north,west" && len(merge.Pools(i.Broker.Members.All(), merge.VIPNetworks{})) == 3
	})
	check("an export elsewhere, of a cluster that it takes", "10.200.0.9")
}

// noBalancers is the rule about Services in the policy of version 0.1.
const noBalancers = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-balancers}
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], resources: [services], operations: [CREATE, UPDATE]}
  validations:
    - {expression: "object.spec.type == 'ClusterIP'", message: "want ClusterIP"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-balancers}
spec: {policyName: no-balancers, validationActions: [Deny]}
`

// forbidBalancers makes the API server deny Services of a load balancer.
func (i importing) forbidBalancers() {
	i.Helper()
	if err := i.Server.ApplyYAML(i.Context(), []byte(noBalancers)); err != nil {
		i.Fatal(err)
	}
	i.Await("the policy", func() bool { return i.tryBalancer() != nil })
}

// tryBalancer creates a Service of a load balancer, and deletes it.
func (i importing) tryBalancer() error {
	probe := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "probe"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	err := i.Admin.Create(i.Context(), probe)
	if err == nil {
		i.Delete(probe)
	}
	return err
}

// docs/spec/controller.md 5.7: where the mode changes the Service is changed in place. While that is denied, the import
// keeps the addresses that it has.
func TestChangeOfMode(t *testing.T) {
	b := newEnv(t)
	west := partner{b, "west", b.AddMember("west", "243.7.0.0/16")}
	record := west.claiming("243.7.0.9")
	b.Create(record, west.slice("a", "10.2.0.1"))
	i := b.start(func(*Config) {})
	i.do("record", func() bool { return i.addressOf("west") != "" })
	before := i.read()
	i.forbidBalancers()

	routed := i.with(func(c *Config) { c.Merge.VIP = merge.CIDR })
	for range 2 {
		if err := routed.Reconcile(i.Context(), db); err == nil || !strings.Contains(err.Error(), "want ClusterIP") {
			t.Errorf("Reconcile = %v, want what denies the Service: it is tried again", err)
		}
		is := i.read()
		if is.Service == nil || is.Service.UID != before.Service.UID ||
			is.Service.Spec.ClusterIP != before.Service.Spec.ClusterIP ||
			!slices.Equal(is.Import.Spec.IPs, before.Import.Spec.IPs) || len(is.Slices) != 1 {
			t.Fatalf("%+v, want the Service, the addresses and the slice of before", is)
		}
		i.checkStatus("Ready=True/Ready", "west")
		if c := meta.FindStatusCondition(is.Import.Status.Conditions, "Ready"); c == nil ||
			!strings.Contains(c.Message, "keeps the addresses that it has") {
			t.Errorf("Ready = %+v, want why the addresses are those of before", c)
		}
	}
	record.Spec.Ports[0].Port = 5433
	b.Update(record)
	i.Await("another port", func() bool { return i.Broker.Records(db)[0].Spec.Ports[0].Port == 5433 })
	if err := routed.Reconcile(i.Context(), db); err == nil {
		t.Error("Reconcile = nil, want what denies the Service")
	}
	if is := i.read(); is.Service.Spec.Ports[0].Port != 5433 || is.Import.Spec.Ports[0].Port != 5433 ||
		is.Service.Spec.Type != corev1.ServiceTypeClusterIP {
		t.Errorf("%+v, want the Service of before with the new port", is)
	}
	i.Expect("denied again", slices.DeleteFunc(i.Writes.Take(),
		func(w string) bool { return w == derivedWrite("PATCH") }), importWrite, importStatus, importWrite)

	i.allowBalancers()
	i.Expect("allowed", routed.do("", always), derivedWrite("PATCH"), derivedWrite("PATCH")+"/status", importWrite,
		importStatus)
	if is := i.read(); is.Service.UID != before.Service.UID ||
		!slices.Equal(ingressOf(is.Service), []string{"243.7.0.9 VIP"}) ||
		!slices.Equal(is.Import.Spec.IPs, []string{"243.7.0.9"}) ||
		is.Import.Annotations[apibroker.AnnotationAllocatedBy] != "west" {
		t.Errorf("%+v, want the same Service, which carries the clusterset IP of the import", is)
	}
	i.do("", always)
	if is := i.read(); is.Service.UID != before.Service.UID || is.Service.Spec.Type != corev1.ServiceTypeClusterIP ||
		len(ingressOf(is.Service)) > 0 ||
		!slices.Equal(is.Import.Spec.IPs, before.Import.Spec.IPs) {
		t.Errorf("%+v, want the Service and the addresses of the first mode", is)
	}
	i.Expect("again", i.do("", always))
}

// docs/spec/controller.md 5.7: where the mode changes to "vip cidr" before an exporter has allocated a clusterset IP,
// the derived Service and its addresses stay until there is one.
func TestChangeOfModeBeforeTheVIP(t *testing.T) {
	b := newEnv(t)
	west := partner{b, "west", b.AddMember("west", "243.7.0.0/16")}
	record := west.record()
	record.Spec.VIP = &v1alpha1.VIP{Wanted: true}
	b.Create(record, west.slice("a", "10.2.0.1"))
	i := b.start(func(*Config) {})
	i.do("record", func() bool { return i.addressOf("west") != "" })
	before := i.read()
	routed := i.with(func(c *Config) { c.Merge.VIP = merge.CIDR })
	for range 2 {
		routed.do("", always)
		is := i.read()
		if is.Service == nil || is.Service.UID != before.Service.UID ||
			!slices.Equal(is.Import.Spec.IPs, before.Import.Spec.IPs) ||
			is.Import.Annotations[apibroker.AnnotationUseVIP] != "true" {
			t.Fatalf("%+v, want the Service and the addresses of before, and that the oldest export wants others", is)
		}
		i.checkStatus("Ready=True/Ready", "west")
	}
	i.Expect("again", routed.do("", always))

	i.failServices()
	i.Delete(before.Service)
	i.Await("Service deleted", func() bool { return i.Member.Derived(db) == nil })
	if err := routed.Reconcile(i.Context(), db); err == nil || member.Rejection(err) != "" {
		t.Errorf("Reconcile = %v, want a failure that passes", err)
	}
	routed.Review()
	if all := i.Freezes.InForce(); len(all) != 1 || all[0].Reason != safety.Webhook.String() ||
		!strings.Contains(all[0].Detail, "webhook away.example.org,") {
		t.Errorf("%+v in force, want the webhook", all)
	}
	if is := i.read(); is.Service != nil || !slices.Equal(is.Import.Spec.IPs, before.Import.Spec.IPs) {
		t.Errorf("a Service that cannot be made now: %+v, want no Service, and the addresses of before", is)
	}
	i.admitServices()
	routed.do("", always)
	if routed.Review(); i.Freezes.AnyInForce(safety.Webhook) {
		t.Error("the webhook is in force after a write")
	}
	again := i.read()
	if again.Service == nil || !slices.Equal(again.Service.Spec.ClusterIPs, before.Import.Spec.IPs) ||
		!slices.Equal(again.Import.Spec.IPs, before.Import.Spec.IPs) {
		t.Fatalf("Service deleted: %+v, want one with the addresses of before", again)
	}
	i.Expect("made again", routed.do("", always))

	west.claim("243.7.0.9")
	routed.do("a clusterset IP", func() bool { return len(i.claims()) == 1 })
	if is := i.read(); is.Service == nil || is.Service.UID != again.Service.UID ||
		!slices.Equal(ingressOf(is.Service), []string{"243.7.0.9 VIP"}) ||
		!slices.Equal(is.Import.Spec.IPs, []string{"243.7.0.9"}) {
		t.Errorf("%+v, want the same Service, which carries the clusterset IP", is)
	}

	// The addresses of an import that has had a clusterset IP are not those of a derived Service.
	west.claim()
	i.Delete(again.Service)
	routed.do("no clusterset IP, and no Service", func() bool {
		return len(i.claims()) == 0 && i.Member.Derived(db) == nil
	})
	if is := i.read(); is.Service != nil || len(is.Import.Spec.IPs) > 0 {
		t.Errorf("%+v, want neither a Service nor addresses", is)
	}
}

// failServices makes the API server answer each creation of a Service with an internal error: it asks a webhook that is
// away.
func (i importing) failServices() {
	i.Helper()
	url, effects := "https://127.0.0.1:1", admissionv1.SideEffectClassNone
	if err := i.Server.Apply(i.Context(), &admissionv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: "away"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "away.example.org", ClientConfig: admissionv1.WebhookClientConfig{URL: &url}, SideEffects: &effects,
			AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"services"}},
			}},
		}},
	}); err != nil {
		i.Fatal(err)
	}
	i.Await("the webhook", func() bool { return i.tryBalancer() != nil })
}

// admitServices ends failServices.
func (i importing) admitServices() {
	i.Helper()
	i.endBarrier("validatingwebhookconfigurations", "away")
}

// allowBalancers ends forbidBalancers.
func (i importing) allowBalancers() {
	i.Helper()
	i.endBarrier("validatingadmissionpolicybindings", "no-balancers")
}

// endBarrier deletes what denies Services of type LoadBalancer, and waits until they are admitted.
func (i importing) endBarrier(resource, name string) {
	i.Helper()
	objects := i.Server.Dynamic().Resource(admissionv1.SchemeGroupVersion.WithResource(resource))
	if err := objects.Delete(i.Context(), name, metav1.DeleteOptions{}); err != nil {
		i.Fatal(err)
	}
	i.Await("an admitted Service", func() bool { return i.tryBalancer() == nil })
}

// Where the controller may not write the Service, as under policies of version 0.1, the import keeps its addresses, and
// Ready reports it.
func TestVIPsThatAreNotRouted(t *testing.T) {
	b := newEnv(t)
	west := partner{b, "west", b.AddMember("west", "243.7.0.0/16")}
	record := west.claiming("243.7.0.9")
	b.Create(record, west.slice("a", "10.2.0.1"))
	i := b.start(func(c *Config) { c.Merge.VIP = merge.CIDR })
	i.forbidBalancers()
	i.Await("record", func() bool { return i.addressOf("west") != "" })
	if err := i.Reconcile(i.Context(), db); err == nil || !strings.Contains(err.Error(), "want ClusterIP") {
		t.Errorf("Reconcile = %v, want what rejects the Service: it is tried again", err)
	}
	o := i.read()
	if o.Service != nil || o.Import == nil || !slices.Equal(o.Import.Spec.IPs, []string{"243.7.0.9"}) ||
		len(o.Slices) != 1 {
		t.Fatalf("%+v, want import and slice without a Service", o)
	}
	c := meta.FindStatusCondition(o.Import.Status.Conditions, "Ready")
	if c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "no derived Service routes them") {
		t.Errorf("Ready = %+v, want True, and why nothing routes the addresses", c)
	}
}
