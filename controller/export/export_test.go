package export

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

func ptr[T any](v T) *T { return &v }

var created = metav1.NewTime(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))

func options() Options {
	return Options{ClusterID: "east.r1", BrokerNamespace: broker.NamespaceName("member", "east.r1"), Namespace: Allowed}
}

const exportUID = "6f5a1e5c-8a3e-4c0e-9d58-3c1f0b6f2a11"

func newExport() *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "db", UID: exportUID, CreationTimestamp: created, Generation: 4,
		Labels: map[string]string{"not": "exported"}, Annotations: map[string]string{"not": "exported"},
	}}
}

func newService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "db",
			Labels: map[string]string{"not": "exported"}, Annotations: map[string]string{"not": "exported"},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.5", ClusterIPs: []string{"10.96.0.5", "fd00:96::5"},
			IPFamilies:      []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Ports:           []corev1.ServicePort{{Name: "pg", Protocol: corev1.ProtocolTCP, Port: 5432, NodePort: 30000}},
			SessionAffinity: corev1.ServiceAffinityNone, InternalTrafficPolicy: ptr(corev1.ServiceInternalTrafficPolicyCluster),
		},
	}
}

func newSlice(name string, family discoveryv1.AddressType, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name,
			Labels: map[string]string{discoveryv1.LabelServiceName: "db", "not": "exported"},
			Annotations: map[string]string{
				corev1.EndpointsLastChangeTriggerTime: "2026-03-01T10:00:00Z", "not": "exported",
			},
		},
		AddressType: family,
		Ports: []discoveryv1.EndpointPort{{Name: ptr("pg"), Protocol: ptr(corev1.ProtocolTCP),
			Port: ptr[int32](15432)}},
	}
	for i, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a}, Hostname: ptr(fmt.Sprintf("db-%d", i)), Zone: ptr("z1"), NodeName: ptr("n1"),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr(true), Serving: ptr(true), Terminating: ptr(false)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: "db-0"},
			Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z1"}}},
		})
	}
	return s
}

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// docs/spec/controller.md 2.2: the record and a slice, whole.
func TestFrom(t *testing.T) {
	exp := newExport()
	exp.Spec.ExportedLabels, exp.Spec.ExportedAnnotations = map[string]string{"b": "2", "a": "1"},
		map[string]string{"c": "3"}
	service, source := newService(), newSlice("db-x7k2p", discoveryv1.AddressTypeIPv4, "10.1.0.1")
	before := mustJSON(t, []any{exp, service, source})
	r := From(exp, service, []*discoveryv1.EndpointSlice{source}, options())

	if c := r.Valid(4); c.Status != metav1.ConditionTrue || c.Reason != "Valid" || c.ObservedGeneration != 4 ||
		len(r.Dropped) > 0 {
		t.Errorf("condition = %+v, dropped %v, want Valid and nothing dropped", c, r.Dropped)
	}
	const labels = `"labels":{%s"broker.clusterset-dns.io/source-namespace":"shop",` +
		`%s"multicluster.kubernetes.io/service-name":"db","multicluster.kubernetes.io/source-cluster":"east.r1"}`
	ns := broker.NamespaceName("member", "east.r1")
	want := `{"kind":"ExportedService","apiVersion":"broker.clusterset-dns.io/v1alpha1","metadata":{"name":"db.shop","namespace":"` + ns + `",` +
		fmt.Sprintf(labels, "", "") + `},"spec":{"namespace":"shop","name":"db","type":"ClusterSetIP",` +
		`"ports":[{"name":"pg","protocol":"TCP","port":5432}],"sessionAffinity":"None","internalTrafficPolicy":"Cluster",` +
		`"labels":[{"key":"a","value":"1"},{"key":"b","value":"2"}],"annotations":[{"key":"c","value":"3"}],` +
		`"ipFamilies":["IPv4","IPv6"],"exportCreated":"2026-03-01T09:00:00Z","exportGeneration":4,"clusterIPs":["10.96.0.5","fd00:96::5"],` +
		`"exportUID":"` + exportUID + `","slices":["` + broker.Hash(16, "db-x7k2p") + `"]}}`
	if got := mustJSON(t, r.Record); got != want {
		t.Errorf("record = %s\nwant %s", got, want)
	}
	wantSlice := `{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"db.shop.` + broker.Hash(16, "db-x7k2p") +
		`","namespace":"` + ns + `",` + fmt.Sprintf(labels, "", `"endpointslice.kubernetes.io/managed-by":"controller.clusterset-dns.io",`) + `,` +
		`"annotations":{%s"endpoints.kubernetes.io/last-change-trigger-time":"2026-03-01T10:00:00Z"}},"addressType":"IPv4",` +
		`"endpoints":[{"addresses":["10.1.0.1"],"conditions":{"ready":true,"serving":true,"terminating":false},"hostname":"db-0"%s,"zone":"z1"}],` +
		`"ports":[{"name":"pg","protocol":"TCP","port":15432}]}`
	if got, want := mustJSON(t, r.Slices[0]), fmt.Sprintf(wantSlice, `"broker.clusterset-dns.io/export-uid":"`+exportUID+`",`, ""); got != want {
		t.Errorf("slice = %s\nwant %s", got, want)
	}
	if got, want := mustJSON(t, r.Local[0]), fmt.Sprintf(wantSlice, "", `,"nodeName":"n1"`); got != want {
		t.Errorf("local slice = %s\nwant %s", got, want)
	}
	r.Local[0].Endpoints[0].Addresses[0], *r.Slices[0].Ports[0].Name, r.Record.Spec.IPFamilies[0] = "changed", "changed",
		"changed"
	if after := mustJSON(t, []any{exp, service, source}); after != before {
		t.Errorf("input = %s after a change of the result, want %s", after, before)
	}
}

