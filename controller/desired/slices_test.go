package desired

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// source returns a slice of cluster b with one port for each name, at 8080, and one endpoint for each address.
func source(portNames []string, addresses ...string) *discoveryv1.EndpointSlice {
	s := slice("b", "db-x7k2p", discoveryv1.AddressTypeIPv4)
	for _, name := range portNames {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Port: new(int32(8080)),
			Protocol: new(corev1.ProtocolTCP)})
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

func sourceOf(list ...*discoveryv1.EndpointSlice) Source {
	return Source{
		Cluster: "b", Slices: list, Declared: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"),
			netip.MustParsePrefix("fd00::/8")},
		Reserved: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
	}
}

// docs/spec/controller.md 5.5: all fields of an imported slice.
func TestImportedSlice(t *testing.T) {
	from := source([]string{"web"}, "10.1.0.1")
	from.Annotations = map[string]string{
		corev1.EndpointsLastChangeTriggerTime: "2026-03-01T00:00:00.5Z", "other": "x", broker.AnnotationStamp: "17",
		broker.AnnotationExportUID: "uid-2",
	}
	from.Labels["other"] = "x"
	from.Endpoints[0] = discoveryv1.Endpoint{
		Addresses: []string{"10.1.0.1"}, Hostname: new("db-0"), Zone: new("z1"), NodeName: new("n1"),
		Conditions: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)},
		TargetRef:  &corev1.ObjectReference{Name: "db-0"}, Hints: &discoveryv1.EndpointHints{},
	}
	records := []merge.Record{record("a", 1, ports("http/TCP/80/h2c")), record("b", 2, ports("web/TCP/80"))}
	r := merge.Merge(shop, records, merge.Options{})
	src := sourceOf(from)
	src.From = 5
	o, _ := ObjectsOf(r, ImportingCluster{Sources: []Source{src}})
	want := `[{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"imported-` +
		broker.Hash(32, "b", "shop", from.Name) + `","namespace":"shop","labels":{` +
		`"endpointslice.kubernetes.io/managed-by":"controller.clusterset-dns.io","kubernetes.io/service-name":"` + DerivedName("shop", "db") + `",` +
		`"multicluster.kubernetes.io/service-name":"db","multicluster.kubernetes.io/source-cluster":"b"},` +
		`"annotations":{"broker.clusterset-dns.io/source":"` + from.Name[len("db.shop."):] + ` uid-2 5 17","endpoints.kubernetes.io/last-change-trigger-time":"2026-03-01T00:00:00.5Z"}},` +
		`"addressType":"IPv4","endpoints":[{"addresses":["10.1.0.1"],"conditions":{"ready":false,"serving":true,"terminating":true},` +
		`"hostname":"db-0","zone":"z1"}],"ports":[{"name":"http","protocol":"TCP","port":8080,"appProtocol":"h2c"}]}]`
	if got := mustJSON(t, o.Slices); got != want {
		t.Errorf("slices = %s\nwant %s", got, want)
	}
	if o.Import.Status.EndpointSliceObjects != mcsv1beta1.EndpointSliceObjectsPresent {
		t.Errorf("endpointSliceObjects = %s, want Present", o.Import.Status.EndpointSliceObjects)
	}
	local := sourceOf(from)
	local.Local = true
	if s, _ := Slices(r, local); s[0].Endpoints[0].NodeName == nil {
		t.Error("nodeName of the cluster's own endpoint is gone")
	}
}

// docs/spec/controller.md 5.5: the labels of a slice.
func TestSliceLabels(t *testing.T) {
	for _, tt := range []struct {
		name    string
		record  merge.Record
		options merge.Options
		want    string // labels beside the four of every slice
	}{
		{name: "derived", record: record("b", 1)},
		{name: "headless", record: record("b", 1, headless), want: "service.kubernetes.io/headless"},
		{name: "cidr", record: record("b", 1), options: merge.Options{VIP: merge.CIDR}},
		{name: "none", record: record("b", 1), options: merge.Options{VIP: merge.NoVIP}},
	} {
		r := merge.Merge(shop, []merge.Record{tt.record}, tt.options)
		s, _ := Slices(r, sourceOf(source([]string{"http"}, "10.1.0.1")))
		var more []string
		for key := range s[0].Labels {
			if !strings.HasPrefix(key, "multicluster") && key != discoveryv1.LabelManagedBy &&
				key != discoveryv1.LabelServiceName {
				more = append(more, key)
			}
		}
		if got := strings.Join(more, ","); got != tt.want || len(s[0].Labels) != 4+len(more) {
			t.Errorf("%s: labels = %v, want %q beside the usual", tt.name, s[0].Labels, tt.want)
		}
	}
}

