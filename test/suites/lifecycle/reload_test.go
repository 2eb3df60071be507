package lifecycle

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/coredns/caddy"
	"k8s.io/client-go/kubernetes"

	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/series"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// watches returns how many watches of ours the API server counts.
func watches(t *testing.T) int {
	t.Helper()
	client, err := kubernetes.NewForConfig(api(t).Config())
	must(t, err)
	page, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	must(t, err)
	all, err := series.Parse(string(page))
	must(t, err)
	return int(all.Named("apiserver_longrunning_requests").With("resource", "serviceimports", "clusterproperties").Sum())
}

// awaitWatches waits until the API server counts n watches of ours. It learns of an end a moment after it.
func awaitWatches(t *testing.T, n int) {
	t.Helper()
	until.OK(t, "watches", func(context.Context) error {
		if now := watches(t); now != n {
			return fmt.Errorf("%d are open, want %d", now, n)
		}
		return nil
	})
}

// awaitGoroutines waits until there are not many more than n goroutines.
func awaitGoroutines(t *testing.T, n int) {
	t.Helper()
	until.OK(t, "goroutines", func(context.Context) error {
		if now := runtime.NumGoroutine(); now > n+5 {
			return fmt.Errorf("%d, want %d as before", now, n)
		}
		return nil
	})
}

// awaitHeap waits until the heap is not more than a fifth, or 2 MiB, larger than n octets.
func awaitHeap(t *testing.T, n uint64) {
	t.Helper()
	until.OK(t, "heap", func(context.Context) error {
		if now := heap(); now > n+max(n/5, 2<<20) {
			return fmt.Errorf("%d octets, want %d as before", now, n)
		}
		return nil
	})
}

// oneNamespace is the number of watches of a server with one namespace: ServiceImport and ClusterProperty.
const oneNamespace = 2

// heap returns the size of the heap after a collection, in octets.
func heap() uint64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestReloads reloads 200 times under load, with every setting that may differ while the source stays the same. Every
// fourth reload fails, and in the second half objects change meanwhile. Nothing is listed anew, no query fails and
// nothing is left behind.
func TestReloads(t *testing.T) {
	ns := namespace(t, "reloads")
	apply(t, vip(ns, "web", "10.96.5.1"), headless(ns, "db"), slice(ns, "db-east", "db", "east", "10.3.0.1"))
	corefile := func(i int) string {
		return fmt.Sprintf(`
clusterset.local.:{port} {
	bind 127.0.0.1
	clusterset {
		kubeconfig {kubeconfig}
		namespaces reloads
		startup_timeout %dms
		ttl %d
		policy %s
	}
}`, 1+i, i%10, []string{"local_first", "all"}[i/2%2])
	}
	awaitWatches(t, 0)
	written := journal.mark()
	s := start(t, corefile(100_000))
	serial := s.settledSerial()
	const web = question("web.reloads.svc.clusterset.local A")
	l := startLoad(t, s.addr, permitted{
		web:                                   {"NOERROR 10.96.5.1"},
		"none.reloads.svc.clusterset.local A": {"NXDOMAIN"},
		"db.reloads.svc.clusterset.local A":   {"NOERROR 10.3.0.1"},
		"_http._tcp.web.reloads.svc.clusterset.local SRV": {"NOERROR 0 100 80 web.reloads.svc.clusterset.local."},
	})
	for i := range 10 {
		must(t, s.reload(corefile(i)))
	}
	awaitWatches(t, oneNamespace)
	goroutines, size := runtime.NumGoroutine(), heap()
	const reloads = 200
	for i := range reloads {
		if now := s.serial(); i == reloads/2 && now != serial {
			t.Errorf("serial after %d reloads: %d, want %d as before", i, now, serial)
		}
		next := corefile(i / 2) // Every second time nothing has changed.
		if i%4 == 3 {
			err := s.reload(strings.Replace(next, "bind", "failing "+[]string{"setup", "startup"}[i/4%2]+"\n\tbind", 1))
			if err == nil {
				t.Errorf("reload %d did not fail", i)
			}
			continue
		}
		must(t, s.reload(next))
		if i >= reloads/2 && i%10 == 0 {
			ip := fmt.Sprintf("10.3.1.%d", i)
			apply(t, headless(ns, "moves"), slice(ns, "moves-east", "moves", "east", ip))
			s.await("moves.reloads.svc.clusterset.local A", "NOERROR "+ip)
		}
	}
	l.stop()
	if n := strings.Count(written(), "ServiceImport in reloads: listed"); n != 1 {
		t.Errorf("imports were listed %d times, want once", n)
	}
	awaitWatches(t, oneNamespace)
	awaitGoroutines(t, goroutines)
	awaitHeap(t, size) // 200 instances would take far more.
	outages.Measured(t, "F24", "200 reloads, of which 50 fail, %d answers lost or wrong, goroutines %+d, heap %+.1f MB",
		l.lost.Load()+int64(len(l.wrong)), runtime.NumGoroutine()-goroutines, (float64(heap())-float64(size))/1e6)
	apply(t, vip(ns, "web", "10.96.5.2"))
	s.await(web, "NOERROR 10.96.5.2")
}

