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
	var total, whole int
	if n.Service.Type() == index.Headless {
		s.set, _ = n.Service.Port(n.PortName, n.Proto)
		if n.Kind == Port && n.cluster != noCluster {
			s.set = s.set.InCluster(int(n.cluster))
		}
		total = s.set.Len()
		whole = total
	} else {
		s.list, whole = n.targets(q, o)
		total = len(s.list)
	}
	s.weight = uint16(max(1, 100/max(1, whole)))
	s.order.set(total, q, o)
}

// targets are the SRV records of a ClusterSetIP name that q gets, in the order of target and port number. whole is the
// size of the RRset.
func (n *Name) targets(q *Question, o *Options) (list []target, whole int) {
	switch {
	case n.Kind == Port && n.cluster != noCluster:
		set, _ := n.Service.Port(n.PortName, n.Proto)
		list = appendTargets(nil, n.cluster, set.InCluster(int(n.cluster)).Numbers(nil))
	case n.Service.HasVIP():
		list = n.vipTargets()
		slices.SortFunc(list, func(a, b target) int { return int(a.number) - int(b.number) })
		list = slices.Compact(list)
	default:
		return n.sliceTargets(q, o)
	}
	return list, len(list)
}

func appendTargets(list []target, cluster int32, numbers []uint16) []target {
	list = slices.Grow(list, len(numbers))
	for _, number := range numbers {
		list = append(list, target{cluster, number})
	}
	return list
}

// vipTargets are the records of the ports of the import; empty if the service has no address.
func (n *Name) vipTargets() (list []target) {
	v4, v6 := n.Service.VIPs(index.V4), n.Service.VIPs(index.V6)
	if v4.Len()+v6.Len() == 0 {
		return nil
	}
	for p := range n.Service.Ports().All() {
		if n.Kind == Service || p.Name == n.PortName && p.Proto == n.Proto {
			list = append(list, target{noCluster, p.Number})
		}
	}
	return list
}

// sliceTargets are the records of the ports of the slices. Where all clusters that can answer have the same numbers for
// a port, its target is the service name (docs/spec/dns.md 4.3). Else the target is a cluster in rotation that has such
// records.
func (n *Name) sliceTargets(q *Question, o *Options) (list []target, whole int) {
	usable := answeringClusters(n.Service, o)
	if usable.n == 0 {
		return nil, 0
	}
	common, own := n.Service.Targets(n.PortName, n.Proto)
	numbers := common.Numbers(nil)
	if usable.n == 1 {
		numbers = own.InCluster(usable.first).Numbers(numbers)
		return appendTargets(nil, noCluster, numbers), len(numbers)
	}
	list, whole = appendTargets(nil, noCluster, numbers), len(numbers)
	turn := usable.inRotation(q)
	for i := range usable.n {
		c := usable.at(turn + i)
		set, id := own.InCluster(c), n.Service.ClusterID(c)
		if !o.ClusterNames || id == "" || !o.fits(n.Service, len(id)) {
			continue
		}
		whole += set.Len()
		if q.Union || len(list) == len(numbers) {
			list = appendTargets(list, int32(c), set.Numbers(nil))
		}
	}
	return list, whole
}
