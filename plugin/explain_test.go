package plugin_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/test"
	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/test/harness/golden"
)

// explained are the texts of the extended errors in a message that have one.
func explained(m *dns.Msg) (texts []string) {
	if opt := m.IsEdns0(); opt != nil {
		for _, option := range opt.Option {
			if ede, ok := option.(*dns.EDNS0_EDE); ok && ede.ExtraText != "" {
				texts = append(texts, ede.ExtraText)
			}
		}
	}
	return texts
}

var explainObjects = []string{
	"ServiceImport  shop/web  ClusterSetIP  ips: 10.96.0.10  ports: http/TCP/80",
	"ServiceImport  shop/plain  ClusterSetIP  ips: 10.96.0.11  ports: /TCP/80",
	"EndpointSlice  shop/plain  cluster: east  ports: /TCP/80  10.1.0.8",
	"ServiceImport  shop/loop  ClusterSetIP  ips: 127.0.0.1  ports: http/TCP/80",
	"ServiceImport  shop/slices  ClusterSetIP  ports: http/TCP/80",
	"ServiceImport  shop/split  ClusterSetIP  ports: http/TCP/80",
	"EndpointSlice  shop/split  cluster: east  10.1.0.10",
	"EndpointSlice  shop/split  cluster: west  labels: service.kubernetes.io/headless= endpointslice.kubernetes.io/managed-by=controller.clusterset-dns.io  fd00::10",
	"ServiceImport  shop/db  Headless  ports: pg/TCP/5432",
	"EndpointSlice  shop/db  cluster: east  ports: pg/TCP/5432  db-0=10.1.0.7 db-1=10.1.0.9(not-ready)",
	"EndpointSlice  shop/db  cluster: a.b  ports: pg/TCP/5432  db-0=10.2.0.7",
	"ServiceImport  shop/idle  Headless  ports: pg/TCP/5432",
	"EndpointSlice  shop/idle  cluster: east  10.1.0.9(not-ready)",
	"ServiceImport  bank/pay  ClusterSetIP  ips: 10.96.0.12  ports: http/TCP/80",
	"EndpointSlice  shop/web  cluster: east  ports: http/TCP/8080  10.1.0.6",
}