// TestFailedReloads reloads with a Corefile that fails. The old one stays in effect, and nothing of the new one is
// left.
func TestFailedReloads(t *testing.T) {
	ns := namespace(t, "failed")
	apply(t, vip(ns, "web", "10.96.6.1"))
	taken, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port(t)))
	must(t, err)
	defer taken.Close()
	_, takenPort, err := net.SplitHostPort(taken.Addr().String())
	must(t, err)

	good := strings.ReplaceAll(theBlock, "{namespaces}", "failed")
	for _, tt := range []struct{ name, corefile, want string }{
		{"syntax", good + "\n{", "Corefile"},
		{"directive", strings.Replace(good, "startup_timeout 90s", "startup_timeout soon", 1), `Corefile:7 - Error during parsing: startup_timeout "soon"`},
		{"setup of a later plugin", strings.Replace(good, "bind", "failing setup\nbind", 1), "failing: as configured"},
		{"startup of a later plugin", strings.Replace(good, "bind", "failing startup\nbind", 1), "failing: as configured"},
		{"panic of a later plugin", strings.Replace(good, "bind", "failing panic\nbind", 1), ""},
		{"port is taken", good + "\nother.example.:" + takenPort + " {\nbind 127.0.0.1\nwhoami\n}", "address already in use"},
		{"kubeconfig is gone", strings.Replace(good, "{kubeconfig}", "/nonexistent", 1), "/nonexistent"},
	} {
		// The new configuration serves the same objects, or others.
		for _, namespaces := range []string{"failed", "failed kube-system"} {
			t.Run(tt.name+"/"+namespaces, func(t *testing.T) {
				awaitWatches(t, 0)
				s := start(t, good)
				s.want("web.failed.svc.clusterset.local A", "NOERROR 10.96.6.1")
				awaitWatches(t, oneNamespace)
				goroutines := runtime.NumGoroutine()
				l := startLoad(t, s.addr, permitted{
					"web.failed.svc.clusterset.local A":  {"NOERROR 10.96.6.1"},
					"none.failed.svc.clusterset.local A": {"NXDOMAIN"},
				})
				for range 3 {
					err := s.reload(strings.Replace(tt.corefile, "namespaces failed", "namespaces "+namespaces, 1))
					if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
						t.Errorf("reload = %v, want an error with %q", err, tt.want)
					}
				}
				l.stop()
				awaitWatches(t, oneNamespace)
				awaitGoroutines(t, goroutines)
				// Changes and further reloads work.
				ip := "10.96.6.2"
				apply(t, vip(ns, "web", ip))
				s.await("web.failed.svc.clusterset.local A", "NOERROR "+ip)
				must(t, s.reload(good))
				apply(t, vip(ns, "web", "10.96.6.1"))
				s.await("web.failed.svc.clusterset.local A", "NOERROR 10.96.6.1")
			})
		}
	}
}

