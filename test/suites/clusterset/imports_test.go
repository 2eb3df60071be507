package clusterset

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// scriptIn returns a script that has put the lines into the member, in a namespace that exists in all members. The
// caller defers withdraw.
func scriptIn(t *testing.T, namespace string, m *testclusterset.Member, lines string) *script {
	t.Helper()
	s := &script{namespace: namespace, services: make(map[string]*corev1.Service)}
	for _, m := range clusters.Members {
		m.Put(t, testclusterset.Namespace(namespace))
	}
	s.change(t, m, lines)
	return s
}

const webOfEast = `Service web {ports: [{name: http, port: 80}]}
Endpoints web/1 10.21.0.1
Export web`

const webImported = `web ClusterSetIP [vip4] of [IPv4] from [east], slices Present, Ready=True/Ready
  port "http" TCP/80 -
derived of web [vip4]
  port "http" TCP/80 -
slice of web from east, derived: http=TCP/8080 at 10.21.0.1
`

// awaitImports waits until the imports of these members are want.
func (s *script) awaitImports(t *testing.T, want string, in ...*testclusterset.Member) {
	t.Helper()
	until.OK(t, "imports", func(ctx context.Context) error {
		got, err := s.imports(ctx, in)
		if err == nil && got != want {
			err = fmt.Errorf("got\n%swant\n%s", got, want)
		}
		return err
	})
}

// condition waits for a condition of an export.
func (s *script) condition(t *testing.T, m *testclusterset.Member, name, want string) {
	t.Helper()
	until.OK(t, name, func(ctx context.Context) error {
		exp, err := m.ServiceExport(ctx, s.namespace, name)
		if err != nil {
			return err
		}
		return testclusterset.Condition(exp.Status.Conditions, want)
	})
}

var (
	importsGVR = schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1beta1",
		Resource: "serviceimports"}
	servicesGVR = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	slicesGVR   = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	spacesGVR   = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// TestDriftIsCorrected changes and deletes the objects of an import: the controller restores them
// (docs/spec/controller.md 5).
func TestDriftIsCorrected(t *testing.T) {
	runAll(t)
	s := scriptIn(t, "drift", east, webOfEast+" {exportedLabels: {tier: gold}, exportedAnnotations: {note: text}}")
	defer s.withdraw(t)
	want := strings.Replace(webImported, "derived of", "  label tier=gold\n  annotation note=text\nderived of", 1)
	s.awaitImports(t, want, west)
	imp, err := west.Import(t.Context(), s.namespace, "web")
	if err != nil {
		t.Fatal(err)
	}
	imported, err := west.Imported(t.Context(), s.namespace, "web")
	if err != nil || len(imported) != 1 {
		t.Fatalf("%d slices, %v", len(imported), err)
	}
	derived := desired.DerivedName(s.namespace, "web")
	var slowest time.Duration
	for _, tt := range []struct {
		name  string
		of    schema.GroupVersionResource
		patch string // "" deletes
	}{
		{imp.Name, importsGVR, `{"spec":{"ports":[],"type":"Headless","ips":[]},"metadata":{"labels":{"tier":"silver"}}}`},
		{imp.Name, importsGVR, `{"metadata":{"labels":{"tier":null},"annotations":{"note":null}}}`},
		{derived, servicesGVR, `{"spec":{"selector":{"app":"web"},"ports":[{"name":"more","port":81}],"sessionAffinity":"ClientIP"}}`},
		{imported[0].Name, slicesGVR, `{"endpoints":[{"addresses":["10.99.0.1"]}],"metadata":{"labels":{"multicluster.kubernetes.io/service-name":null}}}`},
		{imported[0].Name, slicesGVR, ""},
		{derived, servicesGVR, ""},
		{imp.Name, importsGVR, ""},
	} {
		r := west.Dynamic().Resource(tt.of).Namespace(s.namespace)
		if tt.patch == "" {
			err = r.Delete(t.Context(), tt.name, metav1.DeleteOptions{})
		} else {
			_, err = r.Patch(t.Context(), tt.name, types.MergePatchType, []byte(tt.patch), metav1.PatchOptions{})
		}
		if err != nil {
			t.Fatalf("%s %s: %v", tt.name, tt.patch, err)
		}
		changed := time.Now()
		s.awaitImports(t, want, west)
		slowest = max(slowest, time.Since(changed))
		now, err := west.Import(t.Context(), s.namespace, "web")
		if err != nil {
			t.Fatal(err)
		}
		if now.UID == imp.UID && now.Spec.IPs[0] != imp.Spec.IPs[0] {
			t.Errorf("after %s of %s: address %v, want %v while the import exists", tt.patch, tt.name, now.Spec.IPs,
				imp.Spec.IPs)
		}
	}
	outages.Took(t, "F29", slowest, 2*time.Second, "slowest change put right")
}

