package faults

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/deploy"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/logtest"
	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/series"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// Two instances overlap, as they do in a rollout. Only one writes at a time; the other continues where the first one
// was stopped, in the middle of its work.
func TestTwoInstances(t *testing.T) {
	tier.Nightly(t)
	const ns = "overlap"
	j := &journal{}
	first := run(t, east, behind(t, j.of("first")))
	first.awaitMetric("leader", "", 1)
	var log logtest.Recorder
	second := run(t, east, behind(t, j.of("second")), func(c *controller.Config) { c.Log = &log })
	names := func(from, to int) (all []string) {
		for n := from; n < to; n++ {
			all = append(all, fmt.Sprintf("web-%d", n))
		}
		return all
	}
	for _, name := range names(0, 5) {
		export(t, east, ns, name, "10.21.0.1")
	}
	for _, name := range names(0, 5) {
		awaitImport(t, east, ns, name, "10.21.0.1")
	}
	// The metric alone proves nothing: it is 0 also before the second has asked for the lease.
	until.True(t, "a second instance that stands by", func() bool { return log.Count("standing by: ") > 0 })
	if leads, err := second.metric("leader", ""); err != nil || leads != 0 {
		t.Errorf("leader = %v (%v) in the second instance, want 0 beside the first", leads, err)
	}
	over := make(chan struct{})
	for _, name := range names(5, 20) {
		export(t, east, ns, name, "10.21.0.1")
		if name == "web-10" {
			go func() {
				defer close(over)
				first.stop()
			}()
		}
	}
	<-over
	for _, name := range names(0, 20) {
		awaitImport(t, east, ns, name, "10.21.0.1")
	}
	second.awaitMetric("leader", "", 1)
	if order := writers(j.all(0)); !slices.Equal(order, []string{"first", "second"}) {
		t.Errorf("writers: %v, want the first, then the second", order)
	}
}

// A leader is paused for longer than its lease and then resumed. It does not write any more: another instance leads.
func TestLeaderIsPaused(t *testing.T) {
	tier.Nightly(t)
	const ns = "paused"
	j := &journal{}
	p := startController(t, j.of("paused"))
	export(t, east, ns, "web", "10.21.0.1")
	awaitImport(t, east, ns, "web", "10.21.0.1")
	stopIdle(t, p, j)
	from, paused := j.len(), time.Now()
	other := run(t, east, behind(t, j.of("other")))
	serve(t, east, ns, "web", "10.21.0.2")
	export(t, east, ns, "second", "10.21.0.3")
	other.awaitMetric("leader", "", 1) // after the lease
	awaitImport(t, east, ns, "web", "10.21.0.2")
	awaitImport(t, east, ns, "second", "10.21.0.3")
	outages.Since(t, "F14", paused, 30*time.Second, "changes made by another instance after the leader paused")
	// Something to write for the paused one when it is resumed.
	serve(t, east, ns, "web", "10.21.0.2", "10.21.0.4")
	send(t, p, syscall.SIGCONT)
	awaitOutput(t, p, "no longer leading", 1)
	awaitImport(t, east, ns, "web", "10.21.0.2 10.21.0.4")
	serve(t, east, ns, "web", "10.21.0.5")
	awaitImport(t, east, ns, "web", "10.21.0.5")
	if order := writers(j.all(from)); !slices.Equal(order, []string{"other"}) {
		t.Errorf("writers after the takeover: %v, want the other alone", order)
	}
	other.stop()
	awaitOutput(t, p, "leading as", 2)
	serve(t, east, ns, "web", "10.21.0.6")
	awaitImport(t, east, ns, "web", "10.21.0.6")
	if order := writers(j.all(from)); !slices.Equal(order, []string{"other", "paused"}) {
		t.Errorf("writers until the end: %v, want the other, then the one that was paused", order)
	}
}

