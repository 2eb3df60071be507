package crd_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

// TestBroker installs the definitions on a real API server. It and the code must reject the same values, lest a record
// lands on the broker that every member ignores.
func TestBroker(t *testing.T) {
	c := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{crd.ExportedServices, crd.Inventories, crd.Members}})
	client := brokerClient(t, c)

	t.Run("export record round trip", func(t *testing.T) {
		for name, e := range map[string]*v1alpha1.ExportedService{"full": fullExport(), "least": leastExport()} {
			want := e.DeepCopy()
			if err := e.Spec.Validate(); err != nil {
				t.Errorf("%s: %v, want it accepted by the code", name, err)
			}
			var got v1alpha1.ExportedService
			if err := brokerPost(t, client, "exportedservices", e).Into(&got); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !reflect.DeepEqual(got.Spec, want.Spec) {
				t.Errorf("%s: spec = %+v, want %+v", name, got.Spec, want.Spec)
			}
		}
	})
	t.Run("export record rejected", func(t *testing.T) {
		tier.All(t) // The API server compiles the rules for each request: 20 s of CPU time.
		for _, tt := range badExports {
			e := fullExport()
			tt.spoil(e)
			if tt.keepName {
				e.Name = broker.RecordName(e.Spec.Namespace, e.Spec.Name)
			}
			brokerRejects(t, client, "exportedservices", tt.name, tt.field, e)
			if err := e.Spec.Validate(); err == nil && !tt.schemaOnly {
				t.Errorf("%s: accepted by the code, rejected by the schema", tt.name)
			}
		}
	})
	t.Run("values that Go does not decode", func(t *testing.T) { testUndecodable(t, client) })
	t.Run("member", func(t *testing.T) { testMember(t, client) })
}

func brokerClient(t *testing.T, c *controlplane.ControlPlane) *rest.RESTClient {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	config := c.Config()
	config.GroupVersion, config.APIPath, config.QPS = &v1alpha1.GroupVersion, "/apis", -1
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func brokerPost(t *testing.T, c *rest.RESTClient, resource string, o metav1.Object) rest.Result {
	t.Helper()
	r := c.Post().Resource(resource).Body(o.(runtime.Object))
	if resource == "exportedservices" {
		r = r.Namespace(metav1.NamespaceDefault)
	}
	return r.Do(t.Context())
}

func brokerRejects(t *testing.T, c *rest.RESTClient, resource, name, field string, o metav1.Object) {
	t.Helper()
	err := brokerPost(t, c, resource, o).Error()
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), field) ||
		strings.Contains(err.Error(), "evaluating rule") {
		t.Errorf("%s: %v, want %s rejected, by rules that could be evaluated", name, err, field)
	}
}

func ptr[T any](v T) *T { return &v }

func at(hour int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 3, 1, hour, 0, 0, 0, time.Local))
}

func leastExport() *v1alpha1.ExportedService {
	return &v1alpha1.ExportedService{
		ObjectMeta: named("a-b.c"),
		Spec: v1alpha1.ExportedServiceSpec{
			Namespace: "c", Name: "a-b", Type: v1alpha1.Headless, ExportCreated: at(1),
			IPFamilies: []corev1.IPFamily{corev1.IPv6Protocol},
		},
	}
}

