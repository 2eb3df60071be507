package cache

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/cache/index"
)

func reasonsOf(rejected []Rejection) (list []Reason) {
	for _, r := range rejected {
		list = append(list, r.Reason)
	}
	return list
}

func portsOf(ps index.Ports) []index.Port { return slices.Collect(ps.All()) }

func TestReadImport(t *testing.T) {
	long := strings.Repeat("a", 63)
	tests := []struct {
		name     string
		object   string // namespace/name
		spec     string
		want     string // key, type, vip, addresses, ports
		rejected []Reason
	}{
		{name: "VIP", object: "shop/web", spec: `{"type":"ClusterSetIP","ips":["10.0.0.1"],"ports":[{"name":"http","protocol":"TCP","port":80}]}`, want: "web.shop 1 true [10.0.0.1] [{http 1 80}]"},
		{name: "headless", object: "shop/web", spec: `{"type":"Headless"}`, want: "web.shop 2 false [] []"},
		{name: "mixed case is folded", object: "Shop/WEB", spec: `{"type":"ClusterSetIP","ips":["10.0.0.1"],"ports":[{"name":"Http","port":80}]}`, want: "web.shop 1 true [10.0.0.1] [{http 1 80}]"},
		{name: "IPv4 comes first, each address once", object: "shop/web", spec: `{"type":"ClusterSetIP","ips":["fd00::1","10.0.0.1","FD00:0::1"]}`, want: "web.shop 1 true [10.0.0.1 fd00::1] []"},
		{name: "63 octets", object: "shop/" + long, spec: `{"type":"Headless"}`, want: long + ".shop 2 false [] []"},
		{name: "64 octets", object: "shop/a" + long, spec: `{"type":"Headless"}`, rejected: []Reason{BadName}},
		{name: "two labels", object: "shop/web.v1", spec: `{"type":"Headless"}`, rejected: []Reason{BadName}},
		{name: "underscore in the namespace", object: "sh_op/web", spec: `{"type":"Headless"}`, rejected: []Reason{BadName}},
		{name: "unknown type", object: "shop/web", spec: `{"type":"SuperclusterIP"}`, rejected: []Reason{BadType}},
		{name: "no spec", object: "shop/web", rejected: []Reason{BadObject}},
		{name: "spec of another shape", object: "shop/web", spec: `{"type":"Headless","ports":{"a":1}}`, rejected: []Reason{BadObject}},
		{name: "one bad address costs itself", object: "shop/web", spec: `{"type":"ClusterSetIP","ips":["web.example","10.0.0.1"]}`, want: "web.shop 1 true [10.0.0.1] []", rejected: []Reason{BadAddress}},
		{name: "all addresses bad: still no answer from slices", object: "shop/web", spec: `{"type":"ClusterSetIP","ips":["127.0.0.1"]}`, want: "web.shop 1 true [] []", rejected: []Reason{BadAddress}},
		{name: "no protocol is TCP", object: "shop/web", spec: `{"type":"ClusterSetIP","ips":["10.0.0.1"],"ports":[{"name":"a","port":1}]}`, want: "web.shop 1 true [10.0.0.1] [{a 1 1}]"},
		{name: "UDP and SCTP", object: "shop/web", spec: `{"type":"ClusterSetIP","ips":["10.0.0.1"],"ports":[{"name":"a","protocol":"UDP","port":1},{"name":"b","protocol":"SCTP","port":65535}]}`, want: "web.shop 1 true [10.0.0.1] [{a 2 1} {b 3 65535}]"},
		{name: "ports out of range", object: "shop/web", spec: `{"type":"ClusterSetIP","ips":["10.0.0.1"],"ports":[{"name":"a","port":0},{"name":"b","port":65536},{"name":"c","port":-1}]}`, want: "web.shop 1 true [10.0.0.1] []", rejected: []Reason{BadPort}},
		{name: "port beyond any integer type", object: "shop/web", spec: `{"type":"Headless","ports":[{"name":"a","port":99999999999999999999}]}`, rejected: []Reason{BadObject}},
		{name: "unknown protocol", object: "shop/web", spec: `{"type":"ClusterSetIP","ips":["10.0.0.1"],"ports":[{"name":"a","protocol":"ICMP","port":1}]}`, want: "web.shop 1 true [10.0.0.1] []", rejected: []Reason{BadPort}},
		{name: "port name of 62 octets", object: "shop/web", spec: `{"type":"ClusterSetIP","ips":["10.0.0.1"],"ports":[{"name":"` + long[1:] + `","port":1}]}`, want: "web.shop 1 true [10.0.0.1] [{" + long[1:] + " 1 1}]"},
		{name: "port name of 63 octets owns no SRV", object: "shop/web", spec: `{"type":"ClusterSetIP","ips":["10.0.0.1"],"ports":[{"name":"` + long + `","port":1}]}`, want: "web.shop 1 true [10.0.0.1] []", rejected: []Reason{BadPortName}},
		{name: "port name that is no label", object: "shop/web", spec: `{"type":"ClusterSetIP","ips":["10.0.0.1"],"ports":[{"name":"_http","port":1}]}`, want: "web.shop 1 true [10.0.0.1] []", rejected: []Reason{BadPortName}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			obj := &customObject{Spec: json.RawMessage(tt.spec)}
			obj.Namespace, obj.Name, _ = strings.Cut(tt.object, "/")
			it, rejected := readImport(obj)
			got := ""
			if it.imp != nil {
				spec := it.imp.Spec()
				got = fmt.Sprintf("%s %d %t %v %v", it.imp.Key(), spec.Type, spec.VIP, spec.IPs, portsOf(spec.Ports))
			}
			if got != tt.want || !slices.Equal(reasonsOf(rejected), tt.rejected) {
				t.Errorf("readImport(%s %s) = %q, %v, want %q, %v", tt.object, tt.spec, got, rejected, tt.want, tt.rejected)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestAddresses(t *testing.T) {
	tests := []struct{ given, want string }{
		{"10.0.0.1", "10.0.0.1"},
		{"fd00:0:0::01", "fd00::1"},
		{"", ""},
		{"web", ""},
		{"10.0.0.01", ""},
		{"10.0.0.1 ", ""},
		{"10.0.0.1/32", ""},
		{"fe80::1%eth0", ""},
		{"fd00::1%eth0", ""},
		{"::ffff:10.0.0.1", ""},
		{"0.0.0.0", ""},
		{"::", ""},
		{"127.0.0.1", ""},
		{"127.1.2.3", ""},
		{"::1", ""},
		{"169.254.169.254", ""},
		{"fe80::1", ""},
		{"224.0.0.1", ""},
		{"ff02::1", ""},
		{"ff0e::1", ""},
		{"255.255.255.255", ""},
		{"0.1.2.3", ""},
		{"::127.0.0.1", ""},
		{"64:ff9b::7f00:1", ""},
		{"2002:a9fe:a9fe::1", ""},
		{"168.63.129.16", ""},
		{"64:ff9b::168.63.129.16", ""},
		{"2002:a83f:8110::1", ""},
		{"168.63.129.17", "168.63.129.17"},
		{"fd00:ec2::254", ""},
	}
	deny := []netip.Prefix{netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("fd00:ec2::/32")}
	for _, tt := range tests {
		v := validation{deny: deny}
		got := ""
		for _, a := range v.address(nil, tt.given) {
			got += a.String()
		}
		if got != tt.want || (tt.want == "") != (len(v.rejected) == 1) {
			t.Errorf("address(%q) = %q, %v, want %q", tt.given, got, v.rejected, tt.want)
		}
	}
}

func TestReadSlice(t *testing.T) {
	v4 := func(change func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{
				labelService: "web", labelCluster: "east",
			}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Hostname: ptr("h")}},
		}
		change(s)
		return s
	}
	spec := func(change func(*index.SliceSpec)) *index.SliceSpec {
		s := index.SliceSpec{
			Cluster: "east", Ports: index.NewPorts(nil),
			Endpoints: []index.Endpoint{{Host: "h", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}},
		}
		change(&s)
		return &s
	}
	same := spec(func(*index.SliceSpec) {})
	tests := []struct {
		name     string
		slice    *discoveryv1.EndpointSlice
		want     *index.SliceSpec // nil: rejected as a whole
		rejected []Reason
	}{
		{name: "as it should be", slice: v4(func(*discoveryv1.EndpointSlice) {}), want: same},
		{name: "of no service", slice: v4(func(s *discoveryv1.EndpointSlice) { s.Labels = nil })},
		{name: "service that is no label", slice: v4(func(
			s *discoveryv1.EndpointSlice) {
			s.Labels[labelService] = "web.v1"
		}), rejected: []Reason{BadServiceName}},
		{name: "FQDN", slice: v4(func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN }),
			rejected: []Reason{BadAddressType}},
		{
			name: "no source cluster", slice: v4(func(s *discoveryv1.EndpointSlice) { delete(s.Labels, labelCluster) }),
			want: spec(func(s *index.SliceSpec) { s.Cluster = "" }),
		},
		{
			name: "dotted cluster id in mixed case", slice: v4(func(
				s *discoveryv1.EndpointSlice) {
				s.Labels[labelCluster] = "East.Registry1"
			}),
			want: spec(func(s *index.SliceSpec) { s.Cluster = "east.registry1" }),
		},
		{
			name: "three labels", slice: v4(func(s *discoveryv1.EndpointSlice) { s.Labels[labelCluster] = "a.b.c" }),
			want: spec(func(s *index.SliceSpec) { s.Cluster = "" }), rejected: []Reason{BadClusterID},
		},
		{
			name: "topology", slice: v4(func(s *discoveryv1.EndpointSlice) {
				s.Labels[labelZone], s.Labels[labelRegion] = "z",
					"r"
			}),
			want: spec(func(s *index.SliceSpec) { s.Zone, s.Region = "z", "r" }),
		},
		{
			name: "not ready, serving and terminating do not decide",
			slice: v4(func(s *discoveryv1.EndpointSlice) {
				s.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: ptr(true), Serving: ptr(false),
					Terminating: ptr(true)}
				s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
					Addresses: []string{"10.0.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr(false), Serving: ptr(true)},
				})
			}),
			want: same,
		},
		{
			name:  "hostname that is no label",
			slice: v4(func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Hostname = ptr("a.b") }),
			want:  spec(func(s *index.SliceSpec) { s.Endpoints[0].Host = "" }), rejected: []Reason{BadHostname},
		},
		{
			name:  "hostname in mixed case, and an empty one",
			slice: v4(func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Hostname = ptr("H") }), want: same,
		},
		{
			name: "address of the other family costs itself",
			slice: v4(func(s *discoveryv1.EndpointSlice) {
				s.Endpoints[0].Addresses = []string{"fd00::1", "10.0.0.1", "10.0.0.1"}
			}),
			want: same, rejected: []Reason{BadAddress},
		},
		{
			name: "an endpoint without an address that counts is none",
			slice: v4(func(s *discoveryv1.EndpointSlice) {
				s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"127.0.0.1"}, Hostname: ptr("-")})
			}),
			want: same, rejected: []Reason{BadAddress},
		},
		{
			name: "ports",
			slice: v4(func(s *discoveryv1.EndpointSlice) {
				s.Ports = []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr[int32](80)}, {Name: ptr("all")}}
			}),
			want: spec(func(s *index.SliceSpec) {
				s.Ports = index.NewPorts([]index.Port{{Name: "http", Proto: index.TCP, Number: 80}})
			}),
			rejected: []Reason{BadPort},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.slice.DeepCopy()
			it, rejected := readSlice(tt.slice)
			if !reflect.DeepEqual(tt.slice, before) {
				t.Error("the object was changed")
			}
			if !slices.Equal(reasonsOf(rejected), tt.rejected) {
				t.Errorf("rejected %v, want %v", rejected, tt.rejected)
			}
			if tt.want == nil {
				if it.slice != nil {
					t.Errorf("kept %v, want none", it.slice.Spec())
				}
				return
			}
			if got := it.slice.Spec(); !reflect.DeepEqual(got, *tt.want) || it.service != "web.shop" {
				t.Errorf("readSlice() = %+v of %s, want %+v of web.shop", got, it.service, *tt.want)
			}
		})
	}
}

