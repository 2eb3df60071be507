package index

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// Options are the settings that a service is built with.
type Options struct {
	ClusterNames bool   // keep the endpoints of services with spec.ips, for the names <cluster id>.<service>
	Zone, Region string // where this server runs (KEP-2030), "" if unknown
	// MaxNames has, for each zone, the most octets of "<host>.<cluster id>.<name>.<namespace>" with which the owner name has
	// at most 253 octets there: each number once, the largest first. A host with a longer name owns no name in the zone, but
	// its addresses count. Empty means no limit.
	MaxNames []int
}

// Equal reports whether services that are built with either are the same.
func (o *Options) Equal(other *Options) bool {
	return o.ClusterNames == other.ClusterNames && o.Zone == other.Zone && o.Region == other.Region && slices.Equal(o.MaxNames, other.MaxNames)
}

// Build makes the service of imp from its slices, whose order does not matter. It returns nil if the service owns no
// name: a Headless import without a ready endpoint (multicluster DNS specification 2.4.1), or a name that is too long for
// every zone.
func Build(imp *Import, list []*Slice, o Options) *Service {
	if len(o.MaxNames) == 0 {
		s, _ := build(imp, list, &o, 0)
		return s
	}
	s, longest := build(imp, list, &o, o.MaxNames[0])
	if s == nil || longest <= o.MaxNames[len(o.MaxNames)-1] {
		return s // the same in all zones, as nearly every service is
	}
	narrower := make([]*Service, len(o.MaxNames)-1)
	for i, limit := range o.MaxNames[1:] {
		narrower[i] = s
		if longest > limit {
			narrower[i], _ = build(imp, list, &o, limit)
		}
	}
	s.narrower = &narrower
	return s
}

// build makes a service for zones in which names have at most maxName octets, 0 for any number. longest is the length of its
// longest name.
func build(imp *Import, list []*Slice, o *Options, maxName int) (s *Service, longest int) {
	if maxName > 0 && len(imp.key) > maxName {
		return nil, 0
	}
	s, longest = &Service{Import: imp}, len(imp.key)
	if !imp.vip || o.ClusterNames {
		left := leftOut(imp, list)
		var labels int
		if s.eps, labels = newEndpoints(imp, inUse(list, left, o), left, maxName); labels > 0 {
			longest += labels + 2
		}
	}
	if imp.typ == Headless && s.eps == nil {
		return nil, 0
	}
	return s, longest
}

// leftOut returns the clusters that do not answer for the service: those of which each slice with a ready endpoint is hidden, unless that are all
// clusters (docs/spec/dns.md 3.2). nil stands for none.
func leftOut(imp *Import, list []*Slice) map[string]bool {
	if imp.typ == Headless || !slices.ContainsFunc(list, func(s *Slice) bool { return s.hidden }) {
		return nil
	}
	left, shown := map[string]bool{}, map[string]bool{}
	for _, s := range list {
		switch id := s.Cluster(); {
		case s.count == 0:
		case s.hidden && !shown[id]:
			left[id] = true
		case !s.hidden:
			shown[id] = true
			delete(left, id)
		}
	}
	if len(shown) == 0 {
		return nil
	}
	return left
}

// inUse returns the slices to use here, of the clusters that answer and of those that are left out, each by themselves.
func inUse(list []*Slice, left map[string]bool, o *Options) []*Slice {
	if len(left) == 0 || o.Zone == "" && o.Region == "" {
		return near(list, o)
	}
	var answering, others []*Slice
	for _, s := range list {
		if left[s.Cluster()] {
			others = append(others, s)
		} else {
			answering = append(answering, s)
		}
	}
	return slices.Concat(near(answering, o), near(others, o))
}

// near returns those without a zone and region and those for our zone or region; all slices if these have no ready endpoint (KEP-2030,
// docs/spec/dns.md 3.5).
func near(list []*Slice, o *Options) []*Slice {
	if o.Zone == "" && o.Region == "" {
		return list
	}
	var ours []*Slice
	ready := uint32(0)
	for _, s := range list {
		zone, region := s.zone.String(), s.region.String()
		anywhere := zone == "" && region == ""
		if anywhere || zone != "" && zone == o.Zone || region != "" && region == o.Region {
			ours = append(ours, s)
			ready += s.count
		}
	}
	if ready == 0 {
		return list
	}
	return ours
}

