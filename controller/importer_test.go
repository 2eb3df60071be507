package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/apiserver"
	judgement "github.com/clusterset-dns/clusterset/controller/liveness"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// An importing is an actor that imports.
type importing struct {
	*actor
	log *lines
}

// lines are what was logged.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Infof(format string, args ...any)    { l.add("info", format, args) }
func (l *lines) Warningf(format string, args ...any) { l.add("warning", format, args) }
func (l *lines) Errorf(format string, args ...any)   { l.add("error", format, args) }

func (l *lines) add(level, format string, args []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, level+": "+fmt.Sprintf(format, args...))
}

// count returns how many lines contain the text.
func (l *lines) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (b *stage) importing(set func(*Config)) importing {
	b.Helper()
	log := &lines{}
	a := b.act(func(c *Config) {
		c.Log = log
		set(c)
	})
	a.lives, a.losses = newLiveness(a.session), newLosses(a.session)
	a.losses.quiet = 0 // nobody reviews, but the test
	a.losses.review()
	b.await("families", func() bool { return len(a.local.Families()) > 0 })
	return importing{a, log}
}

// do reconciles the import, once ready says that the caches are where they should be, and returns what was written.
func (i importing) do(what string, ready func() bool) []string {
	i.Helper()
	i.await(what, ready)
	i.writes.take()
	if err := i.reconcileImport(i.Context(), db); err != nil {
		i.Fatalf("%s: %v", what, err)
	}
	return i.writes.take()
}

// A partner is another member, whose controller is the test.
type partner struct {
	*stage
	id, namespace string
}

// partner joins a member whose pods are in 10.2.0.0/16.
func (b *stage) partner(id string) partner {
	b.Helper()
	p := partner{b, id, apibroker.NamespaceName("member", id)}
	b.create(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace, Labels: map[string]string{apibroker.LabelClusterID: id}}},
		&v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: v1alpha1.MemberSpec{
			KubeSystemUID: "11234567-89ab-cdef-0123-456789abcdef", Namespace: p.namespace, PodCIDRs: []string{"10.2.0.0/16"},
		}},
	)
	return p
}

func (p partner) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: p.namespace, Name: name, Labels: map[string]string{
		mcsv1beta1.LabelServiceName: "db", mcsv1beta1.LabelSourceCluster: p.id, apibroker.LabelSourceNamespace: "shop",
	}}
}

func (p partner) record() *v1alpha1.ExportedService {
	return &v1alpha1.ExportedService{ObjectMeta: p.meta("db.shop"), Spec: v1alpha1.ExportedServiceSpec{
		Namespace: "shop", Name: "db", Type: v1alpha1.ClusterSetIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		Ports:         []v1alpha1.ServicePort{{Name: "pg", Protocol: corev1.ProtocolTCP, Port: 5432}},
		Labels:        []v1alpha1.Label{{Key: "tier", Value: "gold"}},
		ExportCreated: metav1.Now().Rfc3339Copy(),
	}}
}

func (p partner) slice(source string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: p.meta(apibroker.SliceName("shop", "db", source)), AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: new("pg"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(5432))}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	return s
}

func (b *stage) update(o apiserver.Object) {
	b.Helper()
	if err := b.admin.Update(b.Context(), o); err != nil {
		b.Fatal(err)
	}
}