// docs/spec/controller.md 3.1, docs/spec/controller.md 6.2: an export that is not possible reports why, and withdraws
// record and slices.
func TestValid(t *testing.T) {
	now := metav1.Now()
	for _, tt := range []struct {
		name  string
		spoil func(*mcsv1beta1.ServiceExport, *corev1.Service, *Options)
		none  bool // no Service
		want  string
	}{
		{name: "valid", want: "Valid"},
		{name: "no Service", none: true, want: "NoService"},
		{name: "Service being deleted", spoil: func(_ *mcsv1beta1.ServiceExport, s *corev1.Service,
			_ *Options) {
			s.DeletionTimestamp = &now
		}, want: "NoService"},
		{name: "ExternalName", spoil: func(_ *mcsv1beta1.ServiceExport, s *corev1.Service, _ *Options) {
			s.Spec.Type = corev1.ServiceTypeExternalName
		}, want: "InvalidServiceType"},
		{name: "derived by us", spoil: func(_ *mcsv1beta1.ServiceExport, s *corev1.Service, _ *Options) {
			s.Labels = map[string]string{broker.LabelManagedBy: broker.ManagedBy}
		}, want: "InvalidServiceType"},
		{name: "namespace not allowed", spoil: func(_ *mcsv1beta1.ServiceExport, _ *corev1.Service,
			o *Options) {
			o.Namespace = NotAllowed
		}, want: "NamespaceNotAllowed"},
		{name: "namespace terminating", spoil: func(_ *mcsv1beta1.ServiceExport, _ *corev1.Service,
			o *Options) {
			o.Namespace = Terminating
		}, want: "NamespaceNotAllowed"},
		{name: "not a member", spoil: func(_ *mcsv1beta1.ServiceExport, _ *corev1.Service, o *Options) { o.ClusterID = "" },
			want: "NotMember"},
		{name: "no valid cluster id", spoil: func(_ *mcsv1beta1.ServiceExport, _ *corev1.Service,
			o *Options) {
			o.ClusterID = "a.b.c"
		}, want: "NotMember"},
	} {
		exp, service, o := newExport(), newService(), options()
		if tt.spoil != nil {
			tt.spoil(exp, service, &o)
		}
		if tt.none {
			service = nil
		}
		r := From(exp, service, []*discoveryv1.EndpointSlice{newSlice("x", discoveryv1.AddressTypeIPv4)}, o)
		if c := r.Valid(1); c.Reason != tt.want || (c.Status == metav1.ConditionTrue) != (tt.want == "Valid") ||
			c.Message == "" {
			t.Errorf("%s: condition = %+v, want %s", tt.name, c, tt.want)
		}
		if exported := r.Record != nil || r.Slices != nil || r.Local != nil; exported != (tt.want == "Valid") {
			t.Errorf("%s: record = %v with %d slices, want them only if valid", tt.name, r.Record, len(r.Slices))
		}
	}
	exp := newExport()
	exp.DeletionTimestamp = &now
	if r := From(exp, newService(), nil, options()); r.Record != nil {
		t.Errorf("record = %v of an export that is being deleted, want none", r.Record)
	}
}

