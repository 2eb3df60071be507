package importer

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/api/about"
	aboutv1beta1 "github.com/clusterset-dns/clusterset/api/about/v1beta1"
	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/liveness"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/safety"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

const statusWrite = "PATCH shop/serviceexports/db/status"

// read returns the objects of the import as the API server has them.
func (i importing) read() desired.Objects {
	i.Helper()
	var o desired.Objects
	imports, services, endpoints := &mcsv1beta1.ServiceImportList{}, &corev1.ServiceList{},
		&discoveryv1.EndpointSliceList{}
	if err := i.Admin.List(i.Context(), &mcsv1beta1.ServiceImport{}, imports, "shop", ""); err != nil {
		i.Fatal(err)
	}
	if err := i.Admin.List(i.Context(), &corev1.Service{}, services, "shop", ""); err != nil {
		i.Fatal(err)
	}
	if err := i.Admin.List(i.Context(), &discoveryv1.EndpointSlice{}, endpoints, "shop",
		mcsv1beta1.LabelServiceName); err != nil {
		i.Fatal(err)
	}
	for n := range imports.Items {
		o.Import = &imports.Items[n]
	}
	for n := range services.Items {
		if services.Items[n].Name == desired.DerivedName("shop", "db") {
			o.Service = &services.Items[n]
		}
	}
	for n := range endpoints.Items {
		o.Slices = append(o.Slices, &endpoints.Items[n])
	}
	return o
}

// imported is the name of the imported slice.
func imported(cluster, source string) string {
	return "imported-" + apibroker.Hash(32, cluster, "shop", apibroker.SliceName("shop", "db", source))
}

const (
	newImportWrite  = "POST shop/serviceimports"
	newServiceWrite = "POST shop/services"
	newSliceWrite   = "POST shop/endpointslices"
	importWrite     = "PATCH shop/serviceimports/db"
	importStatus    = "PATCH shop/serviceimports/db/status"
)

func derivedWrite(method string) string {
	return method + " shop/services/" + desired.DerivedName("shop", "db")
}

func importedWrite(method, cluster, source string) string {
	return method + " shop/endpointslices/" + imported(cluster, source)
}

func always() bool { return true }

// addressOf returns the first address of the first slice of west that the caches have, or "".
func (i importing) addressOf(cluster string) string {
	for _, s := range i.Broker.Slices(db, cluster) {
		if len(s.Endpoints) > 0 {
			return s.Endpoints[0].Addresses[0]
		}
	}
	return ""
}

// docs/spec/controller.md 5, docs/spec/controller.md 10: the writes for an import in its life.
func TestImportLife(t *testing.T) {
	b := newEnv(t)
	west := b.partner("west")
	record, slice := west.record(), west.slice("a", "10.2.0.1")
	b.Create(record, slice)
	i := b.start(func(*Config) {})
	i.Expect("a new service", i.do("record", func() bool { return i.addressOf("west") != "" }),
		newImportWrite, newServiceWrite, importWrite, newSliceWrite, importStatus)
	first := i.read()
	i.checkNew(first)
	i.Expect("again", i.do("", always))

	i.Writes.WithReads()
	slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().UTC().Format(time.RFC3339Nano)}
	slice.Endpoints[0].Addresses[0] = "10.2.0.2"
	b.Update(slice)
	got := i.do("flip", func() bool { return i.addressOf("west") == "10.2.0.2" })
	i.Expect("one endpoint", got, importedWrite("PATCH", "west", "a"))
	if n := i.Metric("endpoint_lag_seconds_count", ""); n != 1 {
		t.Errorf("lags = %v, want that of the one change", n)
	}

	record.Spec.Ports = append(record.Spec.Ports, v1alpha1.ServicePort{Name: "admin", Protocol: corev1.ProtocolTCP,
		Port: 5433})
	b.Update(record)
	ports := func(n int) func() bool {
		return func() bool { r := i.Broker.Records(db); return len(r) == 1 && len(r[0].Spec.Ports) == n }
	}
	i.Expect("a port", i.do("port", ports(2)), importWrite, derivedWrite("PATCH"))

	other := west.slice("b", "10.2.0.2")
	other.Labels[apibroker.LabelForZone] = "a"
	b.Create(other)
	b.Delete(slice)
	got = i.do("another slice", func() bool {
		all := i.Broker.Slices(db, "west")
		return len(all) == 1 && all[0].Labels[apibroker.LabelForZone] == "a" && !i.lists(slice)
	})
	i.Expect("other slices with the same endpoints come first", got, importWrite, newSliceWrite,
		importedWrite("DELETE", "west", "a"))
	b.Delete(other)
	slice = west.slice("a", "10.2.0.2")
	b.Create(slice)
	i.do("as before", func() bool {
		all := i.Broker.Slices(db, "west")
		return len(all) == 1 && all[0].Name == slice.Name && !i.lists(other)
	})

	i.End()
	i = b.start(func(*Config) {})
	i.Expect("a restart", i.do("record", func() bool { return i.addressOf("west") != "" }))
	i.drift(first)
	i.terminating(slice)

	record.Spec.Type, record.Spec.Ports = v1alpha1.Headless, record.Spec.Ports[:1]
	b.Update(record)
	i.Expect("turned Headless", i.do("port", ports(1)), derivedWrite("DELETE"), importWrite,
		importedWrite("PATCH", "west", "a"))

	b.Delete(slice, record)
	got = i.do("withdrawn", func() bool { return len(i.Broker.Records(db)) == 0 && i.addressOf("west") == "" })
	i.Expect("the last export", got, importedWrite("DELETE", "west", "a"), "DELETE shop/serviceimports/db")
	if left := i.read(); left.Import != nil || left.Service != nil || len(left.Slices) > 0 {
		t.Errorf("left: %+v, want nothing", left)
	}
	i.Expect("the last export, again", i.do("", always))
	i.End()
	checkSelection(b, west)
	checkLimits(t, b, west)
}