func TestReadProperty(t *testing.T) {
	tests := []struct {
		name, property, spec, want string
		rejected                   []Reason
	}{
		{name: "cluster id", property: propertyCluster, spec: `{"value":"East"}`, want: "east"},
		{name: "bad cluster id", property: propertyCluster, spec: `{"value":"a b"}`, rejected: []Reason{BadProperty}},
		{name: "clusterset", property: propertyClusterSet, spec: `{"value":"env.example.com"}`, want: "env.example.com"},
		{name: "empty clusterset", property: propertyClusterSet, spec: `{"value":""}`, rejected: []Reason{BadProperty}},
		{name: "none of ours", property: "fingerprint.example.com", spec: `[]`},
		{name: "spec of another shape", property: propertyCluster, spec: `{"value":1}`, rejected: []Reason{BadObject}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			obj := &customObject{Spec: json.RawMessage(tt.spec)}
			obj.Name = tt.property
			it, rejected := readProperty(obj)
			if it.value != tt.want || !slices.Equal(reasonsOf(rejected), tt.rejected) {
				t.Errorf("readProperty(%s %s) = %q, %v, want %q, %v", tt.property, tt.spec, it.value, rejected, tt.want,
					tt.rejected)
			}
		})
	}
}

// No object of an API server or a manifest may break the validation, or the index that is built from it.
func FuzzReadImport(f *testing.F) {
	f.Add("shop", "web", []byte(`{"type":"ClusterSetIP","ips":["10.0.0.1","::1"],"ports":[{"name":"a","port":1}]}`))
	f.Add("", "", []byte(`null`))
	f.Fuzz(func(t *testing.T, namespace, name string, spec []byte) {
		obj := &customObject{Spec: spec}
		obj.Namespace, obj.Name = namespace, name
		it, rejected := readImport(obj)
		if it.imp == nil {
			if len(rejected) == 0 {
				t.Fatal("rejected without a reason")
			}
			return
		}
		if !broker.IsLabel(it.imp.Name()) || !broker.IsLabel(it.imp.Namespace()) {
			t.Fatalf("key %q", it.imp.Key())
		}
		index.Build(it.imp, nil, index.Options{ClusterNames: true})
	})
}

