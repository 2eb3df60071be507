package resolver

import (
	"slices"

	"github.com/clusterset-dns/clusterset/cache/index"
)

// The most names that a reverse name points to, and the most services that are looked at for one: any member can export
// an address in its networks as often as it likes.
const (
	maxPointers       = 16
	maxPointersLooked = 64
)

// Pointers are the names that a reverse name points to: those with the address in A or AAAA records, of 4 or 16 octets
// in network order (docs/spec/dns.md 2.5). An endpoint of the local cluster has no name here, since the plugin of the
// cluster's own names serves it; while the local cluster is unknown, no endpoint has a name. r is of x.
func Pointers(x *index.Index, r *index.Reverse, address string, o *Options) (names []Name) {
	looked := 0
	for key := range r.Services(address) {
		if looked++; looked > maxPointersLooked || len(names) >= maxPointers {
			break
		}
		if s := x.Service(key).In(o.Limit); s != nil {
			names = appendPointers(names, s, address, o)
		}
	}
	return names
}

func appendPointers(names []Name, s *index.Service, address string, o *Options) []Name {
	if s.HasVIP() && hasVIP(s, address) {
		names = append(names, Name{Kind: Service, Service: s})
	}
	for host := range s.HostsWith(address) {
		if len(names) >= maxPointers { // any number of hosts may have one address
			break
		}
		c := s.ClusterOf(host)
		id := s.ClusterID(c)
		if id == "" || o.LocalCluster == "" || id == o.LocalCluster {
			continue
		}
		n := Name{Kind: Cluster, Service: s, cluster: int32(c)}
		if s.HostNamed(host) {
			n.Kind, n.host = Host, int32(host)
		}
		if n.ownsAddresses(o) && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// ownsAddresses reports whether a Host or a Cluster owns its addresses.
func (n *Name) ownsAddresses(o *Options) bool {
	if n.Kind == Host {
		return o.fits(n.Service, len(n.Service.HostLabel(int(n.host)))+1+len(n.ClusterID()))
	}
	_, isHost := findHost(n.Service, n.ClusterID()) // see below
	return o.ClusterNames && !isHost && o.fits(n.Service, len(n.ClusterID()))
}

func hasVIP(s *index.Service, address string) bool {
	for _, f := range []index.Family{index.V4, index.V6} {
		list := s.VIPs(f)
		for i := range list.Len() {
			if list.At(i) == address {
				return true
			}
		}
	}
	return false
}
