package index

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// labels are sets of host labels by cluster.
type labels map[string]map[string]bool

// large is the number of hosts from which on endpoints keep their origin, so that a change of one slice does not build
// all of them anew.
const largeService = 1024

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

// A builder has the memory that is needed while a service is built, several times that of the result. It is used again,
// so that it is not garbage after each change.
//
//	addAll   slices ─► addrs, sorted by cluster, label, family, address
//	merge    addrs of one cluster and label ─► one host, each address once
//	group    hosts ─► clusters and groups of the same ports
//	pack     addresses of one family
//	pick     which of them are distinct
//	         packLabels, indexPorts
type builder struct {
	clusters []string
	portSets []Ports
	portSet  map[Ports]uint32
	addrs    []address
	text     []byte // all labels
	hosts    []host

	only labels // those to build; nil for all

	// of one family, or of one pick in it
	packed  []byte
	hostEnd []uint32
	seen    []uint32
	at      []uint32

	// octets of host label and cluster id together: the most that a name has, and the most that it may have, 0 for no
	// limit
	longest, maxLabels int
	hostnames          bool // an endpoint has one
}

var builders = sync.Pool{New: func() any { return &builder{portSet: map[Ports]uint32{}} }}

// Limits of a builder that is used again: its capacity for addresses, and the entries of its map, since a map that was
// large once stays slow to clear.
const maxKept, maxPortSets = 4096, 512

// release lets the builder be used again.
func (b *builder) release() {
	if cap(b.addrs) > maxKept || len(b.portSets) > maxPortSets {
		return
	}
	b.clear()
	builders.Put(b)
}

func (b *builder) clear() {
	clear(b.clusters)
	clear(b.portSets)
	clear(b.portSet)
	b.only, b.hostnames, b.longest = nil, false, 0
	b.clusters, b.portSets, b.addrs, b.text, b.hosts = b.clusters[:0], b.portSets[:0], b.addrs[:0], b.text[:0], b.hosts[:0]
}

// collect builds the hosts with the labels of b.only, or all if that is nil.
func (b *builder) collect(imp *Import, in *origin) *endpoints {
	b.maxLabels = 0
	if in.maxName > 0 {
		b.maxLabels = max(1, in.maxName-len(imp.key)-2)
	}
	b.addAll(in)
	b.merge()
	e := new(endpoints)
	b.group(e)
	for _, f := range []Family{V4, V6} {
		b.pack(f)
		b.store(e, f)
	}
	if imp.typ == Headless {
		b.packLabels(e)
	} else {
		e.unlabeled = e.unlabeled || b.hostnames
	}
	return e
}

