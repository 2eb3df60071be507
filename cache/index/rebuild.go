package index

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"sort"
	"strings"
)

// A packedEndpoint is an endpoint with the cluster, ports and family of its slice.
type packedEndpoint struct {
	cluster     shared
	ports       Ports
	family      Family
	host, addrs string
}

// endpointsOnlyIn yields the endpoints of the slices that are in list and not in other.
func endpointsOnlyIn(list, other []*Slice) iter.Seq[packedEndpoint] {
	return func(yield func(packedEndpoint) bool) {
		there := map[*Slice]bool{}
		for _, s := range other {
			there[s] = true
		}
		for _, s := range list {
			if there[s] {
				continue
			}
			for host, addrs := range s.all() {
				if !yield(packedEndpoint{s.cluster, s.ports, s.family, host, addrs}) {
					return
				}
			}
		}
	}
}

// changedLabels returns the labels of endpoints in only one of both origins. All other hosts did not change. It returns
// nil if these cannot be copied, or are too few.
func (e *endpoints) changedLabels(in *origin) labels {
	if e == nil || e.from == nil || e.unlabeled {
		return nil
	}
	from := e.from
	if from.maxName != in.maxName || !from.options.Equal(&in.options) || !maps.Equal(from.rest, in.rest) {
		return nil
	}
	before, changed, n := map[packedEndpoint]bool{}, labels{}, 0
	for one := range endpointsOnlyIn(from.list, in.list) {
		before[one] = false
		n++
	}
	for one := range endpointsOnlyIn(in.list, from.list) {
		if _, there := before[one]; there {
			before[one] = true
		} else {
			changed.add(one)
		}
		if n++; n > int(e.hosts) {
			return nil
		}
	}
	for one, still := range before {
		if !still {
			changed.add(one)
		}
	}
	return changed
}

// add adds the labels of an endpoint.
func (l labels) add(one packedEndpoint) {
	set := l[one.cluster.String()]
	if set == nil {
		set = map[string]bool{}
		l[one.cluster.String()] = set
	}
	if one.host != "" {
		set[one.host] = true
		return
	}
	for width, addrs := one.family.width(), one.addrs; addrs != ""; addrs = addrs[width:] {
		set[AddressLabel(addrs[:width])] = true
	}
}

// A part is hosts of one group that follow each other.
type part struct {
	*endpoints
	cluster, group int
	hosts          span
}

func (p *part) clusterID() string { return p.clusters[p.cluster].id }
func (p *part) ports() Ports      { return p.groups[p.group].ports }

// parts are the groups in their order.
func (e *endpoints) parts() (all []part) {
	for c := range e.clusters {
		for g := e.clusters[c].groups.from; g < e.clusters[c].groups.to; g++ {
			all = append(all, part{e, c, int(g), e.groups[g].hosts})
		}
	}
	return all
}

// cut splits off the hosts before position at.
func (p *part) cut(at uint32) (before part) {
	before = *p
	before.hosts.to, p.hosts.from = at, at
	return before
}

// find is the position of a label among the hosts, or where it would be.
func (p *part) find(label string) (at uint32, found bool) {
	var buf [48]byte
	i := sort.Search(p.hosts.len(), func(i int) bool {
		return string(p.appendLabel(buf[:0], p.hosts.from+uint32(i))) >= label
	})
	at = p.hosts.from + uint32(i)
	return at, at < p.hosts.to && string(p.appendLabel(buf[:0], at)) == label
}

// appendLabel appends the label of a host; where hosts own no names it is that of the address.
func (e *endpoints) appendLabel(b []byte, host uint32) []byte {
	if e.labelEnd != nil {
		return append(b, e.label(host)...)
	}
	for f := range e.family {
		if l := e.addresses(Family(f), pick{span: e.family[f].positions(span{host, host + 1})}, span{}); l.Len() > 0 {
			return appendAddressLabel(b, l.At(0))
		}
	}
	return b
}

// weave merges two parts of one cluster and port set by label. All labels of fresh are in changed; it skips hosts of
// old with such a label.
func weave(all []part, old, fresh part, changed []string) []part {
	for _, label := range changed {
		at, found := old.find(label)
		if before := old.cut(at); before.hosts.len() > 0 {
			all = append(all, before)
		}
		if found {
			old.hosts.from++
		}
		if at, found = fresh.find(label); found {
			all = append(all, fresh.cut(at+1))
		}
	}
	if old.hosts.len() > 0 {
		all = append(all, old)
	}
	return all
}