// The status of an import has the generation of its spec, where the CRD has that field (docs/spec/controller.md 5.4).
func TestObservedGeneration(t *testing.T) {
	b := newEnv(t)
	west := b.partner("west")
	integer := map[string]any{"type": "integer", "format": "int64"}
	crd := controlplane.WithStatus(mcscrd.ServiceImportCRD, "observedGeneration", integer)
	if err := b.Server.InstallCRDs(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	kinds, err := member.CheckKinds(t.Context(), b.Admin)
	if err != nil || !kinds.ImportObserves {
		t.Fatalf("%+v, %v; want status.observedGeneration", kinds, err)
	}
	check := func(what string) {
		t.Helper()
		o, err := b.Server.Dynamic().Resource(mcsv1beta1.SchemeGroupVersion.WithResource("serviceimports")).Namespace("shop").
			Get(t.Context(), "db", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration"); got != o.GetGeneration() {
			t.Errorf("%s: generation %d is observed, want %d", what, got, o.GetGeneration())
		}
	}
	observes := func(c *Config) { c.ImportObserves = true }
	record := west.record()
	b.Create(record, west.slice("a", "10.2.0.1"))
	i := b.start(observes)
	seen := func() bool { return i.addressOf("west") != "" }
	i.Expect("a new service", i.do("record", seen), newImportWrite, newServiceWrite, importWrite, newSliceWrite,
		importStatus)
	check("a new service")
	record.Spec.Ports = append(record.Spec.Ports, v1alpha1.ServicePort{Name: "admin", Protocol: corev1.ProtocolTCP,
		Port: 5433})
	b.Update(record)
	i.Expect("a port", i.do("port", func() bool { return len(i.Broker.Records(db)[0].Spec.Ports) == 2 }), importWrite,
		derivedWrite("PATCH"), importStatus)
	check("a port")
	i.Expect("again", i.do("", always))
	i.End()
	i = b.start(observes)
	i.Expect("a restart", i.do("record", seen))
}

// checkNew compares what a new service got.
func (i importing) checkNew(o desired.Objects) {
	i.Helper()
	imp, service := o.Import, o.Service
	if imp == nil || service == nil || len(o.Slices) != 1 {
		i.Fatalf("objects = %+v, want one of each", o)
	}
	want := mcsv1beta1.ServiceImportSpec{
		Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Name: "pg", Protocol: corev1.ProtocolTCP,
			Port: 5432}},
		IPs: service.Spec.ClusterIPs, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		SessionAffinity: corev1.ServiceAffinityNone,
	}
	if len(want.IPs) != 1 || !reflect.DeepEqual(imp.Spec, want) {
		i.Errorf("spec = %+v, want %+v", imp.Spec, want)
	}
	if imp.Labels["tier"] != "gold" || imp.Labels[apibroker.LabelManagedBy] != apibroker.ManagedBy {
		i.Errorf("labels = %v, want the exported one and our mark", imp.Labels)
	}
	i.checkStatus("Ready=True/Ready", "west")
	for _, owned := range []apiserver.Object{service, o.Slices[0]} {
		if refs := owned.GetOwnerReferences(); len(refs) > 0 { // with the CRD, the garbage collector would delete it
			i.Errorf("owners of %s = %+v, want none", owned.GetName(), refs)
		}
	}
	labels := map[string]string{
		mcsv1beta1.LabelServiceName: "db", mcsv1beta1.LabelSourceCluster: "west",
		discoveryv1.LabelManagedBy: apibroker.ManagedBy, discoveryv1.LabelServiceName: service.Name,
	}
	if s := o.Slices[0]; s.Name != imported("west", "a") || !reflect.DeepEqual(s.Labels, labels) {
		i.Errorf("slice = %s with %v, want %s with %v", s.Name, s.Labels, imported("west", "a"), labels)
	}
}

// checkStatus compares condition and clusters of the import.
func (i importing) checkStatus(ready string, clusters ...string) {
	i.Helper()
	imp := i.read().Import
	if imp == nil || len(imp.Status.Conditions) != 1 {
		i.Fatalf("import = %+v, want one with a condition", imp)
	}
	c := imp.Status.Conditions[0]
	if got := c.Type + "=" + string(c.Status) + "/" + c.Reason; got != ready || c.Message == "" ||
		c.LastTransitionTime.IsZero() {
		i.Errorf("condition = %+v, want %s", c, ready)
	}
	var got []string
	for _, c := range imp.Status.Clusters {
		got = append(got, c.Cluster)
	}
	if !slices.Equal(got, clusters) {
		i.Errorf("clusters = %q, want %q", got, clusters)
	}
}

// drift lets others change and delete our objects. was are the objects as they were made.
func (i importing) drift(was desired.Objects) {
	i.Helper()
	i.edit(&mcsv1beta1.ServiceImport{}, "db", `{"metadata":{"labels":{"tier":"lead"}},"spec":{"internalTrafficPolicy":"Local"}}`)
	got := i.do("edited import", func() bool { return i.Member.Import(db).Labels["tier"] == "lead" })
	i.Expect("an import that was edited", got, importWrite)

	i.edit(&corev1.Service{}, was.Service.Name, `{"spec":{"selector":{"a":"b"}}}`)
	got = i.do("edited Service", func() bool { return len(i.Member.Derived(db).Spec.Selector) > 0 })
	i.Expect("a derived Service that was edited", got, derivedWrite("PATCH"))

	i.edit(&corev1.Service{}, was.Service.Name, `{"spec":{"externalIPs":["192.0.2.1"]}}`)
	got = i.do("external IPs", func() bool { return len(i.Member.Derived(db).Spec.ExternalIPs) > 0 })
	i.Expect("a derived Service with external IPs", got, derivedWrite("PATCH"))
	if ips := i.read().Service.Spec.ExternalIPs; len(ips) > 0 {
		i.Errorf("external IPs = %v, want none", ips)
	}

	i.edit(&discoveryv1.EndpointSlice{}, was.Slices[0].Name, `{"endpoints":[]}`)
	got = i.do("edited slice", func() bool { return len(i.Member.ImportedSlices(db)[0].Endpoints) == 0 })
	i.Expect("a slice that was edited", got, importedWrite("PATCH", "west", "a"))

	i.Delete(i.read().Slices[0])
	got = i.do("deleted slice", func() bool { return len(i.Member.ImportedSlices(db)) == 0 })
	i.Expect("a slice that was deleted", got, newSliceWrite)

	i.Delete(was.Service)
	got = i.do("deleted Service", func() bool { return i.Member.Derived(db) == nil })
	i.Expect("a derived Service that was deleted", got, newServiceWrite)
	now := i.read()
	if !slices.Equal(now.Service.Spec.ClusterIPs, was.Service.Spec.ClusterIPs) {
		i.Errorf("addresses = %v, want %v as before", now.Service.Spec.ClusterIPs, was.Service.Spec.ClusterIPs)
	}

	i.Delete(was.Import)
	got = i.do("deleted import", func() bool {
		return i.Member.Import(db) == nil && slices.Equal(i.Member.Leftovers(), []types.NamespacedName{db})
	})
	i.Expect("an import that was deleted", got, newImportWrite, importStatus)
	i.Expect("after all that", i.do("", always))
	i.deletedBeforeStatus()
}

