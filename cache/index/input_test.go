package index

import (
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

func addrs(text ...string) (list []netip.Addr) {
	for _, s := range text {
		list = append(list, netip.MustParseAddr(s))
	}
	return list
}

// The label of an endpoint without a hostname: an RFC 1123 label made of the canonical text of its address (RFC 5952).
func TestAddressLabel(t *testing.T) {
	for _, tt := range []struct{ name, addr, want string }{
		{"IPv4", "10.1.0.7", "10-1-0-7"},
		{"IPv4, longest", "255.255.255.255", "255-255-255-255"},
		{"IPv6", "2001:db8::7", "2001-db8--7"},
		{"IPv6 in full", "2001:db8:1:2:3:4:5:6", "2001-db8-1-2-3-4-5-6"},
		{"leading colons get a 0 before", "::2:3", "0--2-3"},
		{"trailing colons get a 0 after", "fd00::", "fd00--0"},
		{"both", "::", "0--0"},
		{"another spelling is the same label", "FD00:0:0:0:0:0:0:0001", "fd00--1"},
		{"a single zero group is written out", "2001:db8:0:1:1:1:1:1", "2001-db8-0-1-1-1-1-1"},
		{"longest", "1111:2222:3333:4444:5555:6666:7777:8888", "1111-2222-3333-4444-5555-6666-7777-8888"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			packed := netip.MustParseAddr(tt.addr).AsSlice()
			if got := AddressLabel(string(packed)); got != tt.want {
				t.Errorf("AddressLabel(%s) = %q, want %q", tt.addr, got, tt.want)
			}
		})
	}
}

// Each address has a valid label (RFC 1123): letters, digits and hyphens, no hyphen at an end, at most 63 octets. No
// two addresses have the same label.
func FuzzAddressLabel(f *testing.F) {
	for _, addr := range addrs("10.1.0.7", "::2:3", "fd00::", "::", "::ffff:0:1") {
		f.Add(addr.AsSlice())
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		addr, ok := netip.AddrFromSlice(packed)
		if !ok || addr.Is4In6() {
			return // Validation rejects all of these.
		}
		label := AddressLabel(string(packed))
		if strings.Trim(label, "-") != label || strings.Trim(label, "0123456789abcdef-") != "" || len(label) > 63 {
			t.Errorf("AddressLabel(%s) = %q, want an RFC 1123 label", addr, label)
		}
		text := strings.ReplaceAll(label, "-", ":")
		if addr.Is4() {
			text = strings.ReplaceAll(label, "-", ".")
		}
		if back, err := netip.ParseAddr(text); err != nil || back != addr {
			t.Errorf("AddressLabel(%s) = %q, which reads as %v", addr, label, back)
		}
	})
}

func TestNewPorts(t *testing.T) {
	http, https := Port{"http", TCP, 80}, Port{"https", TCP, 443}
	dnsTCP, dnsUDP := Port{"dns", TCP, 53}, Port{"dns", UDP, 53}
	for _, tt := range []struct {
		name string
		list []Port
		want []Port
	}{
		{name: "none"},
		{name: "by name", list: []Port{https, http}, want: []Port{http, https}},
		{name: "by transport", list: []Port{dnsUDP, dnsTCP}, want: []Port{dnsTCP, dnsUDP}},
		{name: "by number", list: []Port{{"http", TCP, 8080}, http}, want: []Port{http, {"http", TCP, 8080}}},
		{name: "each once", list: []Port{http, dnsTCP, http}, want: []Port{dnsTCP, http}},
		{name: "unnamed ones own no SRV (Kubernetes DNS specification 2.3.2)", list: []Port{{"", TCP, 80}, http},
			want: []Port{http}},
		{name: "largest number, longest name", list: []Port{{strings.Repeat("p", 62), SCTP, 65535}},
			want: []Port{{strings.Repeat("p", 62), SCTP, 65535}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			given := slices.Clone(tt.list)
			ports := NewPorts(tt.list)
			if got := slices.Collect(ports.All()); !slices.Equal(got, tt.want) {
				t.Errorf("NewPorts(%v) = %v, want %v", tt.list, got, tt.want)
			}
			if other := NewPorts(reversed(tt.list)); other != ports {
				t.Errorf("NewPorts(%v) is not that of the other order", tt.list)
			}
			if !slices.Equal(tt.list, given) {
				t.Errorf("NewPorts changed its input to %v", tt.list)
			}
			for range ports.All() {
				break // an iteration may end early
			}
		})
	}
}