// explainCases are questions below svc.clusterset.local, or with a final dot those of the zone.
var explainCases = []struct {
	directives string
	name       string
	qtype      uint16
	want       reason.Code
}{
	{"", ".", dns.TypeA, reason.TypeNotServed},
	{"", "dns-version.", dns.TypeA, reason.TypeNotServed},
	{"", "svc.", dns.TypeA, reason.NameIncomplete},
	{"", "shop", dns.TypeA, reason.NameIncomplete},
	{"", "nowhere", dns.TypeA, reason.NameIncomplete},
	{"", "_http._tcp", dns.TypeSRV, reason.NameIncomplete},
	{"", "web.shop.", dns.TypeA, reason.NameWithoutSVC},
	{"", "10-0-0-1.shop.pod.", dns.TypeA, reason.NamePod},
	{"", "*.shop", dns.TypeA, reason.NameWildcard},
	{"", "we_b.shop", dns.TypeA, reason.NameMalformed},
	{"", `we\.b.shop`, dns.TypeA, reason.NameMalformed},
	{"", "a.b.c.d.web.shop", dns.TypeA, reason.NameMalformed},
	{"", "_tcp.web.shop", dns.TypeSRV, reason.PortMalformed},
	{"", "http._tcp.web.shop", dns.TypeSRV, reason.PortMalformed},
	{"", "_http._tcp.web.shop", dns.TypeA, reason.PortWantsSRV},
	{"", "web.shop", dns.TypeMX, reason.TypeNotServed},
	{"", "east.db.shop", dns.TypeSRV, reason.TypeNotServed},

	{"", "nothing.shop", dns.TypeA, reason.ImportMissing},
	{"", "NOTHING.Shop", dns.TypeMX, reason.ImportMissing},
	{"", "_http._tcp.nothing.shop", dns.TypeSRV, reason.ImportMissing},
	{"", "web.nowhere", dns.TypeA, reason.DNSNamespaceEmpty},
	{"", "idle.shop", dns.TypeA, reason.DNSLacksEndpoint},
	{"", "slices.shop", dns.TypeA, reason.DNSLacksEndpoint},
	{"", "slices.shop", dns.TypeSRV, reason.DNSLacksEndpoint},
	{"", "slices.shop", dns.TypeANY, reason.DNSLacksEndpoint},
	{"", "_http._tcp.slices.shop", dns.TypeSRV, reason.DNSLacksEndpoint},
	{"", "loop.shop", dns.TypeA, reason.DNSLacksAddress},
	{"", "_http._tcp.loop.shop", dns.TypeSRV, reason.DNSLacksAddress},
	{"", "web.shop", dns.TypeAAAA, reason.FamilyMissing},
	{"", "db.shop", dns.TypeAAAA, reason.FamilyMissing},
	{"", "split.shop", dns.TypeAAAA, reason.ClusterNotSelected},
	{"", "east.split.shop", dns.TypeAAAA, reason.FamilyMissing},
	{"", "east.db.shop", dns.TypeAAAA, reason.FamilyMissing},
	{"", "db-0.east.db.shop", dns.TypeAAAA, reason.FamilyMissing},
	{"", "plain.shop", dns.TypeSRV, reason.PortUnnamed},
	{"", "_http._tcp.plain.shop", dns.TypeSRV, reason.PortUnnamed},
	{"", "_pg._udp.db.shop", dns.TypeSRV, reason.PortProtocol},
	{"", "_http._tcp.db.shop", dns.TypeSRV, reason.PortUnknown},
	{"", "_http._tcp.east.db.shop", dns.TypeSRV, reason.PortUnknown},
	{"", "west.db.shop", dns.TypeA, reason.DNSLacksEndpoint},
	{"", "b.db.shop", dns.TypeA, reason.DNSLacksEndpoint},
	{"", "db-1.east.db.shop", dns.TypeA, reason.DNSLacksEndpoint},
	{"", "_pg._tcp.west.db.shop", dns.TypeSRV, reason.DNSLacksEndpoint},
	{"", "db-0.db.shop", dns.TypeA, reason.HostWithoutCluster},
	{"", "10-1-0-8.east.plain.shop", dns.TypeA, reason.HostNeedsHeadless},
	{"policy none", "slices.shop", dns.TypeA, reason.DNSLeftOut},
	{"noendpoints", "idle.shop", dns.TypeA, reason.DNSLeftOut},
	{"noendpoints", "slices.shop", dns.TypeA, reason.DNSLeftOut},
	{"noendpoints", "east.web.shop", dns.TypeA, reason.DNSLeftOut},
	{"cluster_names off", "east.web.shop", dns.TypeA, reason.DNSLeftOut},
	{"cluster_names off", "east.db.shop", dns.TypeA, reason.DNSLeftOut},
	{"cluster_names off", "_pg._tcp.east.db.shop", dns.TypeSRV, reason.DNSLeftOut},
	{"namespaces bank", "web.shop", dns.TypeA, reason.DNSLeftOut},
	{"namespaces bank", "nothing.shop", dns.TypeA, reason.DNSLeftOut},
	{"namespaces bank", "nothing.bank", dns.TypeA, reason.ImportMissing},
	// Whether a service exists that labels leave out is not to be seen.
	{"labels app=none", "web.shop", dns.TypeA, reason.DNSLeftOut},
	{"labels app=none", "nothing.shop", dns.TypeA, reason.DNSLeftOut},
	{"labels app=none", "idle.shop", dns.TypeA, reason.DNSLeftOut},
	{"labels app=none", "web.nowhere", dns.TypeA, reason.DNSLeftOut},
	{"namespace_labels team=none", "web.shop", dns.TypeA, reason.DNSLeftOut},
	{"namespace_labels team=none", "idle.shop", dns.TypeA, reason.DNSLeftOut},
	{"namespace_labels team=none", "nothing.shop", dns.TypeA, reason.DNSLeftOut},
}