// deletedBeforeStatus deletes the import while its status is written: the import that is made in its place gets the
// status, too.
func (i importing) deletedBeforeStatus() {
	i.Helper()
	is := i.Membership.Status()
	result, exp, _ := i.cfg.Own.Export(db, is)
	p := i.planner.plan(i.reader.read(db, ownExport{result, exp, is.ClusterID}))
	w := newWriter(i.writers, db)
	objects := w.written.Objects()
	objects.Import = objects.Import.DeepCopy()
	objects.Import.Status = mcsv1beta1.ServiceImportStatus{} // so that it is written
	w.written = i.writers.writes.ImportOf(db, objects)
	i.Delete(i.read().Import)
	if err := w.write(i.Context(), p); err != nil {
		i.Errorf("deleted before the status was written: %v", err)
	}
	i.checkStatus("Ready=True/Ready", "west")
	i.Await("the new import", func() bool {
		return i.Member.Import(db) != nil && i.Member.Import(db).UID == i.read().Import.UID
	})
	i.do("", always)
}

// terminating deletes the import while a finalizer of someone else holds it: its slices follow
// (docs/spec/controller.md 5.1).
func (i importing) terminating(slice *discoveryv1.EndpointSlice) {
	i.Helper()
	i.edit(&mcsv1beta1.ServiceImport{}, "db", `{"metadata":{"finalizers":["example.org/held"]}}`)
	imports := i.Server.Dynamic().Resource(mcsv1beta1.SchemeGroupVersion.WithResource("serviceimports")).Namespace(
		db.Namespace)
	for _, tt := range []struct {
		how     metav1.DeletionPropagation
		address string
	}{
		{metav1.DeletePropagationBackground, "10.2.0.3"}, {metav1.DeletePropagationForeground, "10.2.0.4"},
	} {
		if err := imports.Delete(i.Context(), db.Name, metav1.DeleteOptions{PropagationPolicy: &tt.how}); err != nil {
			i.Fatal(err)
		}
		deleted := i.read().Import
		slice.Endpoints[0].Addresses[0] = tt.address
		i.Update(slice)
		got := i.do("deletion and flip", func() bool {
			return i.Member.Import(db).ResourceVersion == deleted.ResourceVersion && i.addressOf("west") == tt.address
		})
		i.Expect("an import that is being deleted: "+string(tt.how), got, importedWrite("PATCH", "west", "a"))
		i.Expect("again", i.do("", always))
	}
	i.edit(&mcsv1beta1.ServiceImport{}, "db", `{"metadata":{"finalizers":[]}}`)
	got := i.do("deleted import", func() bool { return i.Member.Import(db) == nil })
	i.Expect("an import that is gone", got, newImportWrite, importStatus)
}

// docs/spec/controller.md 5: foreign objects stay, and the import names the taken name.
func TestImportBesideOthers(t *testing.T) {
	b := newEnv(t)
	west := b.partner("west")
	theirs := memberenv.NewService(types.NamespacedName{Namespace: "shop", Name: desired.DerivedName("shop", "db")})
	b.Create(theirs, west.record(), west.slice("a", "10.2.0.1", "10.96.0.9", "10.9.0.1"),
		west.slice("c", "10.1.128.9"))
	i := b.start(func(*Config) {}, netip.MustParsePrefix("10.96.0.0/16"))
	ready := func() bool { return i.addressOf("west") != "" && i.Member.Derived(db) != nil }
	i.Expect("beside a foreign Service", i.do("record", ready), newImportWrite, newSliceWrite, importStatus)
	i.Expect("again", i.do("", always))
	i.checkStatus("Ready=False/Pending", "west")
	o := i.read()
	if !strings.Contains(o.Import.Status.Conditions[0].Message, theirs.Name) ||
		o.Service.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("condition = %+v and Service at version %s, want its name, and %s",
			o.Import.Status.Conditions[0], o.Service.ResourceVersion, theirs.ResourceVersion)
	}
	if n := i.Log.Count("left alone"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	// docs/spec/controller.md 9: a rejection is logged once, and does not stop the rest.
	if addresses := o.Slices[0].Endpoints; len(o.Slices) != 1 || len(addresses) != 1 ||
		addresses[0].Addresses[0] != "10.2.0.1" {
		t.Errorf("slices = %+v, want the one address that the member may offer", o.Slices)
	}
	for reason, want := range map[merge.Reason]int{merge.OwnCIDR: 2, merge.AlienCIDR: 1} { // once for each slice
		n, counted := i.Log.Count("("+string(reason)+")"), i.Metric("rejected_objects_total", string(reason))
		if n != want || counted < float64(want) {
			t.Errorf("%s: logged %d times and counted %v, want %d times, and counted", reason, n, counted, want)
		}
	}
	if n := i.Log.Count("address 10.1.128.9: want none in the networks of this cluster itself"); n != 1 {
		t.Errorf("an address of our own pods: logged %d times, want once", n)
	}

	b.Delete(theirs)
	got := i.do("name free", func() bool { return i.Member.Derived(db) == nil })
	i.Expect("the name is free", got, newServiceWrite, importWrite, importStatus)
	i.checkStatus("Ready=True/Ready", "west")
	i.olderKind(west)
	i.adopted()
	i.ownBroker(west)
	i.withoutKind()
}

// ownBroker makes objects of a member in a broker namespace of this cluster: they have our label, and are not imported.
func (i importing) ownBroker(p partner) {
	i.Helper()
	meta := p.meta("db")
	meta.Labels[apibroker.LabelManagedBy] = apibroker.ManagedBy
	spec := mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{}}
	exported := p.slice("b", "10.2.0.2")
	exported.Labels[discoveryv1.LabelManagedBy] = apibroker.ManagedBy
	i.Create(&mcsv1beta1.ServiceImport{ObjectMeta: meta, Spec: spec}, exported)
	svc := types.NamespacedName{Namespace: p.namespace, Name: "db"}
	i.Await("view and slices", func() bool {
		return i.Member.Import(svc) != nil && len(i.Member.ImportedSlices(svc)) == 3
	})
	i.Writes.Take()
	if err := i.Reconcile(i.Context(), svc); err != nil {
		i.Errorf("broker namespace: %v", err)
	}
	i.Expect("a broker namespace", i.Writes.Take())
	// As imports, they would be lost: no record on the broker is of such a service.
	if all := i.Member.Imports(); slices.Contains(all, svc) {
		i.Errorf("imports = %v, want none of a broker namespace", all)
	}
}

