package faults

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// An administrator restores the etcd of the broker from a snapshot. No import loses an endpoint or its clusterset IP.
// Withdrawn exports stay so. Members write lost objects again, and new objects with versions of before arrive
// (docs/spec/controller.md 8.5).
func TestBrokerSnapshotIsRestored(t *testing.T) {
	tier.Nightly(t)
	for n, tt := range []struct {
		name string
		many bool          // writes after the snapshot; else one export alone
		beat time.Duration // between heartbeats; 0 is five minutes, so that none is sent after the snapshot
		bump uint64        // revisions
	}{
		{name: "plain, one write"},
		{name: "plain, many writes", many: true},
		{name: "plain, many writes and heartbeats", many: true, beat: renew},
		{name: "bumped, many writes", many: true, bump: 1_000_000},
	} {
		for _, restart := range []bool{false, true} {
			name := tt.name
			if restart {
				name += ", west starts after it"
			}
			t.Run(name, func(t *testing.T) {
				s := newSnapshotted(t, fmt.Sprint("snapshot-", n, "-", restart), tt.many, tt.beat)
				s.save()
				s.change()
				s.restore(tt.bump, restart)
				s.check()
			})
		}
	}
}

// A snapshotted clusterset has a broker that is restored. The links of both controllers are relays.
type snapshotted struct {
	t      *testing.T
	ns     string
	many   bool
	beat   time.Duration
	links  map[string]*relay // by cluster
	e, w   *instance
	new    []string // exported by both after the snapshot
	saved  string
	ip     string
	steady []func()
}

func newSnapshotted(t *testing.T, ns string, many bool, beat time.Duration) *snapshotted {
	s := &snapshotted{t: t, ns: ns, many: many, beat: beat, links: map[string]*relay{}, new: []string{"new-0"}}
	for n := 1; many && n < 10; n++ {
		s.new = append(s.new, fmt.Sprint("new-", n))
	}
	for _, name := range []string{"old", "withdrawn"} {
		export(t, east, ns, name, "10.21.0.1")
		export(t, west, ns, name, "10.22.0.1")
	}
	for _, m := range clusters.Members {
		s.links[m.ID] = newRelay(t, strings.TrimPrefix(clusters.Broker.Config().Host, "https://"))
	}
	s.e, s.w = s.run(east), s.run(west)
	s.ip = awaitIPs(t, ns, "old", "10.21.0.1 10.22.0.1")
	awaitIPs(t, ns, "withdrawn", "10.21.0.1 10.22.0.1")
	awaitListed(t, ns, "old")
	awaitListed(t, ns, "withdrawn")
	return s
}

// run runs a controller behind the relay of its cluster.
func (s *snapshotted) run(m *testclusterset.Member) *instance {
	return run(s.t, m, func(c *controller.Config) {
		c.Broker, c.VIP = via(s.t, c.Broker, s.links[m.ID].url(), nil), merge.CIDR
		if c.Renew, c.TTL = s.beat, 5*time.Minute; s.beat == 0 {
			c.TTL = 0
		}
	})
}

func (s *snapshotted) save() { s.saved = saveBroker(s.t) }

// change exports new services, ends exports and moves endpoints.
func (s *snapshotted) change() {
	if s.many { // more than an API server writes as it starts
		writeUpTo(s.t, newestVersion(s.t)+300)
	}
	for _, name := range s.new {
		export(s.t, east, s.ns, name, "10.21.0.1")
	}
	if s.many {
		for _, m := range clusters.Members {
			m.Drop(s.t, testclusterset.Export(s.ns, "withdrawn"))
		}
		serve(s.t, east, s.ns, "old", "10.21.0.2")
	}
	for _, m := range clusters.Members {
		s.awaitState(m, "10.21.0.1")
	}
	for _, name := range s.new {
		awaitListedIn(s.t, west, s.ns, name)
	}
	for _, m := range clusters.Members {
		s.steady = append(s.steady, steady(s.t, m, s.ns, append([]string{"old"}, s.new...)...))
	}
}