func FuzzReadSlice(f *testing.F) {
	f.Add("web", "east", "IPv4", "10.0.0.1", "h", "http", int32(80))
	f.Add("WEB", "a.b", "IPv6", "fd00::", "", "", int32(-1))
	f.Fuzz(func(t *testing.T, service, cluster, family, address, host, port string, number int32) {
		obj := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "x",
				Labels: map[string]string{labelService: service, labelCluster: cluster}},
			AddressType: discoveryv1.AddressType(family),
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address, address}, Hostname: &host}},
			Ports:       []discoveryv1.EndpointPort{{Name: &port, Port: &number}},
		}
		it, rejected := readSlice(obj)
		if it.slice == nil {
			if len(rejected) == 0 {
				t.Fatal("rejected without a reason")
			}
			return
		}
		imp := index.NewImport(index.ImportSpec{Namespace: "shop", Name: "web", Type: index.Headless})
		index.Build(imp, []*index.Slice{it.slice}, index.Options{ClusterNames: true})
	})
}

// docs/spec/dns.md 3.2: the weights of an import. Malformed ones cost themselves alone.
func TestReadWeights(t *testing.T) {
	for _, tt := range []struct {
		spec, text string
		want       []index.Weight
		rejected   []Reason
	}{
		{`{"type":"ClusterSetIP"}`, "west=1,east=3", []index.Weight{{Cluster: "east", Share: 3}, {Cluster: "west", Share: 1}}, nil},
		{`{"type":"ClusterSetIP"}`, "east=often", nil, []Reason{BadWeights}},
		{`{"type":"ClusterSetIP","ips":["10.0.0.1"]}`, "east=3", nil, nil},
		{`{"type":"Headless"}`, "east=3", nil, nil},
	} {
		obj := &customObject{Spec: json.RawMessage(tt.spec)}
		obj.Namespace, obj.Name, obj.Annotations = "shop", "web", map[string]string{broker.AnnotationWeights: tt.text}
		it, rejected := readImport(obj)
		if it.imp == nil || !slices.Equal(it.imp.Spec().Weights, tt.want) || !slices.Equal(reasonsOf(rejected), tt.rejected) {
			t.Errorf("%s, weights %s: %+v, %v; want %v, %v", tt.spec, tt.text, it.imp, rejected, tt.want, tt.rejected)
		}
	}
}
