package broker

import (
	"reflect"
	"strconv"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// given holds the stamps of this process's writes. A lower stamp on the broker shows a rollback: the object must be written again. The zero
// value is ready.
type given struct {
	clock protocol.Clock

	mu     sync.Mutex
	stamps map[string]protocol.Stamp // by kind and name
}

func (g *given) next() protocol.Stamp { return g.clock.Next(time.Now()) }

func (g *given) wrote(o metav1.Object, s protocol.Stamp) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stamps == nil {
		g.stamps = make(map[string]protocol.Stamp)
	}
	g.stamps[givenKey(o)] = s
}

func (g *given) forget(o metav1.Object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.stamps, givenKey(o))
}

// outdates reports whether this process wrote a newer copy of an object than the one with stamp s. The clock goes on above s.
func (g *given) outdates(o metav1.Object, s protocol.Stamp) bool {
	g.clock.See(s)
	g.mu.Lock()
	defer g.mu.Unlock()
	return s < g.stamps[givenKey(o)]
}

func givenKey(o metav1.Object) string { return reflect.TypeOf(o).String() + "/" + o.GetName() }

// stampOf returns the stamp of a slice, 0 if it has none.
func stampOf(s *discoveryv1.EndpointSlice) protocol.Stamp {
	stamp, err := strconv.ParseInt(s.Annotations[broker.AnnotationStamp], 10, 64)
	if err != nil {
		return 0
	}
	return protocol.Stamp(stamp)
}
