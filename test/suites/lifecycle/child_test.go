package lifecycle

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A child is a CoreDNS in a process of its own.
type child struct {
	*server
	cmd    *exec.Cmd
	out    *output
	stderr *output
	ended  chan struct{}
	file   string // the Corefile
}

// startChild starts CoreDNS as start does. It has to be stopped by the test.
func startChild(t *testing.T, corefile string, values ...string) *child {
	t.Helper()
	p := port(t)
	c := &child{
		server: &server{t: t, addr: fmt.Sprintf("127.0.0.1:%d", p)},
		out:    new(output), stderr: new(output), ended: make(chan struct{}),
	}
	c.values = append([]string{"{port}", fmt.Sprint(p), "{kubeconfig}", api(t).Kubeconfig()}, values...)
	c.file = write(t, "Corefile", "")
	c.write(corefile)
	c.cmd = exec.Command(os.Args[0], "-conf", c.file)
	c.cmd.Env = append(os.Environ(), childEnv+"=1")
	c.cmd.Stdout, c.cmd.Stderr = c.out, c.stderr
	must(t, c.cmd.Start())
	go func() {
		defer close(c.ended)
		_ = c.cmd.Wait() // ProcessState tells how it ended.
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.ended
		if t.Failed() {
			t.Logf("output:\n%s%s", c.out, c.stderr)
		}
	})
	return c
}

// write replaces the Corefile.
func (c *child) write(corefile string) {
	c.t.Helper()
	must(c.t, os.WriteFile(c.file, c.corefile(corefile).Contents, 0o600))
}

// klogLine is what client-go writes if nobody stops it.
var klogLine = regexp.MustCompile(`(?m)^[IWEF]\d{4} \d\d:\d\d:\d\d`)

// terminate ends the child by SIGTERM, which has to wait for everything that it started.
func (c *child) terminate() {
	c.t.Helper()
	must(c.t, c.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-c.ended:
	case <-time.After(patience):
		c.t.Fatal("still running after SIGTERM")
	}
	if !c.cmd.ProcessState.Success() {
		c.t.Errorf("ended with %s", c.cmd.ProcessState)
	}
	out := c.out.String()
	if strings.Contains(out, "STILL ALIVE") || !strings.Contains(out, "ALL WAITED FOR") {
		c.t.Error("the end did not wait for everything")
	}
	if text := c.stderr.String(); text != "" {
		c.t.Errorf("stderr: %s", text)
	}
	if klogLine.MatchString(out) {
		c.t.Error("client-go writes in a format of its own")
	}
}

// TestTerm: SIGTERM waits for all, also with the API server away; before the lameduck time of health is over the answers
// are fresh.
func TestTerm(t *testing.T) {
	ns := namespace(t, "term")
	apply(t, vip(ns, "web", "10.96.7.1"))
	const corefile = `
clusterset.local.:{port} {
	bind 127.0.0.1
	errors
	log
	health 127.0.0.1:{health} {
		lameduck {lameduck}
	}
	transfer {
		to 127.0.0.1:{notified}
	}
	clusterset {
		kubeconfig {kubeconfig}
		namespaces term
		startup_timeout {timeout}
	}
}`
	const web = question("web.term.svc.clusterset.local A")
	values := func(lameduck, timeout string) []string {
		return []string{
			"{health}", fmt.Sprint(port(t)), "{lameduck}", lameduck, "{notified}", fmt.Sprint(port(t)), "{timeout}", timeout,
		}
	}
	t.Run("lameduck", func(t *testing.T) {
		c := startChild(t, corefile, values("8s", "90s")...)
		c.await(web, "NOERROR 10.96.7.1")
		must(t, c.cmd.Process.Signal(syscall.SIGTERM))
		eventually(t, "lameduck", func() error { return c.wrote("Going into lameduck mode") })
		apply(t, vip(ns, "web", "10.96.7.2"))
		c.await(web, "NOERROR 10.96.7.2")
		c.terminate()
		apply(t, vip(ns, "web", "10.96.7.1"))
	})
	t.Run("API away", func(t *testing.T) {
		c := startChild(t, corefile, values("1ms", "90s")...)
		c.await(web, "NOERROR 10.96.7.1")
		api(t).KillAPIServer()
		defer func() { must(t, api(t).StartAPIServer(t.Context())) }()
		eventually(t, "loss", func() error { return c.wrote("out of reach") })
		c.want(web, "NOERROR 10.96.7.1")
		c.terminate()
	})
	t.Run("API frozen", func(t *testing.T) {
		c := startChild(t, corefile, values("1ms", "90s")...)
		c.await(web, "NOERROR 10.96.7.1")
		must(t, api(t).Freeze())
		defer func() { must(t, api(t).Thaw()) }()
		c.terminate()
	})
	t.Run("while it starts", func(t *testing.T) {
		must(t, api(t).Freeze())
		defer func() { must(t, api(t).Thaw()) }()
		// A signal during the start is a race in caddy itself.
		t.Setenv("GORACE", "exitcode=0 log_path="+t.TempDir()+"/races")
		c := startChild(t, corefile, values("1ms", "90s")...)
		eventually(t, "health", func() error {
			_, _, err := get("http://127.0.0.1:" + c.values[5] + "/health")
			return err
		})
		c.terminate()
	})
}