// fullExport has every field that docs/spec/controller.md 2.2 lists, at the limit where it has one.
func fullExport() *v1alpha1.ExportedService {
	e := &v1alpha1.ExportedService{
		ObjectMeta: named(strings.Repeat("s", 63) + "." + strings.Repeat("n", 63)),
		Spec: v1alpha1.ExportedServiceSpec{
			Namespace: strings.Repeat("n", 63), Name: strings.Repeat("s", 63), Type: v1alpha1.ClusterSetIP,
			SessionAffinity: corev1.ServiceAffinityClientIP,
			SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr[int32](
				86400)}},
			InternalTrafficPolicy:    ptr(corev1.ServiceInternalTrafficPolicyLocal),
			TrafficDistribution:      ptr("PreferSameZone"),
			Endpoints:                strings.Repeat("e", 63),
			IPFamilies:               []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol},
			PublishNotReadyAddresses: true,
			ExportCreated:            at(1), ExportGeneration: 7,
			VIP:        &v1alpha1.VIP{Wanted: true},
			ClusterIPs: []string{"fd00:10:96::1", "10.96.0.1"},
		},
	}
	for i := range broker.MaxPorts {
		protocol := corev1.ProtocolTCP
		if i%2 == 1 {
			protocol = corev1.ProtocolUDP // the same number twice
		}
		e.Spec.Ports = append(e.Spec.Ports, v1alpha1.ServicePort{
			Name: fmt.Sprintf("port-%d", i), Protocol: protocol, Port: int32(65535 - i/2), AppProtocol: ptr("example.org/h2c"),
		})
	}
	e.Spec.Ports[0].Name = ""
	e.Spec.ClusterSelectors = []v1alpha1.ClusterSelector{
		{MatchProperties: []v1alpha1.Property{{Name: "tier", Value: "gold"}}},
		{MatchExpressions: []v1alpha1.PropertyExpression{{Key: "a", Operator: v1alpha1.Exists}}},
	}
	size := len("tier") + len("gold") + len("a")
	for len(e.Spec.ClusterSelectors) < broker.MaxSelectors {
		key := fmt.Sprintf("p%02d", len(e.Spec.ClusterSelectors))
		expression := v1alpha1.PropertyExpression{Key: key, Operator: v1alpha1.In}
		for size += len(key); len(expression.Values) < 2; size += broker.MaxPropertyValue {
			expression.Values = append(expression.Values, strings.Repeat("ü", broker.MaxPropertyValue))
		}
		e.Spec.ClusterSelectors = append(e.Spec.ClusterSelectors,
			v1alpha1.ClusterSelector{MatchExpressions: []v1alpha1.PropertyExpression{expression}})
	}
	last := &e.Spec.ClusterSelectors[broker.MaxSelectors-1].MatchExpressions[0]
	for left := broker.MaxSelectorSize - size; left > 0; left -= broker.MaxPropertyValue {
		last.Values = append(last.Values, strings.Repeat("v", min(left, broker.MaxPropertyValue)))
	}
	e.Spec.ToClusters = e.Spec.DeepCopy().ClusterSelectors
	room := broker.MaxAnnotations
	for i := range broker.MaxMetadata {
		key := fmt.Sprintf("%s.example.org/key-%02d", strings.Repeat("a", 63), i)
		e.Spec.Labels = append(e.Spec.Labels, v1alpha1.Label{Key: key, Value: strings.Repeat("v", 63)})
		room -= len(key)
		e.Spec.Annotations = append(e.Spec.Annotations, v1alpha1.Annotation{Key: key})
	}
	for i := range e.Spec.Annotations {
		size := min(room, broker.MaxValue)
		e.Spec.Annotations[i].Value, room = strings.Repeat("ü", size), room-size
	}
	return e
}

