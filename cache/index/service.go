package index

import (
	"cmp"
	"iter"
	"slices"
	"sort"
	"strings"
)

// A Service is one import with its endpoints in use, in the form that lookups need. It never changes. It owns at least
// one name: an import without a name is not in the index.
//
// Where zones of different lengths are served, a name may be too long for some of them, and a host without a name is
// not a target either. Such a service has one value for each length; all others have one value.
type Service struct {
	*Import
	eps      *endpoints  // nil if no ready endpoint is in use
	narrower *[]*Service // in zones with the second and further of Options.MaxNames; nil if it is the same in all
}

// In returns the service as it is in zones with a limit of [Options].MaxNames, by its position there; nil if its name
// is too long for them.
func (s *Service) In(limit int) *Service {
	if s == nil || s.narrower == nil || limit == 0 {
		return s
	}
	return (*s.narrower)[min(limit, len(*s.narrower))-1] // a reload may serve for a moment what was built for fewer zones
}

// endpoints is everything below a service, in one order of hosts: by cluster (the one without an id last), then by
// ports, then by label. So the hosts, addresses and SRV records of one cluster are contiguous, and each is found by its
// position. Clusters that do not answer for the service come after those that do, in the same order.
//
//	hosts       0     1     2     3     4       positions only
//	clusters    ├── east ─────────┤├─ west ┤    spans of hosts and of groups
//	groups      ├── g0 ───┤├─ g1 ─┤├── g2 ─┤    hosts with the same ports
//	labels      db-0  db-1  db-2  db-0  db-1    end of each in labelEnd
//	packed v4   a     b c   d     e     f       end of each host in hostEnd
//	port "pg"   ├── run ──┤        ├─ run ─┤    g0 and g2 have the port: one record for each host
type endpoints struct {
	clusters []cluster
	groups   []group
	labels   string   // the labels of all hosts; Headless only
	labelEnd []uint32 // where the label of each host ends
	family   [2]family
	ports    []portRecords // the bare service name first (name ""; with a VIP it has none), then by name and transport
	hosts    uint32        // the number of hosts, including those without a name
	dual     bool          // a host has addresses of both families
	// answering is the number of clusters that answer for the service, the first ones; the others have only names of their
	// own.
	answering uint32
	// a label is missing here: of a Headless host without a name, or of a ClusterSetIP host with a hostname
	unlabeled bool
	from      *origin // nil unless there are many hosts
}

// An origin is what endpoints are built from, beside the import.
type origin struct {
	list    []*Slice        // in use
	rest    map[string]bool // the clusters that do not answer for the service
	options Options
	maxName int // the most octets of a name, 0 for no limit
}

// byCluster orders clusters: those that are left out come last.
func (in *origin) byCluster(a, b string) int {
	if last := in.rest[a]; last != in.rest[b] {
		return falseFirst(last)
	}
	return byCluster(a, b)
}

// falseFirst compares two booleans that differ; x is the first.
func falseFirst(x bool) int {
	if x {
		return 1
	}
	return -1
}

type cluster struct {
	id        string // "" for the slices without a source cluster
	hosts     span
	groups    span
	named     bool    // a host of it owns a name, if the import is Headless
	weight    uint16  // at least 1
	addresses [2]pick // distinct ones of this cluster
}

// A group is the hosts of one cluster with the same ports.
type group struct {
	hosts   span
	ports   Ports
	unnamed bool // the hosts own no name
}

// portRecords are the SRV records of one port name and transport, or of the bare service name.
type portRecords struct {
	name  string
	proto Proto
	alike bool // all clusters that answer have the same numbers; ClusterSetIP without a VIP only
	runs  []run
}

// differing stands for a transport, beside an empty name: the records of the ports that are not alike.
const differingPorts = SCTP + 1

// A run is one record for every host of a group, with one port number. If the service is not Headless it is one record,
// and the group is the first of its cluster.
type run struct {
	group  uint32
	number uint16
	end    uint32 // records up to and with this run
}

// HasVIP reports whether the addresses of the service are those of spec.ips, or will be.
func (s *Service) HasVIP() bool { return s.vip }

// Clusters is the number of clusters with ready endpoints in use. The first ones answer for the service.
func (s *Service) Clusters() int {
	if s.eps == nil {
		return 0
	}
	return len(s.eps.clusters)
}

// Answering is the number of clusters that answer for the service, because they are selected.
func (s *Service) Answering() int {
	if s.eps == nil {
		return 0
	}
	return int(s.eps.answering)
}

