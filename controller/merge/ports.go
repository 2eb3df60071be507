package merge

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// mergePorts unites the ports, oldest record first (docs/spec/controller.md 4.3; KEP-1645, "Service Port": no name
// twice, and no protocol and number twice).
func (m *merger) mergePorts() {
	in := m.entries()
	var clash bool
	for _, e := range in {
		clash = m.unitePorts(e) || clash
	}
	union, merged := len(m.ports), "the union"
	if m.o.Mode == Lighthouse {
		merged = m.keepCommonPorts(in)
	}
	disagree := m.comparePorts(in)
	for _, e := range in {
		if union > 0 && !slices.ContainsFunc(e.serves, func(i int) bool { return i >= 0 }) {
			e.out = LeftOutPorts
		}
	}
	if disagree > 0 {
		m.conflict(finding{
			reason: mcsv1beta1.ServiceExportReasonPortConflict, what: "ports", using: m.portText(), merged: merged,
			disagree: disagree, leftOut: m.leftOut(LeftOutPorts), unresolved: clash,
		})
	}
}

// unitePorts adds the ports of e to the union and notes which of the union it serves. It reports whether an older port
// stood in the way of one of them.
func (m *merger) unitePorts(e *entry) (clash bool) {
	older := len(m.ports)
	e.serves = make([]int, len(e.Spec.Ports))
	for i, p := range e.Spec.Ports {
		at, differs := matchPort(m.ports[:older], p)
		clash = clash || differs
		if at < 0 && !differs {
			at = len(m.ports)
			m.ports = append(m.ports, unionPort{ServicePort: p})
		}
		e.serves[i] = at
		if at >= 0 {
			m.ports[at].servers++
		}
	}
	return clash
}

// matchPort returns which of the older ports p is, or -1 if it is not among them, and whether they are in conflict.
//
// Names come first: a port of the same name with another number must not get the traffic of it.
func matchPort(older []unionPort, p v1alpha1.ServicePort) (at int, differs bool) {
	at = slices.IndexFunc(older, func(u unionPort) bool { return u.Name == p.Name })
	if at >= 0 {
		if !samePort(older[at], p) {
			return -1, true
		}
		return at, ptr.Deref(older[at].AppProtocol, "") != ptr.Deref(p.AppProtocol, "")
	}
	at = slices.IndexFunc(older, func(u unionPort) bool { return samePort(u, p) })
	return at, at >= 0
}

func samePort(u unionPort, p v1alpha1.ServicePort) bool {
	return u.Protocol == p.Protocol && u.Port == p.Port
}

// keepCommonPorts reduces the union to the ports of all exports (first Lighthouse document, "Service Ports") and
// returns a phrase for the result. Without a common port it keeps those of the oldest export, so that a new export
// cannot remove all ports.
func (m *merger) keepCommonPorts(in []*entry) (merged string) {
	union, merged := m.ports, "the intersection"
	m.ports = slices.DeleteFunc(slices.Clone(union), func(u unionPort) bool { return u.servers < len(in) })
	if at := slices.IndexFunc(in, func(e *entry) bool { return len(e.serves) > 0 }); at >= 0 && len(m.ports) == 0 {
		merged = ""
		for _, i := range in[at].serves {
			m.ports = append(m.ports, union[i])
		}
	}
	for _, e := range in {
		for i, at := range e.serves {
			if at >= 0 {
				e.serves[i] = slices.Index(m.ports, union[at])
			}
		}
	}
	return merged
}

// comparePorts returns how many exports have a set of ports that is not that of the import.
func (m *merger) comparePorts(in []*entry) int {
	var disagree int
	for _, e := range in {
		same := len(e.serves) == len(m.ports)
		for i, at := range e.serves {
			same = same && at >= 0 && equalPorts(m.ports[at].ServicePort, e.Spec.Ports[i])
		}
		if !same {
			disagree++
		}
	}
	return disagree
}

func equalPorts(a, b v1alpha1.ServicePort) bool {
	return a.Name == b.Name && a.Protocol == b.Protocol && a.Port == b.Port &&
		ptr.Deref(a.AppProtocol, "") == ptr.Deref(b.AppProtocol, "")
}

func (m *merger) importPorts() []mcsv1beta1.ServicePort {
	ports := make([]mcsv1beta1.ServicePort, 0, len(m.ports))
	for _, u := range m.ports {
		ports = append(ports, mcsv1beta1.ServicePort{
			Name: u.Name, Protocol: u.Protocol, AppProtocol: u.AppProtocol, Port: u.Port,
		})
	}
	return ports
}

// portNames returns the names that the ports of the import have in a derived Service and in the slices that go with it.
// A Service with several ports needs a name for each (docs/spec/controller.md 5.6). A port that is alone has one, too:
// were it named when another comes, proxies would find no endpoints until all slices have followed.
func (m *merger) portNames() []string {
	names := make([]string, len(m.ports))
	for i, u := range m.ports {
		names[i] = u.Name
	}
	derived := (m.o.VIP == "" || m.o.VIP == Derived) && m.oldest.Spec.Type == v1alpha1.ClusterSetIP || len(m.vips) > 0
	if unnamed := slices.Index(names, ""); unnamed >= 0 && derived {
		u := m.ports[unnamed]
		base := fmt.Sprintf("%s-%d", strings.ToLower(string(u.Protocol)), u.Port)
		name := base
		for i := 2; slices.Contains(names, name); i++ { // an exporter may have given this very name to another port
			name = fmt.Sprintf("%s-%d", base, i)
		}
		names[unnamed] = name
	}
	return names
}

// portMap returns which ports of the slices of e count, so that traffic for a port reaches only endpoints that serve
// it.
func (m *merger) portMap(e *entry, names []string) []PortMapping {
	var mapping []PortMapping
	for i, at := range e.serves {
		if at < 0 {
			continue
		}
		mapping = append(mapping, PortMapping{
			From: e.Spec.Ports[i].Name, To: names[at],
			Protocol: m.ports[at].Protocol, AppProtocol: m.ports[at].AppProtocol,
		})
	}
	return mapping
}

// portText shows the ports of the import, at most eight of them.
func (m *merger) portText() string {
	return enumerate(m.ports, 8, func(u unionPort) string { return u.String() })
}
