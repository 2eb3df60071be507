package security

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// longAgo is the creation time that mallory claims for her exports.
var longAgo = metav1.NewTime(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC))

// An attacker is a member that writes to the broker directly, with the credential of its join.
type attacker struct {
	*testclusterset.Member
	client dynamic.Interface
}

// newAttacker returns when what a join writes to the broker is in force.
func newAttacker(t *testing.T, f *testclusterset.Clusterset, m *testclusterset.Member) attacker {
	t.Helper()
	for _, await := range []func(context.Context) error{f.Broker.AwaitRights, f.Broker.AwaitPolicies} {
		if err := await(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", m.BrokerKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{} // without the limit of the client
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	h := attacker{m, client}
	_, slice := h.export("shop", "web", "10.23.0.1")
	until.OK(t, "a policy that finds the Member", func(ctx context.Context) error {
		return do(ctx, client, "apply", slice, true)
	})
	return h
}

// export returns the record and the one slice by which an honest controller would export a service with these
// addresses.
func (h attacker) export(namespace, name string, addresses ...string) (*v1alpha1.ExportedService,
	*discoveryv1.EndpointSlice) {
	s := testclusterset.Service(namespace, name, testclusterset.Port("http", 80))
	s.Spec.Type, s.Spec.IPFamilies = corev1.ServiceTypeClusterIP, []corev1.IPFamily{corev1.IPv4Protocol}
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.13.0.9", []string{"10.13.0.9"}
	exp := testclusterset.Export(namespace, name)
	exp.Generation, exp.CreationTimestamp, exp.UID = 1, longAgo, "00000000-0000-4000-8000-000000000001"
	var endpoints []testclusterset.Endpoint
	for _, a := range addresses {
		endpoints = append(endpoints, testclusterset.Endpoint{Address: a})
	}
	r := export.From(exp, s, []*discoveryv1.EndpointSlice{testclusterset.Slice(s, name+"-1", endpoints...)},
		export.Options{
			ClusterID: h.ID, BrokerNamespace: h.BrokerNamespace(), Namespace: export.Allowed,
		})
	r.Record.Spec.Stamp = 1
	// no record lists it, so it has to be newer
	metav1.SetMetaDataAnnotation(&r.Slices[0].ObjectMeta, broker.AnnotationStamp, "2")
	return r.Record, r.Slices[0]
}

// record is the export record of a service, spoilt.
func (h attacker) record(name string, change func(*v1alpha1.ExportedService)) runtime.Object {
	r, _ := h.export("shop", name, "10.23.0.1")
	if change != nil {
		change(r)
	}
	return r
}

// slicesMade counts the slices, which need names of their own.
var slicesMade int

// slice is a further slice of shop/web, spoilt.
func (h attacker) slice(change func(*discoveryv1.EndpointSlice)) runtime.Object {
	slicesMade++
	_, s := h.export("shop", "web", "10.23.0.1")
	s.Name = fmt.Sprintf("web.shop.%016x", slicesMade)
	change(s)
	return s
}

// offer is a slice with one other address.
func (h attacker) offer(family discoveryv1.AddressType, address string) runtime.Object {
	return h.slice(func(s *discoveryv1.EndpointSlice) {
		s.AddressType, s.Endpoints[0].Addresses = family, []string{address}
	})
}

// do writes one object; verb is apply, delete, or create with a subresource ("create token").
func (h attacker) do(ctx context.Context, verb string, o runtime.Object) error {
	return do(ctx, h.client, verb, o, false)
}

func do(ctx context.Context, client dynamic.Interface, verb string, o runtime.Object, dry bool) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(u.Object, "status")
	gvr, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	var r dynamic.ResourceInterface = client.Resource(gvr)
	if u.GetNamespace() != "" {
		r = client.Resource(gvr).Namespace(u.GetNamespace())
	}
	var dryRun []string
	if dry {
		dryRun = []string{metav1.DryRunAll}
	}
	verb, subresource, _ := strings.Cut(verb, " ")
	switch verb {
	case "delete":
		return r.Delete(ctx, u.GetName(), metav1.DeleteOptions{DryRun: dryRun})
	case "create":
		_, err = r.Create(ctx, u, metav1.CreateOptions{DryRun: dryRun}, subresource)
	default:
		_, err = r.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "mallory", Force: true, DryRun: dryRun})
	}
	return err
}

