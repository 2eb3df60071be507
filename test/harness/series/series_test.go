package series

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

const scraped = `# HELP watches Watches.
# TYPE watches gauge
watches{resource="leases",verb="WATCH"} 2
watches{resource="leases",verb="LIST"} 3
watches{resource="members",verb="WATCH"} 1.5e+01

up 1
sizes_bucket{le="+Inf",path="a \"b\" {c}, d"} 7 1700000000000
`

func TestParse(t *testing.T) {
	all, err := Parse(scraped)
	if err != nil || len(all) != 5 {
		t.Fatalf("Parse(%q) = %v, %v, want 5 metrics", scraped, all, err)
	}
	if got := all.Named("watches").Sum(); got != 20 {
		t.Errorf("sum of watches = %g, want 20", got)
	}
	for _, tt := range []struct {
		labels []string
		want   map[string]float64
	}{
		{labels: []string{"resource"}, want: map[string]float64{"leases": 5, "members": 15}},
		{labels: []string{"verb", "resource"}, want: map[string]float64{"WATCH leases": 2, "LIST leases": 3,
			"WATCH members": 15}},
	} {
		if got := all.Named("watches").By(tt.labels...); !maps.Equal(got, tt.want) {
			t.Errorf("watches by %q = %v, want %v", tt.labels, got, tt.want)
		}
	}
	if got := all.Named("watches").With("verb", "WATCH").Sum(); got != 17 {
		t.Errorf("sum of watches with the verb WATCH = %g, want 17", got)
	}
	for value, want := range map[string]int{"leases": 2, "WATCH": 2, "LIST": 1, "PATCH": 0, "": 3} {
		if got := all.Named("watches").Of(value); len(got) != want {
			t.Errorf("watches of %q = %v, want %d", value, got, want)
		}
	}
	last := all[4]
	if last.Value != 7 || last.Labels["le"] != "+Inf" || last.Labels["path"] != `a \"b\" {c}, d` {
		t.Errorf("last metric = %v, want the value 7 and both labels", last)
	}
}

func TestParseOther(t *testing.T) {
	for _, text := range []string{"<html>", "up", "up one", `up{a="b" 1`} {
		if got, err := Parse(text); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", text, got)
		}
	}
}

// A registry has the same time series as its text.
func TestGather(t *testing.T) {
	metrics := prometheus.NewRegistry()
	writes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "writes"}, []string{"side"})
	lag := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lag"})
	depth := prometheus.NewGauge(prometheus.GaugeOpts{Name: "depth"})
	metrics.MustRegister(writes, lag, depth)
	writes.WithLabelValues("local").Add(3)
	writes.WithLabelValues("broker").Add(2)
	lag.Observe(7)
	lag.Observe(8)
	depth.Set(-1.5)
	all, err := Gather(metrics)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := all.Named("writes").By("side"), map[string]float64{"local": 3, "broker": 2}; !maps.Equal(got, want) {
		t.Errorf("writes by side = %v, want %v", got, want)
	}
	if count, depth := all.Named("lag_count").Sum(), all.Named("depth").Sum(); len(all) != 4 || count != 2 ||
		depth != -1.5 {
		t.Errorf("%v: want the count 2 of lag and the depth -1.5", all)
	}
}