// ClusterID is the id of cluster c, or "" for the slices without a source cluster.
func (s *Service) ClusterID(c int) string { return s.eps.clusters[c].id }

// Cluster finds a cluster by its id in lower case.
func (s *Service) Cluster(id string) (c int, ok bool) {
	if s.eps == nil || id == "" {
		return 0, false
	}
	return s.eps.cluster(id)
}

func (e *endpoints) cluster(id string) (c int, ok bool) {
	if c, ok = findCluster(e.clusters[:e.answering], id); ok {
		return c, true
	}
	c, ok = findCluster(e.clusters[e.answering:], id)
	return int(e.answering) + c, ok
}

func findCluster(clusters []cluster, id string) (int, bool) {
	return slices.BinarySearchFunc(clusters, id, func(c cluster, id string) int { return byCluster(c.id, id) })
}

// byCluster orders cluster ids, the empty one last.
func byCluster(a, b string) int {
	if (a == "") != (b == "") {
		return strings.Compare(b, a)
	}
	return strings.Compare(a, b)
}

// Weight is the share of cluster c in the answers, at least 1.
func (s *Service) Weight(c int) int { return int(s.eps.clusters[c].weight) }

// HasNames reports whether a host of cluster c owns a name.
func (s *Service) HasNames(c int) bool { return s.typ == Headless && s.eps.clusters[c].named }

// Host finds a host of cluster c by its label in lower case.
func (s *Service) Host(c int, label string) (host int, ok bool) {
	e := s.eps
	if e.labelEnd == nil {
		return 0, false
	}
	groups := e.clusters[c].groups
	for _, g := range e.groups[groups.from:groups.to] {
		if g.unnamed {
			break
		}
		i := sort.Search(g.hosts.len(), func(i int) bool {
			return e.label(g.hosts.from+uint32(i)) >= label
		})
		if i < g.hosts.len() && e.label(g.hosts.from+uint32(i)) == label {
			return int(g.hosts.from) + i, true
		}
	}
	return 0, false
}

func (e *endpoints) label(host uint32) string { return e.labels[e.labelStart(host):e.labelEnd[host]] }

func (e *endpoints) labelStart(host uint32) uint32 {
	if host == 0 {
		return 0
	}
	return e.labelEnd[host-1]
}

// Hosts yields the hosts of cluster c that own a name.
func (s *Service) Hosts(c int) iter.Seq[int] {
	return func(yield func(int) bool) {
		groups := s.eps.clusters[c].groups
		for _, g := range s.eps.groups[groups.from:groups.to] {
			for h := g.hosts.from; h < g.hosts.to && !g.unnamed && s.typ == Headless; h++ {
				if !yield(int(h)) {
					return
				}
			}
		}
	}
}

// HostLabel is the label of a host.
func (s *Service) HostLabel(host int) string { return s.eps.label(uint32(host)) }

// ClusterOf is the cluster of a host.
func (s *Service) ClusterOf(host int) int {
	clusters := s.eps.clusters
	return sort.Search(len(clusters), func(c int) bool { return uint32(host) < clusters[c].hosts.to })
}

// ClusterHas reports whether cluster c has an address of a family.
func (s *Service) ClusterHas(c int, f Family) bool { return s.eps.clusters[c].addresses[f].len() > 0 }

// VIPs are the addresses of spec.ips.
func (s *Service) VIPs(f Family) List { return s.list(f) }

// Addresses are the distinct addresses of all clusters that answer for the service.
func (s *Service) Addresses(f Family) List {
	if s.eps == nil {
		return List{}
	}
	return s.eps.addresses(f, s.eps.family[f].distinct, s.eps.answeringHosts())
}

// isDual reports whether a host has addresses of both families.
func (e *endpoints) isDual() bool {
	v4, v6 := &e.family[V4], &e.family[V6]
	if v4.packed == "" || v6.packed == "" {
		return false
	}
	for h := range e.hosts {
		if hosts := (span{h, h + 1}); v4.positions(hosts).len() > 0 && v6.positions(hosts).len() > 0 {
			return true
		}
	}
	return false
}

// answeringHosts are the hosts of the clusters that answer for the service.
func (e *endpoints) answeringHosts() span { return span{0, e.clusters[e.answering-1].hosts.to} }