func TestTypes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(*corev1.Service)
		want  string // type, families, cluster IPs
	}{
		{name: "NodePort", spoil: func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort },
			want: "ClusterSetIP [IPv4 IPv6] [10.96.0.5 fd00:96::5]"},
		{name: "LoadBalancer", spoil: func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer },
			want: "ClusterSetIP [IPv4 IPv6] [10.96.0.5 fd00:96::5]"},
		{name: "headless", spoil: func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
			s.Spec.IPFamilies = s.Spec.IPFamilies[1:]
		}, want: "Headless [IPv6] []"},
		{name: "families follow from the address", spoil: func(s *corev1.Service) {
			s.Spec.IPFamilies, s.Spec.ClusterIPs, s.Spec.ClusterIP = nil, nil, "fd00:96::5"
		}, want: "ClusterSetIP [IPv6] [fd00:96::5]"},
	} {
		service := newService()
		tt.spoil(service)
		s := From(newExport(), service, nil, options()).Record.Spec
		if got := fmt.Sprint(s.Type, " ", s.IPFamilies, " ", s.ClusterIPs); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// show returns families, ports and addresses of slices.
func show(list []*discoveryv1.EndpointSlice) string {
	var text []string
	for _, s := range list {
		var all []string
		for _, e := range s.Endpoints {
			all = append(all, e.Addresses...)
		}
		text = append(text, fmt.Sprintf("%s:%d %v", s.AddressType, *s.Ports[0].Port, all))
	}
	slices.Sort(text)
	return strings.Join(text, "; ")
}

// docs/spec/controller.md 3.4, and docs/spec/controller.md 11 on the endpoints of a ClusterIP Service.
func TestSlices(t *testing.T) {
	notReady := newSlice("c", discoveryv1.AddressTypeIPv6, "fd00:1::1")
	notReady.Endpoints[0].Conditions.Ready = ptr(false)
	alien, imported := newSlice("d", discoveryv1.AddressTypeIPv4, "10.1.0.9"),
		newSlice("e", discoveryv1.AddressTypeIPv4, "10.2.0.9")
	alien.Labels[discoveryv1.LabelServiceName] = "web"
	imported.Labels[discoveryv1.LabelManagedBy] = broker.ManagedBy
	many := newSlice("f", discoveryv1.AddressTypeIPv4, slices.Repeat([]string{"10.1.0.1"}, broker.MaxEndpoints+1)...)
	sources := []*discoveryv1.EndpointSlice{
		newSlice("b", discoveryv1.AddressTypeIPv4, "10.1.0.2"), newSlice("a", discoveryv1.AddressTypeIPv4, "10.1.0.1"),
		notReady,
		alien, imported, many, newSlice("g", discoveryv1.AddressTypeFQDN, "db.example.org"), nil,
	}
	headless := newService()
	headless.Spec.ClusterIP, headless.Spec.ClusterIPs = corev1.ClusterIPNone, nil
	for _, tt := range []struct {
		name    string
		service *corev1.Service
		sources []*discoveryv1.EndpointSlice
		mode    string
		want    string
	}{
		{name: "pod_ip: one for each source slice that is ours", sources: sources,
			want: "IPv4:15432 [10.1.0.1]; IPv4:15432 [10.1.0.2]; IPv6:15432 [fd00:1::1]"},
		{name: "service_ip: one endpoint for each family, none without a ready one", sources: sources, mode: broker.ServiceIP,
			want: "IPv4:5432 [10.96.0.5]; IPv6:5432 []"},
		{name: "service_ip: no slices at all", mode: broker.ServiceIP, want: "IPv4:5432 []; IPv6:5432 []"},
		{name: "service_ip: headless as pod_ip", service: headless, sources: sources[:1], mode: broker.ServiceIP,
			want: "IPv4:15432 [10.1.0.2]"},
	} {
		service := tt.service
		if service == nil {
			service = newService()
		}
		o := options()
		o.Endpoints = tt.mode
		r := From(newExport(), service, tt.sources, o)
		if got := show(r.Slices); got != tt.want {
			t.Errorf("%s: slices = %s, want %s", tt.name, got, tt.want)
		}
		if !slices.IsSortedFunc(r.Slices, func(a, b *discoveryv1.EndpointSlice) int {
			return strings.Compare(a.Name, b.Name)
		}) {
			t.Errorf("%s: slices are not sorted by name", tt.name)
		}
	}
	odd := newSlice("odd", discoveryv1.AddressTypeIPv4, "10.1.0.9")
	odd.Endpoints[0].Zone, odd.Annotations = ptr("zone é"),
		map[string]string{corev1.EndpointsLastChangeTriggerTime: strings.Repeat("9", 65)}
	if s := From(newExport(), newService(), []*discoveryv1.EndpointSlice{odd},
		options()).Slices[0]; s.Endpoints[0].Zone != nil || s.Annotations[corev1.EndpointsLastChangeTriggerTime] != "" {
		t.Errorf("slice with a zone that is no value of a label, and too long a time: %+v, want it without both", s)
	}
	dropped := From(newExport(), newService(), sources, options()).Dropped
	if len(dropped) != 2 || !strings.Contains(dropped[0], `"f" is not exported: it has 1001 endpoints`) || !strings.Contains(dropped[1], `"g"`) {
		t.Errorf("dropped = %q, want the large slice and the one of names", dropped)
	}
}

// docs/spec/controller.md 3.4: the addresses of a load balancer, at the ports of the Service, while it has a ready
// endpoint. The own import has the Pods.
func TestLoadBalancer(t *testing.T) {
	ready, notReady := newSlice("a", discoveryv1.AddressTypeIPv4, "10.1.0.1"), newSlice("a", discoveryv1.AddressTypeIPv4, "10.1.0.1")
	notReady.Endpoints[0].Conditions.Ready = ptr(false)
	const ok = "True/Valid  "
	for _, tt := range []struct {
		name, annotation string
		change           func(*corev1.Service)
		source           *discoveryv1.EndpointSlice
		ingress          string
		declared         string // network
		want, condition  string
	}{
		{name: "two addresses", ingress: "192.0.2.9 192.0.2.1", want: "IPv4:5432 [192.0.2.1 192.0.2.9]", condition: ok},
		{name: "both families, Pods of one", ingress: "2001:db8::1 192.0.2.1",
			want: "IPv4:5432 [192.0.2.1]; IPv6:5432 [2001:db8::1]", condition: ok},
		{name: "no ready endpoint", source: notReady, ingress: "192.0.2.1", want: "IPv4:5432 []", condition: ok},
		{name: "no address yet", want: "IPv4:5432 []; IPv6:5432 []",
			condition: "True/Valid  The load balancer of the Service has no address yet."},
		{name: "a host name beside an address", ingress: "192.0.2.1 lb.example.org", want: "IPv4:5432 [192.0.2.1]", condition: ok},
		{name: "another family", ingress: "2001:db8::1",
			change:    func(s *corev1.Service) { s.Spec.IPFamilies = s.Spec.IPFamilies[:1] },
			want:      "IPv4:5432 []",
			condition: "True/Valid The load balancer of the Service has no address of its family, IPv4. "},
		{name: "no declared network", ingress: "198.51.100.1", declared: "192.0.2.0/24", want: "IPv4:5432 []",
			condition: "True/Valid The load balancer has the address 198.51.100.1, and this cluster has declared no network with it: " +
				"join again with --load-balancer-cidr. "},
		{name: "a host name alone", ingress: "lb.example.org", want: "IPv4:5432 []; IPv6:5432 []",
			condition: `True/Valid The load balancer of the Service has the host name "lb.example.org" and no address: want one with an IP. `},
		{name: "another type", change: func(s *corev1.Service) { s.Spec.Type = "" }, condition: "False/InvalidServiceType  "},
		{name: "headless", change: func(s *corev1.Service) { s.Spec.Type, s.Spec.ClusterIP = "", "None" },
			condition: "False/InvalidServiceType  "},
		{name: "another kind by annotation", annotation: "pod_ip", ingress: "192.0.2.1", want: "IPv4:15432 [10.1.0.1]", condition: ok},
		{name: "an unknown kind", annotation: "LoadBalancer", ingress: "192.0.2.1", want: "IPv4:5432 [192.0.2.1]",
			condition: "True/AnnotationIgnored  "},
	} {
		exp, service, o := newExport(), newService(), options()
		if o.Endpoints = broker.LoadBalancer; tt.annotation != "" {
			exp.Annotations[broker.AnnotationEndpoints] = tt.annotation
		}
		if tt.declared != "" {
			o.Networks = []netip.Prefix{netip.MustParsePrefix(tt.declared)}
		}
		service.Spec.Type = corev1.ServiceTypeLoadBalancer
		for _, text := range strings.Fields(tt.ingress) {
			in := corev1.LoadBalancerIngress{IP: text}
			if strings.HasSuffix(text, ".org") {
				in = corev1.LoadBalancerIngress{Hostname: text}
			}
			service.Status.LoadBalancer.Ingress = append(service.Status.LoadBalancer.Ingress, in)
		}
		if tt.source == nil {
			tt.source = ready
		}
		if tt.change != nil {
			tt.change(service)
		}
		r := From(exp, service, []*discoveryv1.EndpointSlice{tt.source}, o)
		c := r.Valid(1)
		condition := fmt.Sprintf("%s/%s %s %s", c.Status, c.Reason, r.Failed, r.Waits)
		if got := show(r.Slices); got != tt.want || condition != tt.condition {
			t.Errorf("%s: slices %q, %q, want %q, %q", tt.name, got, condition, tt.want, tt.condition)
		}
		if got := show(r.Local); r.Record != nil && got != "IPv4:15432 [10.1.0.1]" {
			t.Errorf("%s: own slices %q, want the Pods", tt.name, got)
		}
	}
}

// docs/spec/controller.md 4.5: a headless Service without selector has both families in any cluster, so those of its
// endpoints count.
func TestFamiliesOfAServiceWithoutSelector(t *testing.T) {
	v4, v6 := newSlice("four", discoveryv1.AddressTypeIPv4, "10.1.0.1"),
		newSlice("six", discoveryv1.AddressTypeIPv6, "fd00::1")
	for _, tt := range []struct {
		name     string
		change   func(*corev1.ServiceSpec)
		sources  []*discoveryv1.EndpointSlice
		families []corev1.IPFamily
	}{
		{name: "of one family", sources: []*discoveryv1.EndpointSlice{v4, newSlice("empty", discoveryv1.AddressTypeIPv6)},
			families: []corev1.IPFamily{"IPv4"}},
		{name: "of the second family", sources: []*discoveryv1.EndpointSlice{v6}, families: []corev1.IPFamily{"IPv6"}},
		{name: "of both", sources: []*discoveryv1.EndpointSlice{v6, v4}, families: []corev1.IPFamily{"IPv4", "IPv6"}},
		{name: "no endpoint", families: []corev1.IPFamily{"IPv4"}},
		{name: "with a selector", sources: []*discoveryv1.EndpointSlice{v4}, families: []corev1.IPFamily{"IPv4", "IPv6"},
			change: func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "db"} }},
		{name: "with a cluster IP", sources: []*discoveryv1.EndpointSlice{v4}, families: []corev1.IPFamily{"IPv4", "IPv6"},
			change: func(s *corev1.ServiceSpec) {
				s.ClusterIP, s.ClusterIPs = "10.96.0.5", []string{"10.96.0.5", "fd00:96::5"}
			}},
	} {
		service := newService()
		service.Spec.ClusterIP, service.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
		if tt.change != nil {
			tt.change(&service.Spec)
		}
		if got := From(newExport(), service, tt.sources, options()).Record.Spec.IPFamilies; !slices.Equal(got, tt.families) {
			t.Errorf("%s: families %v, want %v", tt.name, got, tt.families)
		}
	}
}

