package safety

import (
	"testing"
	"time"
)

// docs/spec/controller.md 8: a list that lacks more than half is confirmed only if it still does a TTL later.
func TestListCheck(t *testing.T) {
	const ttl = time.Minute
	type step struct {
		at        time.Duration
		lost, had int
		confirmed bool
	}
	for _, tt := range []struct {
		name  string
		set   []time.Duration // when the broker was rolled back
		steps []step
	}{
		{name: "nothing imported yet", steps: []step{{confirmed: true}}},
		{name: "all there", steps: []step{{had: 10, confirmed: true}}},
		{name: "half is confirmed", steps: []step{{lost: 5, had: 10, confirmed: true}}},
		{name: "one of one", steps: []step{{lost: 1, had: 1}, {at: ttl, lost: 1, had: 1, confirmed: true}}},
		{name: "more than half, twice", steps: []step{
			{lost: 6, had: 10}, {at: ttl - 1, lost: 6, had: 10}, {at: ttl, lost: 10, had: 10, confirmed: true},
		}},
		{name: "it comes back", steps: []step{{lost: 10, had: 10}, {at: 1, lost: 9, had: 10}, {at: 2, lost: 5, had: 10, confirmed: true}}},
		{name: "once confirmed, the watch reports further losses", steps: []step{{had: 10, confirmed: true}, {at: 1, lost: 10, had: 10, confirmed: true}}},
		{name: "rolled back: no list counts for a TTL", set: []time.Duration{1}, steps: []step{
			{had: 10, confirmed: true}, {at: 2, had: 10}, {at: ttl, had: 10}, {at: ttl + 1, had: 10, confirmed: true},
		}},
		{name: "rolled back for good", set: []time.Duration{1}, steps: []step{
			{had: 10, confirmed: true}, {at: ttl + 1, lost: 8, had: 10}, {at: 2 * ttl, lost: 8, had: 10}, {at: 2*ttl + 1, lost: 8, had: 10, confirmed: true},
		}},
		{name: "rolled back again", set: []time.Duration{1, ttl}, steps: []step{
			{had: 10, confirmed: true}, {at: ttl + 1, had: 10}, {at: 2 * ttl, had: 10, confirmed: true},
		}},
	} {
		start := time.Unix(1_700_000_000, 0)
		var l listCheck
		set := tt.set
		for _, step := range tt.steps {
			for len(set) > 0 && set[0] <= step.at {
				l = rolledBack(start.Add(set[0]), ttl)
				set = set[1:]
			}
			l = l.next(start.Add(step.at), ttl, comparison{imported: step.had, lost: step.lost})
			if l.confirmed != step.confirmed {
				t.Errorf("%s: %+v: confirmed = %t, want %t", tt.name, step, l.confirmed, step.confirmed)
			}
		}
	}
}
