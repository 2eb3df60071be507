package index

import (
	"encoding/binary"
	"encoding/json"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"unique"
)

// Proto is the transport of a port.
type Proto uint8

// The transports that Kubernetes knows.
const (
	TCP Proto = iota + 1
	UDP
	SCTP
)

// Label returns the label of the transport in an owner name ("_tcp", RFC 2782), or "" for an unknown one.
func (p Proto) Label() string {
	if p > SCTP {
		return ""
	}
	return [...]string{TCP: "_tcp", UDP: "_udp", SCTP: "_sctp"}[p]
}

// A Port is one named port of an import or of an EndpointSlice. Name is a lower-case label without the underscore, at
// most 62 octets, or "" for a port that owns no SRV record and is not kept.
type Port struct {
	Name   string
	Proto  Proto
	Number uint16
}

// Ports is a list of ports in canonical order. Equal lists share their memory and compare equal by ==.
// The zero Ports is the empty list.
type Ports struct{ list shared }

// A shared is an interned string: equal ones have the same memory, which is freed with the last of them, and compare
// equal by ==. The zero shared is "".
type shared struct{ handle unique.Handle[string] }

func intern(s string) shared {
	if s == "" {
		return shared{}
	}
	return shared{unique.Make(s)}
}

// String does not allocate.
func (s shared) String() string {
	if s == (shared{}) {
		return ""
	}
	return s.handle.Value()
}

// NewPorts returns the distinct ports of list that have a name (Kubernetes DNS specification 2.3.2).
func NewPorts(list []Port) Ports {
	named := slices.DeleteFunc(slices.Clone(list), func(p Port) bool { return p.Name == "" })
	slices.SortFunc(named, comparePorts)
	var b []byte
	for _, p := range slices.Compact(named) {
		b = append(b, byte(p.Proto), byte(p.Number>>8), byte(p.Number), byte(len(p.Name)))
		b = append(b, p.Name...)
	}
	return Ports{intern(string(b))}
}

func comparePorts(a, b Port) int {
	if c := strings.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	if a.Proto != b.Proto {
		return int(a.Proto) - int(b.Proto)
	}
	return int(a.Number) - int(b.Number)
}

// MarshalJSON implements [json.Marshaler]: a list of [Port].
func (ps Ports) MarshalJSON() ([]byte, error) { return json.Marshal(slices.Collect(ps.All())) }

// UnmarshalJSON implements [json.Unmarshaler].
func (ps *Ports) UnmarshalJSON(b []byte) error {
	var list []Port
	err := json.Unmarshal(b, &list)
	*ps = NewPorts(list)
	return err
}

// packed has for each port: transport, number (2 octets), length of name, name.
func (ps Ports) packed() string { return ps.list.String() }

// All yields the ports in the order of name, transport and number.
func (ps Ports) All() iter.Seq[Port] {
	return func(yield func(Port) bool) {
		for s := ps.packed(); s != ""; {
			end := 4 + int(s[3])
			if !yield(Port{Name: s[4:end], Proto: Proto(s[0]), Number: uint16(s[1])<<8 | uint16(s[2])}) {
				return
			}
			s = s[end:]
		}
	}
}

// Names yields the name and transport of each port once, though it may have several numbers.
func (ps Ports) Names(yield func(name string, proto Proto) bool) {
	last := Port{}
	for p := range ps.All() {
		if (p.Name != last.Name || p.Proto != last.Proto) && !yield(p.Name, p.Proto) {
			return
		}
		last = p
	}
}

// Has reports whether the list has a port of that name and transport.
func (ps Ports) Has(name string, proto Proto) bool {
	for p := range ps.All() {
		if p.Name == name && p.Proto == proto {
			return true
		}
	}
	return false
}

// withoutNumbers is for imports with SRV records that have the port numbers of their slices.
func (ps Ports) withoutNumbers() Ports {
	var list []Port
	for name, proto := range ps.Names {
		list = append(list, Port{Name: name, Proto: proto})
	}
	return NewPorts(list)
}

// Type is the type of a ServiceImport.
type Type uint8

// The types of a ServiceImport (KEP-1645).
const (
	ClusterSetIP Type = iota + 1
	Headless
)

