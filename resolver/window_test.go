package resolver_test

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/resolver"

	"github.com/miekg/dns"
)

// dualStack is a service of two clusters with hosts that have perHost addresses of each family, in as many slices.
func dualStack(typ index.Type, hosts, perHost int) objects {
	imp := importObject{namespace: "shop", name: "db", typ: typ}
	for c, id := range []string{"east", "west"} {
		for f, base := range []string{"10.0.0.0", "fd00::"} {
			sl := sliceObject{cluster: id, family: index.Family(f),
				ports: []index.Port{{Name: "pg", Proto: index.TCP, Number: 5432}}}
			for h := range hosts {
				ep := index.Endpoint{Host: fmt.Sprintf("db-%d", h)}
				for i := range perHost {
					ep.Addrs = append(ep.Addrs, address(base, c, h, i))
				}
				sl.endpoints = append(sl.endpoints, ep)
			}
			imp.slices = append(imp.slices, sl)
		}
	}
	return objects{
		imports: []importObject{imp}, build: index.Options{ClusterNames: true}, serve: resolver.Options{ClusterNames: true},
	}
}

func address(base string, cluster, host, i int) netip.Addr {
	b := netip.MustParseAddr(base).AsSlice()
	n := len(b)
	b[n-3], b[n-2], b[n-1] = byte(cluster), byte(host), byte(i+1)
	addr, _ := netip.AddrFromSlice(b)
	return addr
}

// hostsOf returns the hosts that the addresses of an answer belong to.
func hostsOf(a resolver.Answer) map[string]bool {
	hosts := map[string]bool{}
	for i := range a.Addresses.Len() {
		b := a.Addresses.At(i)
		hosts[fmt.Sprintf("%d.%d", b[len(b)-3], b[len(b)-2])] = true
	}
	return hosts
}

// docs/spec/dns.md 5: the selection of a capped answer changes once a second, so that A and AAAA asked together come
// from the same endpoints, whatever their rotation is.
func TestPartsOfBothFamiliesAgree(t *testing.T) {
	for _, typ := range []index.Type{index.Headless, index.ClusterSetIP} {
		for _, hosts := range []int{3, 17, 100} {
			objs := dualStack(typ, hosts, 1)
			x, o := newIndex(objs), objs.serve
			o.Policy = resolver.All
			for _, name := range []string{"db.shop.svc", "east.db.shop.svc", "west.db.shop.svc"} {
				for limit := 1; limit < hosts; limit += 3 {
					o.MaxAnswers = limit
					for second := range uint64(60) {
						q := resolver.Question{Name: name, Type: dns.TypeA, ClientRotation: second, Rotation: 3 * second}
						v4 := hostsOf(resolver.Resolve(x, q, &o))
						q.Type, q.Rotation = dns.TypeAAAA, 5*second+1
						v6 := hostsOf(resolver.Resolve(x, q, &o))
						if len(v4) != limit || !maps.Equal(v4, v6) {
							t.Fatalf("%s of %d hosts, max_answers %d, second %d: A of %v, AAAA of %v", name, hosts, limit, second, v4, v6)
						}
					}
				}
			}
		}
	}
}

// docs/spec/dns.md 5: where hosts have several addresses, and some of one family only, both parts begin at the same
// host, or at the next that has the family.
func TestPartsOfBothFamiliesBeginTogether(t *testing.T) {
	imp := importObject{namespace: "shop", name: "db", typ: index.Headless}
	v4, v6 := sliceObject{cluster: "east"}, sliceObject{cluster: "east", family: index.V6}
	next := map[string]string{} // the host at or behind one that has IPv6
	for h := range 40 {
		ep := index.Endpoint{Host: fmt.Sprintf("db-%02d", h)}
		for i := range 1 + h%3 {
			ep.Addrs = append(ep.Addrs, address("10.0.0.0", 0, h, i))
		}
		v4.endpoints = append(v4.endpoints, ep)
		if h < 20 || h%4 == 0 {
			v6.endpoints = append(v6.endpoints, index.Endpoint{Host: ep.Host, Addrs: []netip.Addr{address("fd00::", 0, h, 0)}})
			next[fmt.Sprintf("0.%d", h)] = fmt.Sprintf("0.%d", h)
		} else {
			next[fmt.Sprintf("0.%d", h)] = fmt.Sprintf("0.%d", (h/4*4+4)%40)
		}
	}
	imp.slices = []sliceObject{v4, v6}
	x, o := newIndex(objects{imports: []importObject{imp}}), resolver.Options{MaxAnswers: 1}
	for second := range uint64(300) {
		q := resolver.Question{Name: "db.shop.svc", Type: dns.TypeA, ClientRotation: second}
		a := hostsOf(resolver.Resolve(x, q, &o))
		q.Type = dns.TypeAAAA
		aaaa := hostsOf(resolver.Resolve(x, q, &o))
		for host := range a {
			if !aaaa[next[host]] {
				t.Errorf("second %d: A of host %s, AAAA of %v, want %s", second, host, aaaa, next[host])
			}
		}
	}
}