// An address is one address of a ready endpoint, with its label, cluster and ports, while a service is built. It has no
// pointer, since there are many to sort.
type address struct {
	label          span   // in builder.text
	cluster, ports uint32 // positions in builder
	packed         [16]byte
	family         Family
}

// A host is one label of one cluster, with its addresses.
type host struct {
	addrs          span // in builder.addrs
	cluster, ports uint32
	unnamed        bool // owns no name: it has no source cluster, or the name is too long
}

// A builder has the memory that is needed while a service is built, several times that of the result. It is used again, so
// that it is not garbage after each change.
//
//	addAll   slices ─► addrs, sorted by cluster, label, family, address
//	merge    addrs of one cluster and label ─► one host, each address once
//	group    hosts ─► clusters and groups of the same ports
//	fill     addresses of one family, packed; which are distinct
//	         packLabels, indexPorts
type builder struct {
	clusters []string
	portSets []Ports
	portSet  map[Ports]uint32
	addrs    []address
	text     []byte // all labels
	hosts    []host

	// of one family, or of one pick in it
	packed  []byte
	hostEnd []uint32
	seen    map[string]struct{}
	at      []uint32

	// octets of host label and cluster id together: the most that a name has, and the most that it may have, 0 for no limit
	longest, maxLabels int
}

var builders = sync.Pool{New: func() any { return &builder{portSet: map[Ports]uint32{}, seen: map[string]struct{}{}} }}

// Limits of a builder that is used again: its capacity for addresses, and the entries of its maps, since a map that was
// large once stays slow to clear.
const maxKept, maxSeen = 4096, 512

// release clears the builder and lets it be used again.
func (b *builder) release() {
	if cap(b.addrs) > maxKept || len(b.portSets) > maxSeen {
		return
	}
	clear(b.clusters)
	clear(b.portSets)
	clear(b.portSet)
	clear(b.seen)
	b.clusters, b.portSets, b.addrs, b.text, b.hosts = b.clusters[:0], b.portSets[:0], b.addrs[:0], b.text[:0], b.hosts[:0]
	builders.Put(b)
}

// newEndpoints makes the endpoints of a service. longest is the most octets of host label and cluster ID in the name of a host, 0 if no
// host owns a name.
func newEndpoints(imp *Import, list []*Slice, left map[string]bool, maxName int) (e *endpoints, longest int) {
	b := builders.Get().(*builder)
	defer b.release()
	b.longest, b.maxLabels = 0, 0
	if maxName > 0 {
		b.maxLabels = max(1, maxName-len(imp.key)-2)
	}
	b.addAll(list, left)
	if len(b.addrs) == 0 {
		return nil, 0
	}
	b.merge()
	e = &endpoints{hosts: uint32(len(b.hosts))}
	b.group(e)
	e.answering = uint32(len(e.clusters))
	for e.answering > 0 && left[e.clusters[e.answering-1].id] {
		e.answering--
	}
	e.weigh(imp)
	for _, f := range []Family{V4, V6} {
		b.fill(e, f)
	}
	if imp.typ == Headless {
		b.packLabels(e)
		longest = b.longest
	}
	e.indexPorts(imp)
	return e, longest
}

func (b *builder) intern(ps Ports) uint32 {
	i, ok := b.portSet[ps]
	if !ok {
		i = uint32(len(b.portSets))
		b.portSets = append(b.portSets, ps)
		b.portSet[ps] = i
	}
	return i
}

// addAll collects the addresses of all slices, by cluster, host label, family and value. The clusters that are left out come last.
func (b *builder) addAll(list []*Slice, left map[string]bool) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(x, y *Slice) int {
		if last := left[x.Cluster()]; last != left[y.Cluster()] {
			return falseFirst(last)
		}
		return byCluster(x.Cluster(), y.Cluster())
	})
	count := 0
	for _, s := range list {
		count += int(s.count)
	}
	b.addrs, b.text = slices.Grow(b.addrs, count), slices.Grow(b.text, 16*count)
	for _, s := range list {
		b.add(s)
	}
	slices.SortFunc(b.addrs, func(x, y address) int {
		if x.cluster != y.cluster {
			return cmp.Compare(x.cluster, y.cluster)
		}
		if c := bytes.Compare(b.label(x), b.label(y)); c != 0 {
			return c
		}
		if x.family != y.family {
			return cmp.Compare(x.family, y.family)
		}
		return bytes.Compare(x.packed[:], y.packed[:])
	})
}