// awaitState waits until the imports of a cluster are right. address is the first new service's.
func (s *snapshotted) awaitState(m *testclusterset.Member, address string) {
	s.t.Helper()
	for _, name := range s.new[1:] {
		awaitImport(s.t, m, s.ns, name, "10.21.0.1")
	}
	awaitImport(s.t, m, s.ns, s.new[0], address)
	old, withdrawn := "10.21.0.1 10.22.0.1", "10.21.0.1 10.22.0.1"
	if s.many {
		old, withdrawn = "10.21.0.2 10.22.0.1", "none"
	}
	awaitImport(s.t, m, s.ns, "old", old)
	awaitImport(s.t, m, s.ns, "withdrawn", withdrawn)
}

// restore restores the snapshot. East reaches the broker first, and exports another service. West reaches it when its
// versions are higher than all that were there before.
func (s *snapshotted) restore(bump uint64, restart bool) {
	seen := newestVersion(s.t)
	for _, l := range s.links {
		l.sever()
	}
	if restart {
		s.w.stop()
	}
	if err := clusters.Broker.RestoreSnapshot(s.t.Context(), s.saved, bump); err != nil {
		s.t.Fatal(err)
	}
	followAll(s.t)
	s.links[east.ID].mend()
	export(s.t, east, s.ns, "anew", "10.21.0.1")
	awaitRecord(s.t, east, s.ns, "anew", true)
	writeUpTo(s.t, seen)
	s.links[west.ID].mend()
	if restart {
		s.w = s.run(west)
	}
}

// check waits until all is right again.
func (s *snapshotted) check() {
	s.t.Helper()
	for _, name := range append([]string{"anew"}, s.new...) {
		awaitRecord(s.t, east, s.ns, name, true)
	}
	for _, m := range clusters.Members {
		awaitImport(s.t, m, s.ns, "anew", "10.21.0.1")
		if s.many {
			awaitRecord(s.t, m, s.ns, "withdrawn", false)
		}
	}
	serve(s.t, east, s.ns, s.new[0], "10.21.0.9")
	for _, m := range clusters.Members {
		s.awaitState(m, "10.21.0.9")
	}
	if ip := awaitIPs(s.t, s.ns, "old", map[bool]string{false: "10.21.0.1 10.22.0.1",
		true: "10.21.0.2 10.22.0.1"}[s.many]); ip != s.ip {
		s.t.Errorf("clusterset IP %s, want %s", ip, s.ip)
	}
	for _, check := range s.steady {
		check()
	}
}

// West changes an endpoint and puts it back; east, cut off from the broker, sees the change alone. The broker is
// restored to before both while west restarts: what it has is right, but older than what east has, so west writes it
// again (docs/spec/controller.md 8.5).
func TestPutBackBeforeARestore(t *testing.T) {
	tier.All(t)
	const ns, name = "putback", "web"
	export(t, east, ns, name, "10.21.0.1")
	export(t, west, ns, name, "10.22.0.1")
	link := newRelay(t, strings.TrimPrefix(clusters.Broker.Config().Host, "https://"))
	long := func(c *controller.Config) { c.TTL = 5 * time.Minute }
	run(t, east, func(c *controller.Config) { c.Broker = via(t, c.Broker, link.url(), nil) }, long)
	w := run(t, west, long)
	awaitImport(t, east, ns, name, "10.21.0.1 10.22.0.1")
	awaitTaken(t, west)
	saved := saveBroker(t)
	serve(t, west, ns, name, "10.22.0.2")
	awaitImport(t, east, ns, name, "10.21.0.1 10.22.0.2")
	link.sever()
	serve(t, west, ns, name, "10.22.0.1")
	awaitImport(t, west, ns, name, "10.21.0.1 10.22.0.1")
	awaitTaken(t, west)
	w.stop()
	restoreBroker(t, saved)
	link.mend()
	run(t, west, long)
	awaitImport(t, east, ns, name, "10.21.0.1 10.22.0.1")
}