// read returns the objects of the import as the API server has them.
func (b *stage) read() merge.Objects {
	b.Helper()
	var o merge.Objects
	imports, services, endpoints := &mcsv1beta1.ServiceImportList{}, &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}
	if err := b.admin.List(b.Context(), &mcsv1beta1.ServiceImport{}, imports, "shop", ""); err != nil {
		b.Fatal(err)
	}
	if err := b.admin.List(b.Context(), &corev1.Service{}, services, "shop", ""); err != nil {
		b.Fatal(err)
	}
	if err := b.admin.List(b.Context(), &discoveryv1.EndpointSlice{}, endpoints, "shop", mcsv1beta1.LabelServiceName); err != nil {
		b.Fatal(err)
	}
	for n := range imports.Items {
		o.Import = &imports.Items[n]
	}
	for n := range services.Items {
		if services.Items[n].Name == merge.DerivedName("shop", "db") {
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
	return method + " shop/services/" + merge.DerivedName("shop", "db")
}

func importedWrite(method, cluster, source string) string {
	return method + " shop/endpointslices/" + imported(cluster, source)
}

func always() bool { return true }

// addressOf returns the first address of the first slice of west that the caches have, "" if there is none.
func (i importing) addressOf(cluster string) string {
	for _, s := range i.broker.Slices(db, cluster) {
		if len(s.Endpoints) > 0 {
			return s.Endpoints[0].Addresses[0]
		}
	}
	return ""
}

// Sections 5 and 10: what is written for an import in its life, and what is not.
func TestImportLife(t *testing.T) {
	b := newStage(t)
	west := b.partner("west")
	record, slice := west.record(), west.slice("a", "10.2.0.1")
	b.create(record, slice)
	i := b.importing(func(*Config) {})
	i.expect("a new service", i.do("record", func() bool { return i.addressOf("west") != "" }),
		newImportWrite, newServiceWrite, importWrite, newSliceWrite, importStatus)
	first := b.read()
	b.checkNew(first)
	i.expect("again", i.do("", always))

	i.writes.withReads()
	slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().UTC().Format(time.RFC3339Nano)}
	slice.Endpoints[0].Addresses[0] = "10.2.0.2"
	b.update(slice)
	got := i.do("flip", func() bool { return i.addressOf("west") == "10.2.0.2" })
	i.expect("one endpoint", got, importedWrite("PATCH", "west", "a"))
	if n := i.value(i.metrics.lag); n != 1 {
		t.Errorf("lags = %v, want that of the one change", n)
	}

	record.Spec.Ports = append(record.Spec.Ports, v1alpha1.ServicePort{Name: "admin", Protocol: corev1.ProtocolTCP, Port: 5433})
	b.update(record)
	ports := func(n int) func() bool {
		return func() bool { r := i.broker.Records(db); return len(r) == 1 && len(r[0].Spec.Ports) == n }
	}
	i.expect("a port", i.do("port", ports(2)), importWrite, derivedWrite("PATCH"))

	i.end()
	i = b.importing(func(*Config) {})
	i.expect("a restart", i.do("record", func() bool { return i.addressOf("west") != "" }))
	i.drift(first)

	record.Spec.Type, record.Spec.Ports = v1alpha1.Headless, record.Spec.Ports[:1]
	b.update(record)
	i.expect("turned Headless", i.do("port", ports(1)), derivedWrite("DELETE"), importWrite, importedWrite("PATCH", "west", "a"))

	b.delete(slice, record)
	got = i.do("withdrawn", func() bool { return len(i.broker.Records(db)) == 0 && i.addressOf("west") == "" })
	i.expect("the last export", got, importedWrite("DELETE", "west", "a"), "DELETE shop/serviceimports/db")
	if left := b.read(); left.Import != nil || left.Service != nil || len(left.Slices) > 0 {
		t.Errorf("left: %+v, want nothing", left)
	}
	i.expect("the last export, again", i.do("", always))
}

// checkNew compares what a new service got.
func (b *stage) checkNew(o merge.Objects) {
	b.Helper()
	imp, service := o.Import, o.Service
	if imp == nil || service == nil || len(o.Slices) != 1 {
		b.Fatalf("objects = %+v, want one of each", o)
	}
	want := mcsv1beta1.ServiceImportSpec{
		Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Name: "pg", Protocol: corev1.ProtocolTCP, Port: 5432}},
		IPs: service.Spec.ClusterIPs, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, SessionAffinity: corev1.ServiceAffinityNone,
	}
	if len(want.IPs) != 1 || !reflect.DeepEqual(imp.Spec, want) {
		b.Errorf("spec = %+v, want %+v", imp.Spec, want)
	}
	if imp.Labels["tier"] != "gold" || imp.Labels[apibroker.LabelManagedBy] != apibroker.ManagedBy {
		b.Errorf("labels = %v, want the exported one and our mark", imp.Labels)
	}
	b.checkStatus("Ready=True/Ready", "west")
	for _, owned := range []apiserver.Object{service, o.Slices[0]} {
		if refs := owned.GetOwnerReferences(); len(refs) != 1 || refs[0].UID != imp.UID || *refs[0].Controller {
			b.Errorf("owners of %s = %+v, want the import, which does not control it", owned.GetName(), refs)
		}
	}
	labels := map[string]string{
		mcsv1beta1.LabelServiceName: "db", mcsv1beta1.LabelSourceCluster: "west",
		discoveryv1.LabelManagedBy: apibroker.ManagedBy, discoveryv1.LabelServiceName: service.Name,
	}
	if s := o.Slices[0]; s.Name != imported("west", "a") || !reflect.DeepEqual(s.Labels, labels) {
		b.Errorf("slice = %s with %v, want %s with %v", s.Name, s.Labels, imported("west", "a"), labels)
	}
}

