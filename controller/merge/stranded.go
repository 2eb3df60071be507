package merge

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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
