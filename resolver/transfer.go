package resolver

import (
	"iter"

	"github.com/clusterset-dns/clusterset/cache/index"
)

// RRsets yields each RRset of the services, service by service: the whole zone except SOA, NS, ns.dns and dns-version.
// Its records are exactly those that queries get; where clusters answer in rotation, the union of their records.
func RRsets(x *index.Index, o *Options) iter.Seq[Answer] {
	return func(yield func(Answer) bool) {
		for _, s := range x.All() {
			if s = s.In(o.Limit); s == nil {
				continue
			}
			for n := range names(s, o) {
				if o.MaxName != 0 && len(n.AppendName(nil)) > o.MaxName {
					continue
				}
				for _, t := range n.types() {
					a := Answer{Name: n}
					if a.Ask(&Question{Type: t, Union: true}, o); a.Outcome == Found && !yield(a) {
						return
					}
				}
			}
		}
	}
}

// names yields the names at and below a service that can own records.
func names(s *index.Service, o *Options) iter.Seq[Name] {
	return func(yield func(Name) bool) {
		if !yield(Name{Kind: Service, Service: s}) || !eachPort(s, noCluster, o, yield) {
			return
		}
		for c := range s.Clusters() {
			if s.ClusterID(c) != "" && !eachBelow(s, c, o, yield) {
				return
			}
		}
	}
}

func eachBelow(s *index.Service, c int, o *Options, yield func(Name) bool) bool {
	id := s.ClusterID(c)
	if o.ClusterNames {
		// A host of the same name wins, as in Find.
		if n := findBelow(s, id, o); n.Kind == Cluster && !yield(n) {
			return false
		}
		if !eachPort(s, c, o, yield) {
			return false
		}
	}
	for h := range s.Hosts(c) {
		if !yield(Name{Kind: Host, Service: s, cluster: int32(c), host: int32(h)}) {
			return false
		}
	}
	return true
}

// eachPort yields the port names below the service, or below its cluster c.
func eachPort(s *index.Service, c int, o *Options, yield func(Name) bool) bool {
	n := Name{Kind: Port, Service: s, cluster: int32(c)}
	for n.PortName, n.Proto = range portNames(s, c, o) {
		if !yield(n) {
			return false
		}
	}
	return true
}
