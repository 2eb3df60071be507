package index

import "slices"

// Build makes the service of imp from its slices, in any order. It returns nil if the service owns no name: a Headless
// import without a ready endpoint (multicluster DNS specification 2.4.1), or a name that is too long for every zone.
func Build(imp *Import, list []*Slice, o Options) *Service { return Rebuild(nil, imp, list, o) }

// Rebuild is Build of a service that is in the index as old, or nil: if it is large, only the hosts of the slices that
// changed are built anew.
func Rebuild(old *Service, imp *Import, list []*Slice, o Options) *Service {
	var before *endpoints
	if old != nil && old.typ == imp.typ && old.narrower == nil {
		before = old.eps
	}
	if len(o.MaxNames) == 0 {
		s, _ := build(imp, list, &o, 0, before)
		return s
	}
	s, longest := build(imp, list, &o, o.MaxNames[0], before)
	if s == nil || longest <= o.MaxNames[len(o.MaxNames)-1] {
		return s // the same in all zones, as nearly every service is
	}
	narrower := make([]*Service, len(o.MaxNames)-1)
	for i, limit := range o.MaxNames[1:] {
		narrower[i] = s
		if longest > limit {
			narrower[i], _ = build(imp, list, &o, limit, nil)
		}
	}
	s.narrower = &narrower
	return s
}

// build makes a service for zones in which names have at most maxName octets, 0 for any number. longest is the length
// of its longest name, but for hosts that are copied from before.
func build(imp *Import, list []*Slice, o *Options, maxName int, before *endpoints) (s *Service, longest int) {
	if maxName > 0 && len(imp.key) > maxName {
		return nil, 0
	}
	s, longest = &Service{Import: imp}, len(imp.key)
	if !imp.vip || o.ClusterNames {
		in := origin{rest: unselectedClusters(imp, list), options: *o, maxName: maxName}
		in.list = slicesInUse(list, in.rest, o)
		var labels int
		if s.eps, labels = newEndpoints(imp, &in, before); labels > 0 {
			longest += labels + 2
		}
	}
	if imp.typ == Headless && s.eps == nil {
		return nil, 0
	}
	return s, longest
}

// unselectedClusters returns the clusters that do not answer for the service, because all of their slices with a ready
// endpoint are hidden, unless these are all clusters (docs/spec/dns.md 3.2). It may be nil.
func unselectedClusters(imp *Import, list []*Slice) map[string]bool {
	if imp.typ == Headless || !slices.ContainsFunc(list, func(s *Slice) bool { return s.hidden }) {
		return nil
	}
	rest, visible := map[string]bool{}, map[string]bool{}
	for _, s := range list {
		switch id := s.Cluster(); {
		case s.count == 0:
		case s.hidden && !visible[id]:
			rest[id] = true
		case !s.hidden:
			visible[id] = true
			delete(rest, id)
		}
	}
	if len(visible) == 0 {
		return nil
	}
	return rest
}

// slicesInUse returns the slices to use here, of the clusters that answer and of those that are left out, each by
// themselves.
func slicesInUse(list []*Slice, rest map[string]bool, o *Options) []*Slice {
	if len(rest) == 0 || o.Zone == "" && o.Region == "" {
		return nearSlices(list, o)
	}
	var answering, others []*Slice
	for _, s := range list {
		if rest[s.Cluster()] {
			others = append(others, s)
		} else {
			answering = append(answering, s)
		}
	}
	return slices.Concat(nearSlices(answering, o), nearSlices(others, o))
}

// nearSlices returns those without a zone and region and those for our zone or region; all slices if these have no
// ready endpoint (KEP-2030, docs/spec/dns.md 3.5).
func nearSlices(list []*Slice, o *Options) []*Slice {
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

// newEndpoints makes the endpoints of a service, and copies unchanged ones from before. longest is the most octets of
// host label and cluster ID in the name of a host that is not copied, 0 if no host owns a name.
func newEndpoints(imp *Import, in *origin, before *endpoints) (_ *endpoints, longest int) {
	b := builders.Get().(*builder)
	defer b.release()
	e, differ := b.copyHosts(imp, in, before)
	if e == nil {
		e = b.collect(imp, in)
	}
	if e.hosts == 0 {
		return nil, 0
	}
	b.finish(e, imp, in, differ)
	if imp.typ == Headless {
		longest = b.longest
	}
	return e, longest
}

// Equal reports whether both have the same records. Either may be nil. It is also false for a few changes that no
// record shows: hostnames where hosts own no name (ClusterSetIP, no source cluster), and a port of the import that its
// slices have too.
func Equal(a, b *Service) bool {
	return equalHere(a, b) && (a == nil || equalNarrower(a.narrower, b.narrower))
}

// equalNarrower compares the services in the zones with the second and further of Options.MaxNames.
func equalNarrower(a, b *[]*Service) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(*a, *b, equalHere)
}

// equalHere compares the services in the zones with the first of Options.MaxNames.
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
		e.labels == o.labels && slices.Equal(e.labelEnd, o.labelEnd) &&
		slices.Equal(e.groups, o.groups) && slices.EqualFunc(e.clusters, o.clusters, sameCluster) &&
		e.family[V4].equal(&o.family[V4]) && e.family[V6].equal(&o.family[V6])
}

// sameCluster compares the parts that follow neither from hosts nor from addresses.
func sameCluster(a, b cluster) bool { return a.id == b.id && a.hosts == b.hosts }

func (f *family) equal(o *family) bool {
	return f.packed == o.packed && slices.Equal(f.hostEnd, o.hostEnd)
}