// TestShutdownThatFails reloads while a plugin of the old instance fails to shut down. Caddy reports a failed restart
// then, although the new instance serves. It has to go on.
func TestShutdownThatFails(t *testing.T) {
	ns := namespace(t, "shutdown")
	apply(t, vip(ns, "web", "10.96.6.4"))
	good := strings.ReplaceAll(theBlock, "{namespaces}", ns)
	for _, plugin := range []string{failingBefore, failing} {
		t.Run(plugin, func(t *testing.T) {
			s := start(t, strings.Replace(good, "bind", plugin+" shutdown\nbind", 1))
			_, err := s.inst.Restart(s.corefile(strings.Replace(good, "namespaces", "namespaces kube-system", 1)))
			if err == nil {
				t.Error("the reload did not fail")
			}
			all := caddy.Instances()
			s.inst = all[len(all)-1]
			s.serving()
			s.await("web.shutdown.svc.clusterset.local A", "NOERROR 10.96.6.4")
			apply(t, vip(ns, "web", "10.96.6.5"))
			s.await("web.shutdown.svc.clusterset.local A", "NOERROR 10.96.6.5")
			apply(t, vip(ns, "web", "10.96.6.4"))
			s.await("web.shutdown.svc.clusterset.local A", "NOERROR 10.96.6.4")
		})
	}
}

// TestFirstBlockFails reloads from a Corefile without the plugin to one with it, which fails. CoreDNS does not report
// that to the plugin. What the failed reload has started ends with the next reload, unless that has the same source and
// takes it over.
func TestFirstBlockFails(t *testing.T) {
	tier.All(t)
	ns := namespace(t, "first")
	apply(t, vip(ns, "web", "10.96.6.6"))
	plain := strings.TrimSpace(other)
	awaitWatches(t, 0)
	s := start(t, plain)
	goroutines := runtime.NumGoroutine()
	good := strings.ReplaceAll(theBlock, "{namespaces}", ns)
	fails := strings.Replace(good, "bind", "failing startup\nbind", 1)
	clean := func() {
		t.Helper()
		until.OK(t, "watches and goroutines", func(context.Context) error {
			runtime.GC() // Without this it runs at least every two minutes.
			if now := watches(t); now != 0 {
				return fmt.Errorf("%d watches are open, want none", now)
			}
			if now := runtime.NumGoroutine(); now > goroutines+5 {
				return fmt.Errorf("%d goroutines, want %d as before", now, goroutines)
			}
			return nil
		})
	}
	for _, namespaces := range []string{ns, "default", "kube-public"} {
		if err := s.reload(plain + strings.Replace(fails, ns, namespaces, 1)); err == nil {
			t.Error("the reload did not fail")
		}
	}
	must(t, s.reload(plain))
	clean()
	written := journal.mark()
	if err := s.reload(plain + fails); err == nil {
		t.Error("the reload did not fail")
	}
	must(t, s.reload(plain+good))
	s.want("web.first.svc.clusterset.local A", "NOERROR 10.96.6.6")
	if n := strings.Count(written(), "ServiceImport in first: listed"); n != 1 {
		t.Errorf("imports were listed %d times, want once", n)
	}
	awaitWatches(t, oneNamespace)
	must(t, s.reload(plain))
	s.want(otherQuestion, otherAnswer)
	clean()
}

// TestReloadWithAnotherSource reloads to another API server. The old instance answers, and is ready, until the new one
// can answer.
func TestReloadWithAnotherSource(t *testing.T) {
	tier.All(t)
	ns := namespace(t, "source")
	apply(t, vip(ns, "web", "10.96.6.7"))
	gate := newGate(t)
	ready := port(t)
	corefile := strings.Replace(strings.ReplaceAll(theBlock, "{namespaces}", ns), "bind", "ready 127.0.0.1:{ready}\nbind", 1)
	s := start(t, corefile, "{ready}", fmt.Sprint(ready))
	awaitReady(t, ready, true)
	l := startLoad(t, s.addr, permitted{
		"web.source.svc.clusterset.local A":  {"NOERROR 10.96.6.7"},
		"none.source.svc.clusterset.local A": {"NXDOMAIN"},
	})
	reloaded := make(chan error)
	next := strings.Replace(corefile, "{kubeconfig}", kubeconfigAt(t, gate.port), 1)
	go func() { reloaded <- s.reload(next) }()
	gate.awaitConnection(t)
	l.more(200)
	awaitReady(t, ready, true)
	select {
	case err := <-reloaded:
		t.Errorf("the new instance took over without objects: %v", err)
	default:
	}
	gate.open()
	must(t, <-reloaded)
	l.stop()
	s.want("web.source.svc.clusterset.local A", "NOERROR 10.96.6.7")
	awaitReady(t, ready, true)

	// A new instance takes over without objects when its startup_timeout is over.
	nowhere := kubeconfigAt(t, port(t))
	must(t, s.reload(strings.NewReplacer("{kubeconfig}", nowhere, "90s", "50ms").Replace(corefile)))
	s.want("web.source.svc.clusterset.local A", "SERVFAIL EDE14")
	awaitReady(t, ready, false)
	must(t, s.reload(corefile))
	s.want("web.source.svc.clusterset.local A", "NOERROR 10.96.6.7")
	awaitReady(t, ready, true)
}

