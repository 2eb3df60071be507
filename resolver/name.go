package resolver

import (
	"iter"
	"strings"

	"github.com/clusterset-dns/clusterset/cache/index"
)

// Kind is what a name of the zone is.
type Kind uint8

const (
	None       Kind = iota // the name does not exist
	Apex                   // the zone itself: SOA, NS
	NameServer             // ns.dns: the addresses of this server
	Version                // dns-version: TXT
	Empty                  // an empty non-terminal: owns no record, a name below it may (RFC 4592 section 2.2.2)
	Service                // <svc>.<ns>.svc: A, AAAA, SRV
	Cluster                // <cluster id>.<svc>.<ns>.svc: A, AAAA
	Host                   // <host>.<cluster id>.<svc>.<ns>.svc: A, AAAA
	Port                   // _<port>._<proto>[.<cluster id>].<svc>.<ns>.svc: SRV
)

// A Name is one name of the zone and its meaning. The zero Name does not exist.
type Name struct {
	Service  *index.Service // nil above the services
	PortName string         // Port only, without the underscore
	cluster  int32          // of a Cluster, a Host, and a Port of one cluster; noCluster for a Port of the service
	host     int32          // of a Host
	Kind     Kind
	Proto    index.Proto // Port only
}

const noCluster = -1

// ClusterID is the id of the cluster that a Cluster, a Host, or a Port of one cluster belongs to, else "".
func (n *Name) ClusterID() string {
	switch {
	case n.Kind == Cluster, n.Kind == Host, n.Kind == Port && n.cluster != noCluster:
		return n.Service.ClusterID(int(n.cluster))
	}
	return ""
}

// HostLabel is the label of a Host, else "".
func (n *Name) HostLabel() string {
	if n.Kind != Host {
		return ""
	}
	return n.Service.HostLabel(int(n.host))
}

const branch = ".svc"

// AppendName appends the relative name of a Service or of a name below one.
func (n *Name) AppendName(b []byte) []byte {
	switch n.Kind {
	case Host:
		b = append(append(b, n.Service.HostLabel(int(n.host))...), '.')
	case Port:
		b = append(append(b, '_'), n.PortName...)
		b = append(append(append(b, '.'), n.Proto.Label()...), '.')
	}
	if id := n.ClusterID(); id != "" {
		b = append(append(b, id...), '.')
	}
	return append(append(b, n.Service.Key()...), branch...)
}

// Find returns the name of x that name spells, relative to the zone and in lower case; Kind is None if it does not
// exist. docs/spec/dns.md 2.2 lists the names. Find does not allocate.
func Find(x *index.Index, name string, o *Options) Name {
	switch name {
	case "":
		return Name{Kind: Apex}
	case "ns.dns":
		return Name{Kind: NameServer}
	case "dns-version":
		return Name{Kind: Version}
	case "svc", "dns":
		return Name{Kind: Empty}
	}
	rest, ok := strings.CutSuffix(name, branch)
	if !ok {
		return Name{}
	}
	dot := strings.LastIndexByte(rest, '.')
	if dot < 0 {
		if x.Namespace(rest, o.Limit) {
			return Name{Kind: Empty}
		}
		return Name{}
	}
	start := strings.LastIndexByte(rest[:dot], '.') + 1
	s := x.Service(rest[start:]).In(o.Limit)
	switch {
	case s == nil:
		return Name{}
	case start == 0:
		return Name{Kind: Service, Service: s}
	}
	return findBelow(s, rest[:start-1], o)
}

// findBelow finds a name below a service; left is the part to the left of the service name.
func findBelow(s *index.Service, rest string, o *Options) Name {
	if strings.HasPrefix(rest, "_") {
		return findPort(s, rest, o)
	}
	if n, ok := findHost(s, rest); ok {
		// Host "a" of cluster "b" and cluster "a.b" have the same name. The host wins: the multicluster DNS
		// specification demands exactly its addresses (2.4.2).
		return n
	}
	if c, ok := s.Cluster(rest); ok {
		if o.ClusterNames {
			return Name{Kind: Cluster, Service: s, cluster: int32(c)}
		}
		if s.HasNames(c) {
			return Name{Kind: Empty, Service: s}
		}
	}
	for c := range s.Clusters() {
		if _, parent, ok := strings.Cut(s.ClusterID(c), "."); ok && parent == rest && ownsNames(s, c, o) {
			return Name{Kind: Empty, Service: s}
		}
	}
	return Name{}
}

// ownsNames reports whether a name at or below the id of cluster c owns a record.
func ownsNames(s *index.Service, c int, o *Options) bool {
	return s.HasNames(c) || o.ClusterNames && o.fits(s, len(s.ClusterID(c)))
}

