package lifecycle

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A coreDNS is a CoreDNS in a process of its own. It runs this test program, see subprocessEnv.
type coreDNS struct {
	*server
	*subprocess.Process
	stderr subprocess.Output
	file   string // path of the Corefile
}

// startSubprocess starts CoreDNS with corefile, in which values are replaced as by start. The test ends it with
// terminate; a process that still runs when the test is over is killed.
func startSubprocess(t *testing.T, corefile string, values ...string) *coreDNS {
	t.Helper()
	reserved := port(t)
	p := &coreDNS{server: &server{t: t, addr: fmt.Sprintf("127.0.0.1:%d", reserved)}}
	p.values = append([]string{"{port}", fmt.Sprint(reserved), "{kubeconfig}", api(t).Kubeconfig()}, values...)
	p.file = write(t, "Corefile", "")
	p.write(corefile)
	var err error
	p.Process, err = subprocess.Start(subprocess.Command{
		Bin: os.Args[0], Args: []string{"-conf", p.file}, Env: append(os.Environ(), subprocessEnv+"=1"), Stderr: &p.stderr,
	})
	must(t, err)
	t.Cleanup(func() {
		_ = p.Signal(syscall.SIGKILL) // it may have ended
		<-p.Done()
		if t.Failed() {
			t.Logf("output:\n%s%s", p.Out.String(), p.stderr.String())
		}
	})
	return p
}

// write replaces the Corefile in one step: CoreDNS may read it at any time.
func (p *coreDNS) write(corefile string) {
	p.t.Helper()
	next := p.file + ".next"
	must(p.t, os.WriteFile(next, p.corefile(corefile).Contents, 0o600))
	must(p.t, os.Rename(next, p.file))
}

func (p *coreDNS) signal(s os.Signal) {
	p.t.Helper()
	must(p.t, p.Signal(s))
}

// hasEnded reports whether the process has ended.
func (p *coreDNS) hasEnded() bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// klogLine is the format of client-go's own log lines.
var klogLine = regexp.MustCompile(`(?m)^[IWEF]\d{4} \d\d:\d\d:\d\d`)

// terminate ends the process by SIGTERM and checks that it waited for everything that it had started.
func (p *coreDNS) terminate() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	p.awaitEnd()
}

// awaitEnd is terminate without the signal.
func (p *coreDNS) awaitEnd() {
	p.t.Helper()
	until.True(p.t, "end of the process after SIGTERM", p.hasEnded)
	if !p.State().Success() {
		p.t.Errorf("ended with %s", p.State())
	}
	out := p.Out.String()
	if strings.Contains(out, "STILL ALIVE") || !strings.Contains(out, "END OF THE LIST") {
		p.t.Error("the process did not wait for everything that it started")
	}
	if text := p.stderr.String(); text != "" {
		p.t.Errorf("stderr: %s", text)
	}
	if klogLine.MatchString(out) {
		p.t.Error("client-go writes log lines in its own format")
	}
}

const termCorefile = `
clusterset.local.:{port} {
	bind 127.0.0.1
	errors
	log
	health 127.0.0.1:{health} {
		lameduck {lameduck}
	}
	ready 127.0.0.1:{ready}
	transfer {
		to 127.0.0.1:{notified}
	}
	clusterset {
		kubeconfig {kubeconfig}
		namespaces term
		startup_timeout 90s
	}
}`

const termQuestion = question("web.term.svc.clusterset.local A")

func startTerm(t *testing.T, lameduck time.Duration) *coreDNS {
	t.Helper()
	return startSubprocess(t, termCorefile,
		"{health}", fmt.Sprint(port(t)), "{lameduck}", lameduck.String(), "{notified}", fmt.Sprint(port(t)), "{ready}",
		fmt.Sprint(port(t)))
}

// TestTerm ends CoreDNS by SIGTERM in several states of the API server. It waits for everything that it started, and
// answers follow the API server until the lameduck time of the plugin health is over.
func TestTerm(t *testing.T) {
	ns := namespace(t, "term")
	apply(t, vip(ns, "web", "10.96.7.1"))
	t.Run("lameduck", func(t *testing.T) { testLameduck(t, ns) })
	t.Run("API server is away", func(t *testing.T) {
		p := startTerm(t, time.Millisecond)
		p.await(termQuestion, "NOERROR 10.96.7.1")
		api(t).KillAPIServer()
		defer func() { must(t, api(t).StartAPIServer(t.Context())) }()
		until.OK(t, "a log line about the loss", func(context.Context) error { return p.wrote("out of reach") })
		p.want(termQuestion, "NOERROR 10.96.7.1")
		p.terminate()
	})
	t.Run("API server is frozen", func(t *testing.T) {
		p := startTerm(t, time.Millisecond)
		p.await(termQuestion, "NOERROR 10.96.7.1")
		must(t, api(t).Freeze())
		defer func() { must(t, api(t).Thaw()) }()
		p.terminate()
	})
	t.Run("during the start", func(t *testing.T) {
		must(t, api(t).Freeze())
		defer func() { must(t, api(t).Thaw()) }()
		// A signal during the start is a race in caddy itself.
		t.Setenv("GORACE", "exitcode=0 log_path="+t.TempDir()+"/races")
		p := startTerm(t, time.Millisecond)
		until.OK(t, "health", func(context.Context) error {
			_, _, err := get("http://127.0.0.1:" + p.values[5] + "/health")
			return err
		})
		p.terminate()
	})
}

