package clusterset

import (
	"context"
	"fmt"
	"testing"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// TestWritesAreFew counts what controllers write (section 10).
func TestWritesAreFew(t *testing.T) {
	var stops []func()
	for _, m := range clusters.Members {
		meter, stop := start(t, m, "aggregate_view on", "legacy_conditions on")
		meter.acts(t)
		stops = append(stops, stop)
	}
	s := used(t, "writes", east, webOfEast+`
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
		for _, want := range []string{"from east, derived: http=TCP/8080 at 10.21.0.1", "shared ClusterSetIP [vip4] of [IPv4] from [east north.registry1]", "db-0=10.22.0.3"} {
			if err == nil {
				err = contains(settled, want)
			}
		}
		return err
	})
	for _, m := range []*testclusterset.Member{east, north} {
		s.condition(t, m, "shared", "Conflict=True/PortConflict")
		s.condition(t, m, "shared", "Exported=True/Exported")
	}
	s.condition(t, north, "db", "Conflict=False/NoConflicts")
	statuses(t)
	for _, stop := range stops {
		stop()
	}

	var meters []*meter
	for _, m := range clusters.Members {
		meter, _ := start(t, m, "aggregate_view on", "legacy_conditions on")
		meters = append(meters, meter)
	}
	quiet(t, meters)
	count(t, meters, "after a restart", "", "", "")

	s.change(t, east, "Endpoints web/1 10.21.0.1 10.21.0.9")
	s.arrives(t, "slice of web from east, derived: http=TCP/8080 at 10.21.0.1 10.21.0.9\n")
	quiet(t, meters)
	const flip = "1 local EndpointSlice patch"
	count(t, meters, "one endpoint more", "1 broker EndpointSlice apply, "+flip, flip, flip)

	// Neither what is the same, nor what does not travel.
	s.change(t, east, "Endpoints web/1 10.21.0.1 10.21.0.9\nExport web {annotations: {note: x}}")
	svc := s.services[east.ID+"/web"].DeepCopy()
	svc.Labels = map[string]string{"app": "web"}
	east.Put(t, svc)
	s.change(t, east, "Endpoints web/1 10.21.0.1")
	s.arrives(t, "slice of web from east, derived: http=TCP/8080 at 10.21.0.1\n")
	quiet(t, meters)
	const twice = "2 local EndpointSlice patch"
	count(t, meters, "equal updates, and one endpoint less", "2 broker EndpointSlice apply, "+twice, twice, twice)

	s.change(t, east, "Service web {ports: [{name: http, port: 80}, {name: https, port: 443}]}")
	s.arrives(t, "derived of web [vip4]\n  port \"http\" TCP/80 -\n  port \"https\" TCP/443 -\n")
	quiet(t, meters)
	const ports = twice + ", 1 local Service patch, 1 local ServiceImport patch"
	// The view on the broker is one more, with its status.
	count(t, meters, "one port more", "1 broker ExportedService apply, 1 broker ServiceImport apply, 1 broker ServiceImport/status apply, "+
		"1 local Service patch, 1 local ServiceImport patch, 2 broker EndpointSlice apply, "+twice, sorted(ports), sorted(ports))
}

// statuses waits until each Member on the broker says how its controller merges, by default. That goes with the heartbeat,
// which nothing else that a member does waits for.
func statuses(t *testing.T) {
	t.Helper()
	until.OK(t, "status of all members", func(ctx context.Context) error {
		all, err := listOn[v1alpha1.Member](ctx, clusters.Broker, v1alpha1.GroupVersion.String(), "members", "")
		for _, m := range all {
			if want := (merge.Options{}).Hash(); m.Status.MergeOptions != want {
				return fmt.Errorf("%s: merge options %q, want %q", m.Name, m.Status.MergeOptions, want)
			}
		}
		return err
	})
}

// arrives waits until the imports of all members have the text.
func (s *script) arrives(t *testing.T, text string) {
	t.Helper()
	until.OK(t, "imports", func(ctx context.Context) error {
		got, err := s.imports(ctx, clusters.Members)
		if err == nil {
			err = contains(got, text)
		}
		return err
	})
}

// quiet waits until all controllers know all four records and have nothing left to do.
func quiet(t *testing.T, meters []*meter) {
	t.Helper()
	until.OK(t, "nothing to do", func(context.Context) error {
		for _, m := range meters {
			if err := m.idle(); err != nil {
				return err
			}
			records, err := m.values("exported_services")
			if err == nil && records[""] != 4 {
				err = fmt.Errorf("%d records, want 4", records[""])
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// count compares what east, north and west have written.
func count(t *testing.T, meters []*meter, when string, want ...string) {
	t.Helper()
	for i, m := range meters {
		got, err := m.writes()
		if err != nil {
			t.Fatal(err)
		}
		if got != want[i] {
			t.Errorf("%s: %s wrote %q, want %q", when, called(clusters.Members[i]), got, want[i])
		}
	}
}