// An attack is one write. It is tried with the policies, and unless it was accepted once more without them.
type attack struct {
	name   string
	verb   string // apply if empty
	object runtime.Object
	// policies and rest are part of the broker's error, with the policies and without them; "" means that it accepts the
	// write.
	policies, rest string
	// east and west are the reasons for which the honest members reject what the broker accepts; "" means that there is
	// nothing to reject.
	east, west string
}

const (
	byRBAC      = "forbidden: User"
	ownCluster  = `label multicluster.kubernetes.io/source-cluster has to be "mallory"`
	onlyLabels  = "labels have to be service-name"
	asSpec      = "have to be those of the spec"
	sliceName   = "the name of a slice is"
	notDeclared = "addresses have to be in the networks of Member mallory"
)

// all returns every attack. vip is the clusterset IP of bank/ledger, which east claims.
func (h attacker) all(f *testclusterset.Clusterset, vip string) []attack {
	return slices.Concat(h.onOthers(f), h.records(), h.vips(vip), h.slices(), h.addresses())
}

// onOthers returns writes for which mallory has no rights.
func (h attacker) onOthers(f *testclusterset.Clusterset) []attack {
	east := f.Members[0].BrokerNamespace()
	kind := func(version, kind, namespace, name string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind}}
		u.SetNamespace(namespace)
		u.SetName(name)
		return u
	}
	with := func(u *unstructured.Unstructured, value any, path ...string) *unstructured.Unstructured {
		if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
			panic(err)
		}
		return u
	}
	const own, leases = "broker.clusterset-dns.io/v1alpha1", "coordination.k8s.io/v1"
	alien, _ := h.export("shop", "evil", "10.23.0.1")
	alien.Namespace = east
	member := with(kind(own, "Member", "", h.ID), []any{"0.0.0.0/0"}, "spec", "podCIDRs")
	namespace := with(kind("v1", "Namespace", "", h.BrokerNamespace()), "east", "metadata", "labels",
		broker.LabelClusterID)
	all := []attack{
		{name: "record in another's namespace", object: alien},
		{name: "another's record", verb: "delete", object: kind(own, "ExportedService", east, "web.shop")},
		{name: "another's heartbeat", object: with(kind(leases, "Lease", east, broker.HeartbeatName), "mallory", "spec",
			"holderIdentity")},
		{name: "end of another's heartbeat", verb: "delete", object: kind(leases, "Lease", east, broker.HeartbeatName)},
		{name: "another's token", verb: "create token", object: kind("v1", "ServiceAccount", east, broker.ServiceAccount)},
		{name: "another's namespace", verb: "delete", object: kind("v1", "Namespace", "", east)},
		{name: "another's Member", verb: "delete", object: kind(own, "Member", "", "east")},
		{name: "its networks", object: member},
		{name: "the label of its namespace", object: namespace},
		{name: "a namespace", object: kind("v1", "Namespace", "", "clusterset-0123456789abcdef")},
		{name: "kube-system of the broker", object: kind("v1", "ConfigMap", "kube-system", "x")},
	}
	for i := range all {
		all[i].policies, all[i].rest = byRBAC, byRBAC
	}
	all[0].policies, all[0].rest = "forbidden", "forbidden"
	return all
}

