package safety

import (
	"slices"
	"testing"
	"time"
)

// docs/spec/controller.md 8.2: each failed look at a member doubles the pause before the next.
func TestRelistsBecomeRare(t *testing.T) {
	var r relist
	var at []int
	begin := time.Now()
	for s := range 250 {
		if next, due := r.next(begin.Add(time.Duration(s) * time.Second)); due {
			r, at = next, append(at, s)
		}
	}
	if want := []int{0, 1, 3, 7, 15, 31, 63, 123, 183, 243}; !slices.Equal(at, want) {
		t.Errorf("looked at after %v s, want %v", at, want)
	}
}