// An Import is the part of a ServiceImport that DNS needs. It never changes.
type Import struct {
	key string // "<name>.<namespace>"
	// packed addresses, IPv4 first; without a VIP the weights of clusters: of each a length, the id, and the weight in 2
	// octets
	data  string
	ports Ports
	n4    uint8 // IPv4 addresses at the head of data
	vip   bool
	typ   Type
}

// An ImportSpec is the input of [NewImport]. Namespace and Name are labels in lower case. IPs are the valid addresses
// of spec.ips; NewImport takes the first 255, and no address of a Headless import. VIP is true if spec.ips was not
// empty: an import with only rejected addresses must not be answered from its slices.
type ImportSpec struct {
	Namespace, Name string
	Type            Type
	VIP             bool
	IPs             []netip.Addr
	Ports           Ports
	Weights         []Weight // without a VIP; the order does not matter
}

// A Weight is the share of a cluster in the answers, at least 1. Without one it is 1.
type Weight struct {
	Cluster string // at most 63 octets
	Share   uint16
}

// NewImport packs spec.
func NewImport(spec ImportSpec) *Import {
	imp := &Import{
		key: spec.Name + "." + spec.Namespace, typ: spec.Type, ports: spec.Ports,
		vip: spec.Type == ClusterSetIP && (spec.VIP || len(spec.IPs) > 0),
	}
	if !imp.vip {
		imp.ports = spec.Ports.withoutNumbers()
		if spec.Type == ClusterSetIP {
			imp.data = packWeights(spec.Weights)
		}
		return imp
	}
	ips := slices.Clone(spec.IPs)
	slices.SortFunc(ips, netip.Addr.Compare) // IPv4 first
	ips = slices.Compact(ips)
	var packed []byte
	for _, ip := range ips[:min(len(ips), 255)] {
		packed = append(packed, ip.AsSlice()...)
		if ip.Is4() {
			imp.n4++
		}
	}
	imp.data = string(packed)
	return imp
}

func packWeights(weights []Weight) string {
	sorted := slices.Clone(weights)
	slices.SortFunc(sorted, func(a, b Weight) int { return strings.Compare(a.Cluster, b.Cluster) })
	var packed []byte
	for _, w := range sorted {
		packed = append(append(packed, byte(len(w.Cluster))), w.Cluster...)
		packed = binary.BigEndian.AppendUint16(packed, w.Share)
	}
	return string(packed)
}

// weights yields the weights in the order of clusters.
func (imp *Import) weights(yield func(Weight) bool) {
	if imp.vip {
		return
	}
	for s := imp.data; s != ""; {
		end := 1 + int(s[0])
		if !yield(Weight{s[1:end], uint16(s[end])<<8 | uint16(s[end+1])}) {
			return
		}
		s = s[end+2:]
	}
}

// Key is "<name>.<namespace>", as in the owner name.
func (imp *Import) Key() string { return imp.key }

// Type is the type of the import.
func (imp *Import) Type() Type { return imp.typ }

// Namespace is the namespace of the import.
func (imp *Import) Namespace() string { return imp.key[strings.IndexByte(imp.key, '.')+1:] }

// Name is the name of the import.
func (imp *Import) Name() string { return imp.key[:strings.IndexByte(imp.key, '.')] }

// Spec returns a spec that NewImport makes an equal import of.
func (imp *Import) Spec() ImportSpec {
	spec := ImportSpec{Namespace: imp.Namespace(), Name: imp.Name(), Type: imp.typ, VIP: imp.vip, Ports: imp.ports}
	spec.Weights = slices.Collect(imp.weights)
	for _, f := range []Family{V4, V6} {
		l := imp.list(f)
		for i := range l.Len() {
			ip, _ := netip.AddrFromSlice([]byte(l.At(i)))
			spec.IPs = append(spec.IPs, ip)
		}
	}
	return spec
}

// Ports are the ports of the import, with number 0 if SRV records have the numbers of its slices.
func (imp *Import) Ports() Ports { return imp.ports }

func (imp *Import) list(f Family) List {
	split := 4 * int(imp.n4)
	switch {
	case !imp.vip:
		return List{}
	case f == V4:
		return List{packed: imp.data[:split], width: 4, end: uint32(imp.n4)}
	}
	return List{packed: imp.data[split:], width: 16, end: uint32(len(imp.data)-split) / 16}
}

// Family is an address family.
type Family uint8

// The two families.
const (
	V4 Family = iota
	V6
)

