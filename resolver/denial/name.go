// Package denial finds why an answer has no records, as a code of package reason. It is pure, as package resolver is.
//
//	relative name ──Parse──► Name, or the code of a name that no service can have
//	Name, index   ──Code───► the code of a name or type that this index lacks
//
// The resolver looks up existing names and takes nothing apart by its labels. This package takes a missing name apart,
// to tell the kind of name that it would have been.
package denial

import (
	"fmt"
	"strings"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/reason"
)

// A Name is what a name of a zone asks for. The zero Name is that of a name above all services.
type Name struct {
	Relative           string // the name without the zone, lower case
	Namespace, Service string

	// Labels before the service. The existing names decide whether Left is a cluster ID, or a host and a cluster ID.
	Port, Protocol string // without underscores
	Left           string // the labels without those of the port
}

// A Fault is why a name cannot exist, or cannot own a type, in any cluster.
type Fault struct {
	Code reason.Code
	Text string // the evidence, with the part of the name that is wrong
}

func fault(code reason.Code, format string, args ...any) *Fault {
	return &Fault{code, fmt.Sprintf(format, args...)}
}

// Parse takes a name that is relative to its zone apart (docs/spec/dns.md 2.2).
func Parse(relative string) (Name, *Fault) {
	switch relative {
	case "", "ns.dns", "dns-version", "svc", "dns":
		return Name{Relative: relative}, nil
	}
	if f := CheckLabels(relative); f != nil {
		return Name{}, f
	}
	rest, ok := strings.CutSuffix(relative, ".svc")
	switch {
	case !ok && (relative == "pod" || strings.HasSuffix(relative, ".pod")):
		return Name{}, fault(reason.NamePod, "%s is below pod", relative)
	case !ok:
		return Name{}, fault(reason.NameWithoutSVC, "%s has no label \"svc\" at its end", relative)
	}
	return parseService(relative, strings.Split(rest, "."))
}

// CheckLabels returns why a name that may be fully qualified cannot exist by its labels alone, or nil.
func CheckLabels(name string) *Fault {
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "*":
			return fault(reason.NameWildcard, "%s has a wildcard", name)
		case label == "":
			return fault(reason.NameMalformed, "%q has an empty label", name)
		case len(label) > 63:
			return fault(reason.NameTooLong, "label %.20s... has %d octets", label, len(label))
		case !broker.IsLabel(strings.TrimPrefix(label, "_")):
			return fault(reason.NameMalformed, "label %q has other characters than letters, digits and hyphens", label)
		}
	}
	return nil
}

// parseService takes the labels before "svc" apart, from the right.
func parseService(relative string, labels []string) (Name, *Fault) {
	last := len(labels) - 1
	if last < 1 {
		return Name{}, fault(reason.NameIncomplete, "%s names a namespace and no service", relative)
	}
	n := Name{Relative: relative, Namespace: labels[last], Service: labels[last-1]}
	if strings.HasPrefix(n.Namespace, "_") || strings.HasPrefix(n.Service, "_") {
		return Name{}, fault(reason.NameIncomplete, "%s has a port where it should have service and namespace", relative)
	}
	rest := labels[:last-1]
	if !strings.Contains(strings.Join(rest, "."), "_") {
		if len(rest) > 3 {
			return Name{}, fault(reason.NameMalformed, "%s has %d labels before the service, want a host and a cluster ID",
				relative, len(rest))
		}
		n.Left = strings.Join(rest, ".")
		return n, nil
	}
	if len(rest) < 2 || !strings.HasPrefix(rest[0], "_") || !isProtocol(rest[1]) {
		return Name{}, fault(reason.PortMalformed, "%s, want _<port>._tcp, _udp or _sctp before the service",
			strings.Join(rest, "."))
	}
	n.Port, n.Protocol, n.Left = rest[0][1:], rest[1][1:], strings.Join(rest[2:], ".")
	if n.Left != "" && !broker.IsClusterID(n.Left) {
		return Name{}, fault(reason.PortMalformed, "%s, want a port, a protocol and a cluster ID before the service",
			strings.Join(rest, "."))
	}
	return n, nil
}

func isProtocol(label string) bool { return label == "_tcp" || label == "_udp" || label == "_sctp" }

// CheckType returns why a name of this form has no records of a type, or nil if it may have some.
func (n *Name) CheckType(qtype uint16) *Fault {
	word := dns.TypeToString[qtype]
	switch {
	case n.Service == "":
	case n.Port != "" && (qtype == dns.TypeA || qtype == dns.TypeAAAA):
		return fault(reason.PortWantsSRV, "a port has SRV records, and none of type %s", word)
	case n.Port == "" && n.Left != "" && qtype == dns.TypeSRV:
		return fault(reason.TypeNotServed, "a host or cluster has A and AAAA records, and none of type SRV")
	case qtype != dns.TypeA && qtype != dns.TypeAAAA && qtype != dns.TypeSRV && qtype != dns.TypeANY:
		return fault(reason.TypeNotServed, "a service has A, AAAA and SRV records, and none of type %s", word)
	}
	return nil
}