// testLameduck changes an object in the lameduck time, in which the process is not ready and loses no answer. On a slow
// machine the time may be over before the change is served: the test tries again with more time.
func testLameduck(t *testing.T, ns string) {
	for lameduck := 5 * time.Second; ; lameduck *= 3 {
		p := startTerm(t, lameduck)
		p.await(termQuestion, "NOERROR 10.96.7.1")
		ready := func() bool {
			status, _, err := get("http://127.0.0.1:" + p.values[len(p.values)-1] + "/ready")
			return err == nil && status == http.StatusOK
		}
		until.True(t, "ready", ready)
		l := startLoad(t, p.addr, permitted{termQuestion: {"NOERROR 10.96.7.1", "NOERROR 10.96.7.2"}})
		p.signal(syscall.SIGTERM)
		until.OK(t, "lameduck", func(context.Context) error { return p.wrote("Going into lameduck mode") })
		if ready() {
			t.Error("ready in the lameduck time")
		}
		apply(t, vip(ns, "web", "10.96.7.2"))
		var err error
		until.True(t, "the change, or the end", func() bool {
			err = p.says(termQuestion, "NOERROR 10.96.7.2")
			return err == nil || p.hasEnded()
		})
		l.end()
		ended := p.hasEnded()
		p.awaitEnd()
		apply(t, vip(ns, "web", "10.96.7.1"))
		if err == nil && !ended {
			if len(l.wrong) > 0 || l.answers.Load() == 0 {
				t.Errorf("%d answers in the lameduck time, and these: %q", l.answers.Load(), l.wrong)
			}
			outages.Measured(t, "F25", "%d answers, %d lost or wrong", l.answers.Load(), len(l.wrong))
			return
		}
		if lameduck > time.Minute {
			t.Fatalf("in a lameduck time of %s: %v", lameduck, err)
		}
	}
}

// wrote returns nil if the process has written text.
func (p *coreDNS) wrote(text string) error {
	if out := p.Out.String(); !strings.Contains(out, text) {
		return fmt.Errorf("no %q in %q", text, tail(out))
	}
	return nil
}

// wroteTimes returns nil if the process has written text so many times.
func (p *coreDNS) wroteTimes(text string, times int) error {
	if n := strings.Count(p.Out.String(), text); n != times {
		return fmt.Errorf("%q is written %d times, want %d", text, n, times)
	}
	return nil
}

func tail(s string) string { return s[max(0, len(s)-500):] }

// TestReloadPlugin changes the Corefile of a running process, which the plugin reload finds, and then sends SIGUSR1.
func TestReloadPlugin(t *testing.T) {
	tier.All(t)
	ns := namespace(t, "corefile")
	apply(t, vip(ns, "web", "10.96.7.4"))
	corefile := func(interval, ttl string) string {
		return strings.NewReplacer("bind", "reload "+interval+" 0s\n\tbind", "startup_timeout",
			"ttl "+ttl+"\n\t\tstartup_timeout").
			Replace(strings.ReplaceAll(theBlock, "{namespaces}", ns))
	}
	p := startSubprocess(t, corefile("2s", "10"))
	const web = question("web.corefile.svc.clusterset.local A")
	ttl := func(want uint32) {
		t.Helper()
		until.OK(t, "ttl", func(context.Context) error {
			m, err := p.ask(web)
			if err != nil {
				return err
			}
			if len(m.Answer) != 1 || m.Answer[0].Header().Ttl != want {
				return fmt.Errorf("got %v, want a TTL of %d", m.Answer, want)
			}
			return nil
		})
	}
	ttl(10)
	p.write(corefile("2s", "20"))
	ttl(20)
	p.write(corefile("2s", "twenty"))
	until.OK(t, "a failed reload", func(context.Context) error { return p.wrote(`reload failed`) })
	until.OK(t, "its reason", func(context.Context) error { return p.wrote(`ttl "twenty": want whole seconds`) })
	ttl(20)
	// From here on only the signal makes CoreDNS read the file.
	p.write(corefile("1h", "30"))
	ttl(30)
	p.write(corefile("1h", "40"))
	// The new instance answers before caddy has let the old one go, which a signal would reload.
	until.OK(t, "the end of both reloads", func(context.Context) error { return p.wroteTimes("Reloading complete", 2) })
	p.signal(syscall.SIGUSR1)
	ttl(40)
	if n := strings.Count(p.Out.String(), "ServiceImport in corefile: listed"); n != 1 {
		t.Errorf("imports were listed %d times, want once", n)
	}
	p.terminate()
}

