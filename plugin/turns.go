package plugin

import (
	"sync"
	"sync/atomic"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/cache/index"
)

// Turns remember whose turn it is. They are all that a query changes.
type Turns struct {
	order    atomic.Uint64
	clusters sync.Map // of clusterTurn to *atomic.Uint64
	added    atomic.Uint64
}

type clusterTurn struct {
	service string
	qtype   uint16
}

// next is the turn of the order of records: another number for every query.
func (t *Turns) next() uint64 { return t.order.Add(1) }

// pruneEvery is how many new turns there may be until those of services that have gone are dropped.
const pruneEvery = 1024

// nextCluster counts the queries of a service of x and a type that has records: a client cannot make it grow beyond what
// x holds.
func (t *Turns) nextCluster(x *index.Index, service string, qtype uint16) uint64 {
	switch qtype {
	case dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeANY:
	default:
		return 0
	}
	key := clusterTurn{service, qtype}
	n, ok := t.clusters.Load(key)
	if !ok {
		n, _ = t.clusters.LoadOrStore(key, new(atomic.Uint64))
		if t.added.Add(1)%pruneEvery == 0 {
			t.prune(x)
		}
	}
	return n.(*atomic.Uint64).Add(1) - 1
}

func (t *Turns) prune(x *index.Index) {
	t.clusters.Range(func(key, _ any) bool {
		if x.Service(key.(clusterTurn).service) == nil {
			t.clusters.Delete(key)
		}
		return true
	})
}