func (b *builder) add(s *Slice) {
	if s.count == 0 {
		return
	}
	if last := len(b.clusters) - 1; last < 0 || b.clusters[last] != s.Cluster() {
		b.clusters = append(b.clusters, s.Cluster())
	}
	a := address{cluster: uint32(len(b.clusters) - 1), ports: b.intern(s.ports), family: s.family}
	for hostname, addrs := range s.all() {
		for width := s.family.width(); addrs != ""; addrs = addrs[width:] {
			copy(a.packed[:], addrs[:width])
			a.label.from = uint32(len(b.text))
			if hostname == "" {
				b.text = appendAddressLabel(b.text, addrs[:width])
			} else {
				b.text = append(b.text, hostname...)
			}
			a.label.to = uint32(len(b.text))
			b.addrs = append(b.addrs, a)
		}
	}
}

func (b *builder) label(a address) []byte { return b.text[a.label.from:a.label.to] }

// AddressLabel is the label of an endpoint without a hostname: its address in canonical text, with "-" for "." and ":",
// and with a "0" before a leading and after a trailing "-", since a label must not begin or end with a hyphen
// (docs/spec/dns.md 1.5).
func AddressLabel(packed string) string { return string(appendAddressLabel(nil, packed)) }

func appendAddressLabel(b []byte, packed string) []byte {
	addr, _ := netip.AddrFromSlice([]byte(packed))
	var buf [48]byte
	text := addr.AppendTo(buf[:0])
	if text[0] == ':' {
		b = append(b, '0')
	}
	for _, c := range text {
		if c == '.' || c == ':' {
			c = '-'
		}
		b = append(b, c)
	}
	if b[len(b)-1] == '-' {
		b = append(b, '0')
	}
	return b
}

// merge makes one host of all addresses with the same cluster and label. The host has the ports of all and each address
// once.
func (b *builder) merge() {
	b.hosts = slices.Grow(b.hosts, len(b.addrs))
	kept := b.addrs[:0]
	for _, a := range b.addrs {
		n := uint32(len(kept))
		if n == 0 || kept[n-1].cluster != a.cluster || !bytes.Equal(b.label(kept[n-1]), b.label(a)) {
			id := b.clusters[a.cluster]
			octets := a.label.len() + len(id)
			unnamed := id == "" || b.maxLabels != 0 && octets > b.maxLabels
			if !unnamed {
				b.longest = max(b.longest, octets)
			}
			b.hosts = append(b.hosts, host{addrs: span{n, n + 1}, cluster: a.cluster, ports: a.ports, unnamed: unnamed})
			kept = append(kept, a)
			continue
		}
		h := &b.hosts[len(b.hosts)-1]
		if h.ports != a.ports {
			h.ports = b.unite(h.ports, a.ports)
		}
		if kept[n-1].family != a.family || kept[n-1].packed != a.packed {
			kept = append(kept, a)
			h.addrs.to++
		}
	}
	b.addrs = kept
}

func (b *builder) unite(x, y uint32) uint32 {
	return b.intern(NewPorts(slices.AppendSeq(slices.Collect(b.portSets[x].All()), b.portSets[y].All())))
}

// group sorts the hosts of each cluster by their ports, those without a name last, and sets where clusters and groups
// begin and end. Hosts of one group stay in the order of their labels.
func (b *builder) group(e *endpoints) {
	slices.SortStableFunc(b.hosts, func(x, y host) int {
		switch {
		case x.cluster != y.cluster:
			return cmp.Compare(x.cluster, y.cluster)
		case x.unnamed != y.unnamed:
			return falseFirst(x.unnamed)
		case x.ports != y.ports:
			return strings.Compare(b.portSets[x.ports].packed(), b.portSets[y.ports].packed())
		}
		return 0
	})
	for i, h := range b.hosts {
		pos := uint32(i)
		newCluster := i == 0 || h.cluster != b.hosts[i-1].cluster
		if newCluster || h.ports != b.hosts[i-1].ports || h.unnamed != b.hosts[i-1].unnamed {
			e.groups = append(e.groups, group{hosts: span{pos, pos}, ports: b.portSets[h.ports], unnamed: h.unnamed})
		}
		n := uint32(len(e.groups))
		if newCluster {
			e.clusters = append(e.clusters, cluster{id: b.clusters[h.cluster], hosts: span{pos, pos}, groups: span{n - 1, n}})
		}
		c := &e.clusters[len(e.clusters)-1]
		c.hosts.to, c.groups.to, e.groups[n-1].hosts.to = pos+1, n, pos+1
		c.named = c.named || !h.unnamed
		e.dual = e.dual || b.addrs[h.addrs.from].family != b.addrs[h.addrs.to-1].family
	}
	e.groups, e.clusters = slices.Clip(e.groups), slices.Clip(e.clusters)
}