// TestSnapshot starts a process without the API server: it answers from the snapshot, and marks its answers as stale,
// until it has a list.
func TestSnapshot(t *testing.T) {
	ns := namespace(t, "snapshot")
	apply(t, vip(ns, "web", "10.96.7.5"), headless(ns, "db"), slice(ns, "db-east", "db", "east", "10.4.0.1"))
	ready := port(t)
	corefile := strings.NewReplacer("bind", "ready 127.0.0.1:{ready}\n\tbind", "startup_timeout",
		"snapshot {file}\n\t\tstartup_timeout").
		Replace(strings.ReplaceAll(theBlock, "{namespaces}", ns))
	values := []string{"{ready}", fmt.Sprint(ready), "{file}", t.TempDir() + "/snapshot"}
	const (
		web    = question("web.snapshot.svc.clusterset.local A")
		db     = question("db.snapshot.svc.clusterset.local A")
		absent = question("none.snapshot.svc.clusterset.local A")
	)
	p := startSubprocess(t, corefile, values...)
	p.await(db, "NOERROR 10.4.0.1")
	serial := p.settledSerial()
	p.terminate()

	apply(t, vip(ns, "web", "10.96.7.6"))
	must(t, api(t).StopAPIServer())
	back := false
	defer func() {
		if !back {
			must(t, api(t).StartAPIServer(t.Context()))
		}
	}()
	begin := time.Now()
	p = startSubprocess(t, corefile, values...)
	p.await(web, "NOERROR EDE3 10.96.7.5")
	outages.Since(t, "F4", begin, 300*time.Millisecond, "first answer")
	p.want(web+" noedns", "NOERROR 10.96.7.5")
	p.want(db, "NOERROR EDE3 10.4.0.1")
	p.want(absent, "NXDOMAIN EDE19")
	if got := p.serial(); got != serial {
		t.Errorf("serial from the snapshot: %d, want %d", got, serial)
	}
	awaitReady(t, ready, true)
	must(t, api(t).StartAPIServer(t.Context()))
	back = true
	p.await(web, "NOERROR 10.96.7.6")
	p.await(absent, "NXDOMAIN")
	if got := p.serial(); got <= serial {
		t.Errorf("serial after the change: %d, want one above %d", got, serial)
	}
	p.terminate()

	// The API server accepts connections and does not answer.
	must(t, api(t).Freeze())
	defer func() { must(t, api(t).Thaw()) }()
	begin = time.Now()
	p = startSubprocess(t, corefile, values...)
	p.await(web, "NOERROR EDE3 10.96.7.6")
	outages.Since(t, "F4", begin, time.Second, "first answer while the API server says nothing")
	must(t, api(t).Thaw())
	p.await(web, "NOERROR 10.96.7.6")
	p.terminate()

	// A broken snapshot is ignored.
	must(t, os.WriteFile(values[3], bytes.Repeat([]byte("x"), 1000), 0o600))
	p = startSubprocess(t, corefile, values...)
	p.await(web, "NOERROR 10.96.7.6")
	p.terminate()
	testNoRoom(t, corefile, values, values[3])
}

// testNoRoom runs a process whose snapshot can never be written: a folder is where the file that is to replace it would
// be. Answers go on, with one line in the log (F30).
func testNoRoom(t *testing.T, corefile string, values []string, file string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".next", "folder"), 0o700))
	p := startSubprocess(t, corefile, values...)
	p.await("web.snapshot.svc.clusterset.local A", "NOERROR 10.96.7.6")
	until.OK(t, "a log line about the snapshot", func(context.Context) error { return p.wrote("snapshot: ") })
	apply(t, vip("snapshot", "web", "10.96.7.7"))
	p.await("web.snapshot.svc.clusterset.local A", "NOERROR 10.96.7.7")
	p.terminate() // which tries again
	lines := 0
	for line := range strings.Lines(p.Out.String()) {
		if strings.Contains(line, "[ERROR]") && strings.Contains(line, "snapshot: ") {
			lines++
		}
	}
	if lines != 1 {
		t.Errorf("%d log lines about a snapshot that cannot be written, want one:\n%s", lines, p.Out.String())
	}
	outages.Measured(t, "F30", "answers went on; %d log line for all failed writes", lines)
}
