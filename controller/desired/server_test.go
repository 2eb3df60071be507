package desired_test

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

var (
	imports = schema.GroupVersionResource{Group: mcsv1beta1.GroupName, Version: "v1beta1",
		Resource: "serviceimports"}
	exports = schema.GroupVersionResource{Group: mcsv1beta1.GroupName, Version: "v1beta1",
		Resource: "serviceexports"}
	services      = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	endpoints     = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	exportRecords = v1alpha1.ExportedServices
)

// A server is a cluster and its broker in one.
type server struct {
	*testing.T
	*controlplane.ControlPlane
}

// TestAgainstAnAPIServer takes an export all the way, with objects that a real API server has filled in: once written,
// and once changed, nothing is left to write (docs/spec/controller.md 10.1: a restart without change writes nothing).
func TestAgainstAnAPIServer(t *testing.T) {
	s := server{t, controlplane.StartT(t, controlplane.Options{
		CRDs: append(controlplane.DefaultCRDs(), crd.ExportedServices, crd.Inventories, crd.Members),
	})}
	o := export.Options{ClusterID: "east", BrokerNamespace: broker.NamespaceName("member", "east"),
		Namespace: export.Allowed}
	for _, namespace := range []string{"shop", o.BrokerNamespace} {
		if err := s.Apply(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
			t.Fatal(err)
		}
	}
	exp, service, source := s.export()
	r := export.From(exp, service, []*discoveryv1.EndpointSlice{source}, o)
	if r.Record == nil {
		t.Fatalf("nothing exported: %s, %s", r.Message, r.Failed)
	}
	record := v1alpha1.ExportedService{}
	s.write(exportRecords, r.Record, &record)
	if !reflect.DeepEqual(record.Spec, r.Record.Spec) {
		t.Errorf("record = %+v on the broker, want %+v", record.Spec, r.Record.Spec)
	}
	onBroker := discoveryv1.EndpointSlice{}
	s.write(endpoints, r.Slices[0], &onBroker)
	if !reflect.DeepEqual(onBroker.Endpoints, r.Slices[0].Endpoints) ||
		!reflect.DeepEqual(onBroker.Ports, r.Slices[0].Ports) {
		t.Errorf("slice = %+v on the broker, want %+v", onBroker, r.Slices[0])
	}

	m := member{server: s, record: record, slice: &onBroker}
	m.catchUp()
	if ips := m.existing.Import.Spec.IPs; len(ips) != 2 || len(m.existing.Import.Spec.IPFamilies) != 2 {
		t.Errorf("ips = %v of %v, want those of the derived Service", ips, m.existing.Import.Spec.IPFamilies)
	}
	m.drift()
	m.catchUp()
	if spec := m.existing.Service.Spec; spec.PublishNotReadyAddresses || len(spec.ExternalIPs) > 0 {
		t.Errorf("derived Service = %+v, want what someone else has set gone", spec)
	}
	m.record.Spec.Labels, m.record.Spec.Ports = nil, append(m.record.Spec.Ports,
		v1alpha1.ServicePort{Name: "dns", Protocol: "UDP", Port: 53})
	m.catchUp()
	if m.existing.Import.Annotations["theirs"] != "1" || m.existing.Slices[0].Labels["theirs"] != "1" ||
		len(m.existing.Service.OwnerReferences) != 1 {
		t.Errorf("annotations %v, labels %v, owners %v: want those of others kept",
			m.existing.Import.Annotations, m.existing.Slices[0].Labels, m.existing.Service.OwnerReferences)
	}
	if _, has := m.existing.Import.Labels["tier"]; has {
		t.Errorf("labels = %v, want the one gone that is exported no longer", m.existing.Import.Labels)
	}
	m.record.Spec.IPFamilies = m.record.Spec.IPFamilies[:1]
	m.catchUp()
	if ips := m.existing.Import.Spec.IPs; len(ips) != 1 {
		t.Errorf("ips = %v after a family was lost, want one", ips)
	}
	m.record.Spec.Type, m.record.Spec.ClusterIPs = v1alpha1.Headless, nil
	m.catchUp()
	if m.existing.Service != nil {
		t.Error("the derived Service of a Headless import exists")
	}
	m.gone = true
	m.catchUp()
	if m.existing.Import != nil || len(m.existing.Slices) > 0 {
		t.Error("the import of nobody's export exists")
	}
}

