package lifecycle

import (
	"context"
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
	"github.com/clusterset-dns/clusterset/test/harness/series"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

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
	values []string // pairs for a Corefile: a name in braces, and the text that replaces it
}

// start starts CoreDNS. In corefile it replaces {port} by a free port, {kubeconfig} by the kubeconfig of a cluster
// admin, and further names by the pairs in values. When the test ends, start stops the server as SIGTERM does and fails
// the test if a goroutine is left.
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
		until.OK(t, "no goroutine is left", func(context.Context) error { return goleak.Find(append(notOurs, before)...) })
	}
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			t.Logf("log:\n%s", written())
		}
	})
	return s
}

// notOurs are goroutines that may be left: the control plane starts some when a test uses it first or starts it again,
// and the plugin forward does not wait for its connections.
var notOurs = []goleak.Option{
	goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"),
	goleak.IgnoreAnyFunction(subprocess.Goroutine),
	goleak.IgnoreAnyFunction("github.com/coredns/coredns/plugin/pkg/proxy.(*Transport).connManager"),
}

func (s *server) corefile(text string) caddy.CaddyfileInput {
	text = strings.NewReplacer(s.values...).Replace(text)
	return caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(text), ServerTypeName: "dns"}
}

// reload does what the plugin reload does when the Corefile has changed.
func (s *server) reload(corefile string) error {
	s.t.Helper()
	inst, err := s.inst.Restart(s.corefile(corefile))
	if err == nil && inst != nil { // nil after a panic
		s.inst = inst
	}
	s.serving()
	return err
}

// serving waits until every server of the instance, and no other, reads its sockets. Caddy starts servers in the
// background, and one that is stopped before it reads runs forever.
func (s *server) serving() {
	s.t.Helper()
	until.OK(s.t, "servers that read their sockets", func(context.Context) error {
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

// A question is a DNS query as text: "<name> <type>", and then any of "tcp", "noedns", "do".
type question string

// ask sends q and returns the answer. It sends a query again whose datagram was lost.
func (s *server) ask(q question) (m *dns.Msg, err error) {
	for range 10 {
		if m, err = askAt(s.addr, q); err == nil || !isTimeout(err) {
			break
		}
	}
	return m, err
}

// askAt sends q once.
func askAt(addr string, q question) (*dns.Msg, error) { return askWithin(5*time.Second, addr, q) }

// askWithin sends q once, and waits that long for the answer.
func askWithin(timeout time.Duration, addr string, q question) (*dns.Msg, error) {
	words := strings.Fields(string(q))
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(words[0]), dns.StringToType[words[1]])
	client := dns.Client{Timeout: timeout}
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

// say returns an answer in one line: the rcode, extended errors, and the data of the records, sorted.
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

// await waits until the answer to q is want.
func (s *server) await(q question, want string) {
	s.t.Helper()
	until.OK(s.t, "await", func(context.Context) error { return s.says(q, want) })
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

// settledSerial returns the serial once no move of it can be pending. A second change within one second moves the
// serial when that second is over. It must not be called while objects change.
func (s *server) settledSerial() uint32 {
	s.t.Helper()
	return settled(s.t, "the serial", s.serial)
}

// settled returns what look returns once that has not changed for more than two seconds: the serial and NOTIFYs follow
// a change after a second at most.
//
// Only times in which the test could look count: a server in this process stands still when the test does.
func settled[T comparable](t *testing.T, what string, look func() T) T {
	t.Helper()
	const quiet, stall = 2500 * time.Millisecond, 250 * time.Millisecond
	last, looked := look(), time.Now()
	var seen time.Duration
	until.True(t, what+" does not change", func() bool {
		now, at := look(), time.Now()
		if now != last {
			last, seen = now, 0
		}
		seen += min(at.Sub(looked), stall)
		looked = at
		return seen > quiet
	})
	return last
}

// get returns status and body of a page that a plugin serves by HTTP.
func get(url string) (int, string, error) {
	response, err := http.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// scrape returns what the plugin prometheus at port serves.
func scrape(port int) (series.Set, error) {
	_, text, err := get(fmt.Sprintf("http://127.0.0.1:%d/metrics", port))
	if err != nil {
		return nil, err
	}
	return series.Parse(text)
}

// awaitReady waits until the plugin ready at port reports want.
func awaitReady(t *testing.T, port int, want bool) {
	t.Helper()
	until.OK(t, "ready", func(context.Context) error { return wantReady(port, want) })
}

// wantReady returns nil if the plugin ready at port reports want.
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

// isTimeout reports whether err means that a datagram was lost, which a client has to expect.
func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
