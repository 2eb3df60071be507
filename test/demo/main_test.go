package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/test/child"
	"github.com/clusterset-dns/clusterset/test/controlplane"
	"github.com/clusterset-dns/clusterset/test/server"
)

// roleEnv makes the test binary the demo. The role "wrong" expects an answer that is not the right one; "waiting" waits for
// one that never comes.
const roleEnv = "CLUSTERSET_DEMO_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "wrong":
		questions[0].want = []string{"A 10.200.0.11"}
		main()
	case "waiting":
		changes[0].then[0].want = make([]string, 99)
		main()
	case "demo":
		main()
	default:
		os.Exit(m.Run())
	}
}

// A run is the demo as a process of its own.
type run struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	out bytes.Buffer
}

func (r *run) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Write(p)
}

func (r *run) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}

func start(t *testing.T, role string, env ...string) *run {
	t.Helper()
	r := &run{cmd: exec.CommandContext(t.Context(), os.Args[0])}
	r.cmd.Env = append(append(os.Environ(), roleEnv+"="+role), env...)
	r.cmd.Stdout, r.cmd.Stderr = r, r
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

var (
	folder  = regexp.MustCompile(`kubeconfig (\S+)/[^/]+\.kubeconfig`)
	dnsPort = regexp.MustCompile(`clusterset\.local:(\d+) {`)
)

// nothingLeft fails unless all that the demo started is gone, after a time in which any machine would be done.
func nothingLeft(t *testing.T, out string) {
	t.Helper()
	dir, port := folder.FindStringSubmatch(out), dnsPort.FindStringSubmatch(out)
	if dir == nil || port == nil {
		t.Fatalf("output = %s\nwant a Corefile in it", out)
	}
	var left error
	for range 600 {
		if left = errors.Join(folderGone(dir[1]), portFree(port[1])); left == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error(left)
}

func folderGone(dir string) error {
	// The control plane keeps all its files and sockets in it.
	_, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%s is still there", dir)
}

func portFree(port string) error {
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return fmt.Errorf("CoreDNS still listens: %w", err)
	}
	return l.Close()
}

func TestDemoOnce(t *testing.T) {
	r := start(t, "demo", "DEMO_ONCE=1")
	if err := r.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, r.output())
	}
	nothingLeft(t, r.output())
	if got, want := strings.Count(r.output(), "$ dig @127.0.0.1"), len(questions)+len(changes[0].then)+len(changes[1].then); got != want {
		t.Errorf("%d questions, want %d:\n%s", got, want, r.output())
	}
}

func TestDemoFailsOnAWrongAnswer(t *testing.T) {
	r := start(t, "wrong", "DEMO_ONCE=1")
	err := r.cmd.Wait()
	if code := r.cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit status %d (%v), want 1\n%s", code, err, r.output())
	}
	const want = `WRONG: records ["A 10.200.0.10"], want ["A 10.200.0.11"]`
	if !strings.Contains(r.output(), want) {
		t.Errorf("output = %s\nwant %s in it", r.output(), want)
	}
	nothingLeft(t, r.output())
}

func TestDemoStaysUntilASignal(t *testing.T) {
	for _, tt := range []struct {
		signal syscall.Signal
		ends   bool // by itself, with status 0
	}{
		{syscall.SIGINT, true},
		{syscall.SIGTERM, true},
		{syscall.SIGKILL, false},
	} {
		t.Run(tt.signal.String(), func(t *testing.T) {
			r := start(t, "demo", "DEMO_ONCE=")
			awaitOutput(t, r, "Ctrl-C ends it all")
			if err := r.cmd.Process.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}
			if err := r.cmd.Wait(); (err == nil) != tt.ends {
				t.Errorf("after %s: %v\n%s", tt.signal, err, r.output())
			}
			nothingLeft(t, r.output())
		})
	}
}

func TestDemoInterruptedEarly(t *testing.T) {
	r := start(t, "waiting", "DEMO_ONCE=1")
	awaitOutput(t, r, "is no longer ready")
	if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err := r.cmd.Wait()
	if code := r.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(r.output(), "demo: interrupted") {
		t.Errorf("exit status %d (%v), want 1 and the reason\n%s", code, err, r.output())
	}
	nothingLeft(t, r.output())
}