func (f Family) width() int {
	if f == V4 {
		return 4
	}
	return 16
}

// An Endpoint is one ready endpoint. Host is its hostname in lower case; if it is "", each address makes a label
// ([AddressLabel]). Addrs are valid and of the family of the slice.
type Endpoint struct {
	Host  string
	Addrs []netip.Addr
}

// A Slice is the part of an EndpointSlice that DNS needs: its ready endpoints, packed. It never changes.
type Slice struct {
	cluster   shared
	zone      shared
	region    shared
	ports     Ports
	endpoints string // of each: length of host, host, number of addresses (uint16), addresses
	count     uint32
	family    Family
	hidden    bool
}

// A SliceSpec is the input of [NewSlice]. Cluster is the id of the source cluster in lower case, or "" without one.
// Zone and Region are the values of the labels endpointslice.kubernetes.io/for-zone and for-region (KEP-2030), or "".
// Hidden: its cluster is not selected (docs/spec/selection.md 4).
type SliceSpec struct {
	Cluster      string
	Zone, Region string
	Hidden       bool
	Family       Family
	Ports        Ports
	Endpoints    []Endpoint // ready ones only
}

// NewSlice packs spec.
func NewSlice(spec SliceSpec) *Slice {
	s := &Slice{
		cluster: intern(spec.Cluster), zone: intern(spec.Zone), region: intern(spec.Region),
		ports: spec.Ports, family: spec.Family, hidden: spec.Hidden,
	}
	size := 0
	for _, ep := range spec.Endpoints {
		size += 3 + len(ep.Host) + len(ep.Addrs)*s.family.width()
	}
	b := make([]byte, 0, size)
	for _, ep := range spec.Endpoints {
		if len(ep.Addrs) == 0 {
			continue
		}
		b = append(b, byte(len(ep.Host)))
		b = append(b, ep.Host...)
		b = binary.BigEndian.AppendUint16(b, uint16(len(ep.Addrs)))
		for _, addr := range ep.Addrs {
			b = append(b, addr.AsSlice()...)
		}
		s.count++
	}
	s.endpoints = string(b)
	return s
}

// Cluster is the id of the source cluster, or "".
func (s *Slice) Cluster() string { return s.cluster.String() }

// Len is the number of ready endpoints.
func (s *Slice) Len() int { return int(s.count) }

// Spec returns a spec that NewSlice makes an equal slice of.
func (s *Slice) Spec() SliceSpec {
	spec := SliceSpec{
		Cluster: s.cluster.String(), Zone: s.zone.String(), Region: s.region.String(), Hidden: s.hidden, Family: s.family,
		Ports: s.ports,
	}
	for host, addrs := range s.all() {
		ep := Endpoint{Host: host}
		for a := addrs; a != ""; a = a[s.family.width():] {
			addr, _ := netip.AddrFromSlice([]byte(a[:s.family.width()]))
			ep.Addrs = append(ep.Addrs, addr)
		}
		spec.Endpoints = append(spec.Endpoints, ep)
	}
	return spec
}

// all yields the host and the packed addresses of each endpoint.
func (s *Slice) all() iter.Seq2[string, string] {
	return func(yield func(host, addrs string) bool) {
		for b := s.endpoints; b != ""; {
			host := b[1 : 1+b[0]]
			b = b[1+len(host):]
			n := (int(b[0])<<8 | int(b[1])) * s.family.width()
			if !yield(host, b[2:2+n]) {
				return
			}
			b = b[2+n:]
		}
	}
}

// Options are the settings that a service is built with.
type Options struct {
	ClusterNames bool   // keep the endpoints of services with spec.ips, for the names <cluster id>.<service>
	Zone, Region string // where this server runs (KEP-2030), "" if unknown
	// MaxNames has, for each zone, the most octets of "<host>.<cluster id>.<name>.<namespace>" with which the owner name
	// has at most 253 octets there: each number once, the largest first. A host with a longer name owns no name in the
	// zone, but its addresses count. Empty means no limit.
	MaxNames []int
}

// Equal reports whether services that are built with either are the same.
func (o *Options) Equal(other *Options) bool {
	return o.ClusterNames == other.ClusterNames && o.Zone == other.Zone && o.Region == other.Region &&
		slices.Equal(o.MaxNames, other.MaxNames)
}