// stopIdle pauses a controller that has written nothing for a while: a write that has passed the fence goes out when
// the process is resumed.
func stopIdle(t *testing.T, p *subprocess.Process, j *journal) {
	t.Helper()
	n, wrote := j.len(), time.Now()
	until.OK(t, "a controller that is idle", func(context.Context) error {
		if now := j.len(); now > n {
			n, wrote = now, time.Now()
		}
		if time.Since(wrote) < time.Second {
			return fmt.Errorf("%d writes, none for %s", n, time.Since(wrote))
		}
		send(t, p, syscall.SIGSTOP)
		return nil
	})
}

// startController starts a controller of east as a subprocess, which ends with the test.
func startController(t *testing.T, admit func(string) bool) *subprocess.Process {
	t.Helper()
	p := launchController(t, admit, nil)
	t.Cleanup(func() {
		_ = syscall.Kill(p.Pid(), syscall.SIGCONT) // one that is paused cannot end
		if !p.Stop(until.Patience) || p.Err() != nil {
			t.Errorf("the controller does not end as it should: %v", p.Err())
		}
	})
	return p
}

// launchController is startController for a process that the caller ends.
func launchController(t *testing.T, admit func(string) bool, answered func(string)) *subprocess.Process {
	t.Helper()
	kubeconfig, err := east.ServiceAccountKubeconfig(t.Context(), wellknown.ControllerNamespace, "clusterset-controller")
	if err != nil {
		t.Fatal(err)
	}
	local, hub := newAPIProxy(t, east.Config(), admit, answered), newAPIProxy(t, clusters.Broker.Config(), admit, answered)
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := subprocess.Start(subprocess.Command{Bin: bin, Env: append(os.Environ(),
		localEnv+"="+via(t, kubeconfig, local.URL, local.authority()),
		brokerEnv+"="+via(t, east.BrokerKubeconfig(), hub.URL, hub.authority()),
	)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the controller:\n%s", p.Out.String())
		}
	})
	return p
}

func send(t *testing.T, p *subprocess.Process, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(p.Pid(), s); err != nil {
		t.Fatal(err)
	}
}

// awaitOutput waits until a program has written a text so many times.
func awaitOutput(t *testing.T, p *subprocess.Process, text string, times int) {
	t.Helper()
	until.OK(t, fmt.Sprintf("%d times %q", times, text), func(context.Context) error {
		if got := strings.Count(p.Out.String(), text); got < times {
			return fmt.Errorf("%d times", got)
		}
		return nil
	})
}

// CoreDNS is reloaded several times by SIGUSR1 in the middle of an import. Only one controller leads at a time, each
// service is imported once, and nothing of the earlier controllers is left.
func TestReload(t *testing.T) {
	tier.Nightly(t)
	const ns, count = "reload", 30
	west.Put(t, testclusterset.Namespace(ns))
	for n := range count {
		export(t, east, ns, fmt.Sprintf("web-%d", n), "10.21.0.1")
	}
	run(t, east)
	awaitRecord(t, east, ns, fmt.Sprintf("web-%d", count-1), true)
	check := undisturbed(t, west, ns)
	j := &journal{}
	s := startServer(t, j)
	for n := range 6 {
		until.OK(t, "progress", func(context.Context) error {
			if done := created(j, ns); done < min(count, 2+4*n) {
				return fmt.Errorf("%d imports", done)
			}
			return nil
		})
		s.reload(t, n+1)
	}
	for n := range count {
		awaitImport(t, west, ns, fmt.Sprintf("web-%d", n), "10.21.0.1")
	}
	check()
	if got := terms(s.Out.String()); strings.Contains(got, "++") || strings.Contains(got, "--") {
		t.Errorf("controllers began (+) and ended (-) to lead as %s, want one after the other", got)
	}
	before := s.mostGoroutines(t)
	for n := range 5 {
		s.reload(t, 10+n)
	}
	until.OK(t, "goroutines", func(context.Context) error {
		if now := s.goroutines(t); now > before+5 {
			return fmt.Errorf("%d, want %d as before", now, before)
		}
		return nil
	})
}