// records returns records in mallory's own namespace that no honest controller writes.
func (h attacker) records() []attack {
	spec := func(change func(*v1alpha1.ExportedServiceSpec)) func(*v1alpha1.ExportedService) {
		return func(r *v1alpha1.ExportedService) { change(&r.Spec) }
	}
	port := func(n int32) v1alpha1.ServicePort {
		return v1alpha1.ServicePort{Name: fmt.Sprintf("p%d", n), Protocol: corev1.ProtocolTCP, Port: n}
	}
	system, _ := h.export("kube-system", "dns", "10.23.0.1")
	standard, _ := h.export("default", "kubernetes", "10.23.0.1")
	bank, _ := h.export("bank", "ledger", "10.23.0.1")
	const name, record, namespace = string(merge.BadName), string(merge.BadRecord), string(merge.NotTaken)
	return []attack{
		{"record: source-cluster of another", "", h.record("evil-1", func(r *v1alpha1.ExportedService) {
			r.Labels[mcsv1beta1.LabelSourceCluster] = "east"
		}), ownCluster, "", name, name},
		{"record: name of another service", "", h.record("evil-2", func(r *v1alpha1.ExportedService) {
			r.Name = "ledger.bank"
		}), "has to be <spec.name>.<spec.namespace>", "", name, name},
		{"record: name of no service", "", h.record("evil-3", func(r *v1alpha1.ExportedService) {
			r.Name = "evil"
		}), "has to be <spec.name>.<spec.namespace>", "", name, name},
		{"record: labels of another service", "", h.record("evil-4", func(r *v1alpha1.ExportedService) {
			r.Labels[mcsv1beta1.LabelServiceName] = "web"
		}), asSpec, "", name, name},
		{"record: namespace with a dot", "", h.record("evil-5", func(r *v1alpha1.ExportedService) {
			r.Spec.Namespace, r.Labels[broker.LabelSourceNamespace], r.Name = "shop.x", "shop.x", "evil-5.shop.x"
		}), "spec.namespace", "", record, record},
		{"record: port 0", "", h.record("evil-6", spec(func(s *v1alpha1.ExportedServiceSpec) { s.Ports[0].Port = 0 })),
			"spec.ports[0].port", "", record, record},
		{"record: 101 ports", "", h.record("evil-7", spec(func(s *v1alpha1.ExportedServiceSpec) {
			for i := range int32(100) {
				s.Ports = append(s.Ports, port(1000+i))
			}
		})), "at most 100", "", record, record},
		{"record: type", "", h.record("evil-8", spec(func(s *v1alpha1.ExportedServiceSpec) { s.Type = "ExternalName" })),
			"spec.type", "", record, record},
		{"record: loopback cluster IP", "", h.record("evil-9", spec(func(s *v1alpha1.ExportedServiceSpec) {
			s.ClusterIPs = []string{"127.0.0.1"}
		})), "loopback", "", record, record},
		{"record: link-local cluster IP", "", h.record("evil-10", spec(func(s *v1alpha1.ExportedServiceSpec) {
			s.ClusterIPs = []string{"169.254.169.254"}
		})), "link-local", "", record, record},
		{"record: reserved label key", "", h.record("evil-11", spec(func(s *v1alpha1.ExportedServiceSpec) {
			s.Labels = []v1alpha1.Label{{Key: "app.kubernetes.io/managed-by", Value: "x"}}
		})), "the prefix is reserved", "", record, record},
		{"record: reserved annotation key", "", h.record("evil-12", spec(func(s *v1alpha1.ExportedServiceSpec) {
			s.Annotations = []v1alpha1.Annotation{{Key: "lighthouse.submariner.io/clusterset-ip-allocated-by", Value: "east"}}
		})), "the prefix is reserved", "", record, record},
		{"record: huge annotation", "", h.record("evil-13", spec(func(s *v1alpha1.ExportedServiceSpec) {
			s.Annotations = []v1alpha1.Annotation{{Key: "example.org/note", Value: strings.Repeat("x", 200_000)}}
		})), "Too long", "", record, record},
		{"record: many labels", "", h.record("evil-14", spec(func(s *v1alpha1.ExportedServiceSpec) {
			for i := range 5000 {
				s.Labels = append(s.Labels, v1alpha1.Label{Key: fmt.Sprintf("example.org/l%d", i), Value: strings.Repeat("x", 63)})
			}
		})), "Too many", "", record, record},
		// The broker does not know which namespaces the others import.
		{"record: kube-system", "", system, "", "", namespace, namespace},
		{"record: default", "", standard, "", "", namespace, namespace},
		{"record: a namespace that does not take mallory's exports", "", bank, "", "", namespace, namespace},
	}
}

