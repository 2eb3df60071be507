package lifecycle

import (
	"fmt"
	"net"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/coredns/caddy"
	"k8s.io/client-go/kubernetes"
)

// figures are what the API server counts about watches of ours.
type figures struct{ open, begun int }

var (
	openWatches  = regexp.MustCompile(`(?m)^apiserver_longrunning_requests\{[^}]*resource="(serviceimports|clusterproperties)"[^}]*\} (\d+)`)
	begunWatches = regexp.MustCompile(`(?m)^apiserver_request_total\{[^}]*resource="serviceimports"[^}]*verb="WATCH"[^}]*\} (\d+)`)
)

// count asks the API server. A watch is counted as begun when it ends, so begun is of those that are over.
func count(t *testing.T) figures {
	t.Helper()
	client, err := kubernetes.NewForConfig(api(t).Config())
	must(t, err)
	page, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	must(t, err)
	var f figures
	for _, m := range openWatches.FindAllStringSubmatch(string(page), -1) {
		n, err := strconv.Atoi(m[2])
		must(t, err)
		f.open += n
	}
	for _, m := range begunWatches.FindAllStringSubmatch(string(page), -1) {
		n, err := strconv.Atoi(m[1])
		must(t, err)
		f.begun += n
	}
	return f
}

// heap is what is alive after a collection.
func heap() uint64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestReloads reloads 200 times under load, with all that may be different when the source stays: nothing is listed anew,
// no query fails and nothing is left behind.
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
	s := start(t, corefile(100_000))
	serial := s.serial()
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
	watches, goroutines, size := count(t), runtime.NumGoroutine(), heap()
	for i := range 200 {
		must(t, s.reload(corefile(i/2))) // Every second time nothing has changed.
	}
	l.stop()
	if now := s.serial(); now != serial {
		t.Errorf("serial after 200 reloads: %d, want %d as before", now, serial)
	}
	if now := count(t); now != watches {
		t.Errorf("watches after 200 reloads: %+v, want %+v as before", now, watches)
	}
	eventually(t, "goroutines", func() error {
		if now := runtime.NumGoroutine(); now > goroutines+5 {
			return fmt.Errorf("%d, want %d as before", now, goroutines)
		}
		return nil
	})
	// 200 times what one instance takes would be far more.
	if now := heap(); now > size+8<<20 {
		t.Errorf("heap after 200 reloads: %d, want %d as before", now, size)
	}
	apply(t, vip(ns, "web", "10.96.5.2"))
	s.await(web, "NOERROR 10.96.5.2")
}

