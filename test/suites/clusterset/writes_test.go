package clusterset

import (
	"context"
	"fmt"
	"testing"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// TestWritesAreFew counts the writes of controllers (docs/spec/controller.md 10).
func TestWritesAreFew(t *testing.T) {
	tier.All(t)
	var first []*meter
	var stops []func()
	for _, m := range clusters.Members {
		meter, stop := start(t, m, "aggregate_view on", "legacy_conditions on")
		meter.awaitIdle(t)
		first, stops = append(first, meter), append(stops, stop)
	}
	s := scriptIn(t, "writes", east, webOfEast+`
Service shared {ports: [{name: http, port: 80}]}
Endpoints shared/1 10.21.0.2
Export shared`)
	defer s.withdraw(t)
	s.change(t, north, `Service shared {ports: [{name: http, port: 81}]}
Endpoints shared/1 10.22.0.2
Export shared
Service db {clusterIP: None, ports: [{name: pg, port: 5432}]}
Endpoints db/1 db-0=10.22.0.3
Export db`)
	var settled string
	until.OK(t, "all imports", func(ctx context.Context) (err error) {
		settled, err = s.imports(ctx, clusters.Members)
		for _, want := range []string{"from east, derived: http=TCP/8080 at 10.21.0.1",
			"shared ClusterSetIP [vip4] of [IPv4] from [east north.registry1]", "db-0=10.22.0.3"} {
			if err == nil {
				err = contains(settled, want)
			}
		}
		return err
	})
	// Each of these has an author of its own, and what is not written before the restart is written after it.
	for _, m := range []*testclusterset.Member{east, north} {
		s.condition(t, m, "shared", "Conflict=True/PortConflict")
		s.condition(t, m, "shared", "Exported=True/Exported")
	}
	s.condition(t, east, "web", "Conflict=False/NoConflicts")
	s.condition(t, east, "web", "Exported=True/Exported")
	s.condition(t, north, "db", "Conflict=False/NoConflicts")
	s.condition(t, north, "db", "Exported=True/Exported")
	until.OK(t, "views on the broker, of all imports", func(ctx context.Context) error {
		views, err := s.views(ctx)
		for _, want := range []string{
			"web.writes ClusterSetIP [] of [IPv4] from [east]",
			"shared.writes ClusterSetIP [] of [IPv4] from [east north.registry1]",
			"db.writes Headless [] of [IPv4] from [north.registry1]",
		} {
			if err == nil {
				err = contains(views, want)
			}
		}
		return err
	})
	s.awaitInImports(
		t, "shared ClusterSetIP [vip4] of [IPv4] from [east north.registry1], slices Present, Ready=True/Ready\n")
	awaitStatuses(t)
	awaitIdle(t, first)
	for _, stop := range stops {
		stop()
	}

	var meters []*meter
	for _, m := range clusters.Members {
		meter, _ := start(t, m, "aggregate_view on", "legacy_conditions on")
		meters = append(meters, meter)
	}
	awaitIdle(t, meters)
	count(t, meters, "after a restart", "", "", "")

	s.change(t, east, "Endpoints web/1 10.21.0.1 10.21.0.9")
	s.awaitInImports(t, "slice of web from east, derived: http=TCP/8080 at 10.21.0.1 10.21.0.9\n")
	awaitIdle(t, meters)
	const flip = "1 local EndpointSlice patch"
	count(t, meters, "one endpoint more", "1 broker EndpointSlice apply, "+flip, flip, flip)

	// No write for objects that are the same, or not exported.
	s.change(t, east, "Endpoints web/1 10.21.0.1 10.21.0.9\nExport web {annotations: {note: x}}")
	svc := s.services[east.ID+"/web"].DeepCopy()
	svc.Labels = map[string]string{"app": "web"}
	east.Put(t, svc)
	s.change(t, east, "Endpoints web/1 10.21.0.1")
	s.awaitInImports(t, "slice of web from east, derived: http=TCP/8080 at 10.21.0.1\n")
	awaitIdle(t, meters)
	const twice = "2 local EndpointSlice patch"
	count(t, meters, "equal updates, and one endpoint less", "2 broker EndpointSlice apply, "+twice, twice, twice)

	s.change(t, east, "Service web {ports: [{name: http, port: 80}, {name: https, port: 443}]}")
	s.awaitInImports(t, "derived of web [vip4]\n  port \"http\" TCP/80 -\n  port \"https\" TCP/443 -\n")
	awaitIdle(t, meters)
	const ports = twice + ", 1 local Service patch, 1 local ServiceImport patch"
	// The view on the broker is one more, with its status.
	count(t, meters, "one port more",
		"1 broker ExportedService apply, 1 broker ServiceImport apply, 1 broker ServiceImport/status apply, "+
			"1 local Service patch, 1 local ServiceImport patch, 2 broker EndpointSlice apply, "+twice, sorted(ports),
		sorted(ports))
}

// awaitStatuses waits until the status of each Member on the broker has the option "merge" of its controller, here the
// default. A controller writes it with its heartbeat.
func awaitStatuses(t *testing.T) {
	t.Helper()
	until.OK(t, "status of all members", func(ctx context.Context) error {
		all, err := listOn[v1alpha1.Member](ctx, clusters.Broker, v1alpha1.GroupVersion.String(), "members", "")
		for _, m := range all {
			if want := string(merge.KEP); m.Status.Merge != want {
				return fmt.Errorf("%s: merge %q, want %q", m.Name, m.Status.Merge, want)
			}
		}
		return err
	})
}

// awaitInImports waits until the imports of all members contain the text.
func (s *script) awaitInImports(t *testing.T, text string) {
	t.Helper()
	until.OK(t, "imports", func(ctx context.Context) error {
		got, err := s.imports(ctx, clusters.Members)
		if err == nil {
			err = contains(got, text)
		}
		return err
	})
}

// awaitIdle waits until all controllers know all four records and have nothing left to do.
func awaitIdle(t *testing.T, meters []*meter) {
	t.Helper()
	until.OK(t, "nothing to do", func(context.Context) error {
		for _, m := range meters {
			if err := m.idle(); err != nil {
				return err
			}
			records, err := m.values("exported_services")
			if err == nil && records[""] != 4 {
				err = fmt.Errorf("%v records, want 4", records[""])
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// count compares the writes of east, north and west since their start. A write may still be on its way when an effect
// of it elsewhere is there: count waits until there are enough, and until the controllers are idle. One too many that
// comes even later fails the next count.
func count(t *testing.T, meters []*meter, when string, want ...string) {
	t.Helper()
	until.OK(t, when, func(context.Context) error {
		for i, m := range meters {
			got, err := m.writes()
			if err != nil {
				return err
			}
			if got != want[i] {
				return fmt.Errorf("%s wrote %q, want %q", scriptName(clusters.Members[i]), got, want[i])
			}
		}
		return nil
	})
	awaitIdle(t, meters)
	for i, m := range meters {
		got, err := m.writes()
		if err != nil {
			t.Fatal(err)
		}
		if got != want[i] {
			t.Errorf("%s: %s wrote %q, want %q", when, scriptName(clusters.Members[i]), got, want[i])
		}
	}
}