// inventory is the part of mallory's inventory that shop/loot belongs to, which lists the given services.
func (h attacker) inventory(stamp int64, entries ...v1alpha1.InventoryEntry) *v1alpha1.Inventory {
	return &v1alpha1.Inventory{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Inventory"},
		ObjectMeta: metav1.ObjectMeta{Namespace: h.BrokerNamespace(), Name: broker.InventoryPart("shop", "loot")},
		Spec:       v1alpha1.InventorySpec{Stamp: stamp, Exports: entries},
	}
}

// loot lists shop/loot, and claims clusterset IPs for it.
func (h attacker) loot(ips ...string) v1alpha1.InventoryEntry {
	r, _ := h.export("shop", "loot", "10.23.0.1")
	entry := v1alpha1.InventoryEntry{Name: r.Name, UID: r.Spec.ExportUID}
	for _, ip := range ips {
		entry.Claims = append(entry.Claims, v1alpha1.Claim{IP: ip, Since: longAgo.UnixMicro()})
	}
	return entry
}

// vips returns an inventory that gives a service, which only mallory exports, a clusterset IP that is not hers. Of the
// honest members only east has "vip cidr".
func (h attacker) vips(stolen string) []attack {
	// A policy that denies it would deny all exports in that part, where the broker has a Member from before a join.
	return []attack{{"inventory: another's clusterset IP", "", h.inventory(2, h.loot(stolen)), "", "",
		string(merge.AlienVIP), ""}}
}

// slices returns slices in mallory's own namespace that no honest controller writes.
func (h attacker) slices() []attack {
	const name, bad = string(merge.BadName), string(merge.BadSlice)
	label := func(key, value string) runtime.Object {
		return h.slice(func(s *discoveryv1.EndpointSlice) { s.Labels[key] = value })
	}
	_, good := h.export("shop", "web", "10.23.0.1")
	good.Labels[discoveryv1.LabelServiceName] = "kubernetes"
	good.Annotations = map[string]string{"example.org/note": strings.Repeat("x", 200_000)}
	for i := range 1000 {
		good.Labels[fmt.Sprintf("example.org/l%d", i)] = strings.Repeat("x", 63)
	}
	return []attack{
		{"slice: source-cluster of another", "", label(mcsv1beta1.LabelSourceCluster, "east"), ownCluster, "", name, name},
		{"slice: service-name of another", "", label(mcsv1beta1.LabelServiceName, "ledger"), sliceName, "", name, name},
		{"slice: source-namespace of another", "", label(broker.LabelSourceNamespace, "bank"), sliceName, "", name, name},
		{"slice: no service", "", h.slice(func(s *discoveryv1.EndpointSlice) {
			s.Name = "evil"
			delete(s.Labels, mcsv1beta1.LabelServiceName)
		}), sliceName, "", name, name},
		{"slice: name", "", h.slice(func(s *discoveryv1.EndpointSlice) { s.Name = "web.shop.evil" }), sliceName, "", name,
			name},
		{"slice: host names", "", h.offer(discoveryv1.AddressTypeFQDN, "evil.example.org"),
			"the address type has to be IPv4 or IPv6", "", bad, bad},
		{"slice: 1,001 endpoints", "", h.slice(func(s *discoveryv1.EndpointSlice) {
			for i := range 1000 {
				s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.23.%d.%d", 1+i/250,
					1+i%250)}})
			}
		}), "1000", "1000", "", ""},
		{"slice: 101 ports", "", h.slice(func(s *discoveryv1.EndpointSlice) {
			for i := range int32(100) {
				name, number, protocol := fmt.Sprintf("p%d", i), 1000+i, corev1.ProtocolTCP
				s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: &protocol})
			}
		}), "at most 1000 endpoints and 100 ports", "", bad, bad},
		// The rest of it is valid, and its labels and annotations are not imported.
		{"slice: huge and reserved labels", "", good, onlyLabels, "", "", ""},
	}
}

