package clusterset

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

var (
	operations       = flag.Int("operations", 40, "how many operations TestInterleavings does")
	interleavingSeed = flag.Uint64("interleaving", 1, "the seed of TestInterleavings")
)

// TestInterleavings changes Services, endpoints and exports of all members at random, restarts controllers meanwhile,
// and waits for nothing. In the end every member has the imports that follow from what is there, and other controllers
// do not change them. The same is proven for values, with more operations, in package desired.
func TestInterleavings(t *testing.T) {
	tier.All(t)
	t.Logf("%d operations, seed %d", *operations, *interleavingSeed)
	r := &interleaving{
		script: scriptIn(t, "random", east, ""), Rand: rand.New(rand.NewPCG(*interleavingSeed, 17)), t: t,
		stops: make([]func(), len(clusters.Members)), local: make(map[string]*localService),
	}
	defer r.withdraw(t)
	for i := range clusters.Members {
		r.restart(i)
	}
	for range *operations {
		r.operate()
	}
	for _, name := range []string{"web", "db"} { // an import to look at, whatever came before
		r.export(0, name)
	}
	r.awaitExpected()
	before := r.settledImports(t)
	for i := range clusters.Members {
		r.restart(i)
	}
	r.awaitImports(t, before, clusters.Members...)
}

// settledImports waits until all members have the same imports, which do not change for some seconds.
func (r *interleaving) settledImports(t *testing.T) (settled string) {
	t.Helper()
	var since time.Time
	until.OK(t, "imports that do not change", func(ctx context.Context) error {
		now, err := r.imports(ctx, clusters.Members)
		if err != nil {
			since = time.Time{}
			return err
		}
		if now != settled || since.IsZero() {
			settled, since = now, time.Now()
		}
		if time.Since(since) < 3*time.Second {
			return fmt.Errorf("they may change still:\n%s", now)
		}
		return nil
	})
	return settled
}

// An interleaving does operations, and knows what the members have of their own.
type interleaving struct {
	*script
	*rand.Rand
	t     *testing.T
	stops []func()
	local map[string]*localService // by index of the member, and name
}

// A localService is what a member has of a service.
type localService struct {
	affinity corev1.ServiceAffinity
	ports    []string
	exported bool
	slices   map[string][]string // addresses, by name
}

// restart replaces the controller of a member.
func (r *interleaving) restart(i int) {
	r.t.Helper()
	if r.stops[i] != nil {
		r.stops[i]()
	}
	var meter *meter
	meter, r.stops[i] = start(r.t, clusters.Members[i])
	meter.awaitIdle(r.t)
}

// operate does one operation.
func (r *interleaving) operate() {
	r.t.Helper()
	i, name := r.IntN(len(clusters.Members)), []string{"web", "db"}[r.IntN(2)]
	m, s := clusters.Members[i], r.service(i, name)
	slice := fmt.Sprintf("%s/%d", name, 1+r.IntN(2))
	switch op := r.IntN(20); {
	case op < 4:
		r.putService(i, name)
	case op < 10:
		var addresses []string
		for range r.IntN(3) {
			if a := fmt.Sprintf("10.2%d.0.%d", m.Index, 1+r.IntN(9)); !slices.Contains(addresses, a) {
				addresses = append(addresses, a)
			}
		}
		s.slices[slice] = addresses
		r.change(r.t, m, "Endpoints "+slice+" "+strings.Join(addresses, " "))
	case op < 12:
		if _, ok := s.slices[slice]; ok {
			delete(s.slices, slice)
			r.change(r.t, m, "-Endpoints "+slice)
		}
	case op < 16:
		r.export(i, name)
	case op < 19:
		if s.exported {
			s.exported = false
			r.change(r.t, m, "-Export "+name)
		}
	default:
		r.restart(i)
	}
}

// service returns what a member has of a service, and makes it if there is nothing yet.
func (r *interleaving) service(i int, name string) *localService {
	r.t.Helper()
	key := fmt.Sprint(i, name)
	if r.local[key] == nil {
		r.local[key] = &localService{slices: make(map[string][]string)}
		r.putService(i, name)
	}
	return r.local[key]
}