// docs/spec/controller.md 6.2: the condition reports that clusters without endpoints cannot use a cluster IP.
func TestLocalTrafficPolicyIsSaid(t *testing.T) {
	for policy, want := range map[corev1.ServiceInternalTrafficPolicy]string{
		corev1.ServiceInternalTrafficPolicyCluster: "[]",
		corev1.ServiceInternalTrafficPolicyLocal:   "[A cluster without endpoints of its own cannot reach the service by a cluster IP, as its internalTrafficPolicy is Local.]",
	} {
		service := newService()
		service.Spec.InternalTrafficPolicy = &policy
		if got := fmt.Sprint(From(newExport(), service, nil, options()).Dropped); got != want {
			t.Errorf("%s: %s, want %s", policy, got, want)
		}
		service.Spec.ClusterIP, service.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
		if got := From(newExport(), service, nil, options()).Dropped; len(got) > 0 {
			t.Errorf("%s of a headless Service: %q, want nothing", policy, got)
		}
	}
}

// docs/spec/controller.md 3.4: for which zone and region a slice is stays (KEP-2030), for the broker and the own
// import.
func TestTopologyLabels(t *testing.T) {
	for _, tt := range []struct{ zone, region string }{{"a", ""}, {"", "r"}, {"a", "r"}, {"", ""}} {
		source := newSlice("x", discoveryv1.AddressTypeIPv4, "10.1.0.1")
		source.Labels[broker.LabelForZone], source.Labels[broker.LabelForRegion] = tt.zone, tt.region
		r := From(newExport(), newService(), []*discoveryv1.EndpointSlice{source}, options())
		for _, s := range []*discoveryv1.EndpointSlice{r.Slices[0], r.Local[0]} {
			zone, hasZone := s.Labels[broker.LabelForZone]
			region, hasRegion := s.Labels[broker.LabelForRegion]
			if zone != tt.zone || region != tt.region || hasZone != (zone != "") || hasRegion != (region != "") {
				t.Errorf("for zone %q and region %q: labels %v", tt.zone, tt.region, s.Labels)
			}
		}
	}
}