func reversed[T any](list []T) []T {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

func TestPortsNames(t *testing.T) {
	ports := NewPorts([]Port{{"dns", UDP, 53}, {"dns", TCP, 53}, {"dns", TCP, 5353}, {"http", TCP, 80}})
	var got []string
	for name, proto := range ports.Names {
		got = append(got, "_"+name+"."+proto.Label())
	}
	if want := []string{"_dns._tcp", "_dns._udp", "_http._tcp"}; !slices.Equal(got, want) {
		t.Errorf("Names = %v, want %v", got, want)
	}
}

func TestProtoLabel(t *testing.T) {
	for proto, want := range map[Proto]string{TCP: "_tcp", UDP: "_udp", SCTP: "_sctp", 0: "", 9: ""} {
		if got := proto.Label(); got != want {
			t.Errorf("Proto(%d).Label() = %q, want %q (RFC 2782)", proto, got, want)
		}
	}
}

// NewImport keeps spec.ips in the order of family and value (docs/spec/dns.md 3.1), and no port number that no SRV
// record shows (docs/spec/dns.md 4.3).
func TestNewImport(t *testing.T) {
	ports := NewPorts([]Port{{"http", TCP, 80}})
	unnumbered := NewPorts([]Port{{"http", TCP, 0}})
	many := make([]netip.Addr, 300)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
	}
	for _, tt := range []struct {
		name string
		spec ImportSpec
		want ImportSpec
	}{
		{
			name: "families apart",
			spec: ImportSpec{Type: ClusterSetIP, IPs: addrs("fd00::1", "10.0.0.2", "fd00::", "10.0.0.1"), Ports: ports},
			want: ImportSpec{Type: ClusterSetIP, VIP: true, IPs: addrs("10.0.0.1", "10.0.0.2", "fd00::", "fd00::1"),
				Ports: ports},
		},
		{
			name: "each address once",
			spec: ImportSpec{Type: ClusterSetIP, VIP: true, IPs: addrs("10.0.0.1", "fd00::1", "10.0.0.1")},
			want: ImportSpec{Type: ClusterSetIP, VIP: true, IPs: addrs("10.0.0.1", "fd00::1")},
		},
		{
			name: "all addresses refused: still not answered from slices",
			spec: ImportSpec{Type: ClusterSetIP, VIP: true, Ports: ports},
			want: ImportSpec{Type: ClusterSetIP, VIP: true, Ports: ports},
		},
		{
			name: "without spec.ips the slices number the ports",
			spec: ImportSpec{Type: ClusterSetIP, Ports: ports},
			want: ImportSpec{Type: ClusterSetIP, Ports: unnumbered},
		},
		{
			name: "Headless has no spec.ips",
			spec: ImportSpec{Type: Headless, VIP: true, IPs: addrs("10.0.0.1"), Ports: ports},
			want: ImportSpec{Type: Headless, Ports: unnumbered},
		},
		{
			name: "255 addresses",
			spec: ImportSpec{Type: ClusterSetIP, IPs: many},
			want: ImportSpec{Type: ClusterSetIP, VIP: true, IPs: many[:255]},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.spec.Namespace, tt.spec.Name = "shop", "db"
			tt.want.Namespace, tt.want.Name = "shop", "db"
			imp := NewImport(tt.spec)
			if got := imp.Spec(); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("NewImport(%v).Spec() = %v, want %v", tt.spec, got, tt.want)
			}
			if again := NewImport(imp.Spec()); !reflect.DeepEqual(again, imp) {
				t.Errorf("NewImport of its Spec() = %v, want %v", again, imp)
			}
			if imp.Key() != "db.shop" || imp.Name() != "db" || imp.Namespace() != "shop" {
				t.Errorf("key %q, name %q, namespace %q", imp.Key(), imp.Name(), imp.Namespace())
			}
		})
	}
}

// Spec returns the input of NewSlice, without endpoints that have no address.
func TestNewSlice(t *testing.T) {
	many := make([]netip.Addr, 1000)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
	}
	for _, tt := range []struct {
		name string
		spec SliceSpec
		len  int
	}{
		{name: "empty"},
		{name: "labels and ports", spec: SliceSpec{Cluster: "east.registry1", Zone: "z", Region: "r",
			Ports: NewPorts([]Port{{"http", TCP, 80}})}},
		{name: "IPv4", spec: SliceSpec{Endpoints: []Endpoint{{"", addrs("10.0.0.1")},
			{"db-0", addrs("10.0.0.2", "10.0.0.3")}}}, len: 2},
		{name: "IPv6", spec: SliceSpec{Family: V6, Endpoints: []Endpoint{{strings.Repeat("h", 63),
			addrs("fd00::1", "::2:3")}}}, len: 1},
		{name: "a thousand addresses", spec: SliceSpec{Endpoints: []Endpoint{{"", many}}}, len: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := NewSlice(tt.spec)
			if got := s.Spec(); !reflect.DeepEqual(got, tt.spec) {
				t.Errorf("NewSlice(%v).Spec() = %v", tt.spec, got)
			}
			if s.Len() != tt.len || s.Cluster() != tt.spec.Cluster {
				t.Errorf("Len %d, Cluster %q, want %d, %q", s.Len(), s.Cluster(), tt.len, tt.spec.Cluster)
			}
		})
	}
	none := NewSlice(SliceSpec{Endpoints: []Endpoint{{"db-0", nil}}})
	if none.Len() != 0 || len(none.Spec().Endpoints) != 0 {
		t.Errorf("a slice of one endpoint without an address: %d endpoints, %v", none.Len(), none.Spec().Endpoints)
	}
}

// Equal values have the same memory, however long ago the first of them was made.
func TestEqualOnesShareTheirMemory(t *testing.T) {
	ports := func() Ports { return NewPorts([]Port{{"http", TCP, 80}}) }
	slice := func() *Slice { return NewSlice(SliceSpec{Cluster: "east", Zone: "z1", Ports: ports()}) }
	first := slice()
	for range 3 {
		runtime.GC()
	}
	second := slice()
	for _, tt := range []struct{ name, a, b string }{
		{"ports", first.ports.packed(), second.ports.packed()},
		{"cluster", first.Cluster(), second.Cluster()},
		{"zone", first.zone.String(), second.zone.String()},
	} {
		if tt.a == "" || tt.a != tt.b || unsafe.StringData(tt.a) != unsafe.StringData(tt.b) {
			t.Errorf("%s: %q and %q are two copies", tt.name, tt.a, tt.b)
		}
	}
	if *first != *second {
		t.Errorf("%+v is not %+v", first, second)
	}
	runtime.KeepAlive(first)
}

func TestZeroPortsAreTheEmptyList(t *testing.T) {
	var zero Ports
	if zero != NewPorts(nil) || zero.Has("", 0) || len(slices.Collect(zero.All())) != 0 || zero.withoutNumbers() != zero {
		t.Error("the zero Ports are not the empty list")
	}
}