// TestForeignObjectsAreLeftAlone creates a Service with the name of a derived one: the controller never adopts it
// (docs/spec/controller.md 5).
func TestForeignObjectsAreLeftAlone(t *testing.T) {
	runAll(t)
	s := scriptIn(t, "foreign", west, "")
	defer s.withdraw(t)
	name := desired.DerivedName(s.namespace, "web")
	theirs := testclusterset.Service(s.namespace, name, testclusterset.Port("theirs", 9))
	west.Put(t, theirs)
	s.change(t, east, webOfEast)
	s.awaitImports(t, `web ClusterSetIP [] of [IPv4] from [east], slices Present, Ready=False/Pending `+
		`(Waiting for a name that is taken by an object which is not ours: Service foreign/`+theirs.Name+`. [import-pending])
  port "http" TCP/80 -
slice of web from east: http=TCP/8080 at 10.21.0.1
`, west)
	got, err := list[corev1.Service](t.Context(), west, "v1", "services", s.namespace)
	if err != nil || len(got) != 1 || len(got[0].Spec.Ports) != 1 || got[0].Spec.Ports[0].Port != 9 {
		t.Errorf("services = %+v, %v, want that of others as it was", got, err)
	}
	west.Drop(t, theirs)
	s.awaitImports(t, webImported, west)
}

// TestNamesDoNotMix exports service a-b in namespace c and service a in namespace b-c.
func TestNamesDoNotMix(t *testing.T) {
	runAll(t)
	one := scriptIn(t, "c", east, strings.ReplaceAll(webOfEast, "web", "a-b"))
	defer one.withdraw(t)
	two := scriptIn(t, "b-c", north, strings.NewReplacer("web", "a", "10.21.", "10.22.", "http", "www").Replace(webOfEast))
	defer two.withdraw(t)
	wantOne := strings.ReplaceAll(webImported, "web", "a-b")
	wantTwo := strings.NewReplacer("web", "a", "10.21.", "10.22.", "http", "www", "east",
		"north.registry1").Replace(webImported)
	one.awaitImports(t, wantOne, clusters.Members...)
	two.awaitImports(t, wantTwo, clusters.Members...)
	north.Drop(t, testclusterset.Export("b-c", "a"))
	two.awaitImports(t, "", clusters.Members...)
	one.awaitImports(t, wantOne, clusters.Members...)
}