// withoutKind creates an object without its namespace, which is waited for, and fails for any other reason.
func (i importing) withoutKind() {
	i.Helper()
	svc := types.NamespacedName{Namespace: "absent", Name: "db"}
	imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name}}
	create := func() (bool, error) {
		return i.writers.writes.Import(svc).Apply(i.Context(), desired.Changes{Create: desired.Objects{Import: imp}})
	}
	if wrote, err := create(); wrote || err != nil {
		i.Errorf("in no namespace: %t, %v, want no write and no error", wrote, err)
	}
	i.Member.Wrote(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: svc.Namespace}})
	if _, err := create(); !apierrors.IsNotFound(err) {
		i.Errorf("in a namespace that is there: %v, want the error", err)
	}
}

// olderKind imports a service where ServiceImport lacks fields that can be done without (docs/spec/controller.md 5.3).
func (i importing) olderKind(p partner) {
	i.Helper()
	var kind unstructured.Unstructured
	if err := yaml.Unmarshal(mcscrd.ServiceImportCRD, &kind.Object); err != nil {
		i.Fatal(err)
	}
	versions, _, _ := unstructured.NestedSlice(kind.Object, "spec", "versions")
	for _, v := range versions {
		properties := []string{"schema", "openAPIV3Schema", "properties"}
		unstructured.RemoveNestedField(v.(map[string]any), append(properties, "status", "properties",
			"endpointSliceObjects")...)
		unstructured.RemoveNestedField(v.(map[string]any), append(properties, "status", "properties", "conditions")...)
		unstructured.RemoveNestedField(v.(map[string]any), append(properties, "spec", "properties", "trafficDistribution")...)
	}
	_ = unstructured.SetNestedSlice(kind.Object, versions, "spec", "versions")
	older, err := yaml.Marshal(kind.Object)
	if err != nil {
		i.Fatal(err)
	}
	if err := i.Server.InstallCRDs(i.Context(), older); err != nil {
		i.Fatal(err)
	}
	i.Await("the older CRD, and the import without the field",
		func() bool { return i.read().Import.Status.EndpointSliceObjects == "" })
	kinds, err := member.CheckKinds(i.Context(), i.Admin)
	if err != nil || len(kinds.ImportLacks) != 3 || len(kinds.Warnings) != 1 {
		i.Fatalf("kinds = %+v, %v; want 3 fields that are lacking, and a warning", kinds, err)
	}
	withOlder := i.with(func(c *Config) { c.ImportLacks = kinds.ImportLacks })
	record := p.record()
	record.Name, record.Spec.Name, record.Spec.TrafficDistribution = "cart.shop", "cart", new("PreferClose")
	record.Labels[mcsv1beta1.LabelServiceName] = "cart"
	i.Create(record)
	svc := memberenv.Service("cart")
	i.Await("record", func() bool { return len(i.Broker.Records(svc)) == 1 })
	i.Writes.Take()
	for range 2 {
		if err := withOlder.Reconcile(i.Context(), svc); err != nil {
			i.Errorf("an older CRD: %v", err)
		}
	}
	i.Expect("an older CRD", i.Writes.Take(), newImportWrite, newServiceWrite, "PATCH shop/serviceimports/cart",
		"PATCH shop/serviceimports/cart/status")
	imp := &mcsv1beta1.ServiceImport{}
	if err := i.Admin.Get(i.Context(), imp, svc.Namespace, svc.Name); err != nil || len(imp.Status.Clusters) != 1 ||
		len(imp.Spec.IPs) == 0 {
		i.Errorf("import = %+v, %v; want one with addresses and a cluster", imp, err)
	}
	if n := i.Log.Count("keeps the"); n != 0 {
		i.Errorf("logged %d times that an object is kept different, want never: %v", n, i.Log)
	}
}

// adopted lets someone else take over the import.
func (i importing) adopted() {
	i.Helper()
	i.edit(&mcsv1beta1.ServiceImport{}, "db", `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"someone"}}}`)
	got := i.do("taken over", func() bool { return !member.IsOurs(i.Member.Import(db)) })
	i.Expect("an import that is no longer ours", got, importedWrite("DELETE", "west", "a"), derivedWrite("DELETE"))
	i.Expect("again", i.do("", always))
	if i.read().Import == nil {
		i.Error("the import of someone else was deleted")
	}
}

// docs/spec/controller.md 5, docs/spec/controller.md 7, docs/spec/controller.md 8: objects that stay while the broker
// is suspect, and that go when the cluster is not a member.
func TestImportFrozen(t *testing.T) {
	b := newEnv(t)
	west := b.partner("west")
	record, slice := west.record(), west.slice("a", "10.2.0.1")
	source := memberenv.NewSourceSlice(db, "db-1", "10.1.0.1")
	service := memberenv.NewService(db)
	service.Spec.Ports[0].Port = 5433 // in conflict, so the newer one of the two serves no port
	service.Spec.Ports[0].Name = "admin"
	source.Ports[0].Name = new("admin")
	b.Create(record, slice, memberenv.NewExport(db), service, source)
	i := b.start(func(*Config) {})
	got := i.do("both", func() bool {
		return i.addressOf("west") != "" && i.Member.Export(db) != nil && i.Member.Service(db) != nil &&
			len(i.Member.SourceSlices(db)) == 1
	})
	i.Expect("two exports", got, newImportWrite, newServiceWrite, importWrite, newSliceWrite, newSliceWrite, importStatus,
		statusWrite)
	i.checkStatus("Ready=True/Ready", "east", "west")
	if got, want := i.ConditionsOf(db), "Conflict=True/LabelsConflict,PortConflict"; !sameReasons(got, want) {
		t.Errorf("conditions = %s, want %s", got, want)
	}
	i.checkConflicts(1)

	i.forgetID()
	i.freezeAll(source, slice)
	i.lose(record, slice, source)
	i.expire(slice)

	i.loseMember("west")
	i.TakeOff()
	i.Delete(&aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: about.ClusterSetName}})
	i.review("not a member", "", true)
	got = i.do("", always)
	i.checkLost("not a member", false)
	i.Expect("not a member", got, importedWrite("DELETE", "east", "db-1"), derivedWrite("DELETE"),
		"DELETE shop/serviceimports/db", statusWrite)
	if held := i.planner.limits.contributions(db); len(held) > 0 {
		t.Errorf("not a member: %v counts still", held)
	}
	if got := i.ConditionsOf(db); got != "" {
		t.Errorf("conditions = %s, want none", got)
	}
	i.checkConflicts(0)
	i.JoinSet()
	i.Delete(&aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: about.ClusterIDName}})
	i.review("no cluster id", "", false)
	i.Expect("not known", i.do("", always))
}