// addresses returns slices with addresses that mallory may not offer.
func (h attacker) addresses() []attack {
	const ipv4, ipv6 = discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6
	const address, alien, own = string(merge.BadAddress), string(merge.AlienCIDR), string(merge.OwnCIDR)
	return []attack{
		// Every API server rejects these.
		{"address: loopback", "", h.offer(ipv4, "127.0.0.1"), "loopback", "loopback", "", ""},
		{"address: link-local", "", h.offer(ipv4, "169.254.169.254"), "link-local", "link-local", "", ""},
		{"address: IPv6 loopback", "", h.offer(ipv6, "::1"), "loopback", "loopback", "", ""},
		{"address: IPv6 link-local", "", h.offer(ipv6, "fe80::1"), "link-local", "link-local", "", ""},
		{"address: unspecified", "", h.offer(ipv4, "0.0.0.0"), "unspecified", "unspecified", "", ""},
		{"address: multicast", "", h.offer(ipv4, "239.1.1.1"), "multicast", "", address, address},
		{"address: broadcast", "", h.offer(ipv4, "255.255.255.255"), "broadcast", "", address, address},
		{"address: another's pod", "", h.offer(ipv4, "10.21.0.1"), notDeclared, "", own, alien},
		{"address: east's services", "", h.offer(ipv4, "10.11.0.1"), notDeclared, "", own, alien},
		{"address: another's clusterset IP", "", h.offer(ipv4, "243.0.0.1"), notDeclared, "", alien, alien},
	}
}

// TestAttacks lets mallory try every attack, with the policies and without them. The honest members import nothing that
// she may not export, and none of their objects changes.
func TestAttacks(t *testing.T) {
	f := start(t)
	e, w, m := members(f)
	for _, v := range []*testclusterset.Member{e, w} {
		bank := testclusterset.Namespace("bank")
		bank.Annotations = map[string]string{broker.AnnotationAllowedSources: "east, west"}
		v.Put(t, testclusterset.Namespace("shop"), bank)
	}
	east := run(t, e, func(c *controller.Config) { c.VIP = merge.CIDR })
	west := run(t, w)
	exportService(t, e, "shop", "web", "10.21.0.1")
	exportService(t, w, "shop", "web", "10.22.0.1")
	exportService(t, e, "bank", "ledger", "10.21.0.2")
	for _, v := range []member{east, west} {
		imported(t, v.Member, "shop", "web", "10.21.0.1", "10.22.0.1")
		imported(t, v.Member, "bank", "ledger", "10.21.0.2")
	}
	joinMember(t, m)
	mallory := newAttacker(t, f, m)
	mallory.takesPart(t, east, west)
	ledger, err := e.Import(t.Context(), "bank", "ledger")
	if err != nil || len(ledger.Spec.IPs) != 1 || !strings.HasPrefix(ledger.Spec.IPs[0], "243.") {
		t.Fatalf("import of bank/ledger has IPs %v (%v), want one of the VIP CIDR", ledger.Spec.IPs, err)
	}

	before := newSnapshot(t, f, east, west)
	attacks := mallory.all(f, ledger.Spec.IPs[0])
	t.Run("policies", func(t *testing.T) {
		for _, a := range attacks {
			mallory.try(t, a, a.policies, east, west)
		}
		mark(t, e, w)
		before.unchanged(t)
	})
	t.Run("no policies", func(t *testing.T) {
		disablePolicies(t, f, mallory)
		for _, a := range attacks {
			if a.policies != "" {
				mallory.try(t, a, a.rest, east, west)
			}
		}
		mark(t, e, w)
		before.unchanged(t)
	})
	t.Run("withdrawal", func(t *testing.T) {
		if err := mallory.do(t.Context(), "apply", mallory.inventory(3)); err != nil {
			t.Fatal(err)
		}
		mallory.withdraw(t, e, w)
		for _, v := range []member{east, west} {
			imported(t, v.Member, "shop", "web", "10.21.0.1", "10.22.0.1")
			until.OK(t, "loot is gone", func(ctx context.Context) error {
				return testclusterset.Gone(v.Import(ctx, "shop", "loot"))
			})
		}
		mark(t, e, w)
		before.undisturbed(t)
	})
}