// docs/spec/controller.md 5.5: for which zone and region a slice is stays, unless no label can say it; it is compared,
// and removed.
func TestTopologyLabels(t *testing.T) {
	r := merge.Merge(shop, []merge.Record{record("b", 1)}, merge.Options{})
	imported := func(labels map[string]string) *discoveryv1.EndpointSlice {
		s := source([]string{"http"}, "10.1.0.1")
		maps.Copy(s.Labels, labels)
		all, rejected := Slices(r, sourceOf(s))
		if len(all) != 1 || len(rejected) > 0 {
			t.Fatalf("%v: %d slices, rejected %v, want one", labels, len(all), rejected)
		}
		return all[0]
	}
	for _, tt := range []struct{ zone, region, want string }{
		{"a", "", "a/"}, {"", "r", "/r"}, {"a", "r", "a/r"}, {strings.Repeat("z", 63), "", strings.Repeat("z", 63) + "/"},
		{strings.Repeat("z", 64), "r", "/r"}, {"a b", "", "/"}, {"", "-", "/"},
	} {
		got := imported(map[string]string{broker.LabelForZone: tt.zone, broker.LabelForRegion: tt.region})
		zone, hasZone := got.Labels[broker.LabelForZone]
		region, hasRegion := got.Labels[broker.LabelForRegion]
		if zone+"/"+region != tt.want || hasZone != (zone != "") || hasRegion != (region != "") {
			t.Errorf("for zone %q and region %q: labels %v, want %s", tt.zone, tt.region, got.Labels, tt.want)
		}
	}
	everywhere, here := imported(nil), imported(map[string]string{broker.LabelForZone: "a"})
	for _, tt := range []struct {
		desired, existing *discoveryv1.EndpointSlice
		want              string
	}{{here, everywhere, `"labels":{"` + broker.LabelForZone + `":"a"}`}, {everywhere, here, `"labels":{"` + broker.LabelForZone + `":null}`}} {
		c := Diff(Objects{Slices: []*discoveryv1.EndpointSlice{tt.desired}},
			Objects{Slices: []*discoveryv1.EndpointSlice{tt.existing}})
		if len(c.Update.Slices) != 1 {
			t.Fatalf("%d updates of the label, want one", len(c.Update.Slices))
		}
		if patch := string(Patch(c.Update.Slices[0], tt.existing)); !strings.Contains(patch, tt.want) {
			t.Errorf("patch = %s, want %s", patch, tt.want)
		}
	}
}

