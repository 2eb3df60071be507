package plugin

import (
	"sync"
	"sync/atomic"
)

// Turns remember whose turn it is. They are all that a query changes.
type Turns struct {
	order    atomic.Uint64
	clusters sync.Map // of clusterTurn to *atomic.Uint64
}

type clusterTurn struct {
	service string
	qtype   uint16
}

// next is the turn of the order of records: another number for every query.
func (t *Turns) next() uint64 { return t.order.Add(1) }

// nextCluster counts the queries of one service and type. Services are known ones, so a client cannot make it grow
// beyond them.
func (t *Turns) nextCluster(service string, qtype uint16) uint64 {
	key := clusterTurn{service, qtype}
	n, ok := t.clusters.Load(key)
	if !ok {
		n, _ = t.clusters.LoadOrStore(key, new(atomic.Uint64))
	}
	return n.(*atomic.Uint64).Add(1) - 1
}