// created returns the number of requests to create an import in a namespace.
func created(j *journal, namespace string) (n int) {
	for _, e := range j.all(0) {
		if strings.HasPrefix(e.write, http.MethodPost) && strings.HasSuffix(e.write,
			"/namespaces/"+namespace+"/serviceimports") {
			n++
		}
	}
	return n
}

var termLine = regexp.MustCompile(`no longer leading|leading as`)

// terms returns the order in which controllers began (+) and ended (-) to lead, from the log of CoreDNS.
func terms(out string) string {
	var b strings.Builder
	for _, text := range termLine.FindAllString(out, -1) {
		if text == "leading as" {
			b.WriteByte('+')
		} else {
			b.WriteByte('-')
		}
	}
	return b.String()
}

// A reloadable is a CoreDNS with a controller for west.
type reloadable struct {
	*server.Server
	corefile, text string
	metrics        *controlplane.Port
}

// startServer starts the shipped CoreDNS, DNS server and controller in one process, with the rights that are shipped
// for that. It records the writes in the journal.
func startServer(t *testing.T, j *journal) *reloadable {
	t.Helper()
	bin, err := server.Program(t.Context(), "coredns")
	if err != nil {
		t.Fatal(err)
	}
	if err := west.ApplyYAML(t.Context(), deploy.AllInOneRBAC); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := west.ServiceAccountKubeconfig(t.Context(), wellknown.ControllerNamespace, "clusterset")
	if err != nil {
		t.Fatal(err)
	}
	local, hub := newAPIProxy(t, west.Config(), j.of("west"), nil),
		newAPIProxy(t, clusters.Broker.Config(), j.of("west"), nil)
	s := &reloadable{corefile: filepath.Join(t.TempDir(), "Corefile"), metrics: reserve(t)}
	s.text = fmt.Sprintf(`clusterset.local:%d {
	bind 127.0.0.1
	errors
	prometheus %s
	clusterset {
		kubeconfig %s
		broker %s
		lease 1s {ttl}s
	}
}
`, reserve(t).Number, s.metrics, via(t, kubeconfig, local.URL, local.authority()), via(t, west.BrokerKubeconfig(), hub.URL, hub.authority()))
	s.write(t, 0)
	if s.Server, err = server.Start(subprocess.Command{Bin: bin, Args: []string{"-conf", s.corefile}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(s.Output())
		}
	})
	return s
}

func reserve(t *testing.T) *controlplane.Port {
	t.Helper()
	p, err := controlplane.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// write writes the n-th Corefile. Each has other settings of the controller.
func (s *reloadable) write(t *testing.T, n int) {
	t.Helper()
	text := strings.ReplaceAll(s.text, "{ttl}", strconv.Itoa(30+n))
	if err := os.WriteFile(s.corefile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// reload makes CoreDNS load the n-th Corefile, and waits until its controller leads.
func (s *reloadable) reload(t *testing.T, n int) {
	t.Helper()
	leaders := strings.Count(s.Out.String(), "leading as")
	s.write(t, n)
	send(t, s.Process, syscall.SIGUSR1)
	awaitOutput(t, s.Process, "leading as", leaders+1)
}

// mostGoroutines returns the largest of 100 readings: requests start goroutines, and so may a controller that has just
// begun to lead.
func (s *reloadable) mostGoroutines(t *testing.T) (most int) {
	t.Helper()
	for range 100 {
		most = max(most, s.goroutines(t))
		time.Sleep(20 * time.Millisecond)
	}
	return most
}

// goroutines returns the number of goroutines of CoreDNS.
func (s *reloadable) goroutines(t *testing.T) int {
	t.Helper()
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	page, err := client.Get("http://" + s.metrics.String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	text, err := io.ReadAll(page.Body)
	if err != nil {
		t.Fatal(err)
	}
	all, err := series.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	found := all.Named("go_goroutines")
	if len(found) != 1 {
		t.Fatalf("no go_goroutines in %s", text)
	}
	return int(found.Sum())
}