// takesPart exports what a member may: a service that the others export, too, with an earlier time, and one that only
// mallory has.
func (h attacker) takesPart(t *testing.T, honest ...member) {
	t.Helper()
	web, slice := h.export("shop", "web", "10.23.0.1")
	web.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	for _, o := range []runtime.Object{web, slice, h.inventory(1, h.loot()), h.record("loot", nil)} {
		if err := h.do(t.Context(), "apply", o); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range honest {
		imported(t, v.Member, "shop", "web", "10.21.0.1", "10.22.0.1", "10.23.0.1")
		until.OK(t, "import of loot, which is listed", func(ctx context.Context) error {
			imp, err := v.Import(ctx, "shop", "loot")
			if err == nil && !strings.Contains(imp.Annotations[broker.AnnotationSources], "listed") {
				err = errors.New("not listed yet")
			}
			return err
		})
		imp, err := v.Import(t.Context(), "shop", "web")
		if err != nil || imp.Spec.SessionAffinity != corev1.ServiceAffinityNone {
			t.Errorf("%s: session affinity %q (%v), want that of east, whose export is the oldest", v.ID,
				imp.Spec.SessionAffinity, err)
		}
	}
}

// try writes once. If the broker accepts the write, try waits until the honest members have counted its rejection.
func (h attacker) try(t *testing.T, a attack, want string, east, west member) {
	t.Helper()
	before := [2]float64{east.rejections(t, a.east), west.rejections(t, a.west)}
	err := h.do(t.Context(), a.verb, a.object)
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v, want it accepted", a.name, err)
		return
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: %v, want %q", a.name, err, want)
		return
	case want != "":
		return
	}
	for i, v := range []member{east, west} {
		if reason := []string{a.east, a.west}[i]; reason != "" {
			until.OK(t, a.name+": "+v.ID+" counts "+reason, func(context.Context) error {
				if v.rejections(t, reason) == before[i] {
					return fmt.Errorf("still %v", before[i])
				}
				return nil
			})
		}
	}
}

// withdraw deletes everything that the member has on the broker, ends all its exports, and waits until the others
// import nothing of it.
func (h attacker) withdraw(t *testing.T, honest ...*testclusterset.Member) {
	t.Helper()
	for _, r := range []schema.GroupVersionResource{records, exported} {
		own := h.client.Resource(r).Namespace(h.BrokerNamespace())
		list, err := own.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			if err := own.Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	}
	for n := range broker.InventoryParts { // also those that were deleted, which others remember
		const newest = 1<<53 - 1
		none := h.inventory(newest)
		none.Name = broker.InventoryPartName(n)
		err := h.do(t.Context(), "delete", none) // else entries that a patch has set stay
		if err == nil || apierrors.IsNotFound(err) {
			err = h.do(t.Context(), "apply", none)
		}
		if err != nil {
			t.Error(err)
		}
	}
	for _, m := range honest {
		until.OK(t, m.ID+" has nothing of mallory", func(ctx context.Context) error { return hasNothingOf(ctx, m, h.ID) })
	}
}

// hasNothingOf returns nil if a member imports nothing of a cluster.
func hasNothingOf(ctx context.Context, m *testclusterset.Member, cluster string) error {
	left, err := m.Dynamic().Resource(exported).List(ctx,
		metav1.ListOptions{LabelSelector: mcsv1beta1.LabelSourceCluster + "=" + cluster})
	if err != nil {
		return err
	}
	if len(left.Items) > 0 {
		return fmt.Errorf("%d slices", len(left.Items))
	}
	all, err := m.Dynamic().Resource(imports).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, u := range all.Items {
		var imp mcsv1beta1.ServiceImport
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &imp); err != nil {
			return err
		}
		if slices.Contains(imp.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: cluster}) {
			return fmt.Errorf("import %s/%s with %v: %v", imp.Namespace, imp.Name, imp.Annotations, imp.Status)
		}
	}
	return nil
}