// docs/spec/controller.md 3.4: one address outside of the declared networks costs no other endpoint anything.
func TestUndeclared(t *testing.T) {
	networks := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/64")}
	mixed := newSlice("a", discoveryv1.AddressTypeIPv4, "10.1.0.1", "192.168.0.9", "10.2.0.1", "10.1.0.2")
	mixed.Endpoints[0].Addresses = []string{"192.168.0.7", "10.1.0.1", "169.254.0.1"}
	alien := newSlice("b", discoveryv1.AddressTypeIPv6, "fd00:2::1")
	sources := []*discoveryv1.EndpointSlice{mixed, alien}
	before := mustJSON(t, sources)
	const named = "Addresses in none of the networks that this cluster declared are not exported: 10.2.0.1, 169.254.0.1, 192.168.0.7 and 2 more. " +
		"Join again with all networks of its endpoints."
	for _, tt := range []struct {
		name       string
		networks   []netip.Prefix
		mode       string
		want       string
		dropped    []string
		undeclared int
	}{
		{name: "not known yet",
			want: "IPv4:15432 [192.168.0.7 10.1.0.1 169.254.0.1 192.168.0.9 10.2.0.1 10.1.0.2]; IPv6:15432 [fd00:2::1]"},
		{name: "some", networks: networks, want: "IPv4:15432 [10.1.0.1 10.1.0.2]; IPv6:15432 []", dropped: []string{named},
			undeclared: 5},
		{name: "none are declared", networks: []netip.Prefix{}, mode: broker.ServiceIP, want: "IPv4:5432 []; IPv6:5432 []",
			dropped: []string{strings.Replace(named, "10.2.0.1, 169.254.0.1, 192.168.0.7 and 2 more", "10.96.0.5, fd00:96::5",
				1)}, undeclared: 2},
	} {
		o := options()
		o.Networks, o.Endpoints = tt.networks, tt.mode
		r := From(newExport(), newService(), sources, o)
		if got := show(r.Slices); got != tt.want {
			t.Errorf("%s: slices = %s, want %s", tt.name, got, tt.want)
		}
		if !slices.Equal(r.Dropped, tt.dropped) || r.Undeclared != tt.undeclared {
			t.Errorf("%s: dropped %q, undeclared %d, want %q, %d", tt.name, r.Dropped, r.Undeclared, tt.dropped, tt.undeclared)
		}
		o.Networks = nil
		if got, want := mustJSON(t, r.Local), mustJSON(t, From(newExport(), newService(), sources, o).Local); got != want {
			t.Errorf("%s: local = %s, want all: %s", tt.name, got, want)
		}
	}
	if after := mustJSON(t, sources); after != before {
		t.Errorf("input = %s after it, want %s", after, before)
	}
	wide := newSlice("c", discoveryv1.AddressTypeIPv4, "10.1.0.1", "10.1.0.2")
	wide.Endpoints[0].Addresses = slices.Repeat([]string{"10.1.0.1"}, broker.MaxEndpoints)
	r := From(newExport(), newService(), []*discoveryv1.EndpointSlice{wide}, options())
	if len(r.Slices) > 0 || len(r.Dropped) != 1 || !strings.Contains(r.Dropped[0], "it has 1001 addresses") {
		t.Errorf("slices %v, dropped %q, want none but its name", r.Slices, r.Dropped)
	}
}