// sameReasons compares conditions, whatever the order of the reasons.
func sameReasons(got, want string) bool {
	sorted := func(s string) []string {
		all := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == '/' })
		slices.Sort(all)
		return all
	}
	return slices.Equal(sorted(got), sorted(want))
}

func (i importing) checkConflicts(want float64) {
	i.Helper()
	if got := i.Metric("conflicts", string(mcsv1beta1.ServiceExportReasonPortConflict)); got != want {
		i.Errorf("services in conflict = %v, want %v", got, want)
	}
}

// forgetID reconciles with a reading of the membership of the moment before it got unknown: one reconcile uses one
// reading (docs/spec/controller.md 7).
func (i importing) forgetID() {
	i.Helper()
	before := i.Membership.Status()
	id := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: about.ClusterIDName}}
	i.Delete(id)
	i.review("no cluster id", "", false)
	if err := i.Importer.reconcile(i.Context(), db, before); err != nil {
		i.Error(err)
	}
	i.Expect("while the membership gets unknown", i.Writes.Take())
	id.Spec.Value = memberenv.ID
	i.Create(id)
	i.review("the cluster id is back", memberenv.ID, true)
}

// freezeAll reconciles while the broker is not to be believed: only this cluster's own endpoints follow.
func (i importing) freezeAll(source, slice *discoveryv1.EndpointSlice) {
	i.Helper()
	i.Freezes.Set(safety.BrokerEmpty, "why")
	slice.Endpoints[0].Addresses[0] = "10.2.0.3"
	i.Update(slice)
	i.Expect("frozen", i.do("flip of west", func() bool { return i.addressOf("west") == "10.2.0.3" }))
	source.Endpoints[0].Addresses[0] = "10.1.0.3"
	i.Update(source)
	got := i.do("flip of our own", func() bool {
		return i.Member.SourceSlices(db)[0].Endpoints[0].Addresses[0] == "10.1.0.3"
	})
	i.Expect("our own, frozen", got, importedWrite("PATCH", "east", "db-1"))
	i.Freezes.Set(safety.BrokerEmpty, "")
	i.Expect("not frozen", i.do("", always), importedWrite("PATCH", "west", "a"))
}

// lose takes objects off the broker, or puts old copies of them there, as a restore does. No import of the member goes,
// also in a new process, until its owner ends it (package protocol).
func (i importing) lose(record *v1alpha1.ExportedService, slice, source *discoveryv1.EndpointSlice) {
	i.Helper()
	was, old := slice.DeepCopy(), record.DeepCopy()
	slice.Endpoints[0].Addresses[0] = "10.2.0.4"
	i.Update(slice)
	record.Spec.Ports = append(record.Spec.Ports, v1alpha1.ServicePort{Name: "admin2", Protocol: corev1.ProtocolTCP,
		Port: 5434})
	i.Update(record) // it lists the slice
	got := i.do("the list", func() bool {
		return i.addressOf("west") == "10.2.0.4" && len(i.recordOf("west").Spec.Slices) == 1
	})
	i.Expect("as it was", got, importWrite, derivedWrite("PATCH"), importedWrite("PATCH", "west", "a"), statusWrite)

	restore := func(o apiserver.Object) {
		i.Helper()
		o.SetResourceVersion("")
		o.SetUID("")
		if err := i.Admin.Create(i.Context(), o); err != nil {
			i.Fatal(err)
		}
	}
	unchanged := func(what string, ready func() bool) {
		i.Helper()
		i.Expect(what, i.do(what, ready))
		i.Expect(what+", a new process", i.with(func(*Config) {}).do(what, ready))
	}
	i.Lose(slice)
	unchanged("without the slice", func() bool { return i.addressOf("west") == "" })
	restore(was)
	unchanged("an old slice", func() bool { return i.addressOf("west") == "10.2.0.3" })
	i.Lose(record)
	lost := func() bool { return i.recordOf("west") == nil }
	unchanged("without the record", lost)
	if kept := i.Kept(); kept["west"] != 1 {
		i.Errorf("kept %v, want one service of west", kept)
	}
	// A newer part of the inventory ends it, although neither lists it.
	part := apibroker.InventoryPart(db.Namespace, db.Name)
	if kept := i.KeptIn("west", part); !slices.Equal(kept, []types.NamespacedName{db}) || len(i.KeptIn("north", part)) > 0 {
		i.Errorf("kept %v of the part, want %v", kept, db)
	}
	source.Endpoints[0].Addresses[0] = "10.1.0.4"
	i.Update(source)
	got = i.do("flip of our own", func() bool {
		return i.Member.SourceSlices(db)[0].Endpoints[0].Addresses[0] == "10.1.0.4"
	})
	i.Expect("our own, without the record", got, importedWrite("PATCH", "east", "db-1"))
	restore(old)
	unchanged("an old record", func() bool { return !lost() })
	i.loseInventory(record)

	i.Lose(was)
	slice.ResourceVersion, slice.UID = "", ""
	slice.Endpoints[0].Addresses[0] = "10.2.0.3"
	i.Create(slice)
	record.Spec.Ports = record.Spec.Ports[:len(record.Spec.Ports)-1]
	i.Update(record)
	got = i.do("the owner has written", func() bool {
		return i.addressOf("west") == "10.2.0.3" && i.recordOf("west").Spec.Stamp == record.Spec.Stamp
	})
	i.Expect("the owner has written", got, importWrite, derivedWrite("PATCH"), importedWrite("PATCH", "west", "a"),
		statusWrite)
	if kept := i.Kept(); kept["west"] > 0 {
		i.Errorf("kept %v, want nothing", kept)
	}
}

// loseInventory takes the inventory off the broker, and the Member.
func (i importing) loseInventory(record *v1alpha1.ExportedService) {
	i.Helper()
	part := &v1alpha1.Inventory{ObjectMeta: metav1.ObjectMeta{Namespace: record.Namespace,
		Name: apibroker.InventoryPart("shop", "db")}}
	if err := i.Admin.Get(i.Context(), part, part.Namespace, part.Name); err != nil {
		i.Fatal(err)
	}
	part.Spec.Stamp, part.Spec.Exports = 1, nil
	i.Update(part)
	m := i.loseMember("west")
	m.ResourceVersion, m.UID = "", ""
	i.Create(m)
	i.Expect("the Member is back", i.do("Member", func() bool { return i.Broker.Members.Get("west") != nil }))
	i.checkLost("the Member is back", false)
}