// checkStatus compares condition and clusters of the import.
func (b *stage) checkStatus(ready string, clusters ...string) {
	b.Helper()
	imp := b.read().Import
	if imp == nil || len(imp.Status.Conditions) != 1 {
		b.Fatalf("import = %+v, want one with a condition", imp)
	}
	c := imp.Status.Conditions[0]
	if got := c.Type + "=" + string(c.Status) + "/" + c.Reason; got != ready || c.Message == "" || c.LastTransitionTime.IsZero() {
		b.Errorf("condition = %+v, want %s", c, ready)
	}
	var got []string
	for _, c := range imp.Status.Clusters {
		got = append(got, c.Cluster)
	}
	if !slices.Equal(got, clusters) {
		b.Errorf("clusters = %q, want %q", got, clusters)
	}
}

// value returns what a counter, a gauge or the count of a histogram says.
func (i importing) value(c prometheus.Collector) float64 {
	i.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	all, err := reg.Gather()
	if err != nil || len(all) != 1 {
		i.Fatalf("%d metrics (%v), want one", len(all), err)
	}
	m := all[0].GetMetric()[0]
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
}

// drift has others change and delete what is ours. was are the objects as they were made.
func (i importing) drift(was merge.Objects) {
	i.Helper()
	i.edit(&mcsv1beta1.ServiceImport{}, "db", `{"metadata":{"labels":{"tier":"lead"}},"spec":{"internalTrafficPolicy":"Local"}}`)
	got := i.do("edited import", func() bool { return i.local.Import(db).Labels["tier"] == "lead" })
	i.expect("an import that was edited", got, importWrite)

	i.edit(&corev1.Service{}, was.Service.Name, `{"spec":{"selector":{"a":"b"}}}`)
	got = i.do("edited Service", func() bool { return len(i.local.Derived(db).Spec.Selector) > 0 })
	i.expect("a derived Service that was edited", got, derivedWrite("PATCH"))

	i.edit(&discoveryv1.EndpointSlice{}, was.Slices[0].Name, `{"endpoints":[]}`)
	got = i.do("edited slice", func() bool { return len(i.local.ImportedSlices(db)[0].Endpoints) == 0 })
	i.expect("a slice that was edited", got, importedWrite("PATCH", "west", "a"))

	i.delete(i.read().Slices[0])
	got = i.do("deleted slice", func() bool { return len(i.local.ImportedSlices(db)) == 0 })
	i.expect("a slice that was deleted", got, newSliceWrite)

	i.delete(was.Service)
	got = i.do("deleted Service", func() bool { return i.local.Derived(db) == nil })
	i.expect("a derived Service that was deleted", got, newServiceWrite)
	now := i.read()
	if !slices.Equal(now.Service.Spec.ClusterIPs, was.Service.Spec.ClusterIPs) {
		i.Errorf("addresses = %v, want %v as before", now.Service.Spec.ClusterIPs, was.Service.Spec.ClusterIPs)
	}

	i.delete(was.Import)
	got = i.do("deleted import", func() bool { return i.local.Import(db) == nil })
	i.expect("an import that was deleted", got, newImportWrite, derivedWrite("PATCH"), importedWrite("PATCH", "west", "a"), importStatus)
	if refs := i.read().Service.OwnerReferences; len(refs) != 1 || refs[0].UID == was.Import.UID {
		i.Errorf("owners = %+v, want the new import alone", refs)
	}
	i.expect("after all that", i.do("", always))
}

