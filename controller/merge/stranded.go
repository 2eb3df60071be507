package merge

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// An endpoint that moves from one slice to another is in both or in the old one until it is in the new one: a living endpoint is not withdrawn because
// its new place was denied, over a quota for example. So slices are written in this order, exported as well as imported ones:
//
//	slices that are new, and updates that lose no endpoint
//	updates that lose some     [Loses], without losing those that have moved to what could not be written: [Unwritten], [Retained]
//	slices that go             but for the same endpoints: [Retired]

// LosingLast returns wanted slices with those last that lose endpoints. existing returns the slice of a name, nil if there is none.
func LosingLast(wanted []*discoveryv1.EndpointSlice, existing func(name string) *discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	loses := func(w *discoveryv1.EndpointSlice) bool { return Loses(w, existing(w.Name)) }
	return slices.Concat(
		slices.DeleteFunc(slices.Clone(wanted), loses),
		slices.DeleteFunc(slices.Clone(wanted), func(w *discoveryv1.EndpointSlice) bool { return !loses(w) }),
	)
}

// Loses reports whether an update lacks an address that the existing slice, which may be nil, has. One of another family, which is made anew, has
// nothing to lose.
func Loses(update, existing *discoveryv1.EndpointSlice) bool {
	if existing == nil || update.AddressType != existing.AddressType {
		return false
	}
	has := addressesOf(update.Endpoints)
	return slices.ContainsFunc(existing.Endpoints, func(e discoveryv1.Endpoint) bool { return !hasAll(has, e) })
}

// Unwritten returns those of the wanted slices that have addresses which the existing slice of the same name, nil if there is none, does not have; with
// the endpoints of these alone.
func Unwritten(wanted []*discoveryv1.EndpointSlice, existing func(name string) *discoveryv1.EndpointSlice) (missing []*discoveryv1.EndpointSlice) {
	for _, w := range wanted {
		e := existing(w.Name)
		if e == nil {
			missing = append(missing, w)
			continue
		}
		has := addressesOf(e.Endpoints)
		if left := slices.DeleteFunc(slices.Clone(w.Endpoints), func(e discoveryv1.Endpoint) bool { return hasAll(has, e) }); len(left) > 0 {
			m := *w
			m.Endpoints = left
			missing = append(missing, &m)
		}
	}
	return missing
}

// Retained returns an update with those endpoints of missing slices that the existing slice has and the update lacks, as the missing ones have them. It
// changes none of them, and is update itself if there are no such endpoints.
func Retained(update, existing *discoveryv1.EndpointSlice, missing []*discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	if len(missing) == 0 || !Loses(update, existing) {
		return update
	}
	left := Stranded(existing, missing)
	has := addressesOf(update.Endpoints)
	left = slices.DeleteFunc(left, func(e discoveryv1.Endpoint) bool { return hasAll(has, e) })
	left = left[:max(0, min(len(left), broker.MaxEndpoints-len(update.Endpoints)))] // with more of them the update would be rejected
	if len(left) == 0 {
		return update
	}
	r := update.DeepCopy()
	r.Endpoints = append(r.Endpoints, left...)
	return r
}

// Stranded returns the endpoints of missing slices, which could not be written, that a slice has, too, as the missing ones have them. While there
// are some the slice must not be deleted.
func Stranded(s *discoveryv1.EndpointSlice, missing []*discoveryv1.EndpointSlice) (left []discoveryv1.Endpoint) {
	if len(missing) == 0 {
		return nil
	}
	has := addressesOf(s.Endpoints)
	for _, m := range missing {
		if m.Labels[mcsv1beta1.LabelSourceCluster] != s.Labels[mcsv1beta1.LabelSourceCluster] {
			continue // no endpoint moves to another cluster
		}
		for _, e := range m.Endpoints {
			if slices.ContainsFunc(e.Addresses, func(address string) bool { return has[address] }) {
				left = append(left, e)
			}
		}
	}
	return left
}

// Retired returns which of the slices that are not wanted any more are deleted, and which stay for the endpoints of missing slices that they have,
// without their other endpoints: see [Stranded]. One that has no others is in neither. It does not change all.
func Retired(all, missing []*discoveryv1.EndpointSlice) (deleted, trimmed []*discoveryv1.EndpointSlice) {
	for _, s := range all {
		switch left := Stranded(s, missing); {
		case len(left) == 0:
			deleted = append(deleted, s)
		case !equality.Semantic.DeepEqual(left, s.Endpoints):
			t := s.DeepCopy()
			t.Endpoints = left
			trimmed = append(trimmed, t)
		}
	}
	return deleted, trimmed
}

func addressesOf(endpoints []discoveryv1.Endpoint) map[string]bool {
	has := make(map[string]bool, len(endpoints))
	for _, e := range endpoints {
		for _, address := range e.Addresses {
			has[address] = true
		}
	}
	return has
}

// hasAll reports whether all addresses of an endpoint are there.
func hasAll(addresses map[string]bool, e discoveryv1.Endpoint) bool {
	return !slices.ContainsFunc(e.Addresses, func(address string) bool { return !addresses[address] })
}