// fits reports whether a name below a service is short enough for an owner name; left is the octets to the left of the
// service name.
func (o *Options) fits(s *index.Service, rest int) bool {
	return o.MaxName == 0 || rest+1+len(s.Key())+len(branch) <= o.MaxName
}

func findHost(s *index.Service, rest string) (Name, bool) {
	if s.Type() != index.Headless {
		return Name{}, false
	}
	label, id, _ := strings.Cut(rest, ".")
	c, ok := s.Cluster(id)
	if !ok {
		return Name{}, false
	}
	h, ok := s.Host(c, label)
	return Name{Kind: Host, Service: s, cluster: int32(c), host: int32(h)}, ok
}

// findPort finds "_<port>._<proto>" and the empty non-terminal "_<proto>", below the service or below a cluster id.
func findPort(s *index.Service, remaining string, o *Options) Name {
	first, rest, _ := strings.Cut(remaining, ".")
	second, id := "", rest
	if strings.HasPrefix(rest, "_") {
		second, id, _ = strings.Cut(rest, ".")
	}
	c := noCluster
	if id != "" {
		var ok bool
		if c, ok = s.Cluster(id); !ok || !o.ClusterNames {
			return Name{}
		}
	}
	if second == "" {
		if hasProto(s, c, protoOf(first), o) {
			return Name{Kind: Empty, Service: s}
		}
		return Name{}
	}
	n := Name{Kind: Port, Service: s, cluster: int32(c), PortName: first[1:], Proto: protoOf(second)}
	if n.Proto == 0 || !hasPort(s, c, n.PortName, n.Proto) || !o.fitsPort(s, c, n.PortName, n.Proto) {
		return Name{}
	}
	return n
}

// hasPort reports whether a port has a name below a service, or below its cluster c. The ports of a service are those
// of the import, without spec.ips also those of the slices. The ports of a cluster are those that own an SRV record.
func hasPort(s *index.Service, c int, name string, proto index.Proto) bool {
	if name == "" {
		return false
	}
	if c == noCluster {
		if found := s.Ports().Has(name, proto); found || s.HasVIP() {
			return found
		}
	}
	set, ok := s.Port(name, proto)
	return ok && (c == noCluster || set.InCluster(c).Len() > 0)
}

// hasProto reports whether any port of a transport has a name below a service, or below its cluster c.
func hasProto(s *index.Service, c int, want index.Proto, o *Options) bool {
	for _, proto := range portNames(s, c, o) {
		if proto == want {
			return true
		}
	}
	return false
}

func protoOf(label string) index.Proto {
	for _, p := range []index.Proto{index.TCP, index.UDP, index.SCTP} {
		if p.Label() == label {
			return p
		}
	}
	return 0
}

// portNames yields each port that has a name below a service, or below its cluster c.
func portNames(s *index.Service, c int, o *Options) iter.Seq2[string, index.Proto] {
	return func(yield func(string, index.Proto) bool) {
		if c != noCluster || !s.HasVIP() {
			for name, proto := range s.PortNames {
				if (c == noCluster || hasPort(s, c, name, proto)) && o.fitsPort(s, c, name, proto) && !yield(name, proto) {
					return
				}
			}
		}
		if c != noCluster {
			return
		}
		for name, proto := range s.Ports().Names {
			if _, inSlices := s.Port(name, proto); inSlices && !s.HasVIP() {
				continue
			}
			if o.fitsPort(s, c, name, proto) && !yield(name, proto) {
				return
			}
		}
	}
}

// fitsPort reports whether the name of a port is short enough for an owner name.
func (o *Options) fitsPort(s *index.Service, c int, name string, proto index.Proto) bool {
	rest := len("_") + len(name) + len(".") + len(proto.Label())
	if c != noCluster {
		rest += len(".") + len(s.ClusterID(c))
	}
	return o.fits(s, rest)
}

// Namespace is the namespace that the name is in, or would be in if it existed; "" for a name above all namespaces.
// name is what Find was asked for.
func (n *Name) Namespace(name string) string {
	if n.Service != nil {
		return n.Service.Namespace()
	}
	rest, ok := strings.CutSuffix(name, branch)
	if !ok {
		return ""
	}
	return rest[strings.LastIndexByte(rest, '.')+1:]
}

// NeedsSlices reports whether the name, and what it owns, depends on EndpointSlices. Names above the services that
// always exist, a service with addresses in spec.ips, and its ports, do not.
func (n *Name) NeedsSlices() bool {
	if n.Kind == Apex || n.Kind == NameServer || n.Kind == Version {
		return false
	}
	ofImport := n.Kind == Service || n.Kind == Port && n.cluster == noCluster
	return !ofImport || !n.Service.HasVIP()
}

// Rotates reports whether clusters answer for n in rotation.
func (n *Name) Rotates() bool {
	return (n.Kind == Service || n.Kind == Port) && n.Service.Type() == index.ClusterSetIP && !n.Service.HasVIP()
}