// loseMember takes a Member off the broker. Its imports stay.
func (i importing) loseMember(id string) *v1alpha1.Member {
	i.Helper()
	m := &v1alpha1.Member{}
	if err := i.Admin.Get(i.Context(), m, "", id); err != nil {
		i.Fatal(err)
	}
	i.Lose(m)
	i.Expect("without the Member", i.do("no Member", func() bool { return i.Broker.Members.Get(id) == nil }))
	i.checkLost("without the Member", true)
	return m
}

// checkLost compares the reason lost_members.
func (i importing) checkLost(what string, want bool) {
	i.Helper()
	if i.Review(); i.Freezes.AnyInForce(safety.LostMembers) != want {
		i.Errorf("%s: lost_members is %t, want %t", what, !want, want)
	}
}

// lists reports whether the record of west lists a slice. It comes by another watch than the slice.
func (i importing) lists(s *discoveryv1.EndpointSlice) bool {
	r := i.recordOf("west")
	return r != nil && slices.Contains(r.Spec.Slices, apibroker.SliceHash(s.Name))
}

// recordOf returns the record of a cluster, or nil.
func (i importing) recordOf(cluster string) *merge.Record {
	for _, r := range i.Broker.Records(db) {
		if r.Cluster == cluster {
			return &r
		}
	}
	return nil
}

// expire lets west fall silent and return.
func (i importing) expire(slice *discoveryv1.EndpointSlice) {
	i.Helper()
	alive := i
	i.silence()
	i = i.with(func(c *Config) { c.Expiry = i.silent(liveness.ActLastResort) })
	i.Expect("silent, and nobody else serves its port", i.do("", always))
	i = i.with(func(c *Config) { c.Expiry = i.silent(liveness.ActRemove) })
	i.Expect("silent, removed", i.do("", always), importedWrite("DELETE", "west", "a"))
	i.checkStatus("Ready=True/Ready", "east", "west")
	i.lag(slice)
	i = alive
	i.Expect("back", i.do("", always), newSliceWrite)
	i.Delete(slice)
	got := i.do("slice gone", func() bool { // the record, which no longer lists it, has a watch of its own
		return i.addressOf("west") == "" && len(i.recordOf("west").Spec.Slices) == 0
	})
	i.Expect("gone", got, importWrite, importedWrite("DELETE", "west", "a"))
}

// lag lets west report to be back while the watch of its slices lags behind: it stays silent until the caches are as
// new as the broker.
func (i importing) lag(slice *discoveryv1.EndpointSlice) {
	i.Helper()
	release := i.Writes.HoldWatches("/endpointslices")
	i.Update(slice)
	now := metav1.NowMicro()
	heartbeat := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: slice.Namespace, Name: apibroker.HeartbeatName,
			Labels:      map[string]string{apibroker.LabelManagedBy: apibroker.ManagedBy},
			Annotations: map[string]string{apibroker.AnnotationComplete: "1"},
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: &now},
	}
	i.Create(heartbeat)
	i.evaluate(func(*safety.Expiry) {}, func(e *safety.Expiry) {
		i.Await("two looks at the slices of west", func() bool {
			return i.Writes.Gets("/"+slice.Namespace+"/endpointslices") > 1 || e.Result().Returning("west")
		})
		if !e.Result().Silent("west") {
			i.Error("west is back, and the watch of its slices lags behind")
		}
		release()
		i.Await("that west is back", func() bool { return e.Result().Returning("west") })
	})
}

// docs/spec/controller.md 9: which namespaces and which exporters count.
func TestTaking(t *testing.T) {
	b := newEnv(t)
	west := b.partner("west")
	b.Create(west.record(), west.slice("a", "10.2.0.1"))
	i := b.start(func(c *Config) { c.Merge.VIP = merge.NoVIP })
	i.annotate("east,north")
	seen := func() bool { return i.addressOf("west") != "" && i.allowed() == "east,north" }
	i.Expect("not an allowed source", i.do("record", seen))
	i.annotate("east, west")
	got := i.do("allowed", func() bool { return i.allowed() == "east, west" })
	i.Expect("an allowed source, no VIP", got, newImportWrite, newSliceWrite, importStatus)
	i = i.with(func(c *Config) { c.Policy.Namespaces.Names = []string{"other"} })
	i.Expect("a namespace that takes no part", i.do("", always), importedWrite("DELETE", "west", "a"),
		"DELETE shop/serviceimports/db")
	i.lossBeside(west, b.partner("north"), b.partner("south"))
}

// lossBeside loses the record of west. Changes and ends of other members take effect meanwhile
// (docs/spec/controller.md 8.6).
func (i importing) lossBeside(west, north, south partner) {
	i.Helper()
	slice := north.slice("n", "10.2.0.8")
	i.Create(north.record(), slice, south.record(), south.slice("s", "10.2.0.7"))
	i.annotate("east, west, north, south")
	i = i.with(func(c *Config) { c.Policy.Namespaces.Names = nil })
	i.do("all records", func() bool {
		return len(i.Broker.Records(db)) == 3 && i.addressOf("north") != "" && i.addressOf("south") != "" &&
			i.allowed() == "east, west, north, south"
	})
	i.checkStatus("Ready=True/Ready", "north", "south", "west")
	i.Lose(west.record())
	i.Delete(south.record())
	slice.Endpoints[0].Addresses[0] = "10.2.0.9"
	i.Update(slice)
	got := i.do("record gone, and a change", func() bool {
		return len(i.Broker.Records(db)) == 1 && i.addressOf("north") == "10.2.0.9"
	})
	i.Expect("a change and an end beside a loss", got, importedWrite("PATCH", "north", "n"),
		importedWrite("DELETE", "south", "s"))
	i.checkStatus("Ready=True/Ready", "north", "south", "west")

	i.loseMember(west.id)
	mark := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: west.namespace}}
	if err := i.Admin.Patch(i.Context(), mark, []byte(`{"metadata":{"annotations":{"clusterset-dns.io/removed":"now"}}}`), "someone"); err != nil {
		i.Fatal(err)
	}
	got = i.do("west was removed", func() bool { return i.Broker.Members.Removed(west.id) })
	i.checkLost("a member that was removed", false)
	i.Expect("a member that was removed", got, importWrite, importedWrite("DELETE", "west", "a"), importStatus)
	i.checkStatus("Ready=True/Ready", "north")
}

