package statuspage

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/controller/page"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/logtest"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// servePage serves a status page with a status until the test ends, and returns its address and its log.
func servePage(t *testing.T, address string, status func(page.Query) page.Status) (url func() string,
	log *logtest.Recorder) {
	t.Helper()
	log = &logtest.Recorder{}
	server := New(netip.MustParseAddrPort(address), status, log, &logging.Barrier{Log: log})
	ctx, cancel := context.WithCancel(t.Context())
	var g errgroup.Group
	g.Go(func() error { return server.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return func() string {
		t.Helper()
		const before = "info: status page: "
		until.True(t, "the page is served", func() bool { return log.Count(before) > 0 })
		_, rest, _ := strings.Cut(log.String(), before)
		url, _, _ := strings.Cut(rest, "\n")
		return url
	}, log
}

// docs/spec/operations.md 8: what a request gets, over a real socket.
func TestStatusPage(t *testing.T) {
	url, log := servePage(t, "127.0.0.1:0", func(q page.Query) page.Status {
		if q.Filter == "panic" {
			panic("of the test")
		}
		return page.Status{Cluster: "east", State: page.State{Leads: true}, Services: q.Select([]string{"shop/web"})}
	})
	base := url()
	for _, tt := range []struct {
		name, method, path, accept, host string
		code                             int
		kind, body                       string
	}{
		{name: "page", path: "/", accept: "text/html,application/json", code: 200, kind: "text/html; charset=utf-8",
			body: "status of east"},
		{name: "JSON by path", path: "/status.json", code: 200, kind: "application/json", body: `"cluster": "east"`},
		{name: "JSON by type", path: "/", accept: "application/json", code: 200, kind: "application/json", body: `"cluster": "east"`},
		{name: "filter", path: "/?filter=shop", code: 200, kind: "text/html; charset=utf-8", body: "shop/web"},
		{name: "HEAD", method: http.MethodHead, path: "/", code: 200, kind: "text/html; charset=utf-8"},
		{name: "POST", method: http.MethodPost, path: "/", code: 405, body: "want GET or HEAD"},
		{name: "DELETE", method: http.MethodDelete, path: "/status.json", code: 405, body: "want GET or HEAD"},
		{name: "other path", path: "/metrics", code: 404, body: "want / or /status.json"},
		{name: "localhost", path: "/", host: "localhost:1234", code: 200, body: "status of east"},
		{name: "IPv6", path: "/", host: "[::1]:1234", code: 200, body: "status of east"},
		{name: "a name that resolves to here", path: "/", host: "evil.example:9154", code: 421, body: `host "evil.example:9154": want an IP address or localhost`},
		{name: "panic", path: "/?filter=panic", code: 500, body: "the page could not be made"},
		{name: "after a panic", path: "/", code: 200, body: "status of east"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), tt.method, strings.TrimSuffix(base, "/")+tt.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = tt.host
			r.Header.Set("Accept", tt.accept)
			reply, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer reply.Body.Close()
			body, err := io.ReadAll(reply.Body)
			if err != nil {
				t.Fatal(err)
			}
			if reply.StatusCode != tt.code || !strings.Contains(string(body), tt.body) || tt.kind != "" &&
				reply.Header.Get("Content-Type") != tt.kind {
				t.Errorf("%s, %q, %s; want %d, %q with %s", reply.Status, reply.Header.Get("Content-Type"), body, tt.code, tt.kind,
					tt.body)
			}
			if tt.method == http.MethodHead && len(body) > 0 {
				t.Errorf("HEAD has a body: %s", body)
			}
			if tt.kind == "application/json" && !json.Valid(body) {
				t.Errorf("no JSON: %s", body)
			}
			for name, want := range map[string]string{
				"Content-Security-Policy": page.Policy(), "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
				"Referrer-Policy": "no-referrer",
			} {
				if got := reply.Header.Get(name); got != want {
					t.Errorf("%s = %q, want %q", name, got, want)
				}
			}
		})
	}
	if n := log.Count("error: status page /: panic: of the test"); n != 1 {
		t.Errorf("the panic is logged %d times, want once:\n%s", n, log)
	}
}

// An address that is taken is waited for; the controller goes on meanwhile.
func TestStatusPageAddressTaken(t *testing.T) {
	port, err := controlplane.ReservePort() // no other process takes it when it becomes free
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { port.Close() })
	other, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", port.String())
	if err != nil {
		t.Fatal(err)
	}
	url, log := servePage(t, port.String(), func(page.Query) page.Status { return page.Status{} })
	until.True(t, "it says that the address is taken", func() bool {
		return log.Count("error: status page: listen tcp") == 1
	})
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := url(), "http://"+port.String()+"/"; got != want {
		t.Errorf("served at %s, want %s", got, want)
	}
}