// docs/spec/controller.md 3.3: of labels and annotations only what every importer accepts.
func TestMetadata(t *testing.T) {
	exp := newExport()
	exp.Spec.ExportedLabels = map[string]string{
		"tier": "gold", "example.org/a": "", "app.kubernetes.io/name": "x", "-bad": "x", "value": "a b",
	}
	exp.Spec.ExportedAnnotations = map[string]string{
		"note": "any text: ü", broker.AnnotationAllocatedBy: "me", "long": strings.Repeat("a", broker.MaxValue+1),
		"clusterset-dns.io/x": "y",
	}
	r := From(exp, newService(), nil, options())
	if got := fmt.Sprint(
		r.Record.Spec.Labels, r.Record.Spec.Annotations); got != "[{example.org/a } {tier gold}] [{note any text: ü}]" {
		t.Errorf("exported = %s, want tier, example.org/a and note", got)
	}
	if len(r.Dropped) != 6 {
		t.Errorf("dropped = %q, want the other six", r.Dropped)
	}
	clear(exp.Spec.ExportedAnnotations)
	for i := range 200 {
		exp.Spec.ExportedAnnotations[fmt.Sprintf("key-%03d", i)] = ""
	}
	a := From(exp, newService(), nil, options()).Record.Spec.Annotations
	for i := range 10 {
		exp.Spec.ExportedAnnotations[fmt.Sprintf("key-%03d", i)] = strings.Repeat("a", broker.MaxValue)
	}
	r = From(exp, newService(), nil, options())
	if err := r.Record.Spec.Validate(); err != nil {
		t.Errorf("record with many long annotations: %v", err)
	}
	if got := len(r.Record.Spec.Annotations); got != broker.MaxMetadata-3 {
		t.Errorf("%d annotations, want those that fit together, without three long ones", got)
	}
	if len(a) != broker.MaxMetadata || a[0].Key != "key-000" || a[63].Key != "key-063" {
		t.Errorf("%d annotations, want the first %d", len(a), broker.MaxMetadata)
	}
}

// docs/spec/controller.md 5.7: the annotation overrides the option.
func TestVIP(t *testing.T) {
	for _, tt := range []struct {
		name, annotation string
		wants            *bool
		want             string
	}{
		{name: "not vip cidr", annotation: "true", want: "null"},
		{name: "flag off", wants: new(false), want: `{"wanted":false}`},
		{name: "flag on", wants: new(true), want: `{"wanted":true}`},
		{name: "annotation against the flag", annotation: "false", wants: new(true), want: `{"wanted":false}`},
		{name: "annotation without the flag", annotation: "true", wants: new(false), want: `{"wanted":true}`},
		{name: "annotation that says nothing", annotation: "maybe", wants: new(true), want: `{"wanted":true}`},
	} {
		exp, o := newExport(), options()
		if tt.annotation != "" {
			exp.Annotations[broker.AnnotationUseVIP] = tt.annotation
		}
		o.WantsVIP = tt.wants
		r := From(exp, newService(), nil, o)
		if got := mustJSON(t, r.Record.Spec.VIP); got != tt.want {
			t.Errorf("%s: vip = %s, want %s", tt.name, got, tt.want)
		}
		if told := len(r.Ignored) > 0; told != (tt.annotation == "maybe") {
			t.Errorf("%s: ignored = %q", tt.name, r.Ignored)
		}
	}
}

