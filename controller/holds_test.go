package controller

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/clusterset-dns/clusterset/test/harness/logtest"
)

func TestHolds(t *testing.T) {
	log, m, changes := &logtest.Recorder{}, NewMetrics(nil), 0
	hs := newHolds(log, m, func() { changes++ })
	for _, h := range allHolds {
		held := m.held.WithLabelValues(string(h))
		changes = 0
		hs.clear(h)
		if hs.any(h) || changes != 0 {
			t.Errorf("%s: held at the start, or %d changes by clearing nothing", h, changes)
		}
		hs.put(h, "first")
		hs.put(h, "second")
		if !hs.any(allHolds...) || !hs.any(h) || hs.detail(h) != "second" || changes != 1 || testutil.ToFloat64(held) != 1 {
			t.Errorf("%s: held = %t (%s), %d changes, metric %v; want the second detail, 1, 1",
				h, hs.any(h), hs.detail(h), changes, testutil.ToFloat64(held))
		}
		hs.put(h, "")
		if hs.any(allHolds...) || hs.detail(allHolds...) != "" || changes != 2 || testutil.ToFloat64(held) != 0 {
			t.Errorf("%s: held = %t, %d changes, metric %v after the end; want false, 2, 0", h, hs.any(h), changes, testutil.ToFloat64(held))
		}
		if set, cleared := log.Count("holding ("+string(h)+"): first"), log.Count("no longer holding ("+string(h)+")"); set != 1 || cleared != 1 {
			t.Errorf("%s: told %d times when set and %d when cleared, want once each:\n%s", h, set, cleared, log)
		}
	}
}

// Section 8: what more than half is missing from is acted on only if it is missing a TTL later too.
func TestLoss(t *testing.T) {
	const ttl = time.Minute
	type look struct {
		at        time.Duration
		lost, had int
		believed  bool
	}
	for _, tt := range []struct {
		name  string
		set   []time.Duration // when the broker was set back
		looks []look
	}{
		{name: "nothing imported yet", looks: []look{{believed: true}}},
		{name: "all there", looks: []look{{had: 10, believed: true}}},
		{name: "half is believed", looks: []look{{lost: 5, had: 10, believed: true}}},
		{name: "one of one", looks: []look{{lost: 1, had: 1}, {at: ttl, lost: 1, had: 1, believed: true}}},
		{name: "more than half, twice", looks: []look{
			{lost: 6, had: 10}, {at: ttl - 1, lost: 6, had: 10}, {at: ttl, lost: 10, had: 10, believed: true},
		}},
		{name: "it comes back", looks: []look{{lost: 10, had: 10}, {at: 1, lost: 9, had: 10}, {at: 2, lost: 5, had: 10, believed: true}}},
		{name: "once believed, the watch tells", looks: []look{{had: 10, believed: true}, {at: 1, lost: 10, had: 10, believed: true}}},
		{name: "set back: no list counts for a TTL", set: []time.Duration{1}, looks: []look{
			{had: 10, believed: true}, {at: 2, had: 10}, {at: ttl, had: 10}, {at: ttl + 1, had: 10, believed: true},
		}},
		{name: "set back for good", set: []time.Duration{1}, looks: []look{
			{had: 10, believed: true}, {at: ttl + 1, lost: 8, had: 10}, {at: 2 * ttl, lost: 8, had: 10}, {at: 2*ttl + 1, lost: 8, had: 10, believed: true},
		}},
		{name: "set back again", set: []time.Duration{1, ttl}, looks: []look{
			{had: 10, believed: true}, {at: ttl + 1, had: 10}, {at: 2 * ttl, had: 10, believed: true},
		}},
	} {
		start := time.Unix(1_700_000_000, 0)
		var l loss
		set := tt.set
		for _, look := range tt.looks {
			for len(set) > 0 && set[0] <= look.at {
				l = l.rewound(start.Add(set[0]), ttl)
				set = set[1:]
			}
			l = l.look(start.Add(look.at), ttl, listing{had: look.had, lost: look.lost})
			if l.believed != look.believed {
				t.Errorf("%s: %+v: believed = %t, want %t", tt.name, look, l.believed, look.believed)
			}
		}
	}
}