// wrote returns nil if the child has written text.
func (c *child) wrote(text string) error {
	if out := c.out.String(); !strings.Contains(out, text) {
		return fmt.Errorf("no %q in %q", text, tail(out))
	}
	return nil
}

func tail(s string) string { return s[max(0, len(s)-500):] }

// TestReloadPlugin changes the Corefile of a running process, and says SIGUSR1 to it.
func TestReloadPlugin(t *testing.T) {
	ns := namespace(t, "corefile")
	apply(t, vip(ns, "web", "10.96.7.4"))
	corefile := func(ttl string) string {
		return strings.NewReplacer("bind", "reload 2s 0s\n\tbind", "startup_timeout", "ttl "+ttl+"\n\t\tstartup_timeout").
			Replace(strings.ReplaceAll(theBlock, "{namespaces}", ns))
	}
	c := startChild(t, corefile("10"))
	const web = question("web.corefile.svc.clusterset.local A")
	ttl := func(want uint32) {
		t.Helper()
		eventually(t, "ttl", func() error {
			m, err := c.ask(web)
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
	c.write(corefile("20"))
	ttl(20)
	c.write(corefile("twenty"))
	eventually(t, "a failed reload", func() error { return c.wrote(`reload failed`) })
	must(t, c.wrote(`ttl "twenty": want whole seconds`))
	ttl(20)
	c.write(corefile("30"))
	ttl(30)
	c.write(corefile("40"))
	must(t, c.cmd.Process.Signal(syscall.SIGUSR1))
	ttl(40)
	if n := strings.Count(c.out.String(), "ServiceImport in corefile: listed"); n != 1 {
		t.Errorf("imports were listed %d times, want once", n)
	}
	c.terminate()
}

// TestSnapshot: a process that starts without the API server answers from the file, and says so, until it has a list.
func TestSnapshot(t *testing.T) {
	ns := namespace(t, "snapshot")
	apply(t, vip(ns, "web", "10.96.7.5"), headless(ns, "db"), slice(ns, "db-east", "db", "east", "10.4.0.1"))
	ready := port(t)
	corefile := strings.NewReplacer("bind", "ready 127.0.0.1:{ready}\n\tbind", "startup_timeout", "snapshot {file}\n\t\tstartup_timeout").
		Replace(strings.ReplaceAll(theBlock, "{namespaces}", ns))
	values := []string{"{ready}", fmt.Sprint(ready), "{file}", t.TempDir() + "/snapshot"}
	const (
		web  = question("web.snapshot.svc.clusterset.local A")
		db   = question("db.snapshot.svc.clusterset.local A")
		none = question("none.snapshot.svc.clusterset.local A")
	)
	c := startChild(t, corefile, values...)
	c.await(db, "NOERROR 10.4.0.1")
	serial := c.serial()
	c.terminate()

	apply(t, vip(ns, "web", "10.96.7.6"))
	must(t, api(t).StopAPIServer())
	back := false
	defer func() {
		if !back {
			must(t, api(t).StartAPIServer(t.Context()))
		}
	}()
	c = startChild(t, corefile, values...)
	c.await(web, "NOERROR EDE3 10.96.7.5")
	c.want(web+" noedns", "NOERROR 10.96.7.5")
	c.want(db, "NOERROR EDE3 10.4.0.1")
	c.want(none, "NXDOMAIN EDE19")
	if got := c.serial(); got != serial {
		t.Errorf("serial from the snapshot: %d, want %d", got, serial)
	}
	must(t, wantReady(ready, true))
	must(t, api(t).StartAPIServer(t.Context()))
	back = true
	c.await(web, "NOERROR 10.96.7.6")
	c.want(none, "NXDOMAIN")
	if got := c.serial(); got <= serial {
		t.Errorf("serial after the change: %d, want one above %d", got, serial)
	}
	c.terminate()

	// A file that is broken is as none.
	must(t, os.WriteFile(values[3], bytes.Repeat([]byte("x"), 1000), 0o600))
	c = startChild(t, corefile, values...)
	c.await(web, "NOERROR 10.96.7.6")
	c.terminate()
}
