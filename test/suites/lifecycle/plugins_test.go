package lifecycle

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A beside is a test of one plugin in a server block with clusterset. The objects are the same in all tests: a VIP
// "web" and a headless "db" with two endpoints.
type beside struct {
	name     string
	keys     string // of the server block, "clusterset.local.:{port}" if empty
	before   string // what stands before clusterset in the block
	inside   string // directives of clusterset
	behind   string // further server blocks
	values   func(t *testing.T) []string
	answers  map[question]string
	afterall func(t *testing.T, s *server)
}

const (
	webA  = question("web.beside.svc.clusterset.local A")
	dbA   = question("db.beside.svc.clusterset.local A")
	noneA = question("none.beside.svc.clusterset.local A")
	webS  = question("_http._tcp.web.beside.svc.clusterset.local SRV")

	webIs = "NOERROR 10.96.11.1"
	dbIs  = "NOERROR 10.6.0.1 10.6.0.2"
	webSs = "NOERROR 0 100 80 web.beside.svc.clusterset.local."
)

var plain = map[question]string{webA: webIs, dbA: dbIs, noneA: "NXDOMAIN", webS: webSs, webA + " tcp": webIs}

var besides = []beside{
	{name: "none", answers: plain},
	{name: "errors and log", before: "errors\nlog", answers: plain, afterall: func(t *testing.T, s *server) {
		journal.wants(t, `"A IN web.beside.svc.clusterset.local. udp`)
	}},
	{
		name: "metadata",
		before: "metadata\nlog . \"{name} {type} {/clusterset/kind}|{/clusterset/service}|{/clusterset/namespace}|" +
			"{/clusterset/cluster}|{/clusterset/hostname}|{/clusterset/port-name}|{/clusterset/protocol}|\"",
		answers: map[question]string{
			webA: webIs, webS: webSs, noneA: "NXDOMAIN",
			"10-6-0-1.east.db.beside.svc.clusterset.local A": "NOERROR 10.6.0.1",
		},
		afterall: func(t *testing.T, s *server) {
			journal.wants(t, "web.beside.svc.clusterset.local. A service|web|beside|||||")
			journal.wants(t, "_http._tcp.web.beside.svc.clusterset.local. SRV port|web|beside|||http|tcp|")
			journal.wants(t, "10-6-0-1.east.db.beside.svc.clusterset.local. A host|db|beside|east|10-6-0-1|||")
			journal.wants(t, "none.beside.svc.clusterset.local. A none|||||||")
		},
	},
	{name: "cache", before: "cache 30 {\nservfail 0\n}", answers: plain, afterall: func(t *testing.T, s *server) {
		for q, want := range plain { // Out of the cache now.
			s.want(q, want)
		}
	}},
	{name: "loadbalance", before: "loadbalance round_robin", answers: plain},
	{name: "minimal", before: "minimal", answers: plain, afterall: func(t *testing.T, s *server) {
		m, err := s.ask(webS + " noedns")
		must(t, err)
		if len(m.Extra) != 0 {
			t.Errorf("additional section: got %v, want none", m.Extra)
		}
	}},
	{
		name: "rewrite", keys: "clusterset.local.:{port} short.example.:{port}",
		before: "rewrite stop {\nname suffix .short.example. .svc.clusterset.local. answer auto\n}",
		inside: "", answers: map[question]string{webA: webIs, "web.beside.short.example A": webIs,
			"none.beside.short.example A": "NXDOMAIN"},
		afterall: func(t *testing.T, s *server) {
			m, err := s.ask("web.beside.short.example A")
			must(t, err)
			if len(m.Answer) != 1 || m.Answer[0].Header().Name != "web.beside.short.example." {
				t.Errorf("got %v, want an address of web.beside.short.example.", m.Answer)
			}
		},
	},
	{
		name: "template", before: "template IN A {\nmatch ^none\\.\nanswer \"{{ .Name }} 60 IN A 192.0.2.1\"\nfallthrough\n}",
		answers: map[question]string{webA: webIs, noneA: "NOERROR 192.0.2.1",
			"other.beside.svc.clusterset.local A": "NXDOMAIN"},
	},
	{name: "acl", before: "acl {\nblock type AAAA net 127.0.0.0/8\n}", answers: map[question]string{
		webA: webIs, "web.beside.svc.clusterset.local AAAA": "REFUSED EDE15",
	}},
	{
		name: "forward", keys: ".:{port}", before: "forward . 127.0.0.1:{upstream}",
		inside: "fallthrough", values: upstream,
		answers: map[question]string{
			"web.beside.svc.clusterset.local A":  webIs,
			"none.beside.svc.clusterset.local A": "NOERROR 192.0.2.9",
			"www.example.org A":                  "NOERROR 192.0.2.9",
		},
		behind: "\n.:{upstream} {\nbind 127.0.0.1\ntemplate IN A {\nanswer \"{{ .Name }} 60 IN A 192.0.2.9\"\n}\n}",
	},
	{
		name: "hosts", before: "hosts {\n192.0.2.7 pinned.beside.svc.clusterset.local\nfallthrough\n}",
		answers: map[question]string{webA: webIs, noneA: "NXDOMAIN",
			"pinned.beside.svc.clusterset.local A": "NOERROR 192.0.2.7"},
	},
	{
		name: "prometheus", before: "prometheus 127.0.0.1:{upstream}", values: upstream, answers: plain,
		afterall: func(t *testing.T, s *server) {
			for _, want := range []string{
				`coredns_clusterset_answers_total{kind="vip"}`, `coredns_clusterset_answers_total{kind="headless"}`,
				`coredns_clusterset_answers_total{kind="srv"}`, `coredns_clusterset_answers_total{kind="nxdomain"}`,
				"coredns_clusterset_programming_duration_seconds_count ", "coredns_clusterset_serial{",
				"coredns_clusterset_synced{", "coredns_clusterset_objects{", `plugin="clusterset"`,
			} {
				// An answer is counted after it was sent.
				until.OK(t, "metric", func(context.Context) error {
					_, page, err := get("http://127.0.0.1:" + s.values[len(s.values)-1] + "/metrics")
					if err == nil && !strings.Contains(page, want) {
						err = fmt.Errorf("no %s", want)
					}
					return err
				})
			}
		},
	},
	{
		name: "kubernetes, autopath and k8s_external", keys: ".:{port}",
		before: "autopath @kubernetes\nk8s_external outside.example\nkubernetes cluster.local {\nkubeconfig {kubeconfig}\npods verified\n}",
		answers: map[question]string{
			webA: webIs, dbA: dbIs, noneA: "NXDOMAIN",
			"plain.beside.svc.cluster.local A": "NOERROR 10.96.200.200",
			"none.beside.svc.cluster.local A":  "NXDOMAIN",
			"plain.beside.outside.example A":   "NOERROR 203.0.113.9",
		},
	},
	{name: "dnssec", before: "dnssec {\nkey file {key}\n}", values: signingKey, answers: map[question]string{webA: webIs},
		afterall: signed},
	{name: "bind", answers: map[question]string{"ns.dns.clusterset.local A": "NOERROR 127.0.0.1",
		"ns.dns.clusterset.local AAAA": "NOERROR"}},
}

