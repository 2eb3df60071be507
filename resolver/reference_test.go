package resolver_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/resolver"

	"github.com/miekg/dns"
)

// The reference computes what the specification demands of some objects in the simplest way: a map of all names with
// records as text, without any code of the packages under test. All laws in this package compare with it.

// objects are the input of a law: imports with their slices, and the settings.
type objects struct {
	imports []importObject
	build   index.Options
	serve   resolver.Options
}

type importObject struct {
	namespace, name string
	typ             index.Type
	vip             bool // spec.ips was not empty
	ips             []netip.Addr
	ports           []index.Port
	slices          []sliceObject
	weights         []index.Weight
}

type sliceObject struct {
	cluster, zone, region string
	hidden                bool // its cluster is not selected
	family                index.Family
	ports                 []index.Port
	endpoints             []index.Endpoint
}

// reference has each name of the zone that exists, relative to the zone.
type reference map[string]owner

// An owner is the RRsets of a name by type. Where clusters answer in rotation there are several RRsets of a type: each
// is an answer that the specification permits. No RRset is empty, except those of the apex, ns.dns and dns-version,
// which package plugin makes.
type owner map[uint16][]rrset

// An rrset is a set of records as text.
type rrset map[string]bool

func newReference(objs objects) reference {
	// docs/spec/dns.md 2: the names that always exist.
	ref := reference{
		"":            {dns.TypeSOA: {nil}, dns.TypeNS: {nil}},
		"ns.dns":      {dns.TypeA: {nil}, dns.TypeAAAA: {nil}},
		"dns-version": {dns.TypeTXT: {nil}},
		"svc":         {},
		"dns":         {},
	}
	for _, imp := range objs.imports {
		s := newReferenceService(objs, imp)
		if imp.typ == index.Headless && len(s.addresses()) == 0 {
			continue // docs/spec/dns.md 3: NXDOMAIN with no ready endpoint
		}
		s.own(ref, s.name, nil)
		s.ownService(ref)
		s.ownClusters(ref)
		s.ownHosts(ref)
	}
	// docs/spec/dns.md 2: a name exists if a name below it does.
	for name := range ref {
		for strings.Contains(name, ".") {
			_, name, _ = strings.Cut(name, ".")
			if ref[name] == nil {
				ref[name] = owner{}
			}
		}
	}
	return ref
}

// referenceService is one import with its slices in use.
type referenceService struct {
	importObject
	objs objects
	name string
	used []sliceObject
	left []string // the clusters that are not selected
}

func newReferenceService(objs objects, imp importObject) *referenceService {
	s := &referenceService{importObject: imp, objs: objs, name: imp.name + "." + imp.namespace + ".svc", used: imp.slices}
	ids := s.clusters()
	for _, id := range ids { // docs/spec/dns.md 3.2
		hidden := func(sl sliceObject) bool { return sl.cluster != id || sl.hidden || len(s.ready(sl)) == 0 }
		if !slices.ContainsFunc(imp.slices, func(sl sliceObject) bool { return !hidden(sl) }) {
			s.left = append(s.left, id)
		}
	}
	if imp.typ == index.Headless || len(s.left) == len(ids) {
		s.left = nil
	}
	var selected, others []sliceObject
	for _, sl := range imp.slices {
		if slices.Contains(s.left, sl.cluster) {
			others = append(others, sl)
		} else {
			selected = append(selected, sl)
		}
	}
	s.used = append(s.near(selected), s.near(others)...)
	return s
}

// near are the slices that topology selects (docs/spec/dns.md 3.5).
func (s *referenceService) near(all []sliceObject) (near []sliceObject) {
	zone, region, found := s.objs.build.Zone, s.objs.build.Region, false
	for _, sl := range all {
		if sl.zone == "" && sl.region == "" || zone != "" && sl.zone == zone || region != "" && sl.region == region {
			near = append(near, sl)
			found = found || len(s.ready(sl)) > 0
		}
	}
	if zone == "" && region == "" || !found {
		return all
	}
	return near
}

// ready are the addresses of a slice.
func (s *referenceService) ready(sl sliceObject) (addrs []netip.Addr) {
	for _, ep := range sl.endpoints {
		addrs = append(addrs, ep.Addrs...)
	}
	return addrs
}