var badExports = []struct {
	name       string
	field      string // what the API server names
	spoil      func(*v1alpha1.ExportedService)
	keepName   bool // the name of the object follows the spec
	schemaOnly bool // the code is not given the object's name
}{
	{name: "name of another service", field: "<spec.name>.<spec.namespace>", schemaOnly: true,
		spoil: func(e *v1alpha1.ExportedService) { e.Name = "other." + e.Spec.Namespace }},
	{name: "name of a service in another namespace", field: "<spec.name>.<spec.namespace>", schemaOnly: true,
		spoil: func(e *v1alpha1.ExportedService) { e.Name = e.Spec.Name + ".other" }},
	{name: "name and namespace exchanged", field: "<spec.name>.<spec.namespace>", schemaOnly: true,
		spoil: func(e *v1alpha1.ExportedService) { e.Name = e.Spec.Namespace + "." + e.Spec.Name }},
	{name: "dot in a service name", field: "spec.name", keepName: true,
		spoil: func(e *v1alpha1.ExportedService) { e.Spec.Name = "a.b" }},
	{name: "dot in a namespace", field: "spec.namespace", keepName: true,
		spoil: func(e *v1alpha1.ExportedService) { e.Spec.Namespace = "a.b" }},
	{name: "long name", field: "spec.name", keepName: true,
		spoil: func(e *v1alpha1.ExportedService) { e.Spec.Name = strings.Repeat("s", 64) }},
	{name: "hyphen at the end", field: "spec.name",
		spoil: func(e *v1alpha1.ExportedService) { e.Spec.Name = "a-" }},
	{name: "no type", field: "spec.type", spoil: func(e *v1alpha1.ExportedService) { e.Spec.Type = "" }},
	{name: "type of a Service", field: "spec.type", spoil: func(
		e *v1alpha1.ExportedService) {
		e.Spec.Type = "ExternalName"
	}},
	{name: "101 ports", field: "spec.ports", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.Ports = append(e.Spec.Ports, v1alpha1.ServicePort{Name: "one-more", Protocol: corev1.ProtocolTCP, Port: 1})
	}},
	{name: "port 0", field: "port", spoil: func(e *v1alpha1.ExportedService) { e.Spec.Ports[1].Port = 0 }},
	{name: "port 65536", field: "port", spoil: func(e *v1alpha1.ExportedService) { e.Spec.Ports[1].Port = 65536 }},
	{name: "protocol", field: "protocol", spoil: func(e *v1alpha1.ExportedService) { e.Spec.Ports[1].Protocol = "ICMP" }},
	{name: "port name", field: "name", spoil: func(e *v1alpha1.ExportedService) { e.Spec.Ports[1].Name = "Http" }},
	{name: "port name twice", field: "spec.ports", spoil: func(
		e *v1alpha1.ExportedService) {
		e.Spec.Ports[1].Name = e.Spec.Ports[2].Name
	}},
	{name: "two ports without a name", field: "spec.ports",
		spoil: func(e *v1alpha1.ExportedService) { e.Spec.Ports[1].Name = "" }},
	{name: "protocol and number twice", field: "spec.ports",
		spoil: func(e *v1alpha1.ExportedService) { e.Spec.Ports[2].Port = e.Spec.Ports[0].Port }},
	{name: "appProtocol", field: "appProtocol", spoil: func(
		e *v1alpha1.ExportedService) {
		e.Spec.Ports[1].AppProtocol = ptr("a/b/c")
	}},
	{name: "session affinity", field: "spec.sessionAffinity",
		spoil: func(e *v1alpha1.ExportedService) { e.Spec.SessionAffinity = "Cookie" }},
	{name: "session affinity of 0 s", field: "timeoutSeconds", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds = ptr[int32](0)
	}},
	{name: "session affinity of more than a day", field: "timeoutSeconds", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds = ptr[int32](86401)
	}},
	{name: "internal traffic policy", field: "spec.internalTrafficPolicy", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicy("Near"))
	}},
	{name: "traffic distribution", field: "spec.trafficDistribution", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.TrafficDistribution = ptr("anything goes")
	}},
	{name: "kind of endpoints", field: "spec.endpoints",
		spoil: func(e *v1alpha1.ExportedService) { e.Spec.Endpoints = strings.Repeat("e", 64) }},
	{name: "65 labels", field: "spec.labels", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.Labels = append(e.Spec.Labels, v1alpha1.Label{Key: "one-more"})
	}},
	{name: "65 annotations", field: "spec.annotations", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.Annotations = append(e.Spec.Annotations, v1alpha1.Annotation{Key: "one-more"})
	}},
	{name: "label twice", field: "spec.labels", spoil: func(
		e *v1alpha1.ExportedService) {
		e.Spec.Labels[1].Key = e.Spec.Labels[0].Key
	}},
	{name: "label key", field: "spec.labels", spoil: func(e *v1alpha1.ExportedService) { e.Spec.Labels[0].Key = "-a" }},
	{name: "label key of two slashes", field: "spec.labels",
		spoil: func(e *v1alpha1.ExportedService) { e.Spec.Labels[0].Key = "a/b/c" }},
	{name: "long prefix", field: "spec.labels", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.Labels[0].Key = strings.Repeat("a.", 126) + "bc/d" // 254 octets
	}},
	{name: "label value", field: "spec.labels", spoil: func(
		e *v1alpha1.ExportedService) {
		e.Spec.Labels[0].Value = "a b"
	}},
	{name: "long label value", field: "spec.labels", spoil: func(
		e *v1alpha1.ExportedService) {
		e.Spec.Labels[0].Value = strings.Repeat("a", 64)
	}},
	{name: "long annotation", field: "spec.annotations", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.Annotations[0].Value = strings.Repeat("a", broker.MaxValue+1)
	}},
	{name: "long annotations", field: "together", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.Annotations[broker.MaxMetadata-1].Value += "a"
	}},
	{name: "17 selectors", field: "spec.clusterSelectors", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.ClusterSelectors = append(e.Spec.ClusterSelectors, e.Spec.ClusterSelectors[0])
	}},
	{name: "selectors that are long together", field: "together", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.ClusterSelectors[0].MatchProperties[0].Value = "golden"
	}},
	{name: "an empty selector", field: "clusterSelectors[1]", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.ClusterSelectors[1] = v1alpha1.ClusterSelector{}
	}},
	{name: "17 requirements", field: "at most 16", spoil: func(e *v1alpha1.ExportedService) {
		sel := &e.Spec.ClusterSelectors[0]
		sel.MatchExpressions = slices.Repeat([]v1alpha1.PropertyExpression{{Key: "a", Operator: v1alpha1.Exists}},
			broker.MaxRequirements)
	}},
	{name: "a property twice", field: "matchProperties", spoil: func(e *v1alpha1.ExportedService) {
		sel := &e.Spec.ClusterSelectors[0]
		sel.MatchProperties = append(sel.MatchProperties, v1alpha1.Property{Name: "tier", Value: "x"})
	}},
	{name: "the name of a property", field: "matchProperties", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.ClusterSelectors[0].MatchProperties[0].Name = "Tier"
	}},
	{name: "a property without value", field: "matchProperties", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.ClusterSelectors[0].MatchProperties[0].Value = ""
	}},
	{name: "an operator", field: "operator", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.ClusterSelectors[1].MatchExpressions[0].Operator = "Like"
	}},
	{name: "the key of an expression", field: "key", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.ClusterSelectors[1].MatchExpressions[0].Key = "-a"
	}},
	{name: "Exists with a value", field: "In and NotIn", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.ClusterSelectors[1].MatchExpressions[0].Values = []string{"x"}
	}},
	{name: "In without values", field: "In and NotIn", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.ClusterSelectors[2].MatchExpressions[0].Values = nil
	}},
	{name: "33 values", field: "values", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.ClusterSelectors = e.Spec.ClusterSelectors[2:3]
		e.Spec.ClusterSelectors[0].MatchExpressions[0].Values = slices.Repeat([]string{"x"}, broker.MaxSelectorValues+1)
	}},
	{name: "an empty value", field: "values", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.ClusterSelectors[2].MatchExpressions[0].Values[0] = ""
	}},
	{name: "17 selectors of clusters to reach", field: "spec.toClusters", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.ToClusters = append(e.Spec.ToClusters, e.Spec.ToClusters[0])
	}},
	{name: "clusters to reach that are long together", field: "together", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.ToClusters[0].MatchProperties[0].Value = "golden"
	}},
	{name: "an empty selector of clusters to reach", field: "toClusters[1]", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.ToClusters[1] = v1alpha1.ClusterSelector{}
	}},
	{name: "reserved: kubernetes.io", field: "reserved",
		spoil: func(e *v1alpha1.ExportedService) { e.Spec.Labels[0].Key = "kubernetes.io/service-name" }},
	{name: "reserved: below kubernetes.io", field: "reserved",
		spoil: func(e *v1alpha1.ExportedService) { e.Spec.Labels[0].Key = "a.b.kubernetes.io/c" }},
	{name: "reserved: k8s.io", field: "reserved", spoil: func(
		e *v1alpha1.ExportedService) {
		e.Spec.Labels[0].Key = "multicluster.x-k8s.io.k8s.io/a"
	}},
	{name: "reserved: ours", field: "reserved", spoil: func(e *v1alpha1.ExportedService) {
		e.Spec.Annotations[0].Key = "clusterset-dns.io/allowed-source-clusters"
	}},
	{name: "reserved: Lighthouse", field: "reserved", spoil: func(
		e *v1alpha1.ExportedService) {
		e.Spec.Annotations[0].Key = broker.AnnotationAllocatedBy
	}},
	{name: "no family", field: "spec.ipFamilies", spoil: func(
		e *v1alpha1.ExportedService) {
		e.Spec.IPFamilies = []corev1.IPFamily{}
	}},
	{name: "family twice", field: "spec.ipFamilies", spoil: func(
		e *v1alpha1.ExportedService) {
		e.Spec.IPFamilies[0] = e.Spec.IPFamilies[1]
	}},
	{name: "family", field: "spec.ipFamilies", spoil: func(e *v1alpha1.ExportedService) { e.Spec.IPFamilies[0] = "IPv5" }},
	{name: "no time of creation", field: "spec.exportCreated",
		spoil: func(e *v1alpha1.ExportedService) { e.Spec.ExportCreated = metav1.Time{} }},
	{name: "negative generation", field: "spec.exportGeneration",
		spoil: func(e *v1alpha1.ExportedService) { e.Spec.ExportGeneration = -1 }},
	{name: "cluster IP", field: "spec.clusterIPs", spoil: func(
		e *v1alpha1.ExportedService) {
		e.Spec.ClusterIPs[0] = "None"
	}},
	{name: "two cluster IPs of a family", field: "spec.clusterIPs",
		spoil: func(e *v1alpha1.ExportedService) { e.Spec.ClusterIPs[0] = "10.96.0.2" }},
}