func upstream(t *testing.T) []string { return []string{"{upstream}", fmt.Sprint(port(t))} }

// TestBeside queries clusterset beside each of the usual plugins.
func TestBeside(t *testing.T) {
	tier.All(t)
	ns := namespace(t, "beside")
	apply(t, vip(ns, "web", "10.96.11.1"), headless(ns, "db"), slice(ns, "db-east", "db", "east", "10.6.0.1", "10.6.0.2"),
		headless(ns, "large"), slice(ns, "large-east", "large", "east", largeAddresses()...),
		`{apiVersion: v1, kind: Service, metadata: {name: plain, namespace: beside},
  spec: {clusterIP: 10.96.200.200, externalIPs: [203.0.113.9], ports: [{name: http, port: 80}]}}`)
	for _, tt := range besides {
		t.Run(tt.name, func(t *testing.T) {
			keys := tt.keys
			if keys == "" {
				keys = "clusterset.local.:{port}"
			}
			var values []string
			if tt.values != nil {
				values = tt.values(t)
			}
			journal.Reset()
			s := start(t, fmt.Sprintf(`
%s {
	bind 127.0.0.1
	%s
	clusterset clusterset.local {
		kubeconfig {kubeconfig}
		namespaces beside
		startup_timeout 90s
		%s
	}
}%s`, keys, tt.before, tt.inside, tt.behind), values...)
			for q, want := range tt.answers {
				s.await(q, want)
			}
			if tt.afterall != nil {
				tt.afterall(t, s)
			}
		})
	}
}

// wants waits until text is written.
func (o *output) wants(t *testing.T, text string) {
	t.Helper()
	until.OK(t, "log", func(context.Context) error {
		if !strings.Contains(o.String(), text) {
			return fmt.Errorf("no %q", text)
		}
		return nil
	})
}

