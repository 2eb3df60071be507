package faults

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/controller"
)

// A front passes requests on to an API server. It asks first about those that write, and drops what is not admitted as if the
// client had never sent it.
type front struct {
	*httptest.Server
	proxy httputil.ReverseProxy
	admit func(write string) bool // method and path
}

// newFront starts one that ends with the test.
func newFront(t testing.TB, server *rest.Config, admit func(write string) bool) *front {
	t.Helper()
	target, err := url.Parse(server.Host)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(server.CAData) {
		t.Fatal("the API server has no authority")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	f := &front{admit: admit, proxy: httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
	}}
	f.Server = httptest.NewUnstartedServer(f)
	f.EnableHTTP2, f.Config.ErrorLog = true, log.New(io.Discard, "", 0)
	f.StartTLS()
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
		transport.CloseIdleConnections()
	})
	return f
}

// ServeHTTP implements [http.Handler].
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && !spared(r.URL.Path) && !f.admit(r.Method+" "+r.URL.Path) {
		panic(http.ErrAbortHandler)
	}
	f.proxy.ServeHTTP(w, r)
}

// spared reports what is no part of export or import: the election, heartbeats, the credential, Events.
func spared(path string) bool {
	for _, part := range []string{"/leases", "/members/", "/token", "/events", "/secrets/"} {
		if strings.Contains(path, part) {
			return true
		}
	}
	return false
}

// authority is that of the front, in PEM.
func (f *front) authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
}

// behind makes a controller reach both API servers by way of fronts.
func behind(t testing.TB, admit func(write string) bool) func(*controller.Config) {
	return func(c *controller.Config) {
		t.Helper()
		local := newFront(t, c.Local, admit)
		c.Local = rest.CopyConfig(c.Local)
		c.Local.Host, c.Local.TLSClientConfig = local.URL, rest.TLSClientConfig{CAData: local.authority()}
		hub := newFront(t, clusters.Broker.Config(), admit)
		c.Broker = via(t, c.Broker, hub.URL, hub.authority())
	}
}

// A journal is what several instances wrote, in the order in which it came.
type journal struct {
	mu     sync.Mutex
	writes []entry
}

type entry struct{ by, write string }

// of returns what notes the writes of one instance.
func (j *journal) of(instance string) func(write string) bool {
	return func(write string) bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.writes = append(j.writes, entry{instance, write})
		return true
	}
}

// all returns the entries from the n-th on.
func (j *journal) all(from int) []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]entry(nil), j.writes[from:]...)
}

func (j *journal) len() int { return len(j.all(0)) }

// writers returns who wrote, one after the other.
func writers(entries []entry) (turns []string) {
	for _, e := range entries {
		if len(turns) == 0 || turns[len(turns)-1] != e.by {
			turns = append(turns, e.by)
		}
	}
	return turns
}
