package explain

import (
	"fmt"
	"strings"

	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// A Target is what a name asks for. The zero Target is that of a name above all services.
type Target struct {
	Relative           string // the name without the zone, lower case
	Namespace, Service string

	// What stands before the service. What exists decides whether Left is a cluster ID, or a host and a cluster ID.
	Port, Protocol string // without underscores
	Left           string // the labels without those of the port
}

func (t Target) key() types.NamespacedName {
	return types.NamespacedName{Namespace: t.Namespace, Name: t.Service}
}

// A shapeError says why a name cannot exist whatever a cluster has.
type shapeError struct {
	code Code
	text string
}

func badShape(code Code, format string, args ...any) (Target, *shapeError) {
	return Target{}, &shapeError{code, fmt.Sprintf(format, args...)}
}

// Locate returns what a name of a zone asks for; ok is false if no service can have it.
func Locate(name, zone string) (_ Target, ok bool) {
	t, bad := parse(name, zone)
	return t, bad == nil && t.Service != ""
}

// parse takes a name apart (docs/spec/dns.md 2.2).
func parse(name, zone string) (Target, *shapeError) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if t, bad := checkLabels(name); bad != nil {
		return t, bad
	}
	if strings.HasSuffix(name, ".in-addr.arpa") || strings.HasSuffix(name, ".ip6.arpa") {
		return badShape(NameReverse, "%s is a reverse name", name)
	}
	if name == zone {
		return Target{}, nil
	}
	relative, ok := strings.CutSuffix(name, "."+zone)
	if !ok {
		return badShape(NameOutsideZone, "%s is not below %s", name, zone)
	}
	switch relative {
	case "ns.dns", "dns-version", "svc", "dns":
		return Target{Relative: relative}, nil
	}
	rest, ok := strings.CutSuffix(relative, ".svc")
	switch {
	case !ok && (relative == "pod" || strings.HasSuffix(relative, ".pod")):
		return badShape(NamePod, "%s is below pod.%s", name, zone)
	case !ok:
		return badShape(NameWithoutSVC, "%s has no label \"svc\" before %s", name, zone)
	}
	return parseService(name, relative, strings.Split(rest, "."))
}

func checkLabels(name string) (Target, *shapeError) {
	if len(name) > 253 {
		return badShape(NameTooLong, "%.40s... has %d octets", name, len(name))
	}
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "*":
			return badShape(NameWildcard, "%s has a wildcard", name)
		case label == "":
			return badShape(NameMalformed, "%q has an empty label", name)
		case len(label) > 63:
			return badShape(NameTooLong, "label %.20s... has %d octets", label, len(label))
		case !broker.IsLabel(strings.TrimPrefix(label, "_")):
			return badShape(NameMalformed, "label %q has other characters than letters, digits and hyphens", label)
		}
	}
	return Target{}, nil
}

// parseService takes the labels before "svc" apart, from the right.
func parseService(name, relative string, labels []string) (Target, *shapeError) {
	n := len(labels)
	if n < 2 {
		return badShape(NameIncomplete, "%s names a namespace and no service", name)
	}
	t := Target{Relative: relative, Namespace: labels[n-1], Service: labels[n-2]}
	if strings.HasPrefix(t.Namespace, "_") || strings.HasPrefix(t.Service, "_") {
		return badShape(NameIncomplete, "%s has a port where it should have service and namespace", name)
	}
	left := labels[:n-2]
	if !strings.Contains(strings.Join(left, "."), "_") {
		if len(left) > 3 {
			return badShape(NameMalformed, "%s has %d labels before the service, want a host and a cluster ID", name, len(left))
		}
		t.Left = strings.Join(left, ".")
		return t, nil
	}
	if len(left) < 2 || !strings.HasPrefix(left[0], "_") || !isProtocol(left[1]) {
		return badShape(PortMalformed, "%s, want _<port>._tcp, _udp or _sctp before the service", strings.Join(left, "."))
	}
	t.Port, t.Protocol, t.Left = left[0][1:], left[1][1:], strings.Join(left[2:], ".")
	if t.Left != "" && !broker.IsClusterID(t.Left) {
		return badShape(PortMalformed, "%s, want a port, a protocol and a cluster ID before the service", strings.Join(left, "."))
	}
	return t, nil
}

func isProtocol(label string) bool { return label == "_tcp" || label == "_udp" || label == "_sctp" }

// checkType says why a name of this form has no records of a type.
func (t Target) checkType(qtype uint16) *shapeError {
	word := dns.TypeToString[qtype]
	var bad *shapeError
	switch {
	case t.Service == "":
	case t.Port != "" && (qtype == dns.TypeA || qtype == dns.TypeAAAA):
		_, bad = badShape(PortWantsSRV, "a port has SRV records, and none of type %s", word)
	case t.Port == "" && t.Left != "" && qtype == dns.TypeSRV:
		_, bad = badShape(TypeNotServed, "a host or cluster has A and AAAA records, and none of type SRV")
	case qtype != dns.TypeA && qtype != dns.TypeAAAA && qtype != dns.TypeSRV && qtype != dns.TypeANY:
		_, bad = badShape(TypeNotServed, "a service has A, AAAA and SRV records, and none of type %s", word)
	}
	return bad
}