// docs/spec/dns.md 5.8: each negative answer has the code of its cause, if the client sent OPT and the directive is on.
func TestExplainAnswers(t *testing.T) {
	seen := map[reason.Code]bool{reason.DNSNotReady: true} // TestExplainNotReady
	on, off := map[string]server{}, map[string]server{}
	for _, tt := range explainCases {
		if _, ok := on[tt.directives]; !ok {
			s := setup{zones: []string{"clusterset.local"}, corefile: tt.directives, objects: explainObjects}
			off[tt.directives] = serve(t, s)
			s.corefile += "\nexplain_answers on"
			on[tt.directives] = serve(t, s)
		}
		seen[tt.want] = true
		name := tt.name + ".svc.clusterset.local."
		if head, apex := strings.CutSuffix(tt.name, "."); apex {
			name = strings.TrimPrefix(head+".clusterset.local.", ".")
		}
		for _, tcp := range []bool{false, true} {
			m := on[tt.directives].ask(t, ask(name, tt.qtype, 1232), tcp)
			if got, want := explained(m), []string{reason.Text(tt.want)}; len(m.Answer) > 0 || !slices.Equal(got, want) ||
				extendedError(m) != 0 {
				t.Errorf("%q: %s %s: %d records, extended error %d %q, want none and 0 %q", tt.directives, name,
					dns.TypeToString[tt.qtype],
					len(m.Answer), extendedError(m), got, want)
			}
		}
		for which, m := range map[string]*dns.Msg{
			"without OPT":             on[tt.directives].ask(t, ask(name, tt.qtype, 0), false),
			"without explain_answers": off[tt.directives].ask(t, ask(name, tt.qtype, 1232), false),
		} {
			if extendedError(m) >= 0 {
				t.Errorf("%q: %s %s: %s there is an extended error", tt.directives, name, dns.TypeToString[tt.qtype], which)
			}
		}
	}
	for name := range map[string]bool{"web.shop": true, "east.db.shop": true} {
		if m := on[""].ask(t, ask(name+".svc.clusterset.local.", dns.TypeA, 1232), false); len(m.Answer) == 0 ||
			extendedError(m) >= 0 {
			t.Errorf("%s: %d records, extended error %d, want records and none", name, len(m.Answer), extendedError(m))
		}
	}
	if got, want := slices.Sorted(maps.Keys(seen)), documentedCodes(t); !slices.Equal(got, want) {
		t.Errorf("codes %q, want those of docs/spec/dns.md 5.8, %q", got, want)
	}
}

// documentedCodes are those of docs/spec/dns.md 5.8, sorted.
func documentedCodes(t *testing.T) (codes []reason.Code) {
	t.Helper()
	text, err := os.ReadFile("../docs/spec/dns.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "### 5.8 ")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range regexp.MustCompile("(?m)^\\| `.*$").FindAllString(section, -1) {
		for _, m := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			codes = append(codes, reason.Code(m[1]))
		}
	}
	slices.Sort(codes)
	return codes
}

func TestExplainNotReady(t *testing.T) {
	h := neverSynced(t, "explain_answers on")
	for size, want := range map[uint16][]string{0: nil, 1232: {reason.Text(reason.DNSNotReady)}} {
		recorder := dnstest.NewRecorder(&test.ResponseWriter{})
		if _, err := h.ServeDNS(t.Context(), recorder, ask("web.shop.svc.clusterset.local.", dns.TypeA, size)); err != nil {
			t.Fatal(err)
		}
		if got := explained(recorder.Msg); recorder.Rcode != dns.RcodeServerFailure || !slices.Equal(got, want) {
			t.Errorf("OPT %d: %s %q, want SERVFAIL %q", size, dns.RcodeToString[recorder.Rcode], got, want)
		}
	}
}