// docs/spec/dns.md 5: soon all of a large answer was shown.
func TestPartsCoverLargeAnswers(t *testing.T) {
	objs := dualStack(index.Headless, 200, 1)
	x, o := newIndex(objs), objs.serve
	o.MaxAnswers = 20
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV} {
		shown := rrset{}
		for second := range uint64(300) { // 15 times what the parts have together
			q := resolver.Question{Name: "db.shop.svc", Type: qtype, ClientRotation: second}
			maps.Copy(shown, set(t, resolver.Resolve(x, q, &o)))
		}
		if len(shown) != 400 {
			t.Errorf("%s: parts of 20 show %d of 400 records in 300 s", dns.TypeToString[qtype], len(shown))
		}
	}
}

// docs/spec/dns.md 5: a capped answer, and the rest of one that does not fit, has records of all clusters, each as many
// as its size suggests.
func TestPartsAreOfAllClusters(t *testing.T) {
	objs := dualStack(index.Headless, 200, 1) // 200 hosts each in east and west
	x := newIndex(objs)
	for _, limit := range []int{0, 2, 3, 8, 24, 100} {
		for turn := range uint64(200) {
			for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV} {
				o := objs.serve
				o.MaxAnswers = limit
				a := resolver.Resolve(x, resolver.Question{Name: "db.shop.svc", Type: qtype, ClientRotation: turn,
					Rotation: turn * turn}, &o)
				for _, cut := range []int{2, 3, 5, 8, 13, 25, 100} {
					if n := a.Addresses.Len() + a.Services.Len(); cut > n {
						continue
					}
					east := 0
					for i := range cut {
						if qtype == dns.TypeSRV {
							if _, to := a.Services.At(i); to.ClusterID() == "east" {
								east++
							}
							continue
						}
						if b := a.Addresses.At(i); b[len(b)-3] == 0 {
							east++
						}
					}
					if off := 2*east - cut; off < -4 || off > 4 {
						t.Fatalf("%s, max_answers %d, turn %d: %d of the first %d records are of one of two equal clusters",
							dns.TypeToString[qtype], limit, turn, east, cut)
					}
				}
			}
		}
	}
}

// docs/spec/dns.md 3: A and AAAA that a client asks for within a second are those of one cluster, as SRV is.
func TestTypesNameOneCluster(t *testing.T) {
	objs := dualStack(index.ClusterSetIP, 3, 1)
	objs.imports[0].slices[0].ports[0].Number = 1 // so that SRV names a cluster
	x := newIndex(objs)
	for turn := range uint64(50) {
		q := resolver.Question{Name: "db.shop.svc", Type: dns.TypeA, ClientRotation: turn, Rotation: 3 * turn}
		a := hostsOf(resolver.Resolve(x, q, &objs.serve))
		q.Type, q.Rotation = dns.TypeAAAA, turn
		aaaa := hostsOf(resolver.Resolve(x, q, &objs.serve))
		q.Type = dns.TypeSRV
		srv := resolver.Resolve(x, q, &objs.serve)
		_, to := srv.Services.At(0)
		if east := a["0.0"]; len(a) != 3 || !maps.Equal(a, aaaa) || (to.ClusterID() == "east") != east {
			t.Errorf("turn %d: A of %v, AAAA of %v, SRV of %s", turn, a, aaaa, to.ClusterID())
		}
	}
}

// docs/spec/dns.md 5: a client that takes 512 octets, about 25 addresses, gets all 400 within some queries.
func TestTurnsCoverLargeAnswers(t *testing.T) {
	objs := dualStack(index.Headless, 200, 1)
	x := newIndex(objs)
	shown := rrset{}
	for rotation := range uint64(100) {
		a := resolver.Resolve(x, resolver.Question{Name: "db.shop.svc", Type: dns.TypeA, Rotation: rotation}, &objs.serve)
		for _, record := range text(a)[:25] {
			shown[record] = true
		}
	}
	if len(shown) != 400 {
		t.Errorf("prefixes of 25 show %d of 400 records in 100 queries", len(shown))
	}
}

