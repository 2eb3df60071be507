package importer

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// docs/spec/controller.md 4.3: the only port of a Service gets another name, and its slices follow: endpoints are
// imported all the time. If they do not follow, the record counts at last.
func TestRenamedPort(t *testing.T) {
	b := newEnv(t)
	west := b.partner("west")
	record, slice := west.record(), west.slice("a", "10.2.0.1")
	b.Create(record, slice)
	var waits []time.Duration
	i := b.start(func(c *Config) { c.Retry = func(_ types.NamespacedName, d time.Duration) { waits = append(waits, d) } })
	i.do("record", func() bool { return i.addressOf("west") != "" })
	rename := func(name string) []string {
		t.Helper()
		record.Spec.Ports[0].Name = name
		b.Update(record)
		return i.do("renamed", func() bool { return i.Broker.Records(db)[0].Spec.Ports[0].Name == name })
	}

	i.Expect("a port that was renamed", rename("postgres"))
	if len(waits) != 1 || waits[0] > portsGrace {
		t.Errorf("tried again after %v, want once, after at most %s", waits, portsGrace)
	}
	slice.Ports[0].Name = new("postgres")
	b.Update(slice)
	got := i.do("slices follow", func() bool { return *i.Broker.Slices(db, "west")[0].Ports[0].Name == "postgres" })
	i.Expect("slices that follow", got, importWrite, derivedWrite("PATCH"), importedWrite("PATCH", "west", "a"))

	i.Expect("a port that was renamed again", rename("pg"))
	i.Await("slices that do not follow", func() bool {
		if err := i.Reconcile(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		return len(i.read().Slices) == 0
	})
	if name := i.read().Import.Spec.Ports[0].Name; name != "pg" {
		t.Errorf("port = %s, want that of the record", name)
	}
}

func TestServesNoPort(t *testing.T) {
	pg := []v1alpha1.ServicePort{{Name: "pg", Protocol: corev1.ProtocolTCP, Port: 5432}}
	slice := func(endpoints int, ports ...string) *discoveryv1.EndpointSlice {
		e := &discoveryv1.EndpointSlice{Endpoints: make([]discoveryv1.Endpoint, endpoints)}
		for _, name := range ports {
			e.Ports = append(e.Ports, discoveryv1.EndpointPort{Name: &name})
		}
		return e
	}
	udp := slice(1, "pg")
	udp.Ports[0].Protocol = new(corev1.ProtocolUDP)
	for _, tt := range []struct {
		name  string
		ports []v1alpha1.ServicePort
		all   []*discoveryv1.EndpointSlice
		want  bool
	}{
		{name: "no slice", ports: pg},
		{name: "the port", ports: pg, all: []*discoveryv1.EndpointSlice{slice(1, "a"), slice(1, "a", "pg")}},
		{name: "another name", ports: pg, all: []*discoveryv1.EndpointSlice{slice(1, "a"), slice(1, "")}, want: true},
		{name: "another protocol", ports: pg, all: []*discoveryv1.EndpointSlice{udp}, want: true},
		{name: "the port without endpoints", ports: pg, all: []*discoveryv1.EndpointSlice{slice(1, "a"), slice(0, "pg")},
			want: true},
		{name: "no endpoints", ports: pg, all: []*discoveryv1.EndpointSlice{slice(0, "a")}},
		{name: "slices without ports", ports: pg, all: []*discoveryv1.EndpointSlice{slice(1)}},
		{name: "a record without ports", all: []*discoveryv1.EndpointSlice{slice(1, "a")}},
	} {
		if got := servesNoPort(tt.ports, tt.all); got != tt.want {
			t.Errorf("%s: servesNoPort = %t, want %t", tt.name, got, tt.want)
		}
	}
}
