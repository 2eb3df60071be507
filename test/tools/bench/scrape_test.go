package main

import (
	"maps"
	"testing"
)

const scraped = `# HELP watches Watches.
# TYPE watches gauge
watches{resource="leases",verb="WATCH"} 2
watches{resource="leases",verb="LIST"} 3
watches{resource="members",verb="WATCH"} 1.5e+01

up 1
sizes_bucket{le="+Inf",path="a \"b\" {c}, d"} 7 1700000000000
`

func TestParseMetrics(t *testing.T) {
	all, err := parseMetrics(scraped)
	if err != nil || len(all) != 5 {
		t.Fatalf("parseMetrics(%q) = %v, %v, want 5 metrics", scraped, all, err)
	}
	if got := all.named("watches").sum(); got != 20 {
		t.Errorf("sum of watches = %g, want 20", got)
	}
	for _, tt := range []struct {
		labels []string
		want   map[string]float64
	}{
		{labels: []string{"resource"}, want: map[string]float64{"leases": 5, "members": 15}},
		{labels: []string{"verb", "resource"}, want: map[string]float64{"WATCH leases": 2, "LIST leases": 3, "WATCH members": 15}},
	} {
		if got := all.named("watches").by(tt.labels...); !maps.Equal(got, tt.want) {
			t.Errorf("watches by %q = %v, want %v", tt.labels, got, tt.want)
		}
	}
	last := all[4]
	if last.value != 7 || last.labels["le"] != "+Inf" || last.labels["path"] != `a \"b\" {c}, d` {
		t.Errorf("last metric = %v, want the value 7 and both labels", last)
	}
}

func TestParseMetricsOfOther(t *testing.T) {
	for _, text := range []string{"<html>", "up", "up one", `up{a="b" 1`} {
		if got, err := parseMetrics(text); err == nil {
			t.Errorf("parseMetrics(%q) = %v, want an error", text, got)
		}
	}
}

func TestGrown(t *testing.T) {
	before, after := map[string]float64{"a": 1, "b": 2}, map[string]float64{"a": 1, "b": 5, "c": 4}
	if got, want := grown(before, after), map[string]float64{"b": 3, "c": 4}; !maps.Equal(got, want) {
		t.Errorf("grown(%v, %v) = %v, want %v", before, after, got, want)
	}
}