func awaitOutput(t *testing.T, r *run, text string) {
	t.Helper()
	for range 6000 {
		if strings.Contains(r.output(), text) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("output = %s\nwant %q in it", r.output(), text)
}

func TestNeedsDig(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := (&demo{out: io.Discard}).run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "apt-get install bind9-dnsutils") {
		t.Errorf("without dig: %v, want a hint what to install", err)
	}
}

// TestManifests asks the same of a server that reads examples/ as files.
func TestManifests(t *testing.T) {
	ctx := t.Context()
	root, err := server.Root(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "coredns")
	if err := server.Build(ctx, root, bin); err != nil {
		t.Fatal(err)
	}
	d := demo{out: t.Output()}
	if d.port, err = controlplane.ReservePort(); err != nil {
		t.Fatal(err)
	}
	corefile := fmt.Sprintf("%s:%d {\nbind 127.0.0.1\nclusterset {\nmanifests %s\n}\n}\n", zone, d.port.Number, filepath.Join(root, "examples"))
	file := filepath.Join(dir, "Corefile")
	if err := os.WriteFile(file, []byte(corefile), 0o600); err != nil {
		t.Fatal(err)
	}
	if d.server, err = server.Start(child.Command{Bin: bin, Args: []string{"-conf", file}}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}()
	err = d.server.Await(ctx, func(ctx context.Context) error { return server.Serves(ctx, d.port.String(), zone) })
	if err == nil {
		err = d.askAll(ctx, questions)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	const rr = "web.shop.svc.clusterset.local. 5 IN A 10.200.0.10"
	soa := []string{"clusterset.local. 5 IN SOA ns.dns.clusterset.local. hostmaster.clusterset.local. 1 7200 1800 86400 5"}
	vip, none := question{want: []string{"A 10.200.0.10"}}, question{status: "NXDOMAIN"}
	for _, tt := range []struct {
		name string
		q    question
		got  reply
		ok   bool
	}{
		{"right", vip, reply{status: "NOERROR", answer: []string{rr}}, true},
		{"twice", vip, reply{status: "NOERROR", answer: []string{rr, rr}}, false},
		{"nothing", vip, reply{status: "NOERROR", authority: soa}, false},
		{"another status", vip, reply{status: "SERVFAIL", answer: []string{rr}}, false},
		{"denied", none, reply{status: "NXDOMAIN", authority: soa}, true},
		{"denied without SOA", none, reply{status: "NXDOMAIN"}, false},
		{"denied with an answer", none, reply{status: "NXDOMAIN", answer: []string{rr}, authority: soa}, false},
		{"NODATA in place of NXDOMAIN", none, reply{status: "NOERROR", authority: soa}, false},
	} {
		if err := tt.q.check(tt.got); (err == nil) != tt.ok {
			t.Errorf("%s: check(%+v) = %v, want ok %t", tt.name, tt.got, err, tt.ok)
		}
	}
}

func TestParseDig(t *testing.T) {
	const out = `;; Got answer:
;; ->>HEADER<<- opcode: QUERY, status: NOERROR, id: 1
;; flags: qr aa rd; QUERY: 1, ANSWER: 1, AUTHORITY: 0, ADDITIONAL: 2

;; OPT PSEUDOSECTION:
; EDNS: version: 0, flags:; udp: 1232
;; ANSWER SECTION:
_x._tcp.a.b.	5 IN	SRV	0 100 80 c.a.b.

;; ADDITIONAL SECTION:
c.a.b.		5	IN	A	10.0.0.1

`
	r, err := parseDig(out)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"A 10.0.0.1", "SRV 0 100 80 c.a.b."}; !slices.Equal(r.records(), want) || r.status != "NOERROR" {
		t.Errorf("parseDig = %+v, want records %q", r, want)
	}
	if _, err := parseDig(";; communications error\n"); err == nil {
		t.Error("parseDig of no answer gives no error")
	}
}