// weigh sets the weights of the clusters.
func (e *endpoints) weigh(imp *Import) {
	for i := range e.clusters {
		e.clusters[i].weight = 1
	}
	for w := range imp.weights {
		if c, ok := e.cluster(w.Cluster); ok {
			e.clusters[c].weight = max(w.Share, 1)
		}
	}
}

// falseFirst compares two booleans that differ; x is the first.
func falseFirst(x bool) int {
	if x {
		return 1
	}
	return -1
}

// fill packs the addresses of one family.
func (b *builder) fill(e *endpoints, f Family) {
	packed := slices.Grow(b.packed[:0], len(b.addrs)*f.width())
	hostEnd, single := slices.Grow(b.hostEnd[:0], len(b.hosts)), true
	for i, h := range b.hosts {
		for _, a := range b.addrs[h.addrs.from:h.addrs.to] {
			if a.family == f {
				packed = append(packed, a.packed[:f.width()]...)
			}
		}
		end := uint32(len(packed) / f.width())
		single = single && end == uint32(i+1)
		hostEnd = append(hostEnd, end)
	}
	b.packed, b.hostEnd = packed, hostEnd
	total := len(packed) / f.width()
	if total == 0 {
		return
	}
	fam := &e.family[f]
	if !single {
		fam.hostEnd = slices.Clone(hostEnd)
	}
	fam.packed = string(packed)
	fam.distinct = b.distinct(fam.packed, f.width(), span{0, fam.start(e.answeringHosts().to)})
	for i := range e.clusters {
		c := &e.clusters[i]
		c.addresses[f].span = span{fam.start(c.hosts.from), fam.start(c.hosts.to)}
		if fam.distinct.at != nil || i >= int(e.answering) {
			c.addresses[f] = b.distinct(fam.packed, f.width(), c.addresses[f].span)
		}
	}
}

// distinct picks the first of equal addresses in a span.
func (b *builder) distinct(packed string, width int, s span) pick {
	seen, at := b.seen, slices.Grow(b.at[:0], s.len())
	clear(seen)
	if s.len() > maxSeen {
		seen = make(map[string]struct{}, s.len())
	}
	for i := s.from; i < s.to; i++ {
		addr := packed[int(i)*width : int(i+1)*width]
		if _, ok := seen[addr]; !ok {
			seen[addr] = struct{}{}
			at = append(at, i)
		}
	}
	b.at = at
	if len(at) == s.len() {
		return pick{span: s}
	}
	return pick{span: s, at: slices.Clone(at)}
}

// packLabels stores the labels of the hosts; the label of a host without a name is empty.
func (b *builder) packLabels(e *endpoints) {
	size := 0
	for _, h := range b.hosts {
		size += b.addrs[h.addrs.from].label.len()
	}
	e.labels = make([]byte, 0, size)
	e.labelEnd = make([]uint32, 0, len(b.hosts))
	for _, h := range b.hosts {
		if !h.unnamed {
			e.labels = append(e.labels, b.label(b.addrs[h.addrs.from])...)
		}
		e.labelEnd = append(e.labelEnd, uint32(len(e.labels)))
	}
}