// own adds a name with an RRset of one or more permitted forms; without a form the name only exists. A name too long
// is left out (docs/spec/dns.md 1).
func (s *referenceService) own(ref reference, name string, byType map[uint16][]rrset) {
	if limit := s.objs.serve.MaxName; limit > 0 && len(name) > limit {
		return
	}
	if ref[name] == nil {
		ref[name] = owner{}
	}
	for t, forms := range byType {
		for _, form := range forms {
			if len(form) > 0 {
				ref[name][t] = append(ref[name][t], form)
			}
		}
		slices.SortFunc(ref[name][t], func(a, b rrset) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
}

// addresses are those of all ready endpoints in use; with names of clusters, of these clusters.
func (s *referenceService) addresses(clusters ...string) (addrs []netip.Addr) {
	for _, sl := range s.used {
		if len(clusters) > 0 && !slices.Contains(clusters, sl.cluster) {
			continue
		}
		addrs = append(addrs, s.ready(sl)...)
	}
	return addrs
}

// records are the A or AAAA records of addrs.
func records(addrs []netip.Addr, qtype uint16) rrset {
	set := rrset{}
	for _, addr := range addrs {
		if addr.Is4() == (qtype == dns.TypeA) {
			set[dns.TypeToString[qtype]+" "+addr.String()] = true
		}
	}
	return set
}

// clusters are those with ready addresses, including the one without an id.
func (s *referenceService) clusters() (ids []string) {
	for _, sl := range s.used {
		if len(s.addresses(sl.cluster)) > 0 && !slices.Contains(ids, sl.cluster) {
			ids = append(ids, sl.cluster)
		}
	}
	return ids
}

// able are the clusters that can answer, by the selection and the policy (docs/spec/dns.md 3).
func (s *referenceService) able() []string {
	ids := slices.DeleteFunc(s.clusters(), func(id string) bool { return slices.Contains(s.left, id) })
	local := s.objs.serve.LocalCluster
	if s.objs.serve.Policy == resolver.NoCluster {
		return nil
	}
	if s.objs.serve.Policy == resolver.LocalFirst && local != "" && slices.Contains(ids, local) {
		return []string{local}
	}
	return ids
}

// answering are the clusters that can answer for a type.
func (s *referenceService) answering(qtype uint16) (ids []string) {
	for _, id := range s.able() {
		if len(records(s.addresses(id), qtype)) > 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

func (s *referenceService) byVIP() bool {
	return s.typ == index.ClusterSetIP && (s.vip || len(s.ips) > 0)
}

// ownService adds the RRsets of the service name and of the port names below it.
func (s *referenceService) ownService(ref reference) {
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		var forms []rrset
		switch {
		case s.byVIP():
			forms = []rrset{records(s.ips, qtype)}
		case s.typ == index.Headless:
			forms = []rrset{records(s.addresses(), qtype)}
		case s.objs.serve.Policy == resolver.All && len(s.able()) > 0:
			forms = []rrset{records(s.addresses(s.able()...), qtype)}
		default:
			for _, id := range s.answering(qtype) {
				forms = append(forms, records(s.addresses(id), qtype))
			}
		}
		s.own(ref, s.name, map[uint16][]rrset{qtype: forms})
	}
	ports := namedPorts(s.ports)
	if !s.byVIP() {
		ports = append(ports, s.slicePorts()...)
	}
	s.own(ref, s.name, map[uint16][]rrset{dns.TypeSRV: s.serviceSRV(ports)})
	for _, p := range ports {
		name := portName(p) + "." + s.name
		if _, done := ref[name]; !done {
			same := slices.DeleteFunc(slices.Clone(ports), func(q index.Port) bool { return portName(q) != portName(p) })
			s.own(ref, name, map[uint16][]rrset{dns.TypeSRV: s.serviceSRV(same)})
		}
	}
}

func namedPorts(ports []index.Port) (named []index.Port) {
	for _, p := range ports {
		if p.Name != "" {
			named = append(named, p)
		}
	}
	return named
}

func portName(p index.Port) string {
	return "_" + p.Name + "._" + map[index.Proto]string{index.TCP: "tcp", index.UDP: "udp", index.SCTP: "sctp"}[p.Proto]
}

// slicePorts are the named ports of slices with a ready endpoint; with names of clusters, of these clusters.
func (s *referenceService) slicePorts(clusters ...string) (ports []index.Port) {
	for _, sl := range s.used {
		if len(clusters) > 0 && !slices.Contains(clusters, sl.cluster) {
			continue
		}
		for _, ep := range sl.endpoints {
			if len(ep.Addrs) > 0 {
				ports = append(ports, namedPorts(sl.ports)...)
				break
			}
		}
	}
	return ports
}

// A target is the port number and the target of an SRV record.
type target struct {
	number uint16
	name   string
}

// srv renders SRV RRsets: forms are the permitted answers, which share the weight of all of them together
// (docs/spec/dns.md 4).
func srv(forms ...map[target]bool) (sets []rrset) {
	whole := map[target]bool{}
	for _, form := range forms {
		for t := range form {
			whole[t] = true
		}
	}
	for _, form := range forms {
		set := rrset{}
		for t := range form {
			set[fmt.Sprintf("SRV 0 %d %d %s", max(1, 100/len(whole)), t.number, t.name)] = true
		}
		sets = append(sets, set)
	}
	return sets
}

// serviceSRV is the SRV RRset of the service name for some of its ports (docs/spec/dns.md 4).
func (s *referenceService) serviceSRV(ports []index.Port) []rrset {
	switch {
	case s.typ == index.Headless:
		return srv(s.hostTargets(ports, s.clusters()...))
	case s.byVIP() && len(s.ips) == 0:
		return nil // without an address: NODATA
	case s.byVIP():
		form := map[target]bool{}
		for _, p := range ports {
			form[target{p.Number, s.name}] = true
		}
		return srv(form)
	}
	return srv(s.sliceTargets(ports)...)
}

// sliceTargets are the permitted SRV answers of a ClusterSetIP service without spec.ips.
func (s *referenceService) sliceTargets(ports []index.Port) (forms []map[target]bool) {
	able := s.able()
	common, own := map[target]bool{}, map[string]map[target]bool{}
	for _, p := range ports {
		numbers := map[string]bool{} // the numberings that clusters have for this port, in text
		for _, id := range able {
			numbers[fmt.Sprint(s.numbers(id, p))] = true
		}
		for _, id := range able {
			for _, number := range s.numbers(id, p) {
				name := id + "." + s.name
				switch limit := s.objs.serve.MaxName; {
				case len(numbers) == 1:
					common[target{number, s.name}] = true
				case id == "" || !s.objs.serve.ClusterNames || limit > 0 && len(name) > limit:
				case own[id] == nil:
					own[id] = map[target]bool{{number, name}: true}
				default:
					own[id][target{number, name}] = true
				}
			}
		}
	}
	if len(own) == 0 {
		return []map[target]bool{common}
	}
	for _, form := range own {
		for t := range common {
			form[t] = true
		}
		forms = append(forms, form)
	}
	return forms
}

// numbers are the port numbers that a cluster has for a port, in order.
func (s *referenceService) numbers(cluster string, p index.Port) (numbers []uint16) {
	for _, q := range s.slicePorts(cluster) {
		if portName(q) == portName(p) {
			numbers = append(numbers, q.Number)
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// ownClusters adds the RRsets of the cluster ids and of the port names below them (docs/spec/dns.md 2, cluster_names).
func (s *referenceService) ownClusters(ref reference) {
	for _, id := range s.clusters() {
		if id == "" || !s.objs.serve.ClusterNames {
			continue
		}
		name := id + "." + s.name
		addrs := s.addresses(id)
		s.own(ref, name, map[uint16][]rrset{
			dns.TypeA: {records(addrs, dns.TypeA)}, dns.TypeAAAA: {records(addrs, dns.TypeAAAA)},
		})
		ports := s.slicePorts(id)
		for _, p := range ports {
			same := slices.DeleteFunc(slices.Clone(ports), func(q index.Port) bool { return portName(q) != portName(p) })
			form := map[target]bool{}
			for _, number := range s.numbers(id, p) {
				form[target{number, name}] = true
			}
			if s.typ == index.Headless {
				form = s.hostTargets(same, id)
			}
			if len(form) == 0 || ref[portName(p)+"."+name] != nil {
				continue
			}
			s.own(ref, portName(p)+"."+name, map[uint16][]rrset{dns.TypeSRV: srv(form)})
		}
	}
}

// hosts are the addresses of each host name of a Headless service (docs/spec/dns.md 1.5, docs/spec/dns.md 2.2).
func (s *referenceService) hosts() map[string][]netip.Addr {
	hosts := map[string][]netip.Addr{}
	if s.typ != index.Headless {
		return hosts
	}
	for _, sl := range s.used {
		for _, ep := range sl.endpoints {
			for _, addr := range ep.Addrs {
				if name := s.hostName(sl, ep, addr); name != "" {
					hosts[name] = append(hosts[name], addr)
				}
			}
		}
	}
	return hosts
}

// hostName is the name of the host of an endpoint, or "" without one.
func (s *referenceService) hostName(sl sliceObject, ep index.Endpoint, addr netip.Addr) string {
	label := ep.Host
	if label == "" {
		label = strings.NewReplacer(".", "-", ":", "-").Replace(addr.String())
		if strings.HasPrefix(label, "-") {
			label = "0" + label
		}
		if strings.HasSuffix(label, "-") {
			label += "0"
		}
	}
	name := label + "." + sl.cluster + "." + s.name
	if limit := s.objs.serve.MaxName; sl.cluster == "" || limit > 0 && len(name) > limit {
		return ""
	}
	return name
}

// hostTargets are the hosts of some clusters that have one of some ports.
func (s *referenceService) hostTargets(ports []index.Port, clusters ...string) map[target]bool {
	form := map[target]bool{}
	for _, sl := range s.used {
		for _, ep := range sl.endpoints {
			for _, addr := range ep.Addrs {
				name := s.hostName(sl, ep, addr)
				if name == "" || !slices.Contains(clusters, sl.cluster) {
					continue
				}
				for _, p := range namedPorts(sl.ports) {
					if slices.ContainsFunc(ports, func(q index.Port) bool { return portName(q) == portName(p) }) {
						form[target{p.Number, name}] = true
					}
				}
			}
		}
	}
	return form
}

// ownHosts adds the addresses of the host names. A host wins over a cluster id of the same name.
func (s *referenceService) ownHosts(ref reference) {
	for name, addrs := range s.hosts() {
		delete(ref, name)
		s.own(ref, name, map[uint16][]rrset{
			dns.TypeA: {records(addrs, dns.TypeA)}, dns.TypeAAAA: {records(addrs, dns.TypeAAAA)},
		})
	}
}
