package resolver

import (
	"slices"

	"github.com/clusterset-dns/clusterset/cache/index"
)

// Services are the SRV records of one name, in the order to be sent.
type Services struct {
	name   Name
	set    index.PortSet // Headless: a record a host and port number
	list   []target      // ClusterSetIP
	weight uint16
	order
}

// A target of a ClusterSetIP service is the service name, or that of a cluster.
type target struct {
	cluster int // -1: the service name
	number  uint16
}

const theService = -1

// Len is the number of records.
func (s Services) Len() int { return s.n }

// Weight is the weight of every record: an even share of 100 among the whole RRset, at least 1.
func (s Services) Weight() uint16 { return s.weight }

// At is record i: the port number and the name that is its target.
func (s Services) At(i int) (number uint16, to Name) {
	i = s.at(i)
	to = Name{Kind: Service, Service: s.name.Service}
	if s.list == nil {
		host, number := s.set.At(i)
		to.Kind, to.host = Host, host
		_, to.ClusterID = s.name.Service.HostName(host)
		return number, to
	}
	if t := s.list[i]; t.cluster != theService {
		to.Kind, to.cluster, to.ClusterID = Cluster, t.cluster, s.name.Service.ClusterID(t.cluster)
	}
	return s.list[i].number, to
}

// services are the SRV records of n.
func (n Name) services(q Question, o *Options) Services {
	if n.Kind != Service && n.Kind != Port {
		return Services{}
	}
	s := Services{name: n}
	if n.Service.Type() == index.Headless {
		s.set, _ = n.Service.Port(n.PortName, n.Proto)
		if n.Kind == Port && n.cluster >= 0 {
			s.set = s.set.InCluster(n.cluster)
		}
		s.order = newOrder(s.set.Len(), q, o, s.set.Window)
		s.weight = weight(s.set.Len())
		return s
	}
	whole := n.targets(o)
	s.weight = weight(len(whole))
	s.list = whole
	if !q.Union {
		s.list = inTurn(whole, q.ClusterTurn)
	}
	s.order = newOrder(len(s.list), q, o, func(at uint32) int { return int(uint64(at) * uint64(len(s.list)) >> 32) })
	return s
}

func weight(records int) uint16 { return uint16(max(1, 100/max(1, records))) }

// targets is the whole SRV RRset of a ClusterSetIP name, ordered by target and number.
func (n Name) targets(o *Options) []target {
	var list []target
	switch {
	case n.Kind == Port && n.cluster >= 0:
		set, _ := n.Service.Port(n.PortName, n.Proto)
		for _, number := range set.InCluster(n.cluster).Numbers(nil) {
			list = append(list, target{n.cluster, number})
		}
		return list
	case n.Service.HasVIP():
		list = n.vipTargets()
	default:
		list = n.sliceTargets(o)
	}
	slices.SortFunc(list, func(a, b target) int {
		if a.cluster != b.cluster {
			return a.cluster - b.cluster
		}
		return int(a.number) - int(b.number)
	})
	return slices.Compact(list)
}

// vipTargets are the records of the ports of the import, if the service has an address.
func (n Name) vipTargets() (list []target) {
	if n.Service.VIPs(index.V4).Len()+n.Service.VIPs(index.V6).Len() == 0 {
		return nil
	}
	for p := range n.Service.Ports().All() {
		if n.asks(p.Name, p.Proto) {
			list = append(list, target{theService, p.Number})
		}
	}
	return list
}

// asks tells whether n is the name of a port, or of a service: then every port counts.
func (n Name) asks(name string, proto index.Proto) bool {
	return n.Kind == Service || name == n.PortName && proto == n.Proto
}

// sliceTargets are the records of the ports of the slices. The service name is the target of a port that all clusters
// that can answer number alike, else each cluster is one.
func (n Name) sliceTargets(o *Options) (list []target) {
	able := answeringAny(n.Service, o)
	if len(able) == 0 {
		return nil
	}
	for name, proto := range n.Service.PortNames {
		if !n.asks(name, proto) {
			continue
		}
		set, _ := n.Service.Port(name, proto)
		first, alike := set.InCluster(able[0]).Numbers(nil), true
		for _, c := range able[1:] {
			alike = alike && slices.Equal(first, set.InCluster(c).Numbers(nil))
		}
		if alike {
			for _, number := range first {
				list = append(list, target{theService, number})
			}
			continue
		}
		for _, c := range able {
			id := n.Service.ClusterID(c)
			if !o.ClusterNames || id == "" || !o.fits(n.Service, len(id)) {
				continue
			}
			for _, number := range set.InCluster(c).Numbers(nil) {
				list = append(list, target{c, number})
			}
		}
	}
	return list
}

// answeringAny lists the clusters that take turns for addresses of either family.
func answeringAny(s *index.Service, o *Options) []int {
	able := append(answering(s, index.V4, o), answering(s, index.V6, o)...)
	slices.Sort(able)
	return slices.Compact(able)
}

// inTurn keeps the records of the service name and those of one cluster.
func inTurn(whole []target, turn uint64) []target {
	var clusters []int
	for _, t := range whole {
		if t.cluster != theService && !slices.Contains(clusters, t.cluster) {
			clusters = append(clusters, t.cluster)
		}
	}
	if len(clusters) < 2 {
		return whole
	}
	chosen := clusters[turn%uint64(len(clusters))]
	return slices.DeleteFunc(slices.Clone(whole), func(t target) bool {
		return t.cluster != theService && t.cluster != chosen
	})
}
