package docs

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coredns/coredns/plugin/pkg/doh"
	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// api is a control plane with the objects in examples/, and coredns the path of the server that is shipped. Both exist
// once a test called need: checks of text alone do without.
var (
	api     *controlplane.ControlPlane
	coredns string
)

var started = sync.OnceValue(func() (err error) {
	ctx := context.Background()
	if api, err = controlplane.Start(ctx, controlplane.Options{}); err != nil {
		return err
	}
	return prepare(ctx)
})

// need starts the control plane and builds the server, once for all tests.
func need(t *testing.T) {
	t.Helper()
	if err := started(); err != nil {
		t.Fatal(err)
	}
}

// prepare applies the objects and builds the server.
func prepare(ctx context.Context) error {
	where, err := server.Root(ctx)
	if err != nil {
		return err
	}
	if coredns, err = server.Program(ctx, "coredns"); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(where, "examples", "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err == nil {
			err = api.ApplyYAML(ctx, b)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// A corefile is a Corefile of the documentation, made fit for loopback.
type corefile struct {
	text string
	dir  string // for all files
	// By what the Corefile says: a port, or "ready", "health", "prometheus".
	addresses map[string]string
	dns       string
	tls       *http.Client // trusts the certificate of the Corefile
}

// localize replaces what a test cannot have: ports, files, other machines, and the API server of a cluster by that of
// kubeconfig, unless that is empty.
func localize(t *testing.T, text, kubeconfig string) corefile {
	t.Helper()
	c := corefile{dir: t.TempDir(), addresses: map[string]string{}}
	examples, err := filepath.Abs(filepath.Join(root, "examples"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		switch {
		case indent == "" && strings.HasSuffix(line, " {"):
			line = c.keys(t, strings.TrimSuffix(line, " {")) + " {\n    bind 127.0.0.1"
		case word == "clusterset", word == "kubernetes":
			if indent == "    " && kubeconfig != "" && !hasSource(lines[i:]) {
				line = strings.TrimSuffix(line, " {") + " {\n        kubeconfig " + kubeconfig
				if !strings.HasSuffix(lines[i], "{") {
					line += "\n    }"
				}
			}
		case indent == "    " && (word == "health" || word == "ready" || word == "prometheus"):
			brace := ""
			if strings.HasSuffix(line, "{") {
				brace = " {"
			}
			line = indent + word + " " + c.address(t, word) + brace
		case word == "tls":
			c.writeCertificate(t)
		}
		for _, r := range [][2]string{
			{"/etc/coredns/kubeconfig", kubeconfig},
			{"/etc/coredns/tls", c.dir},
			{"/etc/clusterset/broker/kubeconfig", filepath.Join(c.dir, "broker")}, // that may come later
			{"/var/lib/coredns", c.dir},
			{"/etc/resolv.conf", upstream(t, line)},
			{"manifests examples", "manifests " + examples},
			{"to 192.0.2.53", "to 127.0.0.1"},
		} {
			line = strings.ReplaceAll(line, r[0], r[1])
		}
		if strings.Contains(line, "key file ") {
			c.writeKey(t, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "key file ")))
		}
		c.text += line + "\n"
	}
	// From the begin of a path: the checkout may be in a folder of such a name.
	if left := regexp.MustCompile(`(?m)(^|\s)/(etc|var|run|usr)/\S*`).FindString(c.text); left != "" {
		t.Fatalf("this test does not know what to take for %s", left)
	}
	return c
}

// hasSource reports whether the block that begins with the first line says where objects come from.
func hasSource(lines []string) bool {
	if !strings.HasSuffix(lines[0], "{") {
		return false
	}
	end := slices.IndexFunc(lines, func(l string) bool { return strings.TrimSpace(l) == "}" })
	return slices.ContainsFunc(lines[:end], func(l string) bool {
		l = strings.TrimSpace(l)
		return strings.HasPrefix(l, "kubeconfig ") || strings.HasPrefix(l, "manifests ")
	})
}

func (c *corefile) address(t *testing.T, what string) string {
	t.Helper()
	if c.addresses[what] == "" {
		port, err := controlplane.ReservePort()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { port.Close() })
		c.addresses[what] = port.String()
	}
	return c.addresses[what]
}

// keys gives the zones of a server block a port of ours, the same for the same.
func (c *corefile) keys(t *testing.T, keys string) string {
	t.Helper()
	var out []string
	for _, key := range strings.Fields(keys) {
		scheme := key[:strings.LastIndex(key, "/")+1]
		zone, port, ok := strings.Cut(strings.TrimPrefix(key, scheme), ":")
		if !ok {
			port = map[string]string{"": "53", "tls://": "853", "https://": "443"}[scheme]
		}
		address := c.address(t, port)
		if scheme == "" {
			c.dns = address
		}
		_, ours, _ := net.SplitHostPort(address)
		out = append(out, scheme+zone+":"+ours)
	}
	return strings.Join(out, " ")
}