// docs/spec/selection.md 1.1: what the annotations of an export say of the clusters that traffic goes to, and what a
// bad one gets.
func TestSelectors(t *testing.T) {
	const list, ours, cilium = broker.AnnotationSelectors, broker.AnnotationAffinity, broker.AnnotationCiliumAffinity
	const local = `[{"matchProperties":[{"name":"cluster.clusterset.k8s.io","value":"@SameAsImporter@"}]}]`
	for _, tt := range []struct {
		name, key, value string
		headless         bool
		exported         bool   // among the exported annotations
		want             string // selectors; "" for no record
		reason, message  string
	}{
		{name: "none", key: "other", want: "null", reason: "Valid", message: "The Service can be exported."},
		{name: "local", key: ours, value: "local", want: local, reason: "Valid", message: "The Service can be exported."},
		{name: "Cilium", key: cilium, value: "local", want: local, reason: "Valid", message: "The Service can be exported."},
		{name: "Cilium, as its manual writes it", key: cilium, value: "local", exported: true, want: local,
			reason: "Valid", message: "The Service can be exported."},
		{name: "no preference", key: ours, value: "none", want: "null", reason: "Valid",
			message: "The Service can be exported."},
		{name: "no preference of a headless Service", key: ours, value: "none", headless: true, want: "null",
			reason: "Valid", message: "The Service can be exported."},
		{name: "a list", key: list, value: `[{"propertySelector":{"matchProperties":{"b":"2","a":"1"}}}]`,
			want: `[{"matchProperties":[{"name":"a","value":"1"},{"name":"b","value":"2"}]}]`, reason: "Valid", message: "The Service can be exported."},
		{name: "an empty selector", key: list, value: `[{"propertySelector":{}}]`, reason: "InvalidClusterSelector",
			message: `The cluster selectors are malformed: annotation clusterset-dns.io/cluster-selectors: selector 1: it is empty: want matchProperties or matchExpressions. [export-selectors]`},
		{name: "no JSON", key: list, value: "local", reason: "InvalidClusterSelector",
			message: `The cluster selectors are malformed: annotation clusterset-dns.io/cluster-selectors: "local": want a JSON list of selectors: invalid character 'l' looking for beginning of value. [export-selectors]`},
		{name: "an affinity of a headless Service", key: cilium, value: "local", headless: true, want: "null",
			reason:  "AnnotationIgnored",
			message: "The Service can be exported. Ignored: an affinity of a headless Service: want one that has a cluster IP. [export-annotation]"},
		{name: "of a headless Service", key: list, value: `[{"propertySelector":{"matchProperties":{"a":"1"}}}]`, headless: true, reason: "InvalidServiceType",
			message: "Clusters cannot be selected for a headless Service: remove annotation clusterset-dns.io/cluster-selectors, or give the Service a cluster IP. [export-invalid-type]"},
		{name: "weights", key: broker.AnnotationWeights, value: "east=1", want: "null", reason: "AnnotationIgnored",
			message: "The Service can be exported. Ignored: annotation clusterset-dns.io/weights of a ServiceExport: want it on the Namespace of an importing cluster. [export-annotation]"},
		{name: "a traffic distribution", key: broker.AnnotationTrafficDistribution, value: "none", want: "null",
			reason:  "AnnotationIgnored",
			message: "The Service can be exported. Ignored: annotation clusterset-dns.io/traffic-distribution of a ServiceExport: want it on the Namespace of an importing cluster. [export-annotation]"},
		{name: "too many selectors", key: list,
			value: "[" + strings.TrimSuffix(strings.Repeat(`{"propertySelector":{"matchProperties":{"a":"1"}}},`, 17), ",") + "]",
			want:  "null", reason: "AnnotationIgnored",
			message: `The Service can be exported. Ignored: annotation clusterset-dns.io/cluster-selectors: 17 selectors: want at most 16. [export-annotation]`},
		{name: "a property that is left out", key: broker.AnnotationToClusters,
			value: `[{"propertySelector":{"matchExpressions":[{"key":"notes","operator":"Exists"}]}}]`,
			want:  "null", reason: "AnnotationIgnored",
			message: "The Service can be exported. Ignored by selectors: property notes: too long. [export-annotation]"},
		{name: "an unknown affinity", key: cilium, value: "near", want: "null", reason: "AnnotationIgnored",
			message: `The Service can be exported. Ignored: annotation service.cilium.io/affinity: affinity "near": want local, region, remote or none. [export-annotation]`},
	} {
		exp, service := newExport(), newService()
		if tt.exported {
			exp.Spec.ExportedAnnotations = map[string]string{tt.key: tt.value}
		} else {
			exp.Annotations[tt.key] = tt.value
		}
		if tt.headless {
			service.Spec.ClusterIP, service.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
		}
		o := options()
		o.LeftOut = map[string]string{"notes": "property notes: too long", "other": "property other: too long"}
		r := From(exp, service, nil, o)
		got := ""
		if r.Record != nil {
			got = mustJSON(t, r.Record.Spec.ClusterSelectors)
		}
		if got != tt.want {
			t.Errorf("%s: selectors = %s, want %s", tt.name, got, tt.want)
		}
		c := r.Valid(1)
		if valid := c.Status == metav1.ConditionTrue; c.Reason != tt.reason || c.Message != tt.message ||
			valid != (tt.want != "") {
			t.Errorf("%s: condition = %+v, want %s, %s", tt.name, c, tt.reason, tt.message)
		}
	}
}

