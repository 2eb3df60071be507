package resolver

import (
	"slices"

	"github.com/clusterset-dns/clusterset/cache/index"
)

// Services are the SRV records of one name, in the order to be sent.
type Services struct {
	service *index.Service
	set     index.PortSet // Headless: one record for each host and port number
	list    []target      // ClusterSetIP
	order
	weight uint16
}

// A target is one SRV record of a ClusterSetIP service: its target is the service name, or the name of a cluster.
type target struct {
	cluster int32 // noCluster: the service name
	number  uint16
}

// Len is the number of records.
func (s *Services) Len() int { return int(s.n) }

// Weight is the weight of each record: 100 divided by the size of the whole RRset, at least 1 (docs/spec/dns.md 4.1).
func (s *Services) Weight() uint16 { return s.weight }

// At is the port number and the target of record i.
func (s *Services) At(i int) (number uint16, to Name) {
	i = s.at(i)
	if s.service.Type() == index.Headless {
		host, number := s.set.At(i)
		return number, Name{Kind: Host, Service: s.service, cluster: int32(s.service.ClusterOf(host)), host: int32(host)}
	}
	t := s.list[i]
	if t.cluster == noCluster {
		return t.number, Name{Kind: Service, Service: s.service}
	}
	return t.number, Name{Kind: Cluster, Service: s.service, cluster: t.cluster}
}

// Distinct reports whether it is certain, without reading the records, that no two have the same target.
func (s *Services) Distinct() bool {
	if s.service.Type() == index.Headless {
		return s.set.Distinct()
	}
	return len(s.list) == 1
}

// fill makes s the SRV records of n.
func (s *Services) fill(n *Name, q *Question, o *Options) {
	if n.Kind != Service && n.Kind != Port {
		return
	}
	s.service = n.Service
	if n.Service.Type() == index.Headless {
		s.set, _ = n.Service.Port(n.PortName, n.Proto)
		if n.Kind == Port && n.cluster != noCluster {
			s.set = s.set.InCluster(int(n.cluster))
		}
		s.weight = weight(s.set.Len())
		if s.order.set(s.set.Len(), q, o) {
			s.start = uint32(s.set.Window(q.part()))
		}
		return
	}
	s.list = n.targets(o)
	s.weight = weight(len(s.list))
	if !q.Union {
		s.list = oneCluster(s.list, answering(n.Service, o), q)
	}
	if s.order.set(len(s.list), q, o) {
		s.start = uint32(uint64(q.part()) * uint64(len(s.list)) >> 32)
	}
}

func weight(records int) uint16 { return uint16(max(1, 100/max(1, records))) }

// targets is the whole SRV RRset of a ClusterSetIP name, in the order of target and port number.
func (n *Name) targets(o *Options) []target {
	var list []target
	switch {
	case n.Kind == Port && n.cluster != noCluster:
		set, _ := n.Service.Port(n.PortName, n.Proto)
		for _, number := range set.InCluster(int(n.cluster)).Numbers(nil) {
			list = append(list, target{n.cluster, number})
		}
		return list
	case n.Service.HasVIP():
		list = n.vipTargets()
	default:
		list = n.sliceTargets(o)
	}
	if len(list) < 2 {
		return list
	}
	slices.SortFunc(list, func(a, b target) int {
		if a.cluster != b.cluster {
			return int(a.cluster - b.cluster)
		}
		return int(a.number) - int(b.number)
	})
	return slices.Compact(list)
}

// vipTargets are the records of the ports of the import; none if the service has no address.
func (n *Name) vipTargets() (list []target) {
	v4, v6 := n.Service.VIPs(index.V4), n.Service.VIPs(index.V6)
	if v4.Len()+v6.Len() == 0 {
		return nil
	}
	for p := range n.Service.Ports().All() {
		if n.asks(p.Name, p.Proto) {
			list = append(list, target{noCluster, p.Number})
		}
	}
	return list
}

// asks reports whether n asks for a port: a Port name for its own, a Service name for all.
func (n *Name) asks(name string, proto index.Proto) bool {
	return n.Kind == Service || name == n.PortName && proto == n.Proto
}

// sliceTargets are the records of the ports of the slices. Where all clusters that can answer have the same number for a
// port, its target is the service name; else there is one target for each cluster (docs/spec/dns.md 4.3).
func (n *Name) sliceTargets(o *Options) (list []target) {
	able := answering(n.Service, o)
	if able.n == 0 {
		return nil
	}
	last := able.first + able.n
	for name, proto := range n.Service.PortNames {
		if !n.asks(name, proto) {
			continue
		}
		set, _ := n.Service.Port(name, proto)
		first, alike := set.InCluster(able.first).Numbers(nil), true
		for c := able.first + 1; c < last; c++ {
			alike = alike && slices.Equal(first, set.InCluster(c).Numbers(nil))
		}
		if alike {
			for _, number := range first {
				list = append(list, target{noCluster, number})
			}
			continue
		}
		for c := able.first; c < last; c++ {
			id := n.Service.ClusterID(c)
			if !o.ClusterNames || id == "" || !o.fits(n.Service, len(id)) {
				continue
			}
			for _, number := range set.InCluster(c).Numbers(nil) {
				list = append(list, target{int32(c), number})
			}
		}
	}
	return list
}

// oneCluster returns the records whose target is the service name, and those of one cluster: the one whose turn it is, of those
// that have any.
func oneCluster(whole []target, able clusters, q *Question) []target {
	chosen := int32(noCluster)
	several := 0
	for i, t := range whole { // in the order of clusters
		if t.cluster != noCluster && (i == 0 || whole[i-1].cluster != t.cluster) {
			several++
		}
	}
	if several < 2 {
		return whole
	}
	for i := able.inRotation(q); chosen == noCluster; i++ {
		c := int32(able.at(i))
		if slices.ContainsFunc(whole, func(t target) bool { return t.cluster == c }) {
			chosen = c
		}
	}
	return slices.DeleteFunc(slices.Clone(whole), func(t target) bool {
		return t.cluster != noCluster && t.cluster != chosen
	})
}
