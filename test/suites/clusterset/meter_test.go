package clusterset

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterset-dns/clusterset/test/harness/series"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A meter holds the metrics of one controller.
type meter struct{ *prometheus.Registry }

// values returns the sums of a metric by the values of labels: "local EndpointSlice patch".
func (m *meter) values(name string, labels ...string) (map[string]float64, error) {
	all, err := series.Gather(m)
	return all.Named(series.Controller + name).By(labels...), err
}

// awaitIdle waits until the controller leads for a member, nothing is frozen and its queue is empty.
func (m *meter) awaitIdle(t testing.TB) {
	t.Helper()
	until.OK(t, "an idle controller", func(context.Context) error { return m.idle() })
}

func (m *meter) idle() error {
	for name, want := range map[string]float64{"member": 1, "broker_connected": 1, "frozen": 0, "queue_depth": 0} {
		got, err := m.values(name)
		if err != nil {
			return err
		}
		if got[""] != want {
			return fmt.Errorf("%s is %v, want %v", name, got[""], want)
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
			lines = append(lines, fmt.Sprintf("%v %s", n, what))
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