// edit changes an object as somebody else would.
func (b *stage) edit(o apiserver.Object, name, patch string) {
	b.Helper()
	o.SetNamespace("shop")
	o.SetName(name)
	if err := b.admin.Patch(b.Context(), o, []byte(patch), "someone"); err != nil {
		b.Fatal(err)
	}
}

// Section 5: what is not ours is left alone, and the import says which name is taken.
func TestImportBesideOthers(t *testing.T) {
	b := newStage(t)
	west := b.partner("west")
	theirs := newService(types.NamespacedName{Namespace: "shop", Name: merge.DerivedName("shop", "db")})
	b.create(theirs, west.record(), west.slice("a", "10.2.0.1", "10.96.0.9", "10.9.0.1"))
	i := b.importing(func(c *Config) { c.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")} })
	ready := func() bool { return i.addressOf("west") != "" && i.local.Derived(db) != nil }
	i.expect("beside a foreign Service", i.do("record", ready), newImportWrite, newSliceWrite, importStatus)
	i.expect("again", i.do("", always))
	b.checkStatus("Ready=False/Pending", "west")
	o := b.read()
	if !strings.Contains(o.Import.Status.Conditions[0].Message, theirs.Name) || o.Service.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("condition = %+v and Service at version %s, want its name, and %s",
			o.Import.Status.Conditions[0], o.Service.ResourceVersion, theirs.ResourceVersion)
	}
	if n := i.log.count("left alone"); n != 1 {
		t.Errorf("told %d times, want once", n)
	}
	// Section 9: what is refused is named once, and costs itself alone.
	if addresses := o.Slices[0].Endpoints; len(addresses) != 1 || addresses[0].Addresses[0] != "10.2.0.1" {
		t.Errorf("endpoints = %+v, want the one that the member may offer", addresses)
	}
	for _, reason := range []merge.Reason{merge.ServiceCIDR, merge.AlienCIDR} {
		n, counted := i.log.count("("+string(reason)+")"), i.value(i.metrics.refused.WithLabelValues(string(reason)))
		if n != 1 || counted < 1 {
			t.Errorf("%s: named %d times and counted %v, want once, and counted", reason, n, counted)
		}
	}

	b.delete(theirs)
	got := i.do("name free", func() bool { return i.local.Derived(db) == nil })
	i.expect("the name is free", got, newServiceWrite, importWrite, importStatus)
	b.checkStatus("Ready=True/Ready", "west")
	i.adopted()
	i.ownBroker(west)
	i.withoutKind()
}

// ownBroker has what members keep in a broker namespace of this cluster: it has our mark, and is not imported.
func (i importing) ownBroker(p partner) {
	i.Helper()
	meta := p.meta("db")
	meta.Labels[apibroker.LabelManagedBy] = apibroker.ManagedBy
	spec := mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{}}
	exported := p.slice("b", "10.2.0.2")
	exported.Labels[discoveryv1.LabelManagedBy] = apibroker.ManagedBy
	i.create(&mcsv1beta1.ServiceImport{ObjectMeta: meta, Spec: spec}, exported)
	svc := types.NamespacedName{Namespace: p.namespace, Name: "db"}
	i.await("view and slices", func() bool { return i.local.Import(svc) != nil && len(i.local.ImportedSlices(svc)) == 2 })
	i.writes.take()
	if err := i.reconcileImport(i.Context(), svc); err != nil {
		i.Errorf("broker namespace: %v", err)
	}
	i.expect("a broker namespace", i.writes.take())
}

// withoutKind creates what the API server has no place for: a namespace that is away is waited for, anything else is an error.
func (i importing) withoutKind() {
	i.Helper()
	svc := types.NamespacedName{Namespace: "ghost", Name: "db"}
	imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name}}
	if err := i.newWriter(svc).create(i.Context(), imp); !errors.Is(err, errNamespace) {
		i.Errorf("in no namespace: %v, want %v", err, errNamespace)
	}
	i.local.written(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: svc.Namespace}})
	if err := i.newWriter(svc).create(i.Context(), imp); !apierrors.IsNotFound(err) {
		i.Errorf("in a namespace that is there: %v, want the error", err)
	}
}

