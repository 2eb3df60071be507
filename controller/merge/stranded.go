package merge

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// Stranded returns the endpoints of missing slices, which could not be written, that a slice has, too, as the missing ones have them. While there
// are some the slice must not be deleted: a living endpoint is not withdrawn because its new place was denied, over a quota for example.
func Stranded(s *discoveryv1.EndpointSlice, missing []*discoveryv1.EndpointSlice) (left []discoveryv1.Endpoint) {
	if len(missing) == 0 {
		return nil
	}
	has := make(map[string]bool, len(s.Endpoints))
	for _, e := range s.Endpoints {
		for _, address := range e.Addresses {
			has[address] = true
		}
	}
	for _, m := range missing {
		for _, e := range m.Endpoints {
			if slices.ContainsFunc(e.Addresses, func(address string) bool { return has[address] }) {
				left = append(left, e)
			}
		}
	}
	return left
}

// WithoutStranded returns the slices of all that have no endpoint of a missing one; see [Stranded]. It does not change all.
func WithoutStranded(all, missing []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(slices.Clone(all), func(s *discoveryv1.EndpointSlice) bool { return len(Stranded(s, missing)) > 0 })
}