// disablePolicies removes the policies and all rules of the CRD of export records, until the end of the test.
func disablePolicies(t *testing.T, f *testclusterset.Clusterset, h attacker) {
	t.Helper()
	bindings := schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings",
	}
	t.Cleanup(func() {
		if err := join.Init(context.Background(), f.Broker.Config(), join.InitOptions{AggregateView: true}); err != nil {
			t.Error(err)
		}
		if _, err := h.Join(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"clusterset-broker-writes", "clusterset-" + h.BrokerNamespace()} {
		if err := f.Broker.Dynamic().Resource(bindings).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	dropRules(t, f.Broker)
	spoofed := h.slice(func(s *discoveryv1.EndpointSlice) { s.Labels[mcsv1beta1.LabelSourceCluster] = "east" })
	for _, o := range []runtime.Object{spoofed, h.offer(discoveryv1.AddressTypeIPv4, "10.21.0.1"),
		h.record("evil", func(r *v1alpha1.ExportedService) {
			r.Name = "evil"
		})} {
		until.OK(t, "a broker without policies", func(ctx context.Context) error {
			return do(ctx, h.client, "apply", o, true)
		})
	}
}

// dropRules makes the CRD accept anything.
func dropRules(t *testing.T, c *controlplane.ControlPlane) {
	t.Helper()
	r := c.Dynamic().Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	crd, err := r.Get(t.Context(), "exportedservices.broker.clusterset-dns.io", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range all {
		v.(map[string]any)["schema"] = map[string]any{
			"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
		}
	}
	if err := unstructured.SetNestedSlice(crd.Object, all, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Update(t.Context(), crd, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A snapshot holds the versions of the honest members' objects, in their clusters and on the broker, before the
// attacks.
type snapshot struct {
	clusterset *testclusterset.Clusterset
	honest     []member
	were       []map[string]string
}

func newSnapshot(t *testing.T, f *testclusterset.Clusterset, honest ...member) *snapshot {
	t.Helper()
	s := &snapshot{clusterset: f, honest: honest}
	s.were = settled(t, f, func() []map[string]string { return s.now(t) })
	return s
}

// settled returns what look sees once that does not change any more: a write that follows from what is there may be
// still on its way.
func settled[T any](t *testing.T, f *testclusterset.Clusterset, look func() T) (seen T) {
	t.Helper()
	east, west, _ := members(f)
	until.True(t, "objects that do not change", func() bool {
		seen = look()
		mark(t, east, west)
		return reflect.DeepEqual(seen, look())
	})
	return seen
}

// now returns the versions in each honest member, and then those on the broker.
func (s *snapshot) now(t *testing.T) []map[string]string {
	t.Helper()
	var all []map[string]string
	for _, v := range s.honest {
		all = append(all, importedVersions(t, v.Member))
	}
	onBroker := versions(t, s.clusterset.Broker, s.clusterset.Members[2].BrokerNamespace(), records, exported)
	maps.DeleteFunc(onBroker, func(key, _ string) bool { return strings.Contains(key, "."+marks) })
	return append(all, onBroker)
}

func (s *snapshot) names() []string {
	var names []string
	for _, v := range s.honest {
		names = append(names, v.ID)
	}
	return append(names, "broker")
}

// unchanged fails the test if an object was created, changed or deleted.
func (s *snapshot) unchanged(t *testing.T) {
	t.Helper()
	for i, is := range s.now(t) {
		compare(t, s.names()[i], s.were[i], is)
	}
}

// undisturbed fails the test if an object was deleted or created again, except those that existed because of mallory.
func (s *snapshot) undisturbed(t *testing.T) {
	t.Helper()
	for i, is := range s.now(t) {
		for key, was := range s.were[i] {
			uid, _, _ := strings.Cut(was, " ")
			if now, _, _ := strings.Cut(is[key], " "); now != uid && !s.ofMallory(t, key) {
				t.Errorf("%s: %s was deleted", s.names()[i], key)
			}
		}
	}
}

// ofMallory reports whether an object of an honest member existed because of mallory alone: the import of shop/loot,
// its derived Service, and the slice of shop/web.
func (s *snapshot) ofMallory(t *testing.T, key string) bool {
	t.Helper()
	_, slice := attacker{Member: s.clusterset.Members[2]}.export("shop", "web", "10.23.0.1")
	return slices.Contains([]string{
		"serviceimports shop/loot", "services shop/" + desired.DerivedName("shop", "loot"),
		"endpointslices shop/imported-" + broker.Hash(32, "mallory", "shop", slice.Name),
	}, key)
}