// docs/spec/controller.md 3.8: without a list that can be read nothing is exported, as the default would be all
// clusters.
func TestToClusters(t *testing.T) {
	for value, want := range map[string]string{
		"west,east": `[{"matchExpressions":[{"key":"cluster.clusterset.k8s.io","operator":"In","values":["east","west"]}]}]`,
		`[{"propertySelector":{"matchProperties":{"tier":"gold"}}}]`: `[{"matchProperties":[{"name":"tier","value":"gold"}]}]`,
		"":    "",
		"[]":  "",
		"*":   "",
		"A,b": "",
	} {
		exp, service := newExport(), newService()
		exp.Annotations[broker.AnnotationToClusters] = value
		service.Spec.ClusterIP, service.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone} // of any type
		r := From(exp, service, nil, options())
		if want == "" {
			if c := r.Valid(1); r.Record != nil || c.Status != metav1.ConditionFalse || c.Reason != "InvalidToClusters" ||
				!strings.Contains(c.Message, "want ") {
				t.Errorf("%q: record %v, %+v, want none, and a condition that says what is wanted", value, r.Record, c)
			}
		} else if r.Record == nil || mustJSON(t, r.Record.Spec.ToClusters) != want {
			t.Errorf("%q: record = %+v, want it for %s", value, r.Record, want)
		}
	}
	if r := From(newExport(), newService(), nil, options()); r.Record == nil || r.Record.Spec.ToClusters != nil {
		t.Errorf("without the annotation: record %+v, want one for all", r.Record)
	}
}

// Contents that no record can hold are a failure with that reason, not a record that every importer rejects.
func TestTooManyPorts(t *testing.T) {
	service := newService()
	for i := range broker.MaxPorts {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(1 + i)})
	}
	r := From(newExport(), service, nil, options())
	if r.Record != nil || r.Reason != "Valid" || !strings.Contains(r.Failed, "101 ports: want at most 100") {
		t.Errorf("result = %+v, want a failure that names the ports", r)
	}
}

// The order in which an informer lists slices does not show.
func TestOrderOfSourcesDoesNotMatter(t *testing.T) {
	var sources []*discoveryv1.EndpointSlice
	for i := range 20 {
		sources = append(sources, newSlice(fmt.Sprintf("s%d", i), discoveryv1.AddressTypeIPv4, fmt.Sprintf("10.1.0.%d", i+1)))
	}
	want := mustJSON(t, From(newExport(), newService(), sources, options()))
	for range 20 {
		rand.Shuffle(len(sources), func(i, j int) { sources[i], sources[j] = sources[j], sources[i] })
		if got := mustJSON(t, From(newExport(), newService(), sources, options())); got != want {
			t.Fatalf("result = %s\nin another order %s", want, got)
		}
	}
}

// FuzzFrom decodes anything into the objects. Whatever it is, nothing panics, and a record that is made is one that
// counts.
func FuzzFrom(f *testing.F) {
	f.Add([]byte(mustJSON(f, newExport())), []byte(mustJSON(f, newService())),
		[]byte(mustJSON(f, []any{newSlice("a", "IPv4", "10.1.0.1")})), true)
	f.Add([]byte(`{}`), []byte(`{"spec":{"clusterIP":"None","ports":[{"port":-1}]}}`), []byte(`[null]`), false)
	f.Fuzz(func(t *testing.T, exp, svc, list []byte, serviceIP bool) {
		e, s, sources := newExport(), newService(), []*discoveryv1.EndpointSlice{}
		_ = json.Unmarshal(exp, e) // as far as it goes
		_ = json.Unmarshal(svc, s)
		_ = json.Unmarshal(list, &sources)
		o := options()
		o.WantsVIP = new(false)
		if serviceIP {
			o.Endpoints = broker.ServiceIP
		}
		r := From(e, s, sources, o)
		if r.Record == nil {
			if len(r.Slices) > 0 {
				t.Fatalf("%d slices without a record", len(r.Slices))
			}
			return
		}
		if err := r.Record.Spec.Validate(); err != nil {
			t.Fatal(err)
		}
		if len(r.Slices) > max(len(sources), 2) || len(r.Slices) != len(r.Local) {
			t.Fatalf("%d slices and %d local ones of %d", len(r.Slices), len(r.Local), len(sources))
		}
	})
}
