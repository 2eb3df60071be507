package faults

import (
	"context"
	"strings"
	"testing"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// While the broker is away, however it went, a member removes nothing, its own endpoints stay true, and conditions and metrics
// say what is the matter (sections 5 and 8). Once it is back everybody sees what happened meanwhile.
func TestBrokerIsAway(t *testing.T) {
	for _, tt := range []struct {
		name, namespace string
		away, back      func(t *testing.T)
		restart         bool // the controller starts while the broker is away
	}{
		{name: "down at start", namespace: "down", away: killBroker, back: startBroker, restart: true},
		{name: "lost", namespace: "lost", away: killBroker, back: startBroker},
		{name: "frozen", namespace: "frozen", away: freezeBroker, back: thawBroker},
	} {
		t.Run(tt.name, func(t *testing.T) {
			export(t, east, tt.namespace, "web", "10.21.0.1")
			export(t, west, tt.namespace, "web", "10.22.0.1")
			e, w := run(t, east), run(t, west)
			sees(t, east, tt.namespace, "web", "10.21.0.1 10.22.0.1")
			sees(t, west, tt.namespace, "web", "10.21.0.1 10.22.0.1")
			e.hears("west")
			w.hears("east")
			inEast, inWest := undisturbed(t, east, tt.namespace), undisturbed(t, west, tt.namespace)
			if tt.restart {
				e.stop()
			}
			tt.away(t)
			back := false
			defer func() {
				if !back {
					tt.back(t)
				}
			}()
			if tt.restart {
				e = run(t, east)
				e.shows("frozen", "not_synced", 1)
			} else {
				e.silent("west")
			}
			w.silent("east")
			e.shows("broker_connected", "", 0)
			serve(t, east, tt.namespace, "web", "10.21.0.2")
			sees(t, east, tt.namespace, "web", "10.21.0.2 10.22.0.1")
			keeps(t, west, tt.namespace, "web", "10.21.0.1 10.22.0.1")
			export(t, east, tt.namespace, "new", "10.21.0.3")
			waits(t, east, tt.namespace, "new")

			tt.back(t)
			back = true
			e.shows("broker_connected", "", 1)
			e.shows("frozen", "not_synced", 0)
			sees(t, west, tt.namespace, "web", "10.21.0.2 10.22.0.1")
			sees(t, west, tt.namespace, "new", "10.21.0.3")
			inEast()
			inWest()
		})
	}
}

// waits waits until an export says that it waits for the broker.
func waits(t *testing.T, m *testclusterset.Member, namespace, name string) {
	t.Helper()
	until.OK(t, "condition of "+name, func(ctx context.Context) error {
		exp, err := m.ServiceExport(ctx, namespace, name)
		if err != nil {
			return err
		}
		for _, c := range exp.Status.Conditions {
			if c.Type == string(mcsv1beta1.ServiceExportConditionReady) && strings.HasPrefix(c.Message, "Waiting for the broker") {
				return testclusterset.Condition(exp.Status.Conditions, "Ready=Unknown/Pending")
			}
		}
		return testclusterset.Condition(exp.Status.Conditions, "Ready=Unknown/Pending with its reason")
	})
}

func killBroker(*testing.T) { clusters.Broker.KillAPIServer() }

func startBroker(t *testing.T) {
	t.Helper()
	// A test that was ended still leaves a broker to the next one.
	if err := clusters.Broker.StartAPIServer(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func freezeBroker(t *testing.T) {
	t.Helper()
	if err := clusters.Broker.Freeze(); err != nil {
		t.Fatal(err)
	}
}

func thawBroker(t *testing.T) {
	t.Helper()
	if err := clusters.Broker.Thaw(); err != nil {
		t.Fatal(err)
	}
}

// One member is cut off: after the TTL the others do without its endpoints, but its older export still decides what the import
// is; they have them back on renewal. The one that is cut off removes nothing (section 8).
func TestMemberIsCutOff(t *testing.T) {
	const ns = "cut"
	link := newRelay(t, strings.TrimPrefix(clusters.Broker.Config().Host, "https://"))
	export(t, east, ns, "web", "10.21.0.1")
	e := run(t, east, func(c *controller.Config) { c.Broker = via(t, c.Broker, link.url(), nil) })
	w := run(t, west)
	sees(t, east, ns, "web", "10.21.0.1")
	west.Put(t, testclusterset.Namespace(ns))
	sees(t, west, ns, "web", "10.21.0.1")
	export(t, west, ns, "web", "10.22.0.1")
	changed := testclusterset.Service(ns, "web", testclusterset.Port("http", 80))
	changed.Spec.SessionAffinity = "ClientIP"
	west.Put(t, changed)
	sees(t, east, ns, "web", "10.21.0.1 10.22.0.1")
	sees(t, west, ns, "web", "10.21.0.1 10.22.0.1")
	inEast := undisturbed(t, east, ns)

	link.sever()
	sees(t, west, ns, "web", "10.22.0.1")
	e.shows("broker_connected", "", 0)
	e.silent("west")
	serve(t, east, ns, "web", "10.21.0.2")
	sees(t, east, ns, "web", "10.21.0.2 10.22.0.1")
	w.shows("frozen", "mass_expiry", 0)
	oldest(t, west, ns)

	link.mend()
	sees(t, west, ns, "web", "10.21.0.2 10.22.0.1")
	e.shows("broker_connected", "", 1)
	inEast()
}

// oldest fails the test unless the import "web" is what east's export, the older one, says.
func oldest(t *testing.T, m *testclusterset.Member, namespace string) {
	t.Helper()
	imp, err := m.Import(t.Context(), namespace, "web")
	if err != nil {
		t.Fatal(err)
	}
	if imp.Spec.SessionAffinity == "ClientIP" || len(imp.Status.Clusters) != 2 {
		t.Errorf("import in %s has session affinity %q, clusters %v: want those of an import whose oldest export is east's",
			m.ID, imp.Spec.SessionAffinity, imp.Status.Clusters)
	}
}