// export creates a dual-stack Service with its export and slice, and returns them as the API server has them.
func (s server) export() (*mcsv1beta1.ServiceExport, *corev1.Service, *discoveryv1.EndpointSlice) {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "db"}
	dual, ready, name := corev1.IPFamilyPolicyRequireDualStack, true, "pg"
	port, tcp := int32(15432), corev1.ProtocolTCP
	exp, service, source := mcsv1beta1.ServiceExport{}, corev1.Service{}, discoveryv1.EndpointSlice{}
	s.write(exports, &mcsv1beta1.ServiceExport{
		TypeMeta: metav1.TypeMeta{APIVersion: mcsv1beta1.GroupVersion.String(), Kind: "ServiceExport"}, ObjectMeta: meta,
		Spec: mcsv1beta1.ServiceExportSpec{ExportedLabels: map[string]string{"tier": "gold"}},
	}, &exp)
	s.write(services, &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta,
		Spec: corev1.ServiceSpec{
			IPFamilyPolicy: &dual, SessionAffinity: corev1.ServiceAffinityClientIP,
			Ports: []corev1.ServicePort{{Name: name, Port: 5432}},
		},
	}, &service)
	s.write(endpoints, &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "db-1", Labels: map[string]string{discoveryv1.LabelServiceName: "db"},
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().UTC().Format(time.RFC3339Nano)},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"10.1.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: &name, Protocol: &tcp, Port: &port}},
	}, &source)
	return &exp, &service, &source
}

// A member is an importing cluster.
type member struct {
	server
	record   v1alpha1.ExportedService
	slice    *discoveryv1.EndpointSlice
	gone     bool
	existing desired.Objects
}

// catchUp writes until nothing is left to write. Writes that need the UID of the import or the addresses of the derived
// Service take a round of their own.
func (m *member) catchUp() {
	m.Helper()
	for range 4 {
		changes := desired.Diff(m.wanted(), m.existing)
		if len(changes.Foreign) > 0 {
			m.Fatalf("foreign: %v", changes.Foreign)
		}
		if changes.Empty() {
			return
		}
		m.apply(changes)
		m.read()
	}
	m.Fatalf("still to write: %+v", desired.Diff(m.wanted(), m.existing))
}

func (m *member) wanted() desired.Objects {
	var records []merge.Record
	if !m.gone {
		records = append(records, merge.Record{Cluster: "east", Created: m.record.CreationTimestamp, Spec: m.record.Spec})
	}
	c := desired.ImportingCluster{
		Sources: []desired.Source{{
			Cluster: "east", Slices: []*discoveryv1.EndpointSlice{m.slice},
			Declared: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
		}},
		Families: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
	}
	if m.existing.Service != nil {
		c.ClusterIPs = m.existing.Service.Spec.ClusterIPs
	}
	o, rejected := desired.ObjectsOf(merge.Merge(types.NamespacedName{Namespace: "shop", Name: "db"}, records,
		merge.Options{}), c)
	if len(rejected) > 0 {
		m.Fatalf("rejected: %+v", rejected)
	}
	if o.Import != nil {
		o.Import.Status.Conditions = []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.Now().Rfc3339Copy(),
		}}
	}
	if m.existing.Import == nil {
		o.Service, o.Slices = nil, nil
	}
	return o
}

func (m *member) apply(c desired.Changes) {
	m.Helper()
	for _, s := range c.Delete.Slices {
		m.remove(endpoints, s.Name)
	}
	if c.Delete.Service != nil {
		m.remove(services, c.Delete.Service.Name)
	}
	if c.Delete.Import != nil {
		m.remove(imports, c.Delete.Import.Name)
	}
	if o := c.Create.Import; o != nil {
		m.create(imports, o)
	}
	if o := c.Update.Import; o != nil {
		m.patch(imports, o, m.existing.Import)
	}
	if o := c.Create.Service; o != nil {
		m.create(services, o)
	}
	if o := c.Update.Service; o != nil {
		m.patch(services, o, m.existing.Service)
	}
	for _, o := range c.Create.Slices {
		m.create(endpoints, o)
	}
	for _, o := range c.Update.Slices {
		for _, e := range m.existing.Slices {
			if e.Name == o.Name {
				m.patch(endpoints, o, e)
			}
		}
	}
	if c.Status != nil {
		c.Status.ResourceVersion = "" // the object itself may have been written just now
		if _, err := m.resource(imports, "shop").ApplyStatus(m.Context(), "db", m.unstructured(c.Status),
			options); err != nil {
			m.Fatal(err)
		}
	}
}