// adopted has somebody else take over the import.
func (i importing) adopted() {
	i.Helper()
	i.edit(&mcsv1beta1.ServiceImport{}, "db", `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"someone"}}}`)
	got := i.do("taken over", func() bool { return !isOurs(i.local.Import(db)) })
	i.expect("an import that is ours no more", got, importedWrite("DELETE", "west", "a"), derivedWrite("DELETE"))
	i.expect("again", i.do("", always))
	if i.read().Import == nil {
		i.Error("the import of somebody else was deleted")
	}
}

// Sections 5, 7 and 8: what is held while the broker is not believed, and what goes when the cluster is no member.
func TestImportHeld(t *testing.T) {
	b := newStage(t)
	west := b.partner("west")
	record, slice := west.record(), west.slice("a", "10.2.0.1")
	source := newSourceSlice(db, "db-1", "10.1.0.1")
	service := newService(db)
	service.Spec.Ports[0].Port = 5433 // in conflict, so the newer one of the two serves no port
	service.Spec.Ports[0].Name = "admin"
	source.Ports[0].Name = new("admin")
	b.create(record, slice, newExport(db), service, source)
	i := b.importing(func(*Config) {})
	got := i.do("both", func() bool {
		return i.addressOf("west") != "" && i.local.Export(db) != nil && i.local.Service(db) != nil && len(i.local.SourceSlices(db)) == 1
	})
	i.expect("two exports", got, newImportWrite, newServiceWrite, importWrite, newSliceWrite, newSliceWrite, importStatus, statusWrite)
	b.checkStatus("Ready=True/Ready", "east", "west")
	if got, want := i.conditions(db), "Conflict=True/LabelsConflict,PortConflict"; !sameReasons(got, want) {
		t.Errorf("conditions = %s, want %s", got, want)
	}
	i.checkConflicts(1)

	i.holdAll(source, slice)
	i.lose(record)
	i.expire(slice)

	i.member.set(standing{settled: true})
	got = i.do("", always)
	i.expect("not a member", got, importedWrite("DELETE", "east", "db-1"), derivedWrite("DELETE"), "DELETE shop/serviceimports/db", statusWrite)
	if got := i.conditions(db); got != "" {
		t.Errorf("conditions = %s, want none", got)
	}
	i.checkConflicts(0)
	i.member.set(standing{})
	i.expect("not settled", i.do("", always))
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
	if got := i.value(i.metrics.conflicts.WithLabelValues(string(mcsv1beta1.ServiceExportReasonPortConflict))); got != want {
		i.Errorf("services in conflict = %v, want %v", got, want)
	}
}

// holdAll has the caches not be complete: only what this cluster itself offers follows.
func (i importing) holdAll(source, slice *discoveryv1.EndpointSlice) {
	i.Helper()
	looked := i.losses
	i.losses = newLosses(i.session)
	slice.Endpoints[0].Addresses[0] = "10.2.0.3"
	i.update(slice)
	i.expect("not synced", i.do("flip of west", func() bool { return i.addressOf("west") == "10.2.0.3" }))
	source.Endpoints[0].Addresses[0] = "10.1.0.3"
	i.update(source)
	got := i.do("flip of our own", func() bool { return i.local.SourceSlices(db)[0].Endpoints[0].Addresses[0] == "10.1.0.3" })
	i.expect("our own, not synced", got, importedWrite("PATCH", "east", "db-1"))
	i.losses = looked
	i.expect("synced", i.do("", always), importedWrite("PATCH", "west", "a"))
}

// lose has a record be gone from a list that is not believed, and then is.
func (i importing) lose(record *v1alpha1.ExportedService) {
	i.Helper()
	i.delete(record)
	i.holds.set(holdLostRecords, "1 of 1 is gone")
	gone := func() bool { return len(i.broker.Records(db)) == 0 }
	i.expect("lost records", i.do("record gone", gone))
	record.ResourceVersion, record.UID = "", ""
	record.Spec.ExportCreated = metav1.NewTime(record.Spec.ExportCreated.Add(-time.Hour))
	i.create(record)
	i.expect("records that are back", i.do("record back", func() bool { return !gone() }))
	i.holds.clear(holdLostRecords)
	i.loseAnew(record)
}