// denied makes the API server reject imported slices with the address 10.2.0.66.
var denied = memberenv.Policy{
	Name: "denied", Resources: []string{"discovery.k8s.io/v1/endpointslices"},
	Operations: []admissionv1.OperationType{admissionv1.Create},
	Where:      `request.namespace == "shop"`, Want: []string{`object.endpoints.all(e, !("10.2.0.66" in e.addresses))`},
}

// docs/spec/controller.md 5.5: an endpoint that moves to a slice that the API server rejects stays in the one in which
// it is.
func TestMovedToADeniedSlice(t *testing.T) {
	b := newEnv(t)
	west := b.partner("west")
	from, to := west.slice("a", "10.2.0.1", "10.2.0.2"), west.slice("b", "10.2.0.1")
	to.Endpoints = append(to.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.2.0.66"}})
	b.Create(west.record(), from)
	i := b.start(func(c *Config) { c.Merge.VIP = merge.NoVIP })
	i.do("record", func() bool { return i.addressOf("west") != "" })
	b.Deny(denied)
	moved := func() bool {
		has := i.Broker.Slices(db, "west")
		return len(has) == 1 && has[0].Name == to.Name
	}
	names := func() (names []string) {
		for _, s := range i.read().Slices {
			names = append(names, s.Name)
		}
		return names
	}
	b.Create(to)
	b.Delete(from)
	for range 2 {
		i.do("moved", moved)
		if got, want := names(), []string{imported("west", "a")}; !slices.Equal(got, want) {
			t.Fatalf("moved to a slice that is rejected: slices %q, want %q", got, want)
		}
		// docs/spec/controller.md 5.5: endpoints that are gone meanwhile do not stay with it.
		if left := i.read().Slices[0].Endpoints; len(left) != 1 || left[0].Addresses[0] != "10.2.0.1" {
			t.Errorf("endpoints = %+v, want 10.2.0.1 alone", left)
		}
	}
	to.Endpoints = to.Endpoints[:1]
	b.Update(to)
	i.do("one that is not rejected", func() bool { return moved() && len(i.Broker.Slices(db, "west")[0].Endpoints) == 1 })
	if got, want := names(), []string{imported("west", "b")}; !slices.Equal(got, want) {
		t.Errorf("moved to a slice that is not rejected: slices %q, want %q", got, want)
	}
}

// docs/spec/controller.md 5.5: an endpoint that moves to a slice with a taken name stays in its old one, also while the
// name is known to be taken, until it is free.
func TestMovedToATakenName(t *testing.T) {
	b := newEnv(t)
	west := b.partner("west")
	from, to := west.slice("a", "10.2.0.1", "10.2.0.2"), west.slice("b", "10.2.0.1")
	b.Create(west.record(), from)
	i := b.start(func(c *Config) { c.Merge.VIP = merge.NoVIP })
	i.do("record", func() bool { return i.addressOf("west") != "" })
	taken := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: imported("west", "b"),
			Labels: map[string]string{mcsv1beta1.LabelServiceName: "db"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: to.Endpoints,
	}
	b.Create(taken, to)
	b.Delete(from)
	moved := func() bool {
		has := i.Broker.Slices(db, "west")
		return len(has) == 1 && has[0].Name == to.Name && len(i.Member.ImportedSlices(db)) == 2
	}
	for range 2 {
		i.do("moved", moved)
		var left []string
		for _, s := range i.read().Slices {
			if s.Name == imported("west", "a") {
				for _, e := range s.Endpoints {
					left = append(left, e.Addresses...)
				}
			}
		}
		if !slices.Equal(left, []string{"10.2.0.1"}) {
			t.Fatalf("moved to a slice whose name is taken: %q stay, want 10.2.0.1 alone", left)
		}
	}
	i.Expect("again", i.do("", always))
	i.checkStatus("Ready=False/Pending", "west")

	b.Delete(taken)
	i.do("free", func() bool { return len(i.Member.ImportedSlices(db)) == 1 })
	if has := i.read().Slices; len(has) != 1 || has[0].Name != imported("west", "b") || len(has[0].Endpoints) != 1 {
		t.Errorf("once the name is free: slices %+v, want the new one with one endpoint", has)
	}
}

// docs/spec/controller.md 5.5: where endpoints are divided anew, those with a rejected new slice stay in their old
// slices, whether these go or only lose endpoints, and whether the rejection is known or not.
func TestDividedIntoADeniedSlice(t *testing.T) {
	b := newEnv(t)
	west := b.partner("west")
	a := west.slice("a", "10.2.0.1", "10.2.0.2", "10.2.0.3")
	b.Create(west.record(), a)
	i := b.start(func(c *Config) { c.Merge.VIP = merge.NoVIP })
	i.do("record", func() bool { return i.addressOf("west") != "" })
	b.Deny(denied)
	var all []*discoveryv1.EndpointSlice // as the broker has them
	check := func(what, want string) {
		t.Helper()
		i.do(what, func() bool {
			return slices.EqualFunc(i.Broker.Slices(db, "west"), all, func(a, b *discoveryv1.EndpointSlice) bool {
				return a.Name == b.Name && reflect.DeepEqual(a.Endpoints, b.Endpoints)
			})
		})
		var got []string
		for _, s := range i.read().Slices {
			text := s.Name
			for _, source := range []string{"a", "b", "c", "d"} {
				if s.Name == imported("west", source) {
					text = source
				}
			}
			var addresses []string
			for _, e := range s.Endpoints {
				addresses = append(addresses, strings.TrimPrefix(e.Addresses[0], "10.2.0"))
			}
			slices.Sort(addresses)
			got = append(got, text+strings.Join(addresses, ""))
		}
		if slices.Sort(got); strings.Join(got, " ") != want {
			t.Errorf("%s: slices %q, want %q", what, got, want)
		}
		i.Expect(what+", again", i.do("", always))
	}
	bySource := func(is ...*discoveryv1.EndpointSlice) {
		all = slices.SortedFunc(slices.Values(is), func(a, b *discoveryv1.EndpointSlice) int {
			return strings.Compare(a.Name, b.Name)
		})
	}

	toB, toC := west.slice("b", "10.2.0.1", "10.2.0.66"), west.slice("c", "10.2.0.2", "10.2.0.66")
	a.Endpoints = a.Endpoints[1:]
	b.Create(toB)
	b.Update(a)
	bySource(a, toB)
	check("one moves to a slice that is rejected", "a.1.2.3")
	a.Endpoints[1].Addresses[0] = "10.2.0.4"
	b.Update(a)
	check("others change meanwhile", "a.1.2.4")

	b.Delete(a)
	b.Create(toC, west.slice("d", "10.2.0.4"))
	bySource(toB, toC, west.slice("d", "10.2.0.4"))
	check("all move, to a slice that is known to be rejected, to another one and to one that is not", "a.1.2 d.4")
	toC.Endpoints = toC.Endpoints[:1]
	b.Update(toC)
	check("one of them is accepted", "a.1 c.2 d.4")
	toB.Endpoints = toB.Endpoints[:1]
	b.Update(toB)
	check("both are", "b.1 c.2 d.4")
}

// guarded makes the API server reject imports with the label tier=guarded, and the deletion of slices with a label
// tier.
var guarded = []memberenv.Policy{
	{
		Name: "guarded", Resources: []string{"multicluster.x-k8s.io/v1beta1/serviceimports"},
		Want: []string{"!has(object.metadata.labels) || !('tier' in object.metadata.labels) || object.metadata.labels['tier'] != 'guarded'"},
	},
	{
		Name: "kept", Resources: []string{"discovery.k8s.io/v1/endpointslices"},
		Operations: []admissionv1.OperationType{admissionv1.Delete},
		Want:       []string{"!has(oldObject.metadata.labels) || !('tier' in oldObject.metadata.labels)"},
	},
}

// docs/spec/controller.md 5.4: what the API server does not accept of an import or its derived Service costs neither
// addresses nor endpoints.
func TestValuesOfNewerClusters(t *testing.T) {
	b := newEnv(t)
	west := b.partner("west")
	record, slice := west.record(), west.slice("a", "10.2.0.1")
	b.Create(record, slice)
	i := b.start(func(*Config) {})
	i.do("record", func() bool { return len(i.Broker.Records(db)) == 1 && i.addressOf("west") == "10.2.0.1" })
	was := i.read()
	if len(was.Import.Spec.IPs) == 0 {
		t.Fatalf("import = %+v, want an address", was.Import)
	}
	change := func(what, address string, set func(*v1alpha1.ExportedServiceSpec)) error {
		t.Helper()
		set(&record.Spec)
		slice.Endpoints[0].Addresses[0] = address
		b.Update(record)
		b.Update(slice)
		i.Await(what, func() bool {
			records := i.Broker.Records(db)
			return i.addressOf("west") == address && len(records) == 1 &&
				reflect.DeepEqual(records[0].Spec.Labels, record.Spec.Labels) &&
				reflect.DeepEqual(records[0].Spec.TrafficDistribution, record.Spec.TrafficDistribution)
		})
		i.Writes.Take()
		err := i.Reconcile(t.Context(), db)
		now := i.read()
		if got := now.Slices[0].Endpoints[0].Addresses[0]; got != address {
			t.Errorf("%s: endpoint %s, want %s", what, got, address)
		}
		if !slices.Equal(now.Import.Spec.IPs, was.Import.Spec.IPs) || now.Service == nil ||
			now.Service.UID != was.Service.UID {
			t.Errorf("%s: addresses %v, want %v of the same derived Service", what, now.Import.Spec.IPs, was.Import.Spec.IPs)
		}
		return err
	}

	if err := change("a traffic distribution of the future", "10.2.0.2", func(s *v1alpha1.ExportedServiceSpec) {
		s.TrafficDistribution = new("PreferMoon")
	}); err != nil {
		t.Errorf("a traffic distribution of the future: %v", err)
	}
	i.checkStatus("Ready=True/Ready", "west")
	if d := i.read().Service.Spec.TrafficDistribution; d != nil {
		t.Errorf("traffic distribution = %s, want none", *d)
	}
	i.Expect("again", i.do("", always))
	i.Delete(i.read().Service)
	i.do("derived Service deleted", func() bool { return i.Member.Derived(db) == nil })
	if now := i.read(); now.Service == nil || !slices.Equal(now.Service.Spec.ClusterIPs, was.Service.Spec.ClusterIPs) {
		t.Errorf("created again: %+v, want the addresses of before", now.Service)
	}
	was = i.read()

	i.Deny(guarded...)
	if err := change("an import that is rejected", "10.2.0.3", func(s *v1alpha1.ExportedServiceSpec) {
		s.Labels = []v1alpha1.Label{{Key: "tier", Value: "guarded"}}
	}); member.Rejection(err) == "" {
		t.Errorf("an import that is rejected: %v, want the rejection", err)
	}
	i.failingDelete(west)
}

// failingDelete withdraws two slices, of which the first cannot be deleted, and changes a third.
func (i importing) failingDelete(west partner) {
	i.Helper()
	svc := types.NamespacedName{Namespace: "shop", Name: "db"}
	gone := []*discoveryv1.EndpointSlice{west.slice("b", "10.2.0.6"), west.slice("c", "10.2.0.7")}
	i.Create(gone[0], gone[1])
	i.Await("slices", func() bool { return len(i.Broker.Slices(svc, "west")) == 3 })
	_ = i.Reconcile(i.Context(), db) // the import is still rejected
	names := []string{imported("west", "b"), imported("west", "c")}
	slices.Sort(names)
	i.edit(&discoveryv1.EndpointSlice{}, names[0], `{"metadata":{"labels":{"tier":"guarded"}}}`)
	i.Delete(gone[0], gone[1])
	i.Await("slices gone, and the label", func() bool {
		return len(i.Broker.Slices(svc, "west")) == 1 && slices.ContainsFunc(i.Member.ImportedSlices(db),
			func(e *discoveryv1.EndpointSlice) bool {
				return e.Labels["tier"] == "guarded"
			})
	})
	if err := i.Reconcile(i.Context(), db); member.Rejection(err) == "" {
		i.Errorf("a slice that cannot be deleted: %v, want the rejection", err)
	}
	for _, e := range i.read().Slices {
		if e.Name == names[1] {
			i.Errorf("slice %s is left, although only %s cannot be deleted", e.Name, names[0])
		}
	}
}

func (i importing) annotate(sources string) {
	i.Helper()
	value, err := json.Marshal(
		map[string]any{"metadata": map[string]any{"annotations": map[string]string{apibroker.AnnotationAllowedSources: sources}}})
	if err != nil {
		i.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	if err := i.Admin.Patch(i.Context(), ns, value); err != nil {
		i.Fatal(err)
	}
}

func (i importing) allowed() string {
	return i.Member.Namespace("shop").Annotations[apibroker.AnnotationAllowedSources]
}