const kubeSystem = "6f9619ff-8b86-d011-b42d-00cf4fc964ff"

func newMember(id string) *v1alpha1.Member {
	return &v1alpha1.Member{
		ObjectMeta: named(id),
		Spec: v1alpha1.MemberSpec{
			KubeSystemUID: kubeSystem, Namespace: broker.NamespaceName(strings.Repeat("p", 50), id),
			PodCIDRs: []string{"10.1.0.0/16", "fd00:10:1::/48"}, ServiceCIDRs: []string{"10.96.0.0/16"},
			LoadBalancerCIDRs: []string{"192.0.2.0/24"},
			VIPCIDRs:          []string{"243.0.0.0/16", "fd00:243::/112"},
		},
	}
}

func testMember(t *testing.T, client *rest.RESTClient) {
	for _, id := range []string{"east", "east.registry1", strings.Repeat("c", 63), "0"} {
		m := newMember(id)
		if err := m.Validate(); err != nil {
			t.Errorf("%s: %v, want it accepted by the code", id, err)
		}
		var got v1alpha1.Member
		if err := brokerPost(t, client, "members", m.DeepCopy()).Into(&got); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		if !reflect.DeepEqual(got.Spec, m.Spec) {
			t.Errorf("%s: spec = %+v, want %+v", id, got.Spec, m.Spec)
		}
	}
	for _, tt := range badMembers {
		m := newMember("west")
		tt.spoil(m)
		brokerRejects(t, client, "members", tt.name, tt.field, m)
		if err := m.Validate(); err == nil {
			t.Errorf("%s: accepted by the code, rejected by the schema", tt.name)
		}
	}
	other := newMember("west")
	other.Spec.Namespace = broker.NamespaceName("p", "east")
	if err := other.Validate(); err == nil {
		t.Errorf("namespace %s of %s: accepted by the code, want the hash of the id checked", other.Spec.Namespace,
			other.Name)
	}
	testMemberStatus(t, client)
	testMemberUpdate(t, client)
}