// putService gives a Service other ports and another session affinity. All have a port in common, so that no member is
// left out.
func (r *interleaving) putService(i int, name string) {
	r.t.Helper()
	s := r.local[fmt.Sprint(i, name)]
	s.affinity, s.ports = corev1.ServiceAffinityNone, []string{"http"}
	fields := []string{"ports: [{name: http, port: 80}]"}
	if r.IntN(2) == 0 {
		s.ports, fields = []string{"http", "admin"}, []string{"ports: [{name: http, port: 80}, {name: admin, port: 81}]"}
	}
	if name == "db" {
		fields = append(fields, "clusterIP: None")
	} else if r.IntN(2) == 0 {
		s.affinity = corev1.ServiceAffinityClientIP
		fields = append(fields, "sessionAffinity: ClientIP")
	}
	r.change(r.t, clusters.Members[i], "Service "+name+" {"+strings.Join(fields, ", ")+"}")
}

func (r *interleaving) export(i int, name string) {
	r.t.Helper()
	r.service(i, name).exported = true
	r.change(r.t, clusters.Members[i], "Export "+name)
}

// awaitExpected waits until the imports of all members are what follows from what the members have.
func (r *interleaving) awaitExpected() {
	r.t.Helper()
	for _, name := range []string{"web", "db"} {
		for _, m := range clusters.Members {
			until.OK(r.t, name+" in "+scriptName(m), func(ctx context.Context) error {
				want, err := r.expected(ctx, name)
				if err != nil {
					return err
				}
				got, err := r.imported(ctx, m, name)
				if err == nil && got != want {
					err = fmt.Errorf("got %s, want %s", got, want)
				}
				return err
			})
		}
	}
}

// expected is an import in one line, as it follows from what the members have. What is oldest is asked of the broker:
// the records there have the times of the exports.
func (r *interleaving) expected(ctx context.Context, name string) (string, error) {
	records, err := listOn[v1alpha1.ExportedService](ctx, clusters.Broker, v1alpha1.GroupVersion.String(),
		"exportedservices", "")
	if err != nil {
		return "", err
	}
	var exporters, ports, addresses []string
	var oldest time.Time
	affinity := corev1.ServiceAffinityNone
	for i, m := range clusters.Members {
		s := r.local[fmt.Sprint(i, name)]
		at := slices.IndexFunc(records, func(e v1alpha1.ExportedService) bool {
			return e.Namespace == m.BrokerNamespace() && e.Spec.Namespace == r.namespace && e.Spec.Name == name
		})
		switch {
		case s == nil || !s.exported:
			continue
		case at < 0:
			return "", fmt.Errorf("the broker has no record of %s yet", scriptName(m))
		}
		// Members are in the order of their ids, which decides between equal times.
		since := records[at].Spec.ExportCreated.Time
		// the record of an export that was deleted and is back
		if written := records[at].CreationTimestamp.Time; written.Before(since) {
			since = written
		}
		if oldest.IsZero() || since.Before(oldest) {
			oldest, affinity = since, s.affinity
		}
		exporters = append(exporters, m.ID)
		ports = append(ports, s.ports...)
		for _, all := range s.slices {
			addresses = append(addresses, all...)
		}
	}
	return oneLine(exporters, affinity, ports, addresses), nil
}

// imported is the import of a member in one line.
func (r *interleaving) imported(ctx context.Context, m *testclusterset.Member, name string) (string, error) {
	imp, err := m.Import(ctx, r.namespace, name)
	if err != nil {
		return "", err
	}
	all, err := m.Imported(ctx, r.namespace, name)
	if err != nil {
		return "", err
	}
	var exporters, ports, addresses []string
	for _, c := range imp.Status.Clusters {
		exporters = append(exporters, c.Cluster)
	}
	for _, p := range imp.Spec.Ports {
		ports = append(ports, p.Name)
	}
	for _, s := range all {
		for _, e := range s.Endpoints {
			addresses = append(addresses, e.Addresses...)
		}
	}
	return oneLine(exporters, imp.Spec.SessionAffinity, ports, addresses), nil
}

// oneLine shows ports once, and each address as often as slices have it.
func oneLine(exporters []string, affinity corev1.ServiceAffinity, ports, addresses []string) string {
	slices.Sort(exporters)
	slices.Sort(ports)
	slices.Sort(addresses)
	return fmt.Sprint(exporters, " ", affinity, " ", slices.Compact(ports), " ", addresses)
}
