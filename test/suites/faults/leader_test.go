package faults

import (
	"context"
	"fmt"
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

	"github.com/clusterset-dns/clusterset/admin"
	"github.com/clusterset-dns/clusterset/deploy"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// Two instances overlap, as they do in a rollout: one writes at a time, and the other goes on where the first one stopped, in the
// middle of what was to be done.
func TestTwoInstances(t *testing.T) {
	const ns = "overlap"
	j := &journal{}
	first := run(t, east, behind(t, j.of("first")))
	first.shows("leader", "", 1)
	second := run(t, east, behind(t, j.of("second")))
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
		sees(t, east, ns, name, "10.21.0.1")
	}
	second.shows("leader", "", 0)
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
		sees(t, east, ns, name, "10.21.0.1")
	}
	second.shows("leader", "", 1)
	if turns := writers(j.all(0)); !slices.Equal(turns, []string{"first", "second"}) {
		t.Errorf("who wrote, in turns: %v, want the first, then the second", turns)
	}
}

// A leader that is paused for longer than its lease, and goes on, does not write any more: another one leads.
func TestLeaderIsPaused(t *testing.T) {
	const ns = "paused"
	j := &journal{}
	p := startController(t, j.of("paused"))
	export(t, east, ns, "web", "10.21.0.1")
	sees(t, east, ns, "web", "10.21.0.1")
	send(t, p, syscall.SIGSTOP)
	other := run(t, east, behind(t, j.of("other")))
	other.shows("leader", "", 1) // after the lease
	from := j.len()
	serve(t, east, ns, "web", "10.21.0.2")
	export(t, east, ns, "second", "10.21.0.3")
	sees(t, east, ns, "web", "10.21.0.2")
	sees(t, east, ns, "second", "10.21.0.3")
	// What the paused one finds when it goes on is that its import lacks an endpoint.
	serve(t, east, ns, "web", "10.21.0.2", "10.21.0.4")
	send(t, p, syscall.SIGCONT)
	said(t, p, "no longer leading", 1)
	sees(t, east, ns, "web", "10.21.0.2 10.21.0.4")
	serve(t, east, ns, "web", "10.21.0.5")
	sees(t, east, ns, "web", "10.21.0.5")
	if turns := writers(j.all(from)); !slices.Equal(turns, []string{"other"}) {
		t.Errorf("who wrote after the other took over: %v, want the other alone", turns)
	}
	other.stop()
	said(t, p, "leading as", 2)
	serve(t, east, ns, "web", "10.21.0.6")
	sees(t, east, ns, "web", "10.21.0.6")
	if turns := writers(j.all(from)); !slices.Equal(turns, []string{"other", "paused"}) {
		t.Errorf("who wrote until the end, in turns: %v, want the other, then the one that was paused", turns)
	}
}

// startController starts a controller of east in a process of its own, which ends with the test.
func startController(t *testing.T, admit func(string) bool) *subprocess.Process {
	t.Helper()
	kubeconfig, err := east.ServiceAccountKubeconfig(t.Context(), admin.DefaultNamespace, "clusterset-controller")
	if err != nil {
		t.Fatal(err)
	}
	local, hub := newFront(t, east.Config(), admit), newFront(t, clusters.Broker.Config(), admit)
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
		_ = syscall.Kill(p.Pid(), syscall.SIGCONT) // one that is paused cannot end
		if !p.Stop(until.Patience) || p.Err() != nil || t.Failed() {
			t.Logf("the controller: %v\n%s", p.Err(), p.Out.String())
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

// said waits until a program wrote a text so many times.
func said(t *testing.T, p *subprocess.Process, text string, times int) {
	t.Helper()
	until.OK(t, fmt.Sprintf("%d times %q", times, text), func(context.Context) error {
		if got := strings.Count(p.Out.String(), text); got < times {
			return fmt.Errorf("%d times", got)
		}
		return nil
	})
}

// CoreDNS is reloaded in the middle of an import, again and again, by SIGUSR1: one controller after the other acts, what is to be
// imported is imported once, and nothing of the earlier ones is left.
func TestReload(t *testing.T) {
	const ns, count = "reload", 30
	west.Put(t, testclusterset.Namespace(ns))
	for n := range count {
		export(t, east, ns, fmt.Sprintf("web-%d", n), "10.21.0.1")
	}
	run(t, east)
	recorded(t, east, ns, fmt.Sprintf("web-%d", count-1), true)
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
		sees(t, west, ns, fmt.Sprintf("web-%d", n), "10.21.0.1")
	}
	check()
	if turns := turns(s.Out.String()); strings.Contains(turns, "++") || strings.Contains(turns, "--") {
		t.Errorf("controllers began (+) and ended (-) to act as %s, want one after the other", turns)
	}
	before := s.goroutines(t)
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

// created returns how many times a controller set out to create an import in a namespace.
func created(j *journal, namespace string) (n int) {
	for _, e := range j.all(0) {
		if strings.HasPrefix(e.write, http.MethodPost) && strings.HasSuffix(e.write, "/namespaces/"+namespace+"/serviceimports") {
			n++
		}
	}
	return n
}

var turn = regexp.MustCompile(`no longer leading|leading as`)

// turns is how controllers began (+) and ended (-) to act, from what CoreDNS wrote.
func turns(out string) string {
	var b strings.Builder
	for _, text := range turn.FindAllString(out, -1) {
		if text == "leading as" {
			b.WriteByte('+')
		} else {
			b.WriteByte('-')
		}
	}
	return b.String()
}

// A reloadable is CoreDNS with a controller, over west.
type reloadable struct {
	*server.Server
	corefile, text string
	metrics        *controlplane.Port
}

// startServer starts the shipped CoreDNS, DNS server and controller in one, with the rights that are shipped for that. Its
// writes go to the journal.
func startServer(t *testing.T, j *journal) *reloadable {
	t.Helper()
	root, err := server.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(root, "bin", "test-coredns")
	if err := server.Build(t.Context(), root, bin); err != nil {
		t.Fatal(err)
	}
	if err := west.ApplyYAML(t.Context(), deploy.AllInOneRBAC); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := west.ServiceAccountKubeconfig(t.Context(), admin.DefaultNamespace, "clusterset")
	if err != nil {
		t.Fatal(err)
	}
	local, hub := newFront(t, west.Config(), j.of("west")), newFront(t, clusters.Broker.Config(), j.of("west"))
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

// write writes the n-th Corefile. Each asks for another controller.
func (s *reloadable) write(t *testing.T, n int) {
	t.Helper()
	text := strings.ReplaceAll(s.text, "{ttl}", strconv.Itoa(30+n))
	if err := os.WriteFile(s.corefile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// reload makes CoreDNS take the n-th Corefile, and returns when its controller acts.
func (s *reloadable) reload(t *testing.T, n int) {
	t.Helper()
	leaders := strings.Count(s.Out.String(), "leading as")
	s.write(t, n)
	send(t, s.Process, syscall.SIGUSR1)
	said(t, s.Process, "leading as", leaders+1)
}

var goroutineCount = regexp.MustCompile(`(?m)^go_goroutines (\d+)`)

// goroutines returns how many CoreDNS has.
func (s *reloadable) goroutines(t *testing.T) int {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	page, err := client.Get("http://" + s.metrics.String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	var b strings.Builder
	if err := page.Write(&b); err != nil {
		t.Fatal(err)
	}
	match := goroutineCount.FindStringSubmatch(b.String())
	if match == nil {
		t.Fatalf("no go_goroutines in %s", b.String())
	}
	n, err := strconv.Atoi(match[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