// upstream is a server for everything else, if the line needs one.
func upstream(t *testing.T, line string) string {
	t.Helper()
	if !strings.Contains(line, "/etc/resolv.conf") {
		return ""
	}
	port, err := controlplane.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenPacket("udp", port.String())
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		if r.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{
				Hdr: dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60},
				A:   net.IPv4(198, 51, 100, 1),
			}}
		}
		_ = w.WriteMsg(m)
	})}
	started, done := make(chan struct{}), make(chan error, 1)
	s.NotifyStartedFunc = func() { close(started) }
	go func() { done <- s.ActivateAndServe() }()
	<-started
	t.Cleanup(func() {
		if err := errors.Join(s.Shutdown(), <-done, port.Close()); err != nil {
			t.Error(err)
		}
	})
	return port.String()
}

// writeKey makes a key pair as dnssec-keygen does.
func (c *corefile) writeKey(t *testing.T, name string) {
	t.Helper()
	zone, _, _ := strings.Cut(strings.TrimPrefix(name, "K"), "+")
	key := &dns.DNSKEY{
		Hdr:   dns.RR_Header{Name: dns.Fqdn(zone), Rrtype: dns.TypeDNSKEY, Class: dns.ClassINET, Ttl: 3600},
		Flags: 256, Protocol: 3, Algorithm: dns.ECDSAP256SHA256,
	}
	private, err := key.Generate(256)
	if err != nil {
		t.Fatal(err)
	}
	for ext, content := range map[string]string{
		".key": key.String() + "\n", ".private": key.PrivateKeyString(private),
	} {
		if err := os.WriteFile(filepath.Join(c.dir, name+ext), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// writeCertificate writes a certificate for 127.0.0.1 with its key.
func (c *corefile) writeCertificate(t *testing.T) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	c.tls = s.Client()
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: s.Certificate().Raw}, "tls.key": {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(c.dir, name), pem.EncodeToMemory(&block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// start starts the server that is shipped and returns when it serves clusterset.local. It is stopped when the test
// ends.
func (c *corefile) start(t *testing.T) *server.Server {
	t.Helper()
	s := c.launch(t)
	err := s.Await(t.Context(), func(ctx context.Context) error { return server.Serves(ctx, c.dns, "clusterset.local") })
	if err != nil {
		t.Fatalf("%v\n%s", err, c.text)
	}
	return s
}

// launch is start without waiting.
func (c *corefile) launch(t *testing.T) *server.Server {
	t.Helper()
	need(t)
	file := filepath.Join(c.dir, "Corefile")
	if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := server.Start(subprocess.Command{Bin: coredns, Args: []string{"-conf", file}, Dir: c.dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

const web = "web.shop.svc.clusterset.local."

// expectations are what a Corefile must answer with if it has the text.
var expectations = []struct{ has, name, want string }{
	{"clusterset", web, "10.200.0.10"},
	{"clusterset clusterset.local\n", "db-0.south.registry1.db.shop.svc.clusterset.local.", "10.3.0.20"},
	{"kubernetes cluster.local", "kubernetes.default.svc.cluster.local.", "10.96.0.1"},
	{"forward .", "www.example.org.", "198.51.100.1"},
	{"rewrite name suffix", "web.shop.example.org.", "10.200.0.10"},
	{"cluster_names off", "west.web.shop.svc.clusterset.local.", "NXDOMAIN"},
	{"manifests", "10-1-0-31.east.cache.shop.svc.clusterset.local.", "10.1.0.31"},
	// Not in the namespace that clusterset serves, and without an address for the other plugin: NODATA from there.
	{"multicluster clusterset.local", "payment.bank.svc.clusterset.local.", "NOERROR"},
}

// TestCorefiles starts every Corefile of the documentation.
func TestCorefiles(t *testing.T) {
	need(t)
	corefiles := map[string]string{"corefile.example": read(t, "corefile.example"),
		"deploy/dns": shipped(t, "deploy/dns/dns.yaml")}
	for _, document := range []string{readme, deploymentDoc} {
		for i, text := range blocks(read(t, document), "corefile") {
			corefiles[fmt.Sprintf("%s, Corefile %d", document, i+1)] = text
		}
	}
	if len(corefiles) < 10 {
		t.Fatalf("%d Corefiles are documented, want those of a dozen uses", len(corefiles))
	}
	used := map[string]bool{}
	for name, text := range corefiles {
		t.Run(name, func(t *testing.T) {
			c := localize(t, text, api.Kubeconfig())
			s := c.start(t)
			for _, e := range expectations {
				if !strings.Contains(text, e.has) {
					continue
				}
				used[e.has] = true
				awaitAnswer(t, s, c.dns, e.name, e.want)
			}
			c.checkPlugins(t, s)
		})
	}
	for _, e := range expectations {
		if !used[e.has] {
			t.Errorf("no Corefile has %q", e.has)
		}
	}
}

// shipped is the Corefile in the ConfigMap of a manifest.
func shipped(t *testing.T, manifest string) string {
	t.Helper()
	objects, err := controlplane.ParseYAML([]byte(read(t, manifest)))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if text, ok, _ := unstructured.NestedString(o.(*unstructured.Unstructured).Object, "data", "Corefile"); ok {
			return text
		}
	}
	t.Fatalf("%s has no Corefile", manifest)
	return ""
}

// awaitAnswer waits: another plugin may not be ready yet.
func awaitAnswer(t *testing.T, s *server.Server, address, name, want string) {
	t.Helper()
	err := s.Await(t.Context(), func(ctx context.Context) error {
		reply, err := server.Ask(ctx, address, name, dns.TypeA)
		if err != nil {
			return err
		}
		got := dns.RcodeToString[reply.Rcode]
		for _, rr := range reply.Answer {
			if a, ok := rr.(*dns.A); ok {
				got = a.A.String()
			}
		}
		if got != want {
			return fmt.Errorf("%s A = %s, want %s", name, got, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// checkPlugins looks at what other plugins of the Corefile make of it.
func (c *corefile) checkPlugins(t *testing.T, s *server.Server) {
	t.Helper()
	for plugin, path := range map[string]string{"ready": "/ready", "health": "/health", "prometheus": "/metrics"} {
		if c.addresses[plugin] != "" {
			if err := s.Await(t.Context(), func(ctx context.Context) error {
				_, err := get(ctx, "http://"+c.addresses[plugin]+path)
				return err
			}); err != nil {
				t.Error(err)
			}
		}
	}
	if strings.Contains(c.text, "transfer {") {
		transfer := dns.Transfer{DialTimeout: until.Patience, ReadTimeout: until.Patience}
		in, err := transfer.In(new(dns.Msg).SetAxfr("clusterset.local."), c.dns)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for envelope := range in {
			if envelope.Error != nil {
				t.Fatal(envelope.Error)
			}
			for _, rr := range envelope.RR {
				got = append(got, rr.String())
			}
		}
		if want := web + "\t5\tIN\tA\t10.200.0.10"; !slices.Contains(got, want) {
			t.Errorf("transfer = %q, want %q in it", got, want)
		}
	}
	if strings.Contains(c.text, "dnssec {") {
		reply, err := signed(t.Context(), c.dns)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(reply.Answer, func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeRRSIG }) {
			t.Errorf("signed answer = %v, want an RRSIG", reply)
		}
	}
	if c.tls != nil {
		c.checkEncrypted(t)
	}
	if strings.Contains(c.text, "metadata") {
		const want = web + " A NOERROR service shop/web"
		if err := s.Await(t.Context(), func(context.Context) error {
			if !strings.Contains(s.Output(), want) {
				return fmt.Errorf("no line with %q", want)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}

// checkEncrypted asks over TLS and over HTTPS.
func (c *corefile) checkEncrypted(t *testing.T) {
	t.Helper()
	m := new(dns.Msg).SetQuestion(web, dns.TypeA)
	client := dns.Client{Net: "tcp-tls", Timeout: until.Patience, TLSConfig: c.tls.Transport.(*http.Transport).TLSClientConfig}
	overTLS, _, err := client.ExchangeContext(t.Context(), m, c.addresses["853"])
	if err != nil {
		t.Fatal(err)
	}
	address := c.addresses["443"]
	request, err := doh.NewRequestWithContext(t.Context(), http.MethodPost, address, address, m)
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.tls.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	overHTTPS, err := doh.ResponseToMsg(response)
	if err != nil {
		t.Fatal(err)
	}
	for _, reply := range []*dns.Msg{overTLS, overHTTPS} {
		if len(reply.Answer) != 1 {
			t.Errorf("encrypted answer = %v, want one record", reply)
		}
	}
}

// signed asks over TCP, which loses no question.
func signed(ctx context.Context, address string) (*dns.Msg, error) {
	m := new(dns.Msg).SetQuestion(web, dns.TypeA)
	m.SetEdns0(1232, true)
	client := dns.Client{Net: "tcp", Timeout: until.Patience}
	reply, _, err := client.ExchangeContext(ctx, m, address)
	return reply, err
}

func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(body), err
}
