package plugin

import (
	"sync"
	"sync/atomic"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/cache/index"
)

// A Rotation has the counters that make answers rotate: one for the order of the records of any answer, and one for each
// service and type whose clusters answer in rotation. It is the only state that a query changes. Any goroutine may use it.
type Rotation struct {
	order    atomic.Uint64
	clusters sync.Map // of clusterKey to *atomic.Uint64
	added    atomic.Uint64
}

type clusterKey struct {
	service string
	qtype   uint16
}

// next is another number for each query: the rotation of the records.
func (r *Rotation) next() uint64 { return r.order.Add(1) }

// pruneEvery is the number of new counters after which those of removed services are dropped.
const pruneEvery = 1024

// nextCluster counts the queries for one type of one service of x. Types that no service owns have no counter, so
// clients cannot make the map grow beyond what x holds.
func (r *Rotation) nextCluster(x *index.Index, service string, qtype uint16) uint64 {
	switch qtype {
	case dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeANY:
	default:
		return 0
	}
	key := clusterKey{service, qtype}
	n, ok := r.clusters.Load(key)
	if !ok {
		n, _ = r.clusters.LoadOrStore(key, new(atomic.Uint64))
		if r.added.Add(1)%pruneEvery == 0 {
			r.prune(x)
		}
	}
	return n.(*atomic.Uint64).Add(1) - 1
}

func (r *Rotation) prune(x *index.Index) {
	r.clusters.Range(func(key, _ any) bool {
		if x.Service(key.(clusterKey).service) == nil {
			r.clusters.Delete(key)
		}
		return true
	})
}