// ClusterAddresses are the distinct addresses of cluster c.
func (s *Service) ClusterAddresses(c int, f Family) List {
	cl := &s.eps.clusters[c]
	return s.eps.addresses(f, cl.addresses[f], cl.hosts)
}

// HostAddresses are the addresses of one host.
func (s *Service) HostAddresses(host int, f Family) List {
	h := uint32(host)
	return s.eps.addresses(f, pick{span: s.eps.family[f].positions(span{h, h + 1})}, span{h, h + 1})
}

func (e *endpoints) addresses(f Family, p pick, hosts span) List {
	return List{
		packed: e.family[f].packed, width: uint8(f.width()), from: p.from, end: p.to, at: p.at,
		family: &e.family[f], hosts: hosts, dual: e.dual,
	}
}

// A PortSet is the SRV records of one port name and transport, or of the bare service name, within all clusters or one.
type PortSet struct {
	eps   *endpoints
	runs  []run
	first uint32 // records before the first run
	alike bool   // as in portRecords
}

// Port finds the records of a port by its name and transport, in lower case. The empty name is the union of all named
// ports, each target and port number once. ok is false if no slice in use has the port; a port that is found may have
// no record.
func (s *Service) Port(name string, proto Proto) (set PortSet, ok bool) {
	if s.eps == nil {
		return PortSet{}, false
	}
	i, ok := slices.BinarySearchFunc(s.eps.ports, Port{Name: name, Proto: proto}, func(p portRecords, want Port) int {
		return comparePorts(Port{Name: p.name, Proto: p.proto}, want)
	})
	if !ok {
		return PortSet{}, false
	}
	return PortSet{eps: s.eps, runs: s.eps.ports[i].runs, alike: s.eps.ports[i].alike}, true
}

// Targets returns the records of a port of a ClusterSetIP service without a VIP, or of all ports if name is empty: one
// for each cluster and number. common has the ports with equal numbers in all clusters that answer, from the first
// cluster alone; own has the others.
func (s *Service) Targets(name string, proto Proto) (common, own PortSet) {
	set, _ := s.Port(name, proto)
	switch {
	case name == "":
		own, _ = s.Port("", differingPorts)
		return set, own
	case set.alike:
		return set.InCluster(0), own
	}
	return common, set
}

// InCluster narrows the set to cluster c; it is empty if the cluster does not serve the port.
func (set PortSet) InCluster(c int) PortSet {
	if len(set.runs) == 0 {
		return set
	}
	groups := set.eps.clusters[c].groups
	byGroup := func(r run, g uint32) int { return cmp.Compare(r.group, g) }
	from, _ := slices.BinarySearchFunc(set.runs, groups.from, byGroup)
	to, _ := slices.BinarySearchFunc(set.runs, groups.to, byGroup)
	if from > 0 {
		set.first = set.runs[from-1].end
	}
	set.runs = set.runs[from:to]
	return set
}

// Distinct reports whether each host is the target of at most one record.
func (set PortSet) Distinct() bool {
	for i := 1; i < len(set.runs); i++ {
		if set.runs[i].group == set.runs[i-1].group {
			return false
		}
	}
	return true
}

// Numbers adds the port numbers of the set to those in buf: each once, in ascending order.
func (set PortSet) Numbers(buf []uint16) []uint16 {
	buf = slices.Grow(buf, len(set.runs))
	for _, r := range set.runs {
		buf = append(buf, r.number)
	}
	slices.Sort(buf)
	return slices.Compact(buf)
}

// Len is the number of records: one for each host and port number, or each cluster and port number.
func (set PortSet) Len() int {
	if len(set.runs) == 0 {
		return 0
	}
	return int(set.runs[len(set.runs)-1].end - set.first)
}

// At is the host that record i of a Headless service has as its target, and its port number.
func (set PortSet) At(i int) (host int, number uint16) {
	pos := set.first + uint32(i)
	r, _ := slices.BinarySearchFunc(set.runs, pos, func(r run, pos uint32) int {
		if r.end <= pos {
			return -1
		}
		return 1
	})
	hosts := set.eps.groups[set.runs[r].group].hosts
	return int(hosts.to - (set.runs[r].end - pos)), set.runs[r].number
}

// PortNames yields the named ports of the slices in use, in the order of name and transport.
func (s *Service) PortNames(yield func(name string, proto Proto) bool) {
	if s.eps == nil {
		return
	}
	for _, p := range s.eps.ports {
		if p.name != "" && !yield(p.name, p.proto) {
			return
		}
	}
}
