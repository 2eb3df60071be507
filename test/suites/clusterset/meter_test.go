package clusterset

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A meter holds the metrics of one controller.
type meter struct{ *prometheus.Registry }

const prefix = "coredns_clusterset_controller_"

// values returns the counters and gauges with a name, by the values of labels: "local EndpointSlice patch".
func (m *meter) values(name string, labels ...string) (map[string]int, error) {
	families, err := m.Gather()
	if err != nil {
		return nil, err
	}
	all := make(map[string]int)
	for _, f := range families {
		if f.GetName() != prefix+name {
			continue
		}
		for _, metric := range f.GetMetric() {
			text := make([]string, len(labels))
			for _, l := range metric.GetLabel() {
				if i := slices.Index(labels, l.GetName()); i >= 0 {
					text[i] = l.GetValue()
				}
			}
			all[strings.Join(text, " ")] += int(metric.GetCounter().GetValue() + metric.GetGauge().GetValue())
		}
	}
	return all, nil
}

// awaitIdle waits until the controller leads for a member, nothing is frozen and its queue is empty.
func (m *meter) awaitIdle(t testing.TB) {
	t.Helper()
	until.OK(t, "an idle controller", func(context.Context) error { return m.idle() })
}

func (m *meter) idle() error {
	for name, want := range map[string]int{"member": 1, "broker_connected": 1, "frozen": 0, "queue_depth": 0} {
		got, err := m.values(name)
		if err != nil {
			return err
		}
		if got[""] != want {
			return fmt.Errorf("%s is %d, want %d", name, got[""], want)
		}
	}
	return nil
}

// writes returns the number of writes by kind, except Leases and Events, sorted: "2 broker EndpointSlice apply".
func (m *meter) writes() (string, error) {
	all, err := m.values("writes_total", "side", "kind", "verb")
	var lines []string
	for what, n := range all {
		if !strings.Contains(what, " Lease ") && !strings.Contains(what, " Event ") {
			lines = append(lines, fmt.Sprintf("%d %s", n, what))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, ", "), err
}

// sorted sorts the lines of writes.
func sorted(writes string) string {
	lines := strings.Split(writes, ", ")
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

func contains(text, part string) error {
	if !strings.Contains(text, part) {
		return fmt.Errorf("got\n%swant in it\n%s", text, part)
	}
	return nil
}