var badMembers = []struct {
	name, field string
	spoil       func(*v1alpha1.Member)
}{
	{"three labels", "cluster id", func(m *v1alpha1.Member) { m.Name = "a.b.c" }},
	{"64 octets", "cluster id", func(m *v1alpha1.Member) {
		m.Name = strings.Repeat("c", 32) + "." + strings.Repeat("c",
			31)
	}},
	{"protocol", "spec.protocol", func(m *v1alpha1.Member) { m.Spec.Protocol = -1 }},
	{"no UID", "spec.kubeSystemUID", func(m *v1alpha1.Member) { m.Spec.KubeSystemUID = "" }},
	{"UID", "spec.kubeSystemUID", func(m *v1alpha1.Member) { m.Spec.KubeSystemUID = "kube-system" }},
	{"namespace without a hash", "spec.namespace", func(m *v1alpha1.Member) { m.Spec.Namespace = "west" }},
	{"namespace without a prefix", "spec.namespace", func(m *v1alpha1.Member) {
		m.Spec.Namespace = broker.NamespaceName(
			"", "west")
	}},
	{"prefix of 41 octets", "spec.namespace", func(m *v1alpha1.Member) {
		m.Spec.Namespace = strings.Repeat("p", 41) + broker.NamespaceName("", "west")
	}},
	{"pod CIDR: text", "spec.podCIDRs", func(m *v1alpha1.Member) { m.Spec.PodCIDRs[0] = "pods" }},
	{"pod CIDR: address", "spec.podCIDRs", func(m *v1alpha1.Member) { m.Spec.PodCIDRs[0] = "10.1.0.0" }},
	{"pod CIDR: bits of a host", "spec.podCIDRs", func(m *v1alpha1.Member) { m.Spec.PodCIDRs[0] = "10.1.0.1/16" }},
	{"pod CIDR: IPv4-mapped", "spec.podCIDRs", func(m *v1alpha1.Member) { m.Spec.PodCIDRs[0] = "::ffff:10.0.0.0/104" }},
	{"65 pod CIDRs", "spec.podCIDRs", func(m *v1alpha1.Member) {
		m.Spec.PodCIDRs = nil
		for i := range broker.MaxCIDRs + 1 {
			m.Spec.PodCIDRs = append(m.Spec.PodCIDRs, fmt.Sprintf("10.%d.0.0/16", i))
		}
	}},
	{"load balancer CIDR", "spec.loadBalancerCIDRs", func(m *v1alpha1.Member) { m.Spec.LoadBalancerCIDRs[0] = "192.0.2.1/24" }},
	{"service CIDR", "spec.serviceCIDRs", func(m *v1alpha1.Member) { m.Spec.ServiceCIDRs[0] = "10.96.0.0/33" }},
	{"VIP CIDR: bits of a host", "want networks such as", func(m *v1alpha1.Member) { m.Spec.VIPCIDRs[1] = "fd00:243::1/112" }},
	{"VIP CIDR: text", "want networks such as", func(m *v1alpha1.Member) { m.Spec.VIPCIDRs[1] = "vips" }},
	{"VIP CIDRs of one family", "of each IP family", func(m *v1alpha1.Member) { m.Spec.VIPCIDRs[1] = "243.1.0.0/16" }},
	{"three VIP CIDRs", "spec.vipCIDRs", func(m *v1alpha1.Member) { m.Spec.VIPCIDRs = append(m.Spec.VIPCIDRs, "243.1.0.0/16") }},
}