// finish derives clusters, weights, picks and ports from the hosts. differ marks the families without equal addresses,
// if known.
func (b *builder) finish(e *endpoints, imp *Import, in *origin, differ [2]bool) {
	e.answering = uint32(len(e.clusters))
	for e.answering > 0 && in.rest[e.clusters[e.answering-1].id] {
		e.answering--
	}
	e.weigh(imp)
	for _, f := range []Family{V4, V6} {
		b.pick(e, f, differ[f])
	}
	e.dual = e.isDual()
	e.indexPorts(imp)
	if e.hosts >= largeService {
		retained := *in
		retained.list = slices.Clone(in.list) // it is part of a larger one
		e.from = &retained
	}
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

// addAll collects the addresses of all slices, by cluster, host label, family and value. The clusters that are left out
// come last.
func (b *builder) addAll(in *origin) {
	list := slices.Clone(in.list)
	slices.SortFunc(list, func(x, y *Slice) int { return in.byCluster(x.Cluster(), y.Cluster()) })
	if b.only == nil {
		count := 0
		for _, s := range list {
			count += int(s.count)
		}
		b.addrs, b.text = slices.Grow(b.addrs, count), slices.Grow(b.text, 16*count)
	}
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
	only := b.only[s.Cluster()]
	if s.count == 0 || b.only != nil && only == nil {
		return
	}
	if last := len(b.clusters) - 1; last < 0 || b.clusters[last] != s.Cluster() {
		b.clusters = append(b.clusters, s.Cluster())
	}
	a := address{cluster: uint32(len(b.clusters) - 1), ports: b.intern(s.ports), family: s.family}
	for hostname, addrs := range s.all() {
		if only != nil && hostname != "" && !only[hostname] {
			continue
		}
		for width := s.family.width(); addrs != ""; addrs = addrs[width:] {
			start := len(b.text)
			if hostname == "" {
				b.text = appendAddressLabel(b.text, addrs[:width])
			} else {
				b.text = append(b.text, hostname...)
			}
			if only != nil && !only[string(b.text[start:])] {
				b.text = b.text[:start]
				continue
			}
			b.hostnames = b.hostnames || hostname != ""
			copy(a.packed[:], addrs[:width])
			a.label = span{uint32(start), uint32(len(b.text))}
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
	if len(packed) == V4.width() {
		for i := range len(packed) {
			b = append(strconv.AppendUint(b, uint64(packed[i]), 10), '-')
		}
		return b[:len(b)-1]
	}
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
	retained := b.addrs[:0]
	for _, a := range b.addrs {
		n := uint32(len(retained))
		if n == 0 || retained[n-1].cluster != a.cluster || !bytes.Equal(b.label(retained[n-1]), b.label(a)) {
			id := b.clusters[a.cluster]
			octets := a.label.len() + len(id)
			unnamed := id == "" || b.maxLabels != 0 && octets > b.maxLabels
			if !unnamed {
				b.longest = max(b.longest, octets)
			}
			b.hosts = append(b.hosts, host{addrs: span{n, n + 1}, cluster: a.cluster, ports: a.ports, unnamed: unnamed})
			retained = append(retained, a)
			continue
		}
		h := &b.hosts[len(b.hosts)-1]
		if h.ports != a.ports {
			h.ports = b.unite(h.ports, a.ports)
		}
		if retained[n-1].family != a.family || retained[n-1].packed != a.packed {
			retained = append(retained, a)
			h.addrs.to++
		}
	}
	b.addrs = retained
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
	for _, h := range b.hosts {
		e.extend(b.clusters[h.cluster], b.portSets[h.ports], h.unnamed, 1)
	}
	e.groups, e.clusters = slices.Clip(e.groups), slices.Clip(e.clusters)
}

// extend adds n hosts of a cluster with the same ports; those of one cluster, and of one group in it, follow each
// other.
func (e *endpoints) extend(id string, ports Ports, unnamed bool, n uint32) {
	newCluster := len(e.clusters) == 0 || e.clusters[len(e.clusters)-1].id != id
	if g := len(e.groups) - 1; newCluster || e.groups[g].ports != ports || e.groups[g].unnamed != unnamed {
		e.groups = append(e.groups, group{hosts: span{e.hosts, e.hosts}, ports: ports, unnamed: unnamed})
	}
	groups := uint32(len(e.groups))
	if newCluster {
		e.clusters = append(e.clusters, cluster{id: id, hosts: span{e.hosts, e.hosts}, groups: span{groups - 1, groups}})
	}
	e.hosts += n
	c := &e.clusters[len(e.clusters)-1]
	c.hosts.to, c.groups.to, e.groups[groups-1].hosts.to = e.hosts, groups, e.hosts
	c.named, e.unlabeled = c.named || !unnamed, e.unlabeled || unnamed
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

// pack packs the addresses of one family.
func (b *builder) pack(f Family) {
	b.packed, b.hostEnd = slices.Grow(b.packed[:0], len(b.addrs)*f.width()), slices.Grow(b.hostEnd[:0], len(b.hosts))
	for _, h := range b.hosts {
		for _, a := range b.addrs[h.addrs.from:h.addrs.to] {
			if a.family == f {
				b.packed = append(b.packed, a.packed[:f.width()]...)
			}
		}
		b.hostEnd = append(b.hostEnd, uint32(len(b.packed)/f.width()))
	}
}

// store keeps the addresses of one family that are packed.
func (b *builder) store(e *endpoints, f Family) {
	if len(b.packed) == 0 {
		return
	}
	fam := &e.family[f]
	fam.packed = string(b.packed)
	for host, end := range b.hostEnd {
		if end != uint32(host+1) {
			fam.hostEnd = slices.Clone(b.hostEnd)
			return
		}
	}
}

// pick picks the distinct addresses of one family, of the service and of each cluster. With differ it is known that all
// are.
func (b *builder) pick(e *endpoints, f Family, differ bool) {
	fam := &e.family[f]
	if fam.packed == "" {
		return
	}
	part := func(hosts span, differ bool) pick {
		if differ {
			return pick{span: fam.positions(hosts)}
		}
		return b.distinct(fam.packed, f.width(), fam.positions(hosts))
	}
	fam.distinct = part(e.answeringHosts(), differ)
	for i := range e.clusters {
		c := &e.clusters[i]
		c.addresses[f] = part(c.hosts, differ || fam.distinct.at == nil && i < int(e.answering))
	}
}

// distinct picks the first of equal addresses in a span.
func (b *builder) distinct(packed string, width int, s span) pick {
	at := func(pos uint32) string { return packed[int(pos)*width : int(pos+1)*width] }
	// An open hash table of positions, at most four fifths full; 0 is free, so they count from 1.
	size := 1 << bits.Len(uint(s.len()+s.len()/4))
	seen := slices.Grow(b.seen[:0], size)[:size]
	clear(seen)
	picked := slices.Grow(b.at[:0], s.len())
	for pos := s.from; pos < s.to; pos++ {
		i := maphash.String(seed, at(pos)) & uint64(size-1)
		for seen[i] != 0 && at(seen[i]-1) != at(pos) {
			i = (i + 1) & uint64(size-1)
		}
		if seen[i] == 0 {
			seen[i] = pos + 1
			picked = append(picked, pos)
		}
	}
	b.seen, b.at = seen, picked
	if len(picked) == s.len() {
		return pick{span: s}
	}
	return pick{span: s, at: slices.Clone(picked)}
}

// packLabels stores the labels of the hosts; the label of a host without a name is empty.
func (b *builder) packLabels(e *endpoints) {
	size := 0
	for _, h := range b.hosts {
		size += b.addrs[h.addrs.from].label.len()
	}
	var text strings.Builder
	text.Grow(size)
	e.labelEnd = make([]uint32, 0, len(b.hosts))
	for _, h := range b.hosts {
		if !h.unnamed {
			text.Write(b.label(b.addrs[h.addrs.from]))
		}
		e.labelEnd = append(e.labelEnd, uint32(text.Len()))
	}
	e.labels = text.String()
}

// indexPorts lists, for each named port and for the bare service name, the runs of records in the order of the groups.
// A Headless host without a name is not a target. A ClusterSetIP service has clusters as targets: one record for each
// cluster and port number.
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

// indexBare lists the records of the bare service name, for a ClusterSetIP service. It marks the ports that are alike
// in all clusters that answer.
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
	bare := []portRecords{{}, {proto: differingPorts}}
	for i, runs := range [][]run{common, own} {
		slices.SortFunc(runs, func(x, y run) int {
			return cmp.Or(cmp.Compare(x.group, y.group), cmp.Compare(x.number, y.number))
		})
		for _, r := range slices.CompactFunc(runs, func(x, y run) bool {
			return x.group == y.group && x.number == y.number
		}) {
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
