package denial

import (
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/resolver"
)

// A Denial is an answer without records, and its inputs.
type Denial struct {
	Relative string        // the name asked for, relative to the zone, lower case
	Kind     resolver.Kind // of the name; None for NXDOMAIN
	Type     uint16        // that was asked for

	Index   *index.Index
	Options *resolver.Options

	// Objects that the directives of the server leave out of Index.
	Namespaces  []string // the only ones that are served; nil: all
	Selects     bool     // labels of imports or of Namespaces decide
	NoEndpoints bool
}

// Code is why there is no record (docs/spec/dns.md 5.8). It follows from the name, and from what the index has of its
// service: a service that the directives leave out gets the same code whether it exists or not.
func (d *Denial) Code() reason.Code {
	switch d.Relative {
	case "svc", "dns":
		return reason.NameIncomplete
	case "", "ns.dns", "dns-version":
		return reason.TypeNotServed
	}
	n, bad := Parse(d.Relative)
	if bad == nil && d.Kind != resolver.None {
		bad = n.CheckType(d.Type)
	}
	if bad != nil {
		return bad.Code
	}
	s := d.Index.Service(n.Service + "." + n.Namespace).In(d.Options.Limit)
	switch {
	case s == nil:
		return d.codeOfAbsent(&n)
	case n.Left != "":
		return d.codeBelow(s, &n)
	case n.Port != "":
		return d.codeOfPort(s, &n)
	}
	return d.codeOfService(s)
}

// codeOfAbsent is the code for a service without a name in the index.
func (d *Denial) codeOfAbsent(n *Name) reason.Code {
	if d.Namespaces != nil && !slices.Contains(d.Namespaces, n.Namespace) {
		return reason.DNSLeftOut
	}
	switch imp := d.Index.Nameless(n.Service + "." + n.Namespace); {
	case imp != nil && imp.Type() == index.ClusterSetIP:
		return reason.Unexplained // a fault of this program: only a name that cannot be asked for is too long
	case imp != nil:
		return d.withoutEndpoint()
	case d.Selects:
		return reason.DNSLeftOut
	case !d.Index.Namespace(n.Namespace, d.Options.Limit):
		return reason.DNSNamespaceEmpty
	}
	return reason.ImportMissing
}

func (d *Denial) withoutEndpoint() reason.Code {
	if d.NoEndpoints {
		return reason.DNSLeftOut
	}
	return reason.DNSLacksEndpoint
}

// codeOfService is the code for the name of a service, which exists.
func (d *Denial) codeOfService(s *index.Service) reason.Code {
	code := d.withoutAddress(s)
	switch {
	case code != "":
		return code
	case d.Type == dns.TypeSRV && len(Ports(s)) == 0:
		return reason.PortUnnamed
	case d.Type == dns.TypeSRV:
		return d.withoutPort(s)
	case LeftOut(s, d.Type):
		return reason.ClusterNotSelected
	}
	return reason.FamilyMissing
}

// LeftOut reports whether a cluster that does not answer for the service has an address of the type, A or AAAA: another
// one is selected, or local and preferred by the policy.
func LeftOut(s *index.Service, qtype uint16) bool {
	family, ok := map[uint16]index.Family{dns.TypeA: index.V4, dns.TypeAAAA: index.V6}[qtype]
	if !ok || s.HasVIP() {
		return false
	}
	for c := range s.Clusters() {
		if s.ClusterHas(c, family) {
			return true
		}
	}
	return false
}

// withoutAddress is the code for a service that has no address of any family, else "".
func (d *Denial) withoutAddress(s *index.Service) reason.Code {
	vips := s.VIPs(index.V4)
	switch v6 := s.VIPs(index.V6); {
	case s.HasVIP() && vips.Len()+v6.Len() == 0:
		return reason.DNSLacksAddress
	case s.HasVIP():
		return ""
	case s.Type() == index.ClusterSetIP && d.Options.Policy == resolver.NoCluster:
		return reason.DNSLeftOut
	case s.Clusters() == 0:
		return d.withoutEndpoint()
	}
	return ""
}

// withoutPort is the code for a port that the import names, and that owns no record.
func (d *Denial) withoutPort(s *index.Service) reason.Code {
	if s.Type() == index.ClusterSetIP && !d.Options.ClusterNames {
		return reason.DNSLeftOut // its target would be the name of a cluster
	}
	return reason.PortUnknown
}

func (d *Denial) codeOfPort(s *index.Service, n *Name) reason.Code {
	if d.Kind == resolver.None {
		code, _ := MissedPort(s, n)
		return code
	}
	if code := d.withoutAddress(s); code != "" {
		return code
	}
	return d.withoutPort(s)
}

// codeBelow is the code for the name of a cluster or host, or of a port of a cluster.
func (d *Denial) codeBelow(s *index.Service, n *Name) reason.Code {
	_, isCluster := s.Cluster(n.Left)
	switch {
	case d.Kind == resolver.Cluster || d.Kind == resolver.Host:
		return reason.FamilyMissing
	case d.NoEndpoints, !d.Options.ClusterNames && (isCluster || n.Port != "" || s.Type() == index.ClusterSetIP):
		return reason.DNSLeftOut
	case n.Port != "" && isCluster:
		code, _ := MissedPort(s, n)
		return code
	case n.Port == "" && HasHost(s, n.Left):
		return reason.HostWithoutCluster
	case n.Port == "" && s.Type() == index.ClusterSetIP && endsInCluster(s, n.Left):
		return reason.HostNeedsHeadless
	}
	return reason.DNSLacksEndpoint
}

// endsInCluster reports whether left has a label before the ID of a cluster.
func endsInCluster(s *index.Service, rest string) bool {
	_, id, _ := strings.Cut(rest, ".")
	_, ok := s.Cluster(id)
	return ok
}

// HasHost reports whether a cluster of the service has a host of this label.
func HasHost(s *index.Service, label string) bool {
	for c := range s.Clusters() {
		if _, ok := s.Host(c, label); ok {
			return true
		}
	}
	return false
}

// Ports lists the named ports of a service: "http/tcp".
func Ports(s *index.Service) (all []string) {
	add := func(name string, proto index.Proto) bool {
		if name != "" {
			all = append(all, name+"/"+strings.TrimPrefix(proto.Label(), "_"))
		}
		return true
	}
	s.Ports().Names(add)
	s.PortNames(add)
	slices.Sort(all)
	return slices.Compact(all)
}

// MissedPort is the code for a port that the service, or its cluster in the name, does not have. other is the port of
// that name with another protocol.
func MissedPort(s *index.Service, n *Name) (code reason.Code, other string) {
	all := Ports(s)
	if len(all) == 0 {
		return reason.PortUnnamed, ""
	}
	for _, p := range all {
		if name, proto, _ := strings.Cut(p, "/"); name == n.Port && proto != n.Protocol {
			return reason.PortProtocol, p
		}
	}
	return reason.PortUnknown, ""
}