// signingKey creates a key of the zone.
func signingKey(t *testing.T) []string {
	t.Helper()
	key := &dns.DNSKEY{
		Hdr:   dns.RR_Header{Name: "clusterset.local.", Rrtype: dns.TypeDNSKEY, Class: dns.ClassINET, Ttl: 3600},
		Flags: 257, Protocol: 3, Algorithm: dns.ECDSAP256SHA256,
	}
	private, err := key.Generate(256)
	must(t, err)
	base := filepath.Join(t.TempDir(), fmt.Sprintf("Kclusterset.local.+013+%05d", key.KeyTag()))
	must(t, os.WriteFile(base+".key", []byte(key.String()+"\n"), 0o600))
	must(t, os.WriteFile(base+".private", []byte(key.PrivateKeyString(private)), 0o600))
	return []string{"{key}", base}
}

// signed verifies the signatures of answers with the key of the zone.
func signed(t *testing.T, s *server) {
	m, err := s.ask("clusterset.local DNSKEY do")
	must(t, err)
	var key *dns.DNSKEY
	for _, rr := range m.Answer {
		if k, ok := rr.(*dns.DNSKEY); ok {
			key = k
		}
	}
	if key == nil {
		t.Fatalf("DNSKEY: got %v", m.Answer)
	}
	for _, q := range []question{
		webA, dbA, webS, noneA, "svc.clusterset.local A", "web.beside.svc.clusterset.local AAAA", "clusterset.local SOA",
		"clusterset.local NS", "dns-version.clusterset.local TXT", "wEb.beside.svc.clusterset.local A",
	} {
		m, err := s.ask(q + " do")
		must(t, err)
		verify(t, q, m, key)
	}
	// An answer that is cut to a datagram has a signature of what it has: askWithin takes 1,232 octets at most.
	const largeA = question("large.beside.svc.clusterset.local A do")
	if m, err = s.ask(largeA); err != nil {
		t.Fatal(err)
	}
	if n := len(m.Answer); !m.Truncated || n < 20 || n > largeEndpoints {
		t.Errorf("%s: %d records, TC %t, want some of %d and TC", largeA, n, m.Truncated, largeEndpoints)
	}
	verify(t, largeA, m, key)
}

// largeEndpoints are too many for a datagram.
const largeEndpoints = 300

func largeAddresses() (all []string) {
	for i := range largeEndpoints {
		all = append(all, fmt.Sprintf("10.6.%d.%d", 1+i/200, 1+i%200))
	}
	return all
}

// verify verifies the signatures of an answer: each RRset has one.
func verify(t *testing.T, q question, m *dns.Msg, key *dns.DNSKEY) {
	t.Helper()
	rrs := map[string][]dns.RR{}
	sigs := map[string]*dns.RRSIG{}
	for _, rr := range append(m.Answer, m.Ns...) {
		name := strings.ToLower(rr.Header().Name)
		if sig, ok := rr.(*dns.RRSIG); ok {
			sigs[name+dns.TypeToString[sig.TypeCovered]] = sig
			continue
		}
		id := name + dns.TypeToString[rr.Header().Rrtype]
		rrs[id] = append(rrs[id], rr)
	}
	if len(rrs) == 0 {
		t.Errorf("%s: no records", q)
	}
	for id, set := range rrs {
		sig := sigs[id]
		if sig == nil {
			t.Errorf("%s: %s is not signed", q, id)
			continue
		}
		if err := sig.Verify(key, set); err != nil || !sig.ValidityPeriod(time.Now()) {
			t.Errorf("%s: signature of %s: %v", q, id, err)
		}
	}
}

// TestCacheKeepsNoFailure starts the plugin cache with servfail 0: the answer is right as soon as the first list is
// complete.
func TestCacheKeepsNoFailure(t *testing.T) {
	tier.All(t)
	ns := namespace(t, "kept")
	apply(t, vip(ns, "web", "10.96.11.9"))
	gate := newGate(t)
	s := start(t, `
clusterset.local.:{port} {
	bind 127.0.0.1
	errors
	cache {
		servfail 0
	}
	clusterset {
		kubeconfig {gated}
		namespaces kept
		startup_timeout 50ms
	}
}`, "{gated}", kubeconfigAt(t, gate.port))
	written := journal.mark()
	for range 20 {
		m, err := s.ask("web.kept.svc.clusterset.local A")
		must(t, err)
		if m.Rcode != dns.RcodeServerFailure {
			t.Errorf("before the first list: got %s, want SERVFAIL", say(m))
		}
	}
	if n := strings.Count(written(), "web.kept.svc.clusterset.local"); n != 0 {
		t.Errorf("%d log lines for 20 queries, want none", n)
	}
	gate.open()
	until.OK(t, "the first list", func(context.Context) error {
		if !strings.Contains(written(), "serving 1 services") {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	s.want("web.kept.svc.clusterset.local A", "NOERROR 10.96.11.9")
}
