package resolver_test

import (
	"slices"
	"testing"

	"github.com/clusterset-dns/clusterset/resolver"
)

// An owner name has at most 253 octets without its final dot, in each zone.
func TestMaxNames(t *testing.T) {
	for origin, want := range map[string]int{".": 253, "x.": 251, "clusterset.local.": 236} {
		if got := resolver.MaxName(origin); got != want {
			t.Errorf("MaxName(%q) = %d, want %d", origin, got, want)
		}
	}
	zones := []string{"clusterset.local.", "x.", "y.", "."}
	all := resolver.MaxNames(zones...)
	if want := []int{249, 247, 232}; !slices.Equal(all, want) {
		t.Errorf("MaxNames(%q) = %d, want %d", zones, all, want)
	}
	for i, want := range []int{2, 1, 1, 0} {
		if got := resolver.Limit(zones[i], all); got != want {
			t.Errorf("Limit(%q) = %d, want %d", zones[i], got, want)
		}
	}
}
