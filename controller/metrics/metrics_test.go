package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
)

func service(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}

func TestMetricsLint(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := New(reg, Labels{Reasons: []string{"credential"}, Queues: []string{"exports"}})
	m.Wrote("local", "Service", "apply")
	m.Rejected("bad_name")
	m.SetPool("IPv4", 1, 2, 3)
	m.SetService(service("db"), []string{"PortConflict"}, 2)
	m.ObserveLag(time.Second)
	m.SetMember("east")
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "coredns_clusterset_controller_") {
			t.Errorf("metric %s: want the prefix coredns_clusterset_controller_", f.GetName())
		}
	}
}

// The cluster id is that of now, and gone with the membership.
func TestMemberInfo(t *testing.T) {
	m := New(nil, Labels{})
	for _, id := range []string{"east", "west", ""} {
		m.SetMember(id)
		want := 0
		if id != "" {
			want = 1
		}
		if got := testutil.CollectAndCount(m.memberInfo); got != want || testutil.ToFloat64(m.member) != float64(want) {
			t.Errorf("cluster id %q: %d series, want %d", id, got, want)
		}
		if id != "" && testutil.ToFloat64(m.memberInfo.WithLabelValues(id)) != 1 {
			t.Errorf("cluster id %q has no series", id)
		}
	}
}

// The gauges are sums over services, and forget one that is gone.
func TestMetricsOfServices(t *testing.T) {
	m := New(nil, Labels{})
	ports, kinds := m.conflicts.WithLabelValues("PortConflict"), m.conflicts.WithLabelValues("TypeConflict")
	for _, step := range []struct {
		name                  string
		reasons               []string
		count                 int
		ports, kinds, records float64
	}{
		{"a", []string{"PortConflict", "TypeConflict"}, 3, 1, 1, 3},
		{"b", []string{"PortConflict"}, 2, 2, 1, 5},
		{"a", []string{"PortConflict"}, 1, 2, 0, 3},
		{"a", nil, 0, 1, 0, 2},
		{"a", nil, 0, 1, 0, 2},
		{"b", nil, 0, 0, 0, 0},
	} {
		m.SetService(service(step.name), step.reasons, step.count)
		if p, ty, r := testutil.ToFloat64(ports), testutil.ToFloat64(kinds), testutil.ToFloat64(m.records); p != step.ports ||
			ty != step.kinds || r != step.records {
			t.Errorf("after %+v: PortConflict %v, TypeConflict %v, records %v", step, p, ty, r)
		}
	}
	if len(m.services) != 0 {
		t.Errorf("%d services are remembered, want none", len(m.services))
	}
}

func TestUndeclaredAddresses(t *testing.T) {
	m := New(nil, Labels{})
	for _, step := range []struct {
		name  string
		count int
		want  float64
	}{{"a", 2, 2}, {"b", 1, 3}, {"a", 1, 2}, {"a", 0, 1}, {"c", 0, 1}} {
		m.SetUndeclared(service(step.name), step.count)
		if got := testutil.ToFloat64(m.undeclared); got != step.want {
			t.Errorf("after %+v: %v, want %v", step, got, step.want)
		}
	}
	if len(m.outside) != 1 {
		t.Errorf("%d services are remembered, want b alone", len(m.outside))
	}
	m.Reset()
	if got := testutil.ToFloat64(m.undeclared); got != 0 {
		t.Errorf("after Reset: %v, want 0", got)
	}
}

// A member without a heartbeat, or without a TTL where no TTL is set, has no such metric.
func TestHeartbeats(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := New(reg, Labels{})
	m.SetSources(Sources{Heartbeats: func() map[string]Heartbeat {
		return map[string]Heartbeat{"east": {Seen: time.Now(), TTL: time.Minute}, "west": {TTL: time.Hour},
			"north": {Seen: time.Now()}}
	}})
	ages, err := testutil.GatherAndCount(reg, prefix+"lease_age_seconds")
	if err != nil || ages != 2 {
		t.Errorf("%d ages, %v, want those of east and north", ages, err)
	}
	want := `# HELP coredns_clusterset_controller_lease_ttl_seconds Age of its heartbeat at which a member is silent.
# TYPE coredns_clusterset_controller_lease_ttl_seconds gauge
coredns_clusterset_controller_lease_ttl_seconds{cluster="east"} 60
coredns_clusterset_controller_lease_ttl_seconds{cluster="west"} 3600
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), prefix+"lease_ttl_seconds"); err != nil {
		t.Error(err)
	}
}