// awaitTaken waits until a controller has noted that the broker took a heartbeat from now on.
func awaitTaken(t *testing.T, m *testclusterset.Member) {
	t.Helper()
	begin := time.Now().UnixMicro()
	until.OK(t, "the note of a heartbeat", func(ctx context.Context) error {
		note, err := m.Dynamic().Resource(leases).Namespace(wellknown.ControllerNamespace).Get(ctx, wellknown.HeartbeatLease,
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		if stamp, err := strconv.ParseInt(note.GetAnnotations()[wellknown.AnnotationTaken], 10, 64); err != nil ||
			stamp < begin {
			return fmt.Errorf("taken %d, want %d: %w", stamp, begin, err)
		}
		return nil
	})
}

// newestVersion returns the newest version of the broker.
func newestVersion(t *testing.T) uint64 {
	t.Helper()
	list, err := clusters.Broker.Dynamic().Resource(namespaces).List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	return apiserver.VersionNumber(list.GetResourceVersion())
}

// followAll lets the API server of the broker begin to follow what it serves to members. Later writes are news then.
func followAll(t *testing.T) {
	t.Helper()
	of := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: records.Group, Version: records.Version, Resource: resource}
	}
	for _, kind := range []schema.GroupVersionResource{namespaces, leases, endpoints, records, of("members"),
		of("inventories")} {
		if _, err := clusters.Broker.Dynamic().Resource(kind).List(t.Context(),
			metav1.ListOptions{ResourceVersion: "0"}); err != nil {
			t.Fatal(err)
		}
	}
}

// writeUpTo writes to the broker until its versions are higher, as it does by itself in some time.
func writeUpTo(t *testing.T, version uint64) {
	t.Helper()
	for n := 0; newestVersion(t) <= version; n++ {
		written := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "writes"},
			Data:       map[string]string{"n": fmt.Sprint(n)},
		}
		if err := clusters.Broker.Apply(t.Context(), written); err != nil {
			t.Fatal(err)
		}
	}
}

// The broker gets an empty etcd, and all clusters join again. It is another broker then, so everything is frozen until
// the join (docs/spec/controller.md 8.7).
func TestBrokerIsWiped(t *testing.T) {
	tier.Nightly(t)
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("west starts after it: ", restart), func(t *testing.T) {
			ns := fmt.Sprint("wiped-", restart)
			s := newSnapshotted(t, ns, false, renew)
			s.e.stop()
			s.w.stop()
			cidr := func(c *controller.Config) { c.VIP, c.TTL = merge.CIDR, 5*time.Minute }
			run(t, east, cidr)
			s.w = run(t, west, cidr)
			for _, m := range clusters.Members {
				m.Drop(t, testclusterset.Export(ns, "withdrawn"))
			}
			for _, m := range clusters.Members {
				awaitImport(t, m, ns, "withdrawn", "none")
				s.steady = append(s.steady, steady(t, m, ns, "old"))
			}
			if restart {
				s.w.stop()
			}
			restoreBroker(t, t.TempDir())
			if restart {
				s.w = run(t, west, cidr)
			}
			s.w.awaitMetric("frozen", "credential", 1)
			serve(t, west, ns, "old", "10.22.0.2")
			awaitImport(t, west, ns, "old", "10.21.0.1 10.22.0.2")
			until.OK(t, "broker init and join", func(ctx context.Context) error {
				return errors.Join(join.Init(ctx, clusters.Broker.Config(), join.InitOptions{AggregateView: true}),
					joinMembers(ctx))
			})
			export(t, east, ns, "anew", "10.21.0.1")
			awaitImport(t, west, ns, "anew", "10.21.0.1")
			if ip := awaitIPs(t, ns, "old", "10.21.0.1 10.22.0.2"); ip != s.ip {
				t.Errorf("clusterset IP %s, want %s", ip, s.ip)
			}
			for _, m := range clusters.Members {
				awaitImport(t, m, ns, "withdrawn", "none")
			}
			for _, check := range s.steady {
				check()
			}
		})
	}
}

