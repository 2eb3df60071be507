package plugin_test

import (
	"fmt"
	"testing"

	"github.com/clusterset-dns/clusterset/plugin"
)

// Labels of slices say which clusters there are: the number of series is bounded.
func TestLargest(t *testing.T) {
	all := map[string]int{}
	for i := range 5000 {
		all[fmt.Sprint("c", i)] = i
	}
	got := plugin.Largest(all)
	if sum := 4899 * 4900 / 2; len(got) != 101 || got["c4999"] != 4999 || got["c4900"] != 4900 || got["(others)"] != sum {
		t.Errorf("%d series, the largest %d, the rest %d, want 101, 4999 and %d", len(got), got["c4999"], got["(others)"], sum)
	}
	few := map[string]int{"east": 1, "": 2}
	if got := plugin.Largest(few); len(got) != 2 || got["east"] != 1 {
		t.Errorf("%v, want %v", got, few)
	}
}