// drift puts into every object values that others may write and we do not want, in present and in missing fields.
func (m *member) drift() {
	m.Helper()
	for _, d := range []struct {
		resource    schema.GroupVersionResource
		name, patch string
	}{
		{imports, "db", `{"metadata":{"labels":{"tier":"lead"},"annotations":{"theirs":"1"}},
			"spec":{"ips":["192.0.2.1"],"internalTrafficPolicy":"Local","ports":[{"port":1,"protocol":"TCP"}]}}`},
		{services, m.existing.Service.Name, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Secret","name":"a","uid":"b"}]},
			"spec":{"selector":{"a":"b"},"publishNotReadyAddresses":true,"externalIPs":["192.0.2.1"],"trafficDistribution":"PreferClose","sessionAffinity":"None","sessionAffinityConfig":null,
			"ports":[{"name":"pg","port":5432},{"name":"theirs","port":5433}]}}`},
		{endpoints, m.existing.Slices[0].Name, `{"metadata":{"labels":{"service.kubernetes.io/headless":"","theirs":"1"},"annotations":null},
			"endpoints":[],"ports":[{"name":"theirs","port":1,"protocol":"TCP"}]}`},
	} {
		options := metav1.PatchOptions{FieldManager: "someone"}
		if _, err := m.resource(d.resource, "shop").Patch(m.Context(), d.name, types.MergePatchType, []byte(d.patch),
			options); err != nil {
			m.Fatal(err)
		}
	}
	m.read()
	if c := desired.Diff(m.wanted(), m.existing); c.Update.Import == nil || c.Update.Service == nil ||
		len(c.Update.Slices) != 1 {
		m.Fatalf("changes after a drift = %+v, want all three updated", c)
	}
}

// read reads what there is now.
func (m *member) read() {
	m.Helper()
	m.existing = desired.Objects{}
	for _, u := range m.list(imports) {
		m.existing.Import = &mcsv1beta1.ServiceImport{}
		m.into(&u, m.existing.Import)
	}
	for _, u := range m.list(services) {
		if u.GetName() == desired.DerivedName("shop", "db") {
			m.existing.Service = &corev1.Service{}
			m.into(&u, m.existing.Service)
		}
	}
	for _, u := range m.list(endpoints) {
		if u.GetLabels()[mcsv1beta1.LabelServiceName] != "" {
			e := &discoveryv1.EndpointSlice{}
			m.into(&u, e)
			m.existing.Slices = append(m.existing.Slices, e)
		}
	}
}

var options = metav1.ApplyOptions{FieldManager: wellknown.ManagerImporter, Force: true}

func (s server) resource(r schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	return s.Dynamic().Resource(r).Namespace(namespace)
}

// write applies o and reads into got what the API server makes of it.
func (s server) write(r schema.GroupVersionResource, o metav1.Object, got any) {
	s.Helper()
	u, err := s.resource(r, o.GetNamespace()).Apply(s.Context(), o.GetName(), s.unstructured(o), options)
	if err != nil {
		s.Fatal(err)
	}
	s.into(u, got)
}

func (s server) create(r schema.GroupVersionResource, o metav1.Object) {
	s.Helper()
	options := metav1.CreateOptions{FieldManager: wellknown.ManagerImporter}
	if _, err := s.resource(r, o.GetNamespace()).Create(s.Context(), s.unstructured(o), options); err != nil {
		s.Fatal(err)
	}
}

func (s server) patch(r schema.GroupVersionResource, o, existing metav1.Object) {
	s.Helper()
	options := metav1.PatchOptions{FieldManager: wellknown.ManagerImporter}
	patch := desired.Patch(o, existing)
	if _, err := s.resource(r, o.GetNamespace()).Patch(s.Context(), o.GetName(), types.MergePatchType, patch,
		options); err != nil {
		s.Fatalf("%v: %s", err, patch)
	}
}

func (s server) remove(r schema.GroupVersionResource, name string) {
	s.Helper()
	if err := s.resource(r, "shop").Delete(s.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
}

func (s server) list(r schema.GroupVersionResource) []unstructured.Unstructured {
	s.Helper()
	l, err := s.resource(r, "shop").List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return l.Items
}

func (s server) unstructured(o any) *unstructured.Unstructured {
	s.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		s.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

func (s server) into(u *unstructured.Unstructured, o any) {
	s.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); err != nil {
		s.Fatal(err)
	}
}