// TestTerminatingNamespace deletes a namespace: nothing is exported from it or imported into it from then on.
func TestTerminatingNamespace(t *testing.T) {
	tier.All(t)
	runAll(t)
	s := scriptIn(t, "terminating", east, webOfEast)
	defer s.withdraw(t)
	s.awaitImports(t, webImported, clusters.Members...)
	for _, m := range []*testclusterset.Member{west, east} {
		// Without kube-controller-manager its deletion does not end.
		if err := m.Dynamic().Resource(spacesGVR).Delete(t.Context(), s.namespace, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.awaitImports(t, "", m)
		if m == west {
			s.awaitImports(t, webImported, east, north)
		}
	}
	s.condition(t, east, "web", "Valid=False/NamespaceNotAllowed")
	s.awaitImports(t, "", clusters.Members...)
	west.Drop(t, testclusterset.Namespace(s.namespace))
	east.Drop(t, testclusterset.Namespace(s.namespace))
}

// TestEqualTimes creates exports in the same second: that of the lowest cluster ID takes precedence
// (docs/spec/controller.md 4).
func TestEqualTimes(t *testing.T) {
	tier.All(t)
	runAll(t)
	s := scriptIn(t, "equal", east, "")
	defer s.withdraw(t)
	name := s.exportAtOnce(t)
	for _, m := range []*testclusterset.Member{west, north, east} {
		m.Put(t, testclusterset.Service(s.namespace, name, testclusterset.Port(scriptName(m), 80)))
	}
	until.OK(t, "the import", func(ctx context.Context) error {
		text, err := s.imports(ctx, clusters.Members)
		want := fmt.Sprintf(
			"%s ClusterSetIP [vip4] of [IPv4] from [east north.registry1 west], slices Absent, Ready=True/Ready\n"+
				"  port \"east\" TCP/80 -\n", name)
		if err == nil && !strings.HasPrefix(text, want) {
			err = fmt.Errorf("got\n%swant\n%s", text, want)
		}
		return err
	})
}

// exportAtOnce creates exports of one service in all members until all of them have the same creation time, and returns
// the name.
func (s *script) exportAtOnce(t *testing.T) (name string) {
	t.Helper()
	n := 0
	until.OK(t, "exports of one second", func(ctx context.Context) error {
		n++
		name = fmt.Sprintf("web-%d", n)
		tick(t)
		var g errgroup.Group
		for _, m := range clusters.Members {
			g.Go(func() error { return m.Apply(ctx, testclusterset.Export(s.namespace, name)) })
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		seconds := make(map[int64]bool)
		for _, m := range clusters.Members {
			exp, err := m.ServiceExport(ctx, s.namespace, name)
			if err != nil {
				return err
			}
			seconds[exp.CreationTimestamp.Unix()] = true
		}
		if len(seconds) > 1 {
			return fmt.Errorf("a second began between those of %s", name)
		}
		return nil
	})
	return name
}

// TestSourceIsUntouched exports a Service: neither it nor its slices change, and only the import of the same cluster
// has node names.
func TestSourceIsUntouched(t *testing.T) {
	tier.All(t)
	runAll(t)
	s := scriptIn(t, "source", east, "")
	defer s.withdraw(t)
	web := testclusterset.Service(s.namespace, "web", testclusterset.Port("http", 80))
	east.Put(t, web, testclusterset.Slice(web, "web-1", testclusterset.Endpoint{Address: "10.21.0.1", Node: "node-1"}))
	versions := func() (all []string) {
		for _, of := range []struct {
			r    schema.GroupVersionResource
			name string
		}{{servicesGVR, "web"}, {slicesGVR, "web-1"}} {
			o, err := east.Dynamic().Resource(of.r).Namespace(s.namespace).Get(t.Context(), of.name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, o.GetResourceVersion())
		}
		return all
	}
	before := versions()
	east.Put(t, testclusterset.Export(s.namespace, "web"))
	for m, want := range map[*testclusterset.Member]string{east: "node-1", west: ""} {
		until.OK(t, "slices", func(ctx context.Context) error {
			imported, err := m.Imported(ctx, s.namespace, "web")
			if err != nil || len(imported) != 1 || len(imported[0].Endpoints) != 1 {
				return fmt.Errorf("%d slices, %w", len(imported), err)
			}
			if node := imported[0].Endpoints[0].NodeName; node == nil && want != "" || node != nil && *node != want {
				return fmt.Errorf("%s: node %v, want %q", scriptName(m), node, want)
			}
			return nil
		})
	}
	east.Drop(t, testclusterset.Export(s.namespace, "web"))
	s.awaitImports(t, "", clusters.Members...)
	if after := versions(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("resource versions of Service and slice = %v, want %v", after, before)
	}
}

// TestExpiry stops the heartbeat of a member. "on_expiry" and "lease" of the importer decide about its endpoints, which
// nobody else has (docs/spec/controller.md 8.2). The import stays, and the endpoints are back with the heartbeat.
func TestExpiry(t *testing.T) {
	tier.All(t)
	const header = "web Headless [] of [IPv4] from [west], slices %s, Ready=True/Ready\n  port \"http\" TCP/80 -\n"
	const slice = "slice of web from west, headless: http=TCP/8080 at 10.23.0.1\n"
	alive := fmt.Sprintf(header+slice, "Present")
	removed := fmt.Sprintf(header, "Absent")
	for _, tt := range []struct{ east, north, wantNorth string }{
		{"on_expiry keep", "on_expiry last_resort", alive},
		{"lease 0", "on_expiry remove", removed},
	} {
		t.Run(tt.east, func(t *testing.T) {
			inEast, _ := start(t, east, "lease 1s 5s", tt.east)
			inNorth, _ := start(t, north, "lease 1s 5s", tt.north)
			_, stop := start(t, west, "lease 1s 5s")
			s := scriptIn(t, "expiry", west, `Service web {clusterIP: None, ports: [{name: http, port: 80}]}
Endpoints web/1 10.23.0.1
Export web`)
			defer s.withdraw(t)
			ofEast := scriptIn(t, "expiry-of-east", east, webOfEast)
			defer ofEast.withdraw(t)
			s.awaitImports(t, alive, clusters.Members...)
			ofEast.awaitImports(t, webImported, clusters.Members...)
			stop()
			s.awaitImports(t, tt.wantNorth, north)
			inEast.awaitSilence(t, west)
			s.awaitImports(t, alive, east)
			if tt.east == "lease 0" {
				// East renews every 5 minutes, and has asked for an hour: what was removed would not be back before.
				inNorth.awaitSilence(t, east)
				ofEast.awaitImports(t, webImported, north)
			}
			start(t, west, "lease 1s 5s")
			s.awaitImports(t, alive, clusters.Members...)
		})
	}
}

// awaitSilence waits until a member was silent for more than a TTL of 5 s.
func (m *meter) awaitSilence(t *testing.T, of *testclusterset.Member) {
	t.Helper()
	until.OK(t, "silence of "+of.ID, func(context.Context) error {
		ages, err := m.values("lease_age_seconds", "cluster")
		if err == nil && ages[of.ID] < 8 {
			err = fmt.Errorf("%v s, want more than 1.5 TTL", ages[of.ID])
		}
		return err
	})
}

// records returns the names of the export records of a member.
func records(ctx context.Context, namespace string) (names []string, err error) {
	all, err := listOn[v1alpha1.ExportedService](ctx, clusters.Broker, v1alpha1.GroupVersion.String(), "exportedservices",
		namespace)
	for i := range all {
		names = append(names, all[i].Name)
	}
	return names, err
}