// docs/spec/controller.md 4.3, docs/spec/controller.md 9.3: which parts of a slice are imported.
func TestSlices(t *testing.T) {
	many := make([]string, broker.MaxEndpoints+1)
	for i := range many {
		many[i] = fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250)
	}
	spoiled := func(f func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
		s := source([]string{"http"}, "10.1.0.1")
		f(s)
		return s
	}
	for _, tt := range []struct {
		name     string
		slice    *discoveryv1.EndpointSlice
		with     merge.Record // of cluster b; the zero Record is one that serves http
		local    bool
		want     string // ports and addresses; "none"
		rejected string
	}{
		{name: "as it is", slice: source([]string{"http"}, "10.1.0.1", "10.1.0.2"), want: "[http] [10.1.0.1 10.1.0.2]"},
		{name: "a port that the member does not serve", slice: source([]string{"http", "other"}, "10.1.0.1"),
			want: "[http] [10.1.0.1]"},
		{name: "no port that counts", slice: source([]string{"other"}, "10.1.0.1"), want: "none"},
		{name: "a port of another protocol", slice: spoiled(func(
			s *discoveryv1.EndpointSlice) {
			*s.Ports[0].Protocol = "UDP"
		}), want: "none"},
		{name: "a port without a number", slice: spoiled(func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = nil }),
			want: "none"},
		{name: "no protocol is TCP", slice: spoiled(func(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = nil }),
			want: "[http] [10.1.0.1]"},
		{name: "a member that is left out", slice: source([]string{"http"}, "10.1.0.1"),
			with: record("b", 2, ports("http/TCP/81")), want: "none"},
		{name: "no endpoints", slice: source([]string{"http"}), want: "[http] []"},
		{name: "a family that the import does not have", slice: spoiled(func(
			s *discoveryv1.EndpointSlice) {
			s.AddressType = discoveryv1.AddressTypeIPv6
		}), want: "none"},
		{name: "FQDN", slice: spoiled(func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN }),
			want: "none", rejected: "slice"},
		{name: "1,001 endpoints", slice: source([]string{"http"}, many...), want: "none", rejected: "slice"},
		{name: "1,000 endpoints", slice: source([]string{"http"}, many[:1000]...), want: "[http] " + fmt.Sprint(many[:1000])},
		{name: "101 ports", slice: source(slices.Repeat([]string{"http"}, 101), "10.1.0.1"), want: "none", rejected: "slice"},
		{name: "a port name twice", slice: source([]string{"http", "http"}, "10.1.0.1"), want: "[http] [10.1.0.1]"},
		{name: "loopback", slice: source([]string{"http"}, "127.0.0.1", "10.1.0.1"), want: "[http] [10.1.0.1]",
			rejected: "address"},
		{name: "link-local", slice: source([]string{"http"}, "169.254.169.254"), want: "none", rejected: "address"},
		{name: "IPv6 in an IPv4 slice", slice: source([]string{"http"}, "fd00::1"), want: "none", rejected: "address"},
		{name: "no address", slice: source([]string{"http"}, "db.example.org"), want: "none", rejected: "address"},
		{name: "this cluster's own services", slice: source([]string{"http"}, "10.96.0.1"), want: "none",
			rejected: "own_cidr"},
		{name: "not declared", slice: source([]string{"http"}, "192.0.2.1"), want: "none", rejected: "cidr"},
		{name: "own export: neither matters", slice: source([]string{"http"}, "10.96.0.1", "192.0.2.1"), local: true,
			want: "[http] [10.96.0.1 192.0.2.1]"},
		{name: "own export: loopback does", slice: source([]string{"http"}, "127.0.0.1"), local: true, want: "none",
			rejected: "address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := tt.with
			if b.Cluster == "" {
				b = record("b", 2)
			}
			src := sourceOf(tt.slice)
			src.Local = tt.local
			before := mustJSON(t, tt.slice)
			imported, rejected := Slices(merge.Merge(shop, []merge.Record{record("a", 1), b}, merge.Options{}), src)
			if got := show(imported); got != tt.want {
				t.Errorf("slices = %s, want %s", got, tt.want)
			}
			var reasons []string
			for _, r := range rejected {
				reasons = append(reasons, string(r.Reason))
			}
			if got := strings.Join(reasons, ","); got != tt.rejected {
				t.Errorf("rejected = %q, want %q", got, tt.rejected)
			}
			if after := mustJSON(t, tt.slice); after != before {
				t.Errorf("slice = %s after the import, want %s", after, before)
			}
		})
	}
}

func show(imported []*discoveryv1.EndpointSlice) string {
	if len(imported) == 0 {
		return "none"
	}
	var names, addresses []string
	for _, p := range imported[0].Ports {
		names = append(names, *p.Name)
	}
	for _, e := range imported[0].Endpoints {
		addresses = append(addresses, e.Addresses...)
	}
	return fmt.Sprint(names, " ", addresses)
}

func TestSlicesOfNobody(t *testing.T) {
	r := merge.Merge(shop, []merge.Record{record("a", 1)}, merge.Options{})
	if got, rejected := Slices(r, sourceOf(source([]string{"http"}, "10.1.0.1"))); got != nil || rejected != nil {
		t.Errorf("slices = %v, rejected = %v of a cluster that exports nothing, want neither", got, rejected)
	}
	o, _ := ObjectsOf(merge.Merge(shop, nil, merge.Options{}), ImportingCluster{Sources: []Source{sourceOf()}})
	if !(Changes{Create: o}).Empty() {
		t.Errorf("objects = %+v without exports, want none", o)
	}
}