// A member has rights to the status alone; a write there must not change the spec, nor the other way round.
func testMemberStatus(t *testing.T, client *rest.RESTClient) {
	patch := `{"spec":{"vipCIDRs":["243.9.0.0/16"]},"status":{"version":"v1.2.3","merge":"first",` +
		`"vip":"cidr 10.250.0.0/15 fd00:250::/48","properties":[{"name":"region.topology.k8s.io","value":"eu"}]}}`
	var got v1alpha1.Member
	err := client.Patch(types.MergePatchType).Resource("members").Name("east").SubResource("status").
		Body([]byte(patch)).Do(t.Context()).Into(&got)
	if err != nil {
		t.Fatal(err)
	}
	if want := (v1alpha1.MemberStatus{Version: "v1.2.3", Merge: "first", VIP: "cidr 10.250.0.0/15 fd00:250::/48",
		Properties: []v1alpha1.Property{
			{Name: "region.topology.k8s.io", Value: "eu"},
		}}); !reflect.DeepEqual(got.Status, want) {
		t.Errorf("status = %+v, want %+v", got.Status, want)
	}
	if got.Spec.VIPCIDRs[0] != "243.0.0.0/16" {
		t.Errorf("VIP CIDRs = %s after a write to the status, want them as they were", got.Spec.VIPCIDRs)
	}
	for _, status := range []string{`"merge":"all"`, `"vip":"some"`, `"vip":"derived 10.250.0.0/15"`, `"version":"v1\u001b[2J"`, `"version":"v1\nproblem"`,
		`"rejected":[{"name":"web","reason":"NoService"}]`, `"rejected":[{"name":"web.shop","reason":"No Service"}]`,
		`"rejected":[{"name":"web.shop","reason":"NoService","message":"a\nb"}]`,
		`"rejected":[` + strings.Repeat(`{"name":"web.shop","reason":"NoService"},`, broker.MaxRejected) +
			`{"name":"web.shop","reason":"NoService"}]`} {
		err = client.Patch(types.MergePatchType).Resource("members").Name("east").SubResource("status").
			Body([]byte(`{"status":{` + status + `}}`)).Do(t.Context()).Error()
		if !apierrors.IsInvalid(err) {
			t.Errorf("status %s: %v, want it rejected", status, err)
		}
	}
	testMemberProperties(t, client)
}