// docs/spec/dns.md 4: the weight is that of the whole RRset, capped or not.
func TestWeight(t *testing.T) {
	for _, tt := range []struct {
		name    string
		records int
		limit   int
		want    uint16
	}{
		{name: "one record has it all", records: 1, want: 100},
		{name: "an even share", records: 3, want: 33},
		{name: "a hundred records", records: 100, want: 1},
		{name: "never 0", records: 150, want: 1},
		{name: "capped", records: 4, limit: 1, want: 25},
	} {
		t.Run(tt.name, func(t *testing.T) {
			objs := dualStack(index.Headless, tt.records, 1)
			objs.imports[0].slices = objs.imports[0].slices[:2]
			objs.serve.MaxAnswers = tt.limit
			q := resolver.Question{Name: "_pg._tcp.db.shop.svc", Type: dns.TypeSRV}
			a := resolver.Resolve(newIndex(objs), q, &objs.serve)
			if got := a.Services.Weight(); got != tt.want {
				t.Errorf("weight of %d records capped to %d = %d, want %d", tt.records, tt.limit, got, tt.want)
			}
		})
	}
}

// docs/spec/dns.md 2 and the sources it cites, each with a question that shows it.
func TestFind(t *testing.T) {
	ports := []index.Port{{Name: "http", Proto: index.TCP, Number: 80}, {Proto: index.UDP, Number: 53}}
	objs := objects{build: index.Options{ClusterNames: true}, serve: resolver.Options{ClusterNames: true}}
	objs.imports = []importObject{{
		namespace: "shop", name: "db", typ: index.Headless, ports: ports, slices: []sliceObject{
			{cluster: "east.registry1", ports: ports, endpoints: []index.Endpoint{{Host: "db-0", Addrs: pool4[:1]},
				{Addrs: pool4[1:2]}}},
			{cluster: "a.b", endpoints: []index.Endpoint{{Host: "x", Addrs: pool4[:1]}}},
			{cluster: "b", endpoints: []index.Endpoint{{Host: "a", Addrs: pool4[2:3]}}},
			{cluster: "b", family: index.V6, endpoints: []index.Endpoint{{Addrs: pool6[:1]}}},
		},
	}}
	x := newIndex(objs)
	for _, tt := range []struct {
		name, qname string
		want        resolver.Kind
	}{
		{"apex", "", resolver.Apex},
		{"name server", "ns.dns", resolver.NameServer},
		{"version (KEP-1645 specification 2.1)", "dns-version", resolver.Version},
		{"svc always exists", "svc", resolver.Empty},
		{"a namespace with a service (RFC 4592 section 2.2.2)", "shop.svc", resolver.Empty},
		{"a namespace without", "empty.svc", resolver.None},
		{"no pod subtree", "pod", resolver.None},
		{"no wildcard", "*.shop.svc", resolver.None},
		{"service", "db.shop.svc", resolver.Service},
		{"port", "_http._tcp.db.shop.svc", resolver.Port},
		{"transport of a port", "_tcp.db.shop.svc", resolver.Empty},
		{"transport of an unnamed port (Kubernetes DNS specification 2.3.2)", "_udp.db.shop.svc", resolver.None},
		{"no port name", "_._tcp.db.shop.svc", resolver.None},
		{"port name without underscore", "http._tcp.db.shop.svc", resolver.None},
		{"transport without underscore", "_http.tcp.db.shop.svc", resolver.None},
		{"dotted cluster id", "east.registry1.db.shop.svc", resolver.Cluster},
		{"the second label of a dotted cluster id", "registry1.db.shop.svc", resolver.Empty},
		{"the first label of a dotted cluster id", "east.db.shop.svc", resolver.None},
		{"host", "db-0.east.registry1.db.shop.svc", resolver.Host},
		{"host without a hostname", "10-0-0-2.east.registry1.db.shop.svc", resolver.Host},
		{"host with leading colons (docs/spec/dns.md 1)", "0--2-3.b.db.shop.svc", resolver.Host},
		{"port of a cluster", "_http._tcp.east.registry1.db.shop.svc", resolver.Port},
		{"port of another cluster", "_http._tcp.b.db.shop.svc", resolver.None},
		{"host and cluster id of one name: the host", "a.b.db.shop.svc", resolver.Host},
		{"below the cluster id of that name", "x.a.b.db.shop.svc", resolver.Host},
		{"an escaped dot is no label end (RFC 4343 section 2.1)", `db\.shop.svc`, resolver.None},
		{"an escaped dot within a port name", `_http\._tcp.db.shop.svc`, resolver.None},
		{"no label at all", strings.Repeat(".", 3), resolver.None},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := resolver.Find(x, tt.qname, &objs.serve).Kind; got != tt.want {
				t.Errorf("Find(%q) = %d, want %d", tt.qname, got, tt.want)
			}
		})
	}
}