// loseAnew has a record be gone from a list that follows one which was believed, and by one of many events.
func (i importing) loseAnew(record *v1alpha1.ExportedService) {
	i.Helper()
	gone := func() bool { return len(i.broker.Records(db)) == 0 }
	back := func() {
		i.Helper()
		record.ResourceVersion, record.UID = "", ""
		i.create(record)
		i.expect("records that are back", i.do("record back", func() bool { return !gone() }))
		if i.losses.review(); i.holds.any(holdLostRecords) {
			i.Error("held, though the record is back")
		}
	}
	i.losses.listed()
	i.delete(record)
	i.expect("a list that was not looked at", i.do("record gone", gone))
	if i.losses.review(); !i.holds.any(holdLostRecords) {
		i.Error("a list without one of one record is believed at once")
	}
	back()

	i.losses.quiet = time.Hour
	i.delete(record)
	i.expect("a loss that may be one of many", i.do("record gone", gone))
	if i.losses.review(); i.holds.any(holdLostRecords) {
		i.Error("one loss is held")
	}
	for n := range fewLosses { // which wait as well
		name := fmt.Sprint("app-", n)
		i.losses.missed[share{types.NamespacedName{Namespace: "shop", Name: name}, "west"}] = miss{at: time.Now()}
	}
	if i.losses.review(); !i.holds.any(holdLostRecords) {
		i.Error("more losses than few at once, all there is, are not held")
	}
	i.losses.quiet = 0
	back()
}

// expire has the heartbeat of west expire and return.
func (i importing) expire(slice *discoveryv1.EndpointSlice) {
	i.Helper()
	var dead judgement.Verdict
	start := time.Now()
	for at := time.Duration(0); at <= time.Minute; at += time.Second {
		dead = dead.Judge(judgement.View{
			Now: start.Add(at), TTL: time.Minute, Link: start, Self: stageID, Members: []judgement.Member{{Cluster: "west", Known: start}},
		})
	}
	i.lives.verdict = dead
	i.expect("expired", i.do("", always), importedWrite("DELETE", "west", "a"))
	i.checkStatus("Ready=True/Ready", "east", "west")
	i.cfg.OnExpiry = NotReady
	i.expect("expired, not ready", i.do("", always), newSliceWrite)
	for _, s := range i.read().Slices {
		if c := s.Endpoints[0].Conditions; *c.Ready != (s.Name != imported("west", "a")) {
			i.Errorf("slice %s: ready = %t", s.Name, *c.Ready)
		}
	}
	i.lives.verdict = judgement.Verdict{}
	i.expect("back", i.do("", always), importedWrite("PATCH", "west", "a"))
	i.delete(slice)
	i.expect("gone", i.do("slice gone", func() bool { return i.addressOf("west") == "" }), importedWrite("DELETE", "west", "a"))
}

// Section 9: which namespaces and which exporters count.
func TestTaking(t *testing.T) {
	b := newStage(t)
	west := b.partner("west")
	b.create(west.record(), west.slice("a", "10.2.0.1"))
	i := b.importing(func(c *Config) { c.VIP = merge.NoVIP })
	i.annotate("east,north")
	seen := func() bool { return i.addressOf("west") != "" && i.allowed() == "east,north" }
	i.expect("not an allowed source", i.do("record", seen))
	i.annotate("east, west")
	got := i.do("allowed", func() bool { return i.allowed() == "east, west" })
	i.expect("an allowed source, no VIP", got, newImportWrite, newSliceWrite, importStatus)
	i.cfg.Namespaces = []string{"other"}
	i.expect("a namespace that takes no part", i.do("", always), importedWrite("DELETE", "west", "a"), "DELETE shop/serviceimports/db")
}

func (i importing) annotate(sources string) {
	i.Helper()
	value, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{apibroker.AnnotationAllowedSources: sources}}})
	if err != nil {
		i.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	if err := i.admin.Patch(i.Context(), ns, value); err != nil {
		i.Fatal(err)
	}
}

func (i importing) allowed() string {
	return i.local.Namespace("shop").Annotations[apibroker.AnnotationAllowedSources]
}