// Somebody deletes a CRD of the broker, and with it all objects of the kind, and initializes the broker again. Imports
// lose no endpoint and no clusterset IP, also in a controller that starts meanwhile. What ended before stays so, and
// what ends meanwhile ends after it (docs/spec/controller.md 8.6).
func TestBrokerKindIsDeleted(t *testing.T) {
	tier.Nightly(t)
	for name, manifest := range map[string][]byte{"records": crd.ExportedServices, "inventories": crd.Inventories,
		"members": crd.Members} {
		t.Run(name, func(t *testing.T) {
			ns := "broker-kind-" + name
			for _, name := range []string{"web", "withdrawn", "ends"} {
				export(t, east, ns, name, "10.21.0.1")
				export(t, west, ns, name, "10.22.0.1")
			}
			cidr := func(c *controller.Config) { c.VIP, c.TTL = merge.CIDR, time.Minute }
			e, w := run(t, east, cidr), run(t, west, cidr)
			ip := awaitIPs(t, ns, "web", "10.21.0.1 10.22.0.1")
			for _, name := range []string{"web", "withdrawn", "ends"} {
				awaitIPs(t, ns, name, "10.21.0.1 10.22.0.1")
				awaitListed(t, ns, name)
			}
			var ends []func()
			for _, m := range clusters.Members {
				m.Drop(t, testclusterset.Export(ns, "withdrawn"))
			}
			for _, m := range clusters.Members {
				awaitImport(t, m, ns, "withdrawn", "none")
				ends = append(ends, steady(t, m, ns, "web"))
			}
			if err := clusters.Broker.DeleteCRDs(t.Context(), manifest); err != nil {
				t.Fatal(err)
			}
			e.awaitMetric("frozen", "broker_empty", 1)
			east.Drop(t, testclusterset.Export(ns, "ends"))
			w.stop()
			w = run(t, west, cidr)
			serve(t, west, ns, "web", "10.22.0.2")
			awaitImport(t, west, ns, "web", "10.21.0.1 10.22.0.2")
			until.OK(t, "broker init and join", func(ctx context.Context) error {
				return errors.Join(join.Init(ctx, clusters.Broker.Config(), join.InitOptions{AggregateView: true}),
					joinMembers(ctx))
			})
			for _, i := range []*instance{e, w} {
				i.awaitMetric("frozen", "broker_empty", 0)
				awaitImport(t, i.Member, ns, "ends", "10.22.0.1")
				awaitRecord(t, i.Member, ns, "web", true)
			}
			serve(t, east, ns, "web", "10.21.0.2")
			if is := awaitIPs(t, ns, "web", "10.21.0.2 10.22.0.2"); is != ip {
				t.Errorf("clusterset IP %s, want %s", is, ip)
			}
			for i, m := range clusters.Members {
				checkImport(t, m, ns, "withdrawn", "none")
				ends[i]()
			}
		})
	}
}

// The broker is restored to before west joined anew with another account, so it rejects the credential of west. West is
// silent for others, keeps what it imports, and is as before once it has joined again (docs/spec/controller.md 7.4,
// docs/spec/controller.md 8.2).
func TestRejoinIsRestored(t *testing.T) {
	tier.Nightly(t)
	const ns = "account"
	export(t, east, ns, "web", "10.21.0.1")
	export(t, west, ns, "web", "10.22.0.1")
	export(t, west, ns, "alone", "10.22.0.9")
	run(t, east)
	w := run(t, west)
	for _, m := range clusters.Members {
		awaitImport(t, m, ns, "web", "10.21.0.1 10.22.0.1")
		awaitImport(t, m, ns, "alone", "10.22.0.9")
	}
	awaitListed(t, ns, "web")
	awaitListedIn(t, east, ns, "alone")
	ofAlone, inWest := steady(t, east, ns, "alone"), undisturbed(t, west, ns)
	saved := saveBroker(t)
	accounts := clusters.Broker.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"})
	if err := accounts.Namespace(west.BrokerNamespace()).Delete(t.Context(), broker.ServiceAccount,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitMetric("frozen", "credential", 1)
	if err := joinMembers(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.awaitMetric("frozen", "credential", 0)
	serve(t, west, ns, "web", "10.22.0.2")
	awaitImport(t, east, ns, "web", "10.21.0.1 10.22.0.2")

	restoreBroker(t, saved)
	w.awaitMetric("frozen", "credential", 1)
	awaitImport(t, east, ns, "web", "10.21.0.1")
	checkImport(t, east, ns, "alone", "10.22.0.9")
	export(t, west, ns, "late", "10.22.0.3")
	awaitPending(t, west, ns, "late")
	checkImport(t, west, ns, "web", "10.21.0.1 10.22.0.2")
	if err := joinMembers(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.awaitMetric("frozen", "credential", 0)
	awaitImport(t, east, ns, "web", "10.21.0.1 10.22.0.2")
	awaitImport(t, east, ns, "alone", "10.22.0.9")
	awaitImport(t, east, ns, "late", "10.22.0.3")
	ofAlone()
	inWest()
}