// copyHosts builds the hosts with a changed label, and copies all others. It returns nil if they cannot be copied.
// differ is as in finish.
func (b *builder) copyHosts(imp *Import, in *origin, before *endpoints) (e *endpoints, differ [2]bool) {
	if b.only = before.changedLabels(in); b.only == nil {
		return nil, differ
	}
	fresh := b.collect(imp, in)
	if fresh.unlabeled {
		b.clear()
		return nil, differ
	}
	e = new(endpoints)
	all := in.join(before, fresh, b.only)
	for i := range all {
		e.extend(all[i].clusterID(), all[i].ports(), false, uint32(all[i].hosts.len()))
	}
	if imp.typ == Headless {
		e.copyLabels(all)
	}
	for _, f := range []Family{V4, V6} {
		b.copyAddresses(all, f)
		b.store(e, f)
		differ[f] = b.allDiffer(e, before, f)
	}
	return e, differ
}

// join merges the hosts of old without a changed label with all hosts of fresh, in their order.
func (in *origin) join(old, fresh *endpoints, changed labels) (all []part) {
	olds, freshs := old.parts(), fresh.parts()
	for len(olds)+len(freshs) > 0 {
		var o, f part
		order := cmp.Compare(len(freshs), 0) - cmp.Compare(len(olds), 0) // one of them is at its end
		if order == 0 {
			order = in.compare(&olds[0], &freshs[0])
		}
		id := ""
		if order <= 0 {
			o, olds = olds[0], olds[1:]
			id = o.clusterID()
		}
		if order >= 0 {
			f, freshs = freshs[0], freshs[1:]
			id = f.clusterID()
		}
		all = weave(all, o, f, slices.Sorted(maps.Keys(changed[id])))
	}
	return all
}

// compare orders the groups of two parts.
func (in *origin) compare(x, y *part) int {
	return cmp.Or(in.byCluster(x.clusterID(), y.clusterID()), strings.Compare(x.ports().packed(), y.ports().packed()))
}

func (e *endpoints) copyLabels(all []part) {
	size := 0
	for i := range all {
		p := &all[i]
		size += int(p.labelEnd[p.hosts.to-1] - p.labelStart(p.hosts.from))
	}
	var text strings.Builder
	text.Grow(size)
	e.labelEnd = make([]uint32, 0, e.hosts)
	for i := range all {
		p := &all[i]
		from, to := p.labelStart(p.hosts.from), uint32(text.Len())
		text.WriteString(p.labels[from:p.labelEnd[p.hosts.to-1]])
		for _, end := range p.labelEnd[p.hosts.from:p.hosts.to] {
			e.labelEnd = append(e.labelEnd, end-from+to)
		}
	}
	e.labels = text.String()
}

// copyAddresses is pack for parts.
func (b *builder) copyAddresses(all []part, f Family) {
	b.packed, b.hostEnd = b.packed[:0], b.hostEnd[:0]
	for i := range all {
		p := &all[i]
		fam, width := &p.family[f], uint32(f.width())
		at, to := fam.positions(p.hosts), uint32(len(b.packed))/width
		b.packed = append(b.packed, fam.packed[at.from*width:at.to*width]...)
		for h := p.hosts.from; h < p.hosts.to; h++ {
			b.hostEnd = append(b.hostEnd, fam.start(h+1)-at.from+to)
		}
	}
}

// few bounds the addresses that are each searched among all others. For more, [builder.distinct] costs less.
const fewAddresses = 8

// allDiffer reports whether all addresses of a family certainly differ: they did before, and each new address occurs
// once.
func (b *builder) allDiffer(e, before *endpoints, f Family) bool {
	if len(b.addrs) > fewAddresses || before.repeats(f) {
		return false
	}
	width := f.width()
	for i := range b.addrs {
		n, a := 0, &b.addrs[i]
		for packed := e.family[f].packed; a.family == f && packed != ""; packed = packed[width:] {
			if packed[:width] == string(a.packed[:width]) {
				n++
			}
		}
		if n > 1 {
			return false
		}
	}
	return true
}

// repeats reports whether an address of a family occurs twice, in the clusters that answer or in another.
func (e *endpoints) repeats(f Family) bool {
	return e.family[f].distinct.at != nil || slices.ContainsFunc(e.clusters,
		func(c cluster) bool { return c.addresses[f].at != nil })
}