// indexPorts lists, for each named port and for the bare service name, the runs of records in the order of the groups. A Headless host
// without a name is not a target. A ClusterSetIP service has clusters as targets: one record for each cluster and port number.
func (e *endpoints) indexPorts(imp *Import) {
	type entry struct {
		Port
		group, targets uint32
	}
	var all []entry
	for _, c := range e.clusters {
		for g := c.groups.from; g < c.groups.to; g++ {
			group, targets := g, uint32(e.groups[g].hosts.len())
			switch {
			case imp.typ == ClusterSetIP:
				group, targets = c.groups.from, 1
			case e.groups[g].unnamed:
				targets = 0
			}
			for p := range e.groups[g].ports.All() {
				all = append(all, entry{p, group, targets})
				if imp.typ == Headless {
					all = append(all, entry{Port{Number: p.Number}, group, targets})
				}
			}
		}
	}
	slices.SortFunc(all, func(x, y entry) int {
		byName := comparePorts(Port{Name: x.Name, Proto: x.Proto}, Port{Name: y.Name, Proto: y.Proto})
		return cmp.Or(byName, cmp.Compare(x.group, y.group), cmp.Compare(x.Number, y.Number))
	})
	for _, r := range slices.Compact(all) { // the same target and number is one record
		n := len(e.ports)
		if n == 0 || e.ports[n-1].name != r.Name || e.ports[n-1].proto != r.Proto {
			e.ports = append(e.ports, portRecords{name: r.Name, proto: r.Proto})
			n++
		}
		if r.targets > 0 {
			e.ports[n-1].add(run{group: r.group, number: r.Number, end: r.targets})
		}
	}
	if imp.typ == ClusterSetIP && !imp.vip {
		e.indexBare()
	}
}

// indexBare lists the records of the bare service name, for a ClusterSetIP service. It marks the ports that are alike in all clusters that answer.
func (e *endpoints) indexBare() {
	var common, own []run
	var first, other []uint16
	for i := range e.ports {
		p := &e.ports[i]
		set := PortSet{eps: e, runs: p.runs}
		first, p.alike = set.InCluster(0).Numbers(first[:0]), true
		for c := 1; c < int(e.answering) && p.alike; c++ {
			other = set.InCluster(c).Numbers(other[:0])
			p.alike = slices.Equal(first, other)
		}
		if p.alike {
			common = append(common, set.InCluster(0).runs...)
		} else {
			own = append(own, p.runs...)
		}
	}
	bare := []portRecords{{}, {proto: differing}}
	for i, runs := range [][]run{common, own} {
		slices.SortFunc(runs, func(x, y run) int { return cmp.Or(cmp.Compare(x.group, y.group), cmp.Compare(x.number, y.number)) })
		for _, r := range slices.CompactFunc(runs, func(x, y run) bool { return x.group == y.group && x.number == y.number }) {
			bare[i].add(run{group: r.group, number: r.number, end: 1})
		}
	}
	bare = slices.DeleteFunc(bare, func(p portRecords) bool { return p.runs == nil })
	e.ports = append(bare, e.ports...)
}

// add appends a run; its end is the number of its records.
func (p *portRecords) add(r run) {
	if n := len(p.runs); n > 0 {
		r.end += p.runs[n-1].end
	}
	p.runs = append(p.runs, r)
}

// Equal reports whether both have the same records. Either may be nil. It is also false for a few changes that no record
// shows: hostnames where hosts own no name (ClusterSetIP, no source cluster), and a port of the import that its slices
// have too.
func Equal(a, b *Service) bool {
	return equalHere(a, b) && (a == nil || equalNarrower(a.narrower, b.narrower))
}

// equalNarrower compares what is shown in the zones with the second and further of Options.MaxNames.
func equalNarrower(a, b *[]*Service) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(*a, *b, equalHere)
}

// equalHere compares what is shown in the zones with the first of Options.MaxNames.
func equalHere(a, b *Service) bool {
	if a == nil || b == nil || a == b {
		return a == b
	}
	if a.key != b.key || a.typ != b.typ || a.vip != b.vip || a.data != b.data || a.ports != b.ports {
		return false
	}
	if a.eps == nil || b.eps == nil {
		return a.eps == b.eps
	}
	return a.eps.equal(b.eps)
}

func (e *endpoints) equal(o *endpoints) bool {
	return e.hosts == o.hosts && e.answering == o.answering &&
		bytes.Equal(e.labels, o.labels) && slices.Equal(e.labelEnd, o.labelEnd) &&
		slices.Equal(e.groups, o.groups) && slices.EqualFunc(e.clusters, o.clusters, sameCluster) &&
		e.family[V4].equal(&o.family[V4]) && e.family[V6].equal(&o.family[V6])
}

// sameCluster compares what follows neither from the hosts nor from the addresses.
func sameCluster(a, b cluster) bool { return a.id == b.id && a.hosts == b.hosts }

func (f *family) equal(o *family) bool {
	return f.packed == o.packed && slices.Equal(f.hostEnd, o.hostEnd)
}