// TestFailedReloads: the old configuration serves on, and nothing of the new one is left.
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
		{"setup of a later plugin", strings.Replace(good, "bind", "failing setup\nbind", 1), "failing: as it was told"},
		{"startup of a later plugin", strings.Replace(good, "bind", "failing startup\nbind", 1), "failing: as it was told"},
		{"panic of a later plugin", strings.Replace(good, "bind", "failing panic\nbind", 1), ""},
		{"port is taken", good + "\nother.example.:" + takenPort + " {\nbind 127.0.0.1\nwhoami\n}", "address already in use"},
		{"kubeconfig is gone", strings.Replace(good, "{kubeconfig}", "/nonexistent", 1), "/nonexistent"},
	} {
		// The new configuration sees the same objects, or others.
		for _, namespaces := range []string{"failed", "failed kube-system"} {
			t.Run(tt.name+"/"+namespaces, func(t *testing.T) {
				s := start(t, good)
				s.want("web.failed.svc.clusterset.local A", "NOERROR 10.96.6.1")
				watches, goroutines := count(t), runtime.NumGoroutine()
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
				l.end()
				for _, wrong := range l.wrong {
					t.Error(wrong)
				}
				eventually(t, "watches", func() error {
					if now := count(t); now.open != watches.open {
						return fmt.Errorf("%d open, want %d as before", now.open, watches.open)
					}
					return nil
				})
				eventually(t, "goroutines", func() error {
					if now := runtime.NumGoroutine(); now > goroutines+5 {
						return fmt.Errorf("%d, want %d as before", now, goroutines)
					}
					return nil
				})
				// What comes next works as if nothing had been.
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

// TestShutdownThatFails: caddy calls a restart failed, too, if a plugin of the old instance does not shut down well. The new
// instance serves then, and goes on to do so.
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

// TestFirstBlockFails: nobody tells a plugin of a reload that fails when the old configuration has no block of that plugin.
// What the last such reload has started is gone after the next reload; a reload with the same source takes it over.
func TestFirstBlockFails(t *testing.T) {
	ns := namespace(t, "first")
	apply(t, vip(ns, "web", "10.96.6.6"))
	plain := strings.TrimSpace(other)
	s := start(t, plain)
	watches, goroutines := count(t), runtime.NumGoroutine()
	good := strings.ReplaceAll(theBlock, "{namespaces}", ns)
	fails := strings.Replace(good, "bind", "failing startup\nbind", 1)
	clean := func() {
		t.Helper()
		eventually(t, "watches and goroutines", func() error {
			runtime.GC() // It comes at least every two minutes by itself.
			if now := count(t); now.open != watches.open {
				return fmt.Errorf("%d watches are open, want %d as before", now.open, watches.open)
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
	if err := s.reload(plain + fails); err == nil {
		t.Error("the reload did not fail")
	}
	before := count(t)
	must(t, s.reload(plain+good))
	s.want("web.first.svc.clusterset.local A", "NOERROR 10.96.6.6")
	if now := count(t); now != before {
		t.Errorf("watches after the reload: %+v, want %+v as before", now, before)
	}
	must(t, s.reload(plain))
	s.want(otherQuestion, otherAnswer)
	clean()
}

// TestReloadWithAnotherSource: the old instance answers, and is ready, until the new one can answer.
func TestReloadWithAnotherSource(t *testing.T) {
	ns := namespace(t, "source")
	apply(t, vip(ns, "web", "10.96.6.7"))
	gate := newGate(t)
	ready := port(t)
	corefile := strings.Replace(strings.ReplaceAll(theBlock, "{namespaces}", ns), "bind", "ready 127.0.0.1:{ready}\nbind", 1)
	s := start(t, corefile, "{ready}", fmt.Sprint(ready))
	must(t, wantReady(ready, true))
	l := startLoad(t, s.addr, permitted{
		"web.source.svc.clusterset.local A":  {"NOERROR 10.96.6.7"},
		"none.source.svc.clusterset.local A": {"NXDOMAIN"},
	})
	reloaded := make(chan error)
	next := strings.Replace(corefile, "{kubeconfig}", kubeconfigAt(t, gate.port), 1)
	go func() { reloaded <- s.reload(next) }()
	gate.knocked(t)
	l.more(200)
	eventually(t, "ready", func() error { return wantReady(ready, true) })
	select {
	case err := <-reloaded:
		t.Errorf("the new instance took over without objects: %v", err)
	default:
	}
	gate.open()
	must(t, <-reloaded)
	l.stop()
	s.want("web.source.svc.clusterset.local A", "NOERROR 10.96.6.7")
	must(t, wantReady(ready, true))

	// The time that a new instance may take is over at some time.
	nowhere := kubeconfigAt(t, port(t))
	must(t, s.reload(strings.NewReplacer("{kubeconfig}", nowhere, "90s", "50ms").Replace(corefile)))
	s.want("web.source.svc.clusterset.local A", "SERVFAIL EDE14")
	eventually(t, "ready", func() error { return wantReady(ready, false) })
	must(t, s.reload(corefile))
	s.want("web.source.svc.clusterset.local A", "NOERROR 10.96.6.7")
	eventually(t, "ready", func() error { return wantReady(ready, true) })
}

// TestReloadInherits: what sees the same objects and only shows or follows them in another way has them at once, also while
// the API server does not answer.
func TestReloadInherits(t *testing.T) {
	ns := namespace(t, "inherits")
	apply(t, vip(ns, "web", "10.96.6.9"), headless(ns, "db"), slice(ns, "db-east", "db", "east", "10.3.0.9"))
	corefile := strings.ReplaceAll(theBlock, "{namespaces}", ns)
	s := start(t, corefile)
	const db = question("east.db.inherits.svc.clusterset.local A")
	s.want(db, "NOERROR 10.3.0.9")
	serial := s.serial()
	l := startLoad(t, s.addr, permitted{
		"web.inherits.svc.clusterset.local A":  {"NOERROR 10.96.6.9"},
		"db.inherits.svc.clusterset.local A":   {"NOERROR 10.3.0.9"},
		"none.inherits.svc.clusterset.local A": {"NXDOMAIN"},
	})
	watches := count(t)
	must(t, api(t).Freeze())
	for _, tt := range []struct{ line, want string }{
		{"cluster_names off", "NOERROR"},
		{"stale_after 20m", "NOERROR 10.3.0.9"},
		{"apiserver_qps 9", "NOERROR 10.3.0.9"},
		{"topology zone a", "NOERROR 10.3.0.9"},
		{"snapshot " + t.TempDir() + "/snapshot", "NOERROR 10.3.0.9"},
	} {
		must(t, s.reload(strings.Replace(corefile, "startup_timeout", tt.line+"\nstartup_timeout", 1)))
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
	eventually(t, "watches", func() error {
		if now := count(t); now.open != watches.open {
			return fmt.Errorf("%d are open, want %d as before", now.open, watches.open)
		}
		return nil
	})
}

// TestReloadsWithOtherSources leaves no watch of any of them.
func TestReloadsWithOtherSources(t *testing.T) {
	namespace(t, "many")
	corefile := func(i int) string {
		return strings.ReplaceAll(theBlock, "{namespaces}", fmt.Sprintf("many many-%d", i))
	}
	s := start(t, corefile(0))
	watches, goroutines, size := count(t), runtime.NumGoroutine(), heap()
	for i := range 20 {
		must(t, s.reload(corefile(i)))
	}
	eventually(t, "watches, goroutines and heap", func() error {
		if now := count(t); now.open != watches.open {
			return fmt.Errorf("%d watches are open, want %d as before", now.open, watches.open)
		}
		if now := runtime.NumGoroutine(); now > goroutines+10 {
			return fmt.Errorf("%d goroutines, want %d as before", now, goroutines)
		}
		if now := heap(); now > size+8<<20 {
			return fmt.Errorf("heap %d, want %d as before", now, size)
		}
		return nil
	})
}
