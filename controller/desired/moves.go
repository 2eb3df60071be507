package desired

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// An endpoint that moves from one slice to another is in both or in the old one until it is in the new one: a living
// endpoint is not withdrawn because its new place was denied, over a quota for example. So slices are written in this
// order, exported as well as imported ones:
//
//	slices that are new, and updates that lose no endpoint
//	updates that lose some     but for those that have moved to a slice not yet written: [Moves.WithMissing]
//	slices that go             but for the same endpoints: [Moves.DivideUnwanted]

// LosingLast returns wanted slices with those last that lose endpoints. existing returns the slice of a name, nil if it
// does not exist.
func LosingLast(wanted []*discoveryv1.EndpointSlice, existing func(
	name string) *discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	loses := func(w *discoveryv1.EndpointSlice) bool { return losesAddress(w, existing(w.Name)) }
	return slices.Concat(
		slices.DeleteFunc(slices.Clone(wanted), loses),
		slices.DeleteFunc(slices.Clone(wanted), func(w *discoveryv1.EndpointSlice) bool { return !loses(w) }),
	)
}

// losesAddress reports whether an update lacks an address that the existing slice, which may be nil, has. A slice of
// another family is made anew, and loses nothing.
func losesAddress(update, existing *discoveryv1.EndpointSlice) bool {
	if existing == nil || update.AddressType != existing.AddressType {
		return false
	}
	present := addressesOf(update.Endpoints)
	return slices.ContainsFunc(existing.Endpoints, func(e discoveryv1.Endpoint) bool { return !hasAll(present, e) })
}

// Moves are the endpoints of wanted slices, and which of them are missing: their wanted slice does not have them yet.
// Each answer takes time in proportion to its slice, not to the number of all slices. The writer reports each write:
// [Moves.Record].
type Moves struct {
	wanted  map[string]*discoveryv1.EndpointSlice
	missing map[string][]bool // which endpoints of a wanted slice are, by its name
	places  map[place]*arrival
}

// A place is an address of a cluster: no endpoint moves to another cluster.
type place struct{ cluster, address string }

// An arrival is an address that slices should have.
type arrival struct {
	endpoint *discoveryv1.Endpoint // as one of the slices should have it
	missing  int                   // in how many of them it is missing
}

func placeOf(s *discoveryv1.EndpointSlice, address string) place {
	return place{s.Labels[mcsv1beta1.LabelSourceCluster], address}
}

// NewMoves returns the moves to wanted slices, which nothing may change. existing returns the slice of a name, nil if
// it does not exist.
func NewMoves(wanted []*discoveryv1.EndpointSlice, existing func(name string) *discoveryv1.EndpointSlice) *Moves {
	m := &Moves{
		wanted: make(map[string]*discoveryv1.EndpointSlice, len(wanted)), missing: make(map[string][]bool, len(wanted)),
		places: make(map[place]*arrival),
	}
	for _, w := range wanted {
		m.wanted[w.Name], m.missing[w.Name] = w, make([]bool, len(w.Endpoints))
		m.Record(w.Name, existing(w.Name))
	}
	return m
}

// Record notes the slice with a name after a write; nil if it does not exist. It need not be wanted, nor equal to the
// wanted one.
func (m *Moves) Record(name string, after *discoveryv1.EndpointSlice) {
	w := m.wanted[name]
	if w == nil {
		return
	}
	var present map[string]bool
	if after != nil {
		present = addressesOf(after.Endpoints)
	}
	for i := range w.Endpoints {
		e, before := &w.Endpoints[i], m.missing[name][i]
		misses := !hasAll(present, *e)
		if misses == before {
			continue
		}
		m.missing[name][i] = misses
		for _, address := range e.Addresses {
			m.count(placeOf(w, address), e, misses)
		}
	}
}

// count records that an endpoint is missing in one more slice, or in one less.
func (m *Moves) count(at place, e *discoveryv1.Endpoint, misses bool) {
	a := m.places[at]
	switch {
	case a == nil:
		m.places[at] = &arrival{e, 1}
	case !misses:
		a.missing--
	default:
		if a.missing == 0 {
			a.endpoint = e
		}
		a.missing++
	}
}

// WithMissing returns an update with the missing endpoints that the existing slice has and the update lacks, as they
// are wanted. It changes neither slice, and returns update itself if there are no such endpoints.
func (m *Moves) WithMissing(update, existing *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	if !losesAddress(update, existing) {
		return update
	}
	rest := m.missingOf(existing)
	present := addressesOf(update.Endpoints)
	rest = slices.DeleteFunc(rest, func(e discoveryv1.Endpoint) bool { return hasAll(present, e) })
	// with more of them the update would be rejected
	rest = rest[:max(0, min(len(rest), broker.MaxEndpoints-len(update.Endpoints)))]
	if len(rest) == 0 {
		return update
	}
	r := update.DeepCopy()
	r.Endpoints = append(r.Endpoints, rest...)
	return r
}

// missingOf returns the missing endpoints that a slice has, as they are wanted, in its order. While there are some the
// slice must not be deleted.
func (m *Moves) missingOf(s *discoveryv1.EndpointSlice) (rest []discoveryv1.Endpoint) {
	seen := make(map[*discoveryv1.Endpoint]bool)
	for _, e := range s.Endpoints {
		for _, address := range e.Addresses {
			if a := m.places[placeOf(s, address)]; a != nil && a.missing > 0 && !seen[a.endpoint] {
				seen[a.endpoint] = true
				rest = append(rest, *a.endpoint)
			}
		}
	}
	return rest
}

// DivideUnwanted divides the slices that are no longer wanted: deleted ones, and trimmed ones that stay for their
// missing endpoints alone. A slice with only such endpoints is in neither. It does not change all.
func (m *Moves) DivideUnwanted(all []*discoveryv1.EndpointSlice) (deleted, trimmed []*discoveryv1.EndpointSlice) {
	for _, s := range all {
		switch rest := m.missingOf(s); {
		case len(rest) == 0:
			deleted = append(deleted, s)
		case !equality.Semantic.DeepEqual(rest, s.Endpoints):
			t := s.DeepCopy()
			t.Endpoints = rest
			trimmed = append(trimmed, t)
		}
	}
	return deleted, trimmed
}

func addressesOf(endpoints []discoveryv1.Endpoint) map[string]bool {
	present := make(map[string]bool, len(endpoints))
	for _, e := range endpoints {
		for _, address := range e.Addresses {
			present[address] = true
		}
	}
	return present
}

// hasAll reports whether all addresses of an endpoint are there.
func hasAll(addresses map[string]bool, e discoveryv1.Endpoint) bool {
	return !slices.ContainsFunc(e.Addresses, func(address string) bool { return !addresses[address] })
}
