package resolver

import "github.com/clusterset-dns/clusterset/cache/index"

// Addresses are the address records of one name, in the order to be sent.
type Addresses struct {
	list index.List
	order
}

// Len is the number of records.
func (a *Addresses) Len() int { return int(a.n) }

// At is the address of record i: 4 or 16 octets in network order.
func (a *Addresses) At(i int) string { return a.list.At(a.at(i)) }

// fill makes a the A or AAAA records of n.
func (a *Addresses) fill(n *Name, f index.Family, q *Question, o *Options) {
	switch n.Kind {
	case Service:
		a.list = serviceAddresses(n.Service, f, q, o)
	case Cluster:
		a.list = n.Service.ClusterAddresses(int(n.cluster), f)
	case Host:
		a.list = n.Service.HostAddresses(int(n.host), f)
	default:
		return
	}
	if a.set(a.list.Len(), q, o) {
		a.start = uint32(a.list.Window(q.part()))
	}
}

func serviceAddresses(s *index.Service, f index.Family, q *Question, o *Options) index.List {
	if s.HasVIP() {
		return s.VIPs(f)
	}
	usable := answeringClusters(s, o)
	if s.Type() == index.Headless || o.Policy == All || q.Union && usable.n > 1 {
		return s.Addresses(f)
	}
	// A client of one family is never sent away because the current cluster has no address of it: the next one that has
	// answers for that.
	turn := usable.inRotation(q)
	for i := range usable.n {
		if c := usable.at(turn + i); s.ClusterHas(c, f) {
			return s.ClusterAddresses(c, f)
		}
	}
	return index.List{}
}

// clusters are n clusters of a service from first on.
type clusters struct {
	service  *index.Service
	first, n int
}

// answeringClusters are the clusters that can answer for a service, for any family: the local one alone, or all that
// are selected.
func answeringClusters(s *index.Service, o *Options) clusters {
	if o.Policy == NoCluster {
		return clusters{}
	}
	if c, ok := s.Cluster(o.LocalCluster); ok && c < s.Answering() && o.Policy == LocalFirst &&
		(s.ClusterHas(c, index.V4) || s.ClusterHas(c, index.V6)) {
		return clusters{s, c, 1}
	}
	return clusters{s, 0, s.Answering()}
}

// inRotation is the position of the cluster that answers this query. Each answers as often as its weight says, also
// within a few seconds: a cluster with a large weight is spread over time as so many clusters would be.
func (c clusters) inRotation(q *Question) int {
	total := 0
	for i := range c.n {
		total += c.service.Weight(c.first + i)
	}
	rest := spread(q.ClientRotation, total)
	for i := range c.n {
		if rest -= c.service.Weight(c.first + i); rest < 0 {
			return i
		}
	}
	return 0
}

// at is the cluster at a position; the first one follows the last.
func (c clusters) at(i int) int { return c.first + i%c.n }