// TestReloadInherits reloads with settings under which the same objects are served in another way. The new instance has
// them at once, even while the API server does not answer.
func TestReloadInherits(t *testing.T) {
	tier.All(t)
	ns := namespace(t, "inherits")
	apply(t, vip(ns, "web", "10.96.6.9"), headless(ns, "db"), slice(ns, "db-east", "db", "east", "10.3.0.9"))
	// However long the API server is frozen, answers are not marked as stale.
	corefile := strings.NewReplacer("{namespaces}", ns, "startup_timeout",
		"stale_after 1h\n\t\tstartup_timeout").Replace(theBlock)
	awaitWatches(t, 0)
	s := start(t, corefile)
	const db = question("east.db.inherits.svc.clusterset.local A")
	s.want(db, "NOERROR 10.3.0.9")
	serial := s.settledSerial()
	l := startLoad(t, s.addr, permitted{
		"web.inherits.svc.clusterset.local A":  {"NOERROR 10.96.6.9"},
		"db.inherits.svc.clusterset.local A":   {"NOERROR 10.3.0.9"},
		"none.inherits.svc.clusterset.local A": {"NXDOMAIN"},
	})
	awaitWatches(t, oneNamespace)
	must(t, api(t).Freeze())
	for _, tt := range []struct{ line, want string }{
		{"cluster_names off", "NOERROR"},
		{"stale_after 50m", "NOERROR 10.3.0.9"},
		{"apiserver_qps 9", "NOERROR 10.3.0.9"},
		{"topology zone a", "NOERROR 10.3.0.9"},
		{"snapshot " + t.TempDir() + "/snapshot", "NOERROR 10.3.0.9"},
	} {
		next := strings.Replace(corefile, "startup_timeout", tt.line+"\nstartup_timeout", 1)
		if strings.HasPrefix(tt.line, "stale_after") {
			next = strings.Replace(corefile, "stale_after 1h", tt.line, 1)
		}
		must(t, s.reload(next))
		s.want(db, tt.want)
		if now := s.serial(); now < serial {
			t.Errorf("%s: serial %d, want not less than %d", tt.line, now, serial)
		}
	}
	must(t, api(t).Thaw())
	must(t, s.reload(corefile))
	s.want(db, "NOERROR 10.3.0.9")
	l.stop()
	apply(t, slice(ns, "db-east", "db", "east", "10.3.0.8"))
	s.await(db, "NOERROR 10.3.0.8")
	awaitWatches(t, oneNamespace)
}

// TestReloadsWithOtherSources reloads 20 times with another source each. No watch, goroutine or memory of the old ones
// is left.
func TestReloadsWithOtherSources(t *testing.T) {
	tier.All(t)
	namespace(t, "many")
	corefile := func(i int) string {
		return strings.ReplaceAll(theBlock, "{namespaces}", fmt.Sprintf("many many-%d", i))
	}
	const twoNamespaces = oneNamespace + 1
	awaitWatches(t, 0)
	s := start(t, corefile(0))
	awaitWatches(t, twoNamespaces)
	goroutines, size := runtime.NumGoroutine(), heap()
	for i := range 20 {
		must(t, s.reload(corefile(i)))
	}
	awaitWatches(t, twoNamespaces)
	awaitGoroutines(t, goroutines+5)
	awaitHeap(t, size)
}
