package plugin_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coredns/coredns/core/dnsserver"
	coreplugin "github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/file"
	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/test"
	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/cache"
	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/plugin"
	"github.com/clusterset-dns/clusterset/resolver"
	"github.com/clusterset-dns/clusterset/test/harness/golden"
)

var update = flag.Bool("update", false, "rewrite the answers of the golden files that are not permitted")

// roundsOf is the number of times that a question is asked, each time by another client: that shows all clusters that
// answer in rotation, and the rotation of records.
func roundsOf(c *golden.Case) int {
	if len(c.Want.Forms) > 1 || c.Want.Any > 0 || *update {
		return 100
	}
	return 12
}

func TestGolden(t *testing.T) {
	files, err := golden.ReadAll("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Run(f.Name, func(t *testing.T) { testFile(t, f) })
	}
}

func testFile(t *testing.T, f *golden.File) {
	s := serve(t, setup{zones: f.Zones, corefile: f.Corefile, next: f.Next, objects: f.Objects})
	var all []golden.Want
	for _, c := range f.Cases {
		var replies []golden.Reply
		for i := range roundsOf(c) {
			replies = append(replies, golden.NewReply(s.ask(t, c.Message(), i%3 == 2)))
		}
		all = append(all, compare(t, c, replies))
	}
	if *update {
		if err := f.Update(all); err != nil {
			t.Error(err)
		}
	}
}

// compare returns the golden text: that of the file if all replies are permitted and all answers were seen, or of "any N
// of" all records. Where clusters answer in rotation, the glue may be that of any of them.
func compare(t *testing.T, c *golden.Case, replies []golden.Reply) golden.Want {
	t.Helper()
	missing := map[string]bool{}
	for _, form := range c.Want.Forms {
		for _, part := range parts(c, form.Answer) {
			missing[part] = true
		}
	}
	permitted := true
	for _, r := range replies {
		permitted = permitted && c.Want.Permits(r)
		for _, part := range parts(c, r.Answer) {
			missing[part] = false
		}
	}
	if permitted && !slices.Contains(slices.Collect(maps.Values(missing)), true) {
		return c.Want
	}
	got, err := golden.Seen(replies)
	if err != nil {
		t.Errorf("%s: %s", c.Question, err)
		return c.Want
	}
	if !*update {
		t.Errorf("%s: got\n%s\nwant\n%s", c.Question, got, c.Want)
	}
	return got
}

// parts returns what has to be seen of an answer: the whole, or of "any N of" each record.
func parts(c *golden.Case, answer []string) []string {
	if c.Want.Any > 0 {
		return answer
	}
	return []string{strings.Join(answer, "\n")}
}

// A setup is the configuration of a server under test.
type setup struct {
	zones    []string
	corefile string // directives
	next     string // zone file of the next plugin
	objects  []string
}

// A server is CoreDNS's own server with one clusterset block and without sockets.
type server struct {
	*dnsserver.Server
	handler *plugin.Handler
	config  plugin.Config
	client  string // the address of all clients; "" for another one each time
}

// serve starts a server with manifests as its objects. It answers when serve returns, and stops with the test.
func serve(t testing.TB, s setup) server {
	t.Helper()
	config := plugin.ParsedT(t, s.zones, s.corefile)
	manifest, err := golden.Expand(s.objects)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(path, manifest, 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := cache.New(source(config, path))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := store.Run(ctx); err != nil {
			t.Errorf("store: %s", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	<-store.Synced()

	h := plugin.NewHandler(config, store, plugin.NewRotation())
	h.Addresses = config.Addresses([]string{"127.0.0.1"})
	if s.next != "" {
		h.Next = zoneFile(t, s.next)
	}
	return server{Server: newServer(t, slices.Concat(config.Zones, config.Reverse), h), handler: h, config: config}
}

// source returns the store configuration that setup.go would make of the directives in goldens; test/suites/e2e runs
// the goldens through setup.go itself.
func source(c plugin.Config, path string) cache.Config {
	return cache.Config{
		Manifests: []string{path}, Name: path,
		Namespaces: c.Namespaces, NamespaceLabels: c.NamespaceLabels, Labels: c.Labels, NoEndpoints: c.NoEndpoints,
		Index: index.Options{
			ClusterNames: c.ClusterNames, Zone: c.Topology.Zone, Region: c.Topology.Region,
			MaxNames: resolver.MaxNames(c.Zones...),
		},
		Reverse:      len(c.Reverse) > 0,
		TopologyNode: c.Topology.Node,
	}
}

func zoneFile(t testing.TB, text string) coreplugin.Handler {
	t.Helper()
	origin := golden.Origin(text)
	z, err := file.Parse(strings.NewReader(text), origin, "next", 0)
	if err != nil {
		t.Fatal(err)
	}
	return file.File{Zones: file.Zones{Z: map[string]*file.Zone{origin: z}, Names: []string{origin}}}
}

func newServer(t testing.TB, zones []string, h coreplugin.Handler) *dnsserver.Server {
	t.Helper()
	var blocks []*dnsserver.Config
	for _, z := range zones {
		block := &dnsserver.Config{Zone: z, ListenHosts: []string{"127.0.0.1"}, Port: "53", Transport: "dns"}
		block.AddPlugin(func(coreplugin.Handler) coreplugin.Handler { return h })
		blocks = append(blocks, block)
	}
	s, err := dnsserver.NewServer("dns://127.0.0.1:53", blocks)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ask sends the octets of a query and returns the reply, parsed from its octets.
func (s server) ask(t testing.TB, query *dns.Msg, tcp bool) *dns.Msg {
	t.Helper()
	m, _ := s.exchange(t, query, tcp)
	return m
}

// asked counts the queries of all tests: each is that of another client.
var asked atomic.Uint32

// exchange is ask, and also returns the size of the reply.
func (s server) exchange(t testing.TB, query *dns.Msg, tcp bool) (*dns.Msg, int) {
	t.Helper()
	received := new(dns.Msg)
	repack(t, query, received)
	n := asked.Add(1)
	client := cmp.Or(s.client, fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255))
	recorder := dnstest.NewRecorder(&test.ResponseWriter{TCP: tcp, RemoteIP: client})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.ServeDNS(ctx, recorder, received)
	if recorder.Msg == nil {
		t.Fatalf("%s: no reply", query.Question[0].String())
	}
	reply := new(dns.Msg)
	return reply, repack(t, recorder.Msg, reply)
}

func repack(t testing.TB, from, to *dns.Msg) int {
	t.Helper()
	b, err := from.Pack()
	if err != nil {
		t.Fatalf("%v: pack: %s", from.Question, err)
	}
	if err := to.Unpack(b); err != nil {
		t.Fatalf("%v: unpack: %s", from.Question, err)
	}
	return len(b)
}