// docs/spec/dns.md 5.8: the directive changes nothing else of any answer, and each cause is known.
func TestExplainChangesNoAnswer(t *testing.T) {
	files, err := golden.ReadAll("testdata")
	if err != nil {
		t.Fatal(err)
	}
	negative := 0
	for _, f := range files {
		s := serve(t, setup{zones: f.Zones, corefile: f.Corefile + "\nexplain_answers on", next: f.Next, objects: f.Objects})
		for _, c := range f.Cases {
			query := c.Message()
			if query.IsEdns0() == nil {
				query.SetEdns0(1232, false)
			}
			m := s.ask(t, query, false)
			if got := golden.NewReply(m); !c.Want.Permits(got) {
				t.Errorf("%s: %s: got\n%s\nwant\n%s", f.Name, c.Question, got, c.Want)
			}
			texts := explained(m)
			switch is := len(m.Answer) == 0 && !m.Truncated && m.Rcode != dns.RcodeRefused &&
				m.Rcode != dns.RcodeNotImplemented; {
			case len(texts) > 0 != is && f.Next == "":
				t.Errorf("%s: %s: %s with %d records: extended errors %q", f.Name, c.Question, dns.RcodeToString[m.Rcode],
					len(m.Answer), texts)
			case is && slices.Contains(texts, reason.Text(reason.Unexplained)):
				t.Errorf("%s: %s: no cause was found", f.Name, c.Question)
			case is:
				negative++
			}
		}
	}
	if negative < 100 {
		t.Errorf("%d negative answers, want at least 100", negative)
	}
}

// docs/spec/dns.md 5.8: an extended error that does not fit is left out. The answer is never cut for it.
func TestExplainFits(t *testing.T) {
	s := serve(t, setup{zones: []string{"clusterset.local"}, corefile: "explain_answers on\nudp_size 512",
		objects: explainObjects})
	long := strings.Repeat(strings.Repeat("x", 62)+".", 3) + "web.shop.svc.clusterset.local."
	for _, signed := range []bool{false, true} {
		s.handler.Signed = signed
		kept := map[bool]bool{}
		for length := range len(long) - len(".web.shop.svc.clusterset.local.") {
			name := strings.TrimPrefix(long[length:], ".")
			query := ask(name, dns.TypeA, 512)
			query.IsEdns0().SetDo(true)
			m, size := s.exchange(t, query, false)
			if signed {
				size += 2*(2+10+18+18+256) + 2 + 10 + 2 + len(name) + 1 + 34 // RFC 4034, of RSA with 2048 bits, and an NSEC record
			}
			fits := len(explained(m)) > 0
			kept[fits] = true
			if m.Truncated || len(m.Ns) != 1 || fits && size > 512 {
				t.Fatalf("%s, signed %t: %d octets with extended errors %q, TC %t, %d records of authority, want at most 512, no TC, and one", name, signed,
					size, explained(m), m.Truncated, len(m.Ns))
			}
		}
		if signed == kept[true] {
			t.Errorf("signed %t: the extended error is kept: %v", signed, kept)
		}
	}
	// The plugin nsid adds its data later.
	s.handler.Signed = false
	query := ask(long, dns.TypeA, 512)
	query.IsEdns0().Option = append(query.IsEdns0().Option, &dns.EDNS0_NSID{Code: dns.EDNS0NSID})
	m := s.ask(t, query, false)
	m.Compress = true // as the server does where a message is too large without
	if len(explained(m)) > 0 && m.Len()+128 > 512 {
		t.Errorf("%d octets with an extended error beside NSID, want room for 128", m.Len())
	}
}
