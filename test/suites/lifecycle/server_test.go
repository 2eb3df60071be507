package lifecycle

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/miekg/dns"
	"go.uber.org/goleak"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// patience is how long something may take that takes no time on an idle machine.
const patience = 2 * time.Minute

// eventually fails the test if check does not return nil one day.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: still: %v", what, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// port reserves a port on loopback until the test ends.
func port(t *testing.T) int {
	t.Helper()
	p, err := controlplane.ReservePort()
	must(t, err)
	t.Cleanup(func() { p.Close() })
	return p.Number
}

// A server is a CoreDNS in this process.
type server struct {
	t      *testing.T
	addr   string // of its first server block
	inst   *caddy.Instance
	stop   func()
	values []string // what stands for names in braces in a Corefile
}

// start starts CoreDNS. In corefile {port} is a free port, {kubeconfig} that of the user who may do everything, and further
// pairs of values stand for what they say. When the test ends, the server is stopped as by SIGTERM, and nothing it started
// may be alive then.
func start(t *testing.T, corefile string, values ...string) *server {
	t.Helper()
	before := goleak.IgnoreCurrent()
	p := port(t)
	s := &server{t: t, addr: fmt.Sprintf("127.0.0.1:%d", p)}
	s.values = append([]string{"{port}", fmt.Sprint(p), "{kubeconfig}", api(t).Kubeconfig()}, values...)
	written := journal.mark()
	inst, err := caddy.Start(s.corefile(corefile))
	if err != nil {
		t.Fatalf("%v\nlog:\n%s", err, written())
	}
	s.inst = inst
	s.serving()
	s.stop = func() {
		s.stop = func() {}
		for _, err := range s.inst.ShutdownCallbacks() {
			t.Error(err)
		}
		must(t, s.inst.Stop())
		s.inst.Wait()
		http.DefaultClient.CloseIdleConnections()
		if err := goleak.Find(append(notOurs, before)...); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			t.Logf("log:\n%s", written())
		}
	})
	return s
}

// The control plane starts goroutines of its own, when it is asked for the first time or starts again. The plugin forward
// does not wait for its connections.
var notOurs = []goleak.Option{
	goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"),
	goleak.IgnoreAnyFunction("github.com/clusterset-dns/clusterset/test/harness/controlplane.start.func1"),
	goleak.IgnoreAnyFunction("github.com/coredns/coredns/plugin/pkg/proxy.(*Transport).connManager"),
}

func (s *server) corefile(text string) caddy.CaddyfileInput {
	text = strings.NewReplacer(s.values...).Replace(text)
	return caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(text), ServerTypeName: "dns"}
}

// reload is what the reload plugin does when the Corefile has changed.
func (s *server) reload(corefile string) error {
	s.t.Helper()
	inst, err := s.inst.Restart(s.corefile(corefile))
	if err == nil && inst != nil { // nil after a panic
		s.inst = inst
	}
	s.serving()
	return err
}

// serving waits until every server of the instance, and no other, reads its sockets: one that is stopped before that goes on
// for ever (caddy starts it in the background).
func (s *server) serving() {
	s.t.Helper()
	eventually(s.t, "servers that read their sockets", func() error {
		var stacks strings.Builder
		must(s.t, pprof.Lookup("goroutine").WriteTo(&stacks, 2))
		for _, loop := range []string{"dns.(*Server).serveUDP(", "dns.(*Server).serveTCP("} {
			if got, want := strings.Count(stacks.String(), loop), len(s.inst.Servers()); got != want {
				return fmt.Errorf("%d of %s, want %d", got, loop, want)
			}
		}
		return nil
	})
}

// A question is what a test asks. Its text is "<name> <type>", and then any of "tcp", "noedns", "do".
type question string

// ask asks once.
func (s *server) ask(q question) (*dns.Msg, error) { return askAt(s.addr, q) }

func askAt(addr string, q question) (*dns.Msg, error) {
	words := strings.Fields(string(q))
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(words[0]), dns.StringToType[words[1]])
	client := dns.Client{Timeout: 5 * time.Second}
	edns, do := true, false
	for _, w := range words[2:] {
		switch w {
		case "tcp":
			client.Net = "tcp"
		case "noedns":
			edns = false
		case "do":
			do = true
		default:
			return nil, fmt.Errorf("question %q: unknown word %q", q, w)
		}
	}
	if edns {
		m.SetEdns0(1232, do)
	}
	reply, _, err := client.Exchange(m, addr)
	return reply, err
}

// say returns an answer in one line: the rcode, extended errors, and the data of the records in their order by text.
func say(m *dns.Msg) string {
	words := []string{dns.RcodeToString[m.Rcode]}
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if ede, ok := o.(*dns.EDNS0_EDE); ok {
				words = append(words, fmt.Sprintf("EDE%d", ede.InfoCode))
			}
		}
	}
	var data []string
	for _, rr := range m.Answer {
		data = append(data, strings.Join(strings.Fields(strings.TrimPrefix(rr.String(), rr.Header().String())), " "))
	}
	return strings.Join(append(words, sorted(data)...), " ")
}

// says returns nil if the answer to q is want.
func (s *server) says(q question, want string) error {
	m, err := s.ask(q)
	if err != nil {
		return err
	}
	if got := say(m); got != want {
		return fmt.Errorf("%s: got %s, want %s", q, got, want)
	}
	return nil
}

// want fails the test if the answer to q is not want.
func (s *server) want(q question, want string) {
	s.t.Helper()
	if err := s.says(q, want); err != nil {
		s.t.Error(err)
	}
}

// await fails the test if the answer to q does not become want.
func (s *server) await(q question, want string) {
	s.t.Helper()
	eventually(s.t, "await", func() error { return s.says(q, want) })
}

// serial is that of the zone clusterset.local.
func (s *server) serial() uint32 {
	s.t.Helper()
	m, err := s.ask("clusterset.local SOA")
	must(s.t, err)
	if len(m.Answer) == 1 {
		if soa, ok := m.Answer[0].(*dns.SOA); ok {
			return soa.Serial
		}
	}
	s.t.Fatalf("SOA: got %s", say(m))
	return 0
}

// get returns status and body of a page of a plugin.
func get(url string) (int, string, error) {
	response, err := http.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// wantReady returns nil if the ready plugin at port says what is wanted.
func wantReady(port int, want bool) error {
	status, body, err := get(fmt.Sprintf("http://127.0.0.1:%d/ready", port))
	if err != nil {
		return err
	}
	if (status == http.StatusOK) != want {
		return fmt.Errorf("ready: %d %q, want %t", status, body, want)
	}
	return nil
}

// kubeconfigAt returns a kubeconfig like that of the control plane, for another port on loopback.
func kubeconfigAt(t *testing.T, port int) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(api(t).Kubeconfig())
	must(t, err)
	for _, cluster := range config.Clusters {
		cluster.Server = fmt.Sprintf("https://127.0.0.1:%d", port)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, file))
	return file
}

// write writes a file of the test and returns its path.
func write(t *testing.T, name, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

// isTimeout tells whether err is that of a datagram that was lost, which a client has to expect.
func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
