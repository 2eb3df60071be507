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

// An apiProxy passes requests on to an API server. Before each write it calls admit, and drops the write if that
// returns false: for the API server it is as if the client had never sent it.
type apiProxy struct {
	*httptest.Server
	proxy httputil.ReverseProxy
	admit func(write string) bool // method and path
}

// newAPIProxy starts an apiProxy that ends with the test. answered, unless it is nil, is called when the API server has
// answered a write, before the client gets that answer.
func newAPIProxy(t testing.TB, server *rest.Config, admit func(write string) bool,
	answered func(write string)) *apiProxy {
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
	f := &apiProxy{admit: admit, proxy: httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
	}}
	f.proxy.ModifyResponse = func(r *http.Response) error {
		if answered != nil && isWrite(r.Request) {
			answered(r.Request.Method + " " + r.Request.URL.Path)
		}
		return nil
	}
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
func (f *apiProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if isWrite(r) && !f.admit(r.Method+" "+r.URL.Path) {
		panic(http.ErrAbortHandler)
	}
	f.proxy.ServeHTTP(w, r)
}

// isWrite reports whether a request writes for export or import, which leader election, heartbeats, credential and
// Events are not.
func isWrite(r *http.Request) bool {
	for _, part := range []string{"/leases", "/members/", "/token", "/events", "/secrets/"} {
		if strings.Contains(r.URL.Path, part) {
			return false
		}
	}
	return r.Method != http.MethodGet
}

// authority returns the CA certificate of the proxy in PEM.
func (f *apiProxy) authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
}

// behind makes a controller use an apiProxy for each of its two API servers.
func behind(t testing.TB, admit func(write string) bool) func(*controller.Config) {
	return func(c *controller.Config) {
		t.Helper()
		local := newAPIProxy(t, c.Local, admit, nil)
		c.Local = rest.CopyConfig(c.Local)
		c.Local.Host, c.Local.TLSClientConfig = local.URL, rest.TLSClientConfig{CAData: local.authority()}
		hub := newAPIProxy(t, clusters.Broker.Config(), admit, nil)
		c.Broker = via(t, c.Broker, hub.URL, hub.authority())
	}
}

// A journal records the writes of several instances in their order.
type journal struct {
	mu     sync.Mutex
	writes []entry
}

type entry struct{ by, write string }

// of returns the admit function that records the writes of one instance.
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

// writers returns the instances in the order in which they wrote.
func writers(entries []entry) (turns []string) {
	for _, e := range entries {
		if len(turns) == 0 || turns[len(turns)-1] != e.by {
			turns = append(turns, e.by)
		}
	}
	return turns
}