// testMemberProperties compares what schema and code reject.
func testMemberProperties(t *testing.T, client *rest.RESTClient) {
	of := func(name, value string) []v1alpha1.Property { return []v1alpha1.Property{{Name: name, Value: value}} }
	var many, large []v1alpha1.Property
	for i := range broker.MaxProperties + 1 {
		many = append(many, v1alpha1.Property{Name: fmt.Sprintf("p%d", i), Value: "x"})
		if i < broker.MaxProperties {
			large = append(large, v1alpha1.Property{Name: fmt.Sprintf("p%02d.x", i),
				Value: strings.Repeat("x", broker.MaxPropertyValue)})
		}
	}
	for name, properties := range map[string][]v1alpha1.Property{
		"a name": of("Region", "eu"), "no name": of("", "eu"), "no value": of("region", ""),
		"a long value": of("region", strings.Repeat("x", broker.MaxPropertyValue+1)),
		"twice":        append(of("region", "eu"), of("region", "us")...),
		"33":           many, "together": large,
	} {
		status := v1alpha1.MemberStatus{Properties: properties}
		content, err := json.Marshal(map[string]any{"status": status})
		if err != nil {
			t.Fatal(err)
		}
		err = client.Patch(types.MergePatchType).Resource("members").Name("east").SubResource("status").Body(content).Do(
			t.Context()).Error()
		if _, rejected := status.ValidProperties(); !apierrors.IsInvalid(err) || len(rejected) != 1 {
			t.Errorf("%s: rejected by the schema with %v, by the code with %v; want both, once", name, err, rejected)
		}
	}
}

func testMemberUpdate(t *testing.T, client *rest.RESTClient) {
	for _, patch := range []string{
		`{"spec":{"kubeSystemUID":"00000000-8b86-d011-b42d-00cf4fc964ff"}}`,
		`{"spec":{"namespace":"other-0123456789abcdef"}}`,
	} {
		err := client.Patch(types.MergePatchType).Resource("members").Name("east").Body([]byte(patch)).Do(t.Context()).Error()
		if !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v, want it rejected", patch, err)
		}
	}
}

// testUndecodable puts values into a record that a schema of types and formats accepts and Go does not decode, or that
// come back otherwise: docs/spec/controller.md 9.1.
func testUndecodable(t *testing.T, client *rest.RESTClient) {
	const created, generation = `"exportCreated":"2026-03-01T01:00:00Z"`, `"exportGeneration":7`
	record := func(from, to string) []byte {
		e := leastExport()
		e.APIVersion, e.Kind = v1alpha1.GroupVersion.String(), "ExportedService"
		e.Spec.ExportCreated = metav1.NewTime(time.Date(2026, 3, 1, 1, 0, 0, 0, time.UTC))
		e.Spec.ExportGeneration = 7
		e.Name, e.Spec.Name = "undecodable.c", "undecodable"
		content, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(content), from) {
			t.Fatalf("%s has no %s", content, from)
		}
		return []byte(strings.Replace(string(content), from, to, 1))
	}
	post := func(body []byte) error {
		return client.Post().Namespace(metav1.NamespaceDefault).Resource("exportedservices").Param("dryRun",
			metav1.DryRunAll).
			SetHeader("Content-Type", "application/json").Body(body).Do(t.Context()).Error()
	}
	if err := post(record(created, created)); err != nil {
		t.Fatalf("the record is rejected as it is: %v", err)
	}
	for _, value := range []string{
		"2026-03-01t01:00:00z", "2026-03-01 01:00:00Z", "2026-03-01T01:00:00", "2026-03-01T01:00Z",
		"2026-03-01T01:00:00+0100",
		"2026-03-01T24:00:00Z", "2026-03-01T01:00:60Z", "2026-02-30T01:00:00Z", "9999-12-31T23:59:59-23:00",
		"10000-01-01T00:00:00Z",
		"2026-03-01T01:00:00.000Z", "",
	} {
		if err := post(record(created, `"exportCreated":"`+value+`"`)); !apierrors.IsInvalid(err) {
			t.Errorf("exportCreated %q: %v, want it rejected", value, err)
		}
	}
	for _, value := range []string{"1e21", "1.5", "9223372036854775808", "9007199254740992", `"7"`} {
		if err := post(record(generation, `"exportGeneration":`+value)); err == nil {
			t.Errorf("generation %s is accepted, want it rejected", value)
		}
	}
}
