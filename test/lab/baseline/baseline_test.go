package baseline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/test"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

const apex = "z. 5 IN SOA ns.z. hostmaster.z. 1 7200 1800 86400 5\n"

// many returns an RRset of n records.
func many(n int) string {
	var b strings.Builder
	for i := range n {
		_, _ = fmt.Fprintf(&b, "many.z. 5 IN A 10.0.%d.%d\n", i/256, i%256)
	}
	return b.String()
}

func TestServeDNS(t *testing.T) {
	f, err := prepare(strings.NewReader(apex+many(1000)+
		"a.z. 5 IN A 192.0.2.1\n_http._tcp.a.z. 5 IN SRV 0 100 80 a.z.\n"), "test")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name            string
		qname           string
		qtype           uint16
		edns            uint16
		rcode           int
		answer, ns, add int
		truncated       bool
	}{
		{name: "address", qname: "a.z.", qtype: dns.TypeA, answer: 1},
		{name: "SRV with glue", qname: "_http._tcp.a.z.", qtype: dns.TypeSRV, answer: 1, add: 1},
		{name: "unknown name", qname: "b.z.", qtype: dns.TypeA, rcode: dns.RcodeNameError, ns: 1},
		{name: "512 octets", qname: "many.z.", qtype: dns.TypeA, answer: (512 - 12 - 12) / 16, truncated: true},
		{
			name: "1232 octets", qname: "many.z.", qtype: dns.TypeA, edns: EDNSSize,
			answer: (EDNSSize - 12 - 12 - 11) / 16, add: 1, truncated: true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := new(dns.Msg)
			q.SetQuestion(tt.qname, tt.qtype)
			if tt.edns > 0 {
				q.SetEdns0(tt.edns, false)
			}
			rec := dnstest.NewRecorder(&test.ResponseWriter{})
			if _, err := f.ServeDNS(t.Context(), request.NewScrubWriter(q, rec), q); err != nil {
				t.Fatal(err)
			}
			m := rec.Msg
			got := fmt.Sprint(m.Rcode, len(m.Answer), len(m.Ns), len(m.Extra), m.Truncated, m.Authoritative)
			want := fmt.Sprint(tt.rcode, tt.answer, tt.ns, tt.add, tt.truncated, true)
			if got != want {
				t.Errorf("answer to %s = %s, want %s (rcode, three sections, TC, AA)\n%s", tt.qname, got, want, m)
			}
		})
	}
}

// What was prepared serves all queries: one that sends OPT must leave no trace in it.
func TestServeDNSKeepsAnswers(t *testing.T) {
	f, err := prepare(strings.NewReader(apex+many(1000)), "test")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		q := new(dns.Msg)
		q.SetQuestion("many.z.", dns.TypeA)
		q.SetEdns0(EDNSSize, false)
		w := request.NewScrubWriter(q, &test.ResponseWriter{})
		if _, err := f.ServeDNS(t.Context(), w, q); err != nil {
			t.Fatal(err)
		}
	}
	p := f.answers[question{"many.z.", dns.TypeA}]
	if got := len(p.edns.extra); got != 0 {
		t.Errorf("prepared additional section has %d records, want 0", got)
	}
	if got, want := len(p.edns.records), (EDNSSize-12-12-11)/16; got != want {
		t.Errorf("prepared answer has %d records, want %d", got, want)
	}
}

func TestParse(t *testing.T) {
	tests := []struct{ name, corefile, want string }{
		{name: "no file", corefile: "baseline", want: "0 arguments: want the name of a master file"},
		{name: "two files", corefile: "baseline a b", want: "2 arguments: want the name of a master file"},
		{name: "absent file", corefile: "baseline absent", want: "no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse(caddy.NewTestController("dns", tt.corefile))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("parse(%q) = %v, want an error with %q", tt.corefile, err, tt.want)
			}
		})
	}
}

func TestPrepareWantsOneSOA(t *testing.T) {
	_, err := prepare(strings.NewReader("a.z. 5 IN A 192.0.2.1\n"), "test")
	if want := `master file "test": 0 SOA records: want 1`; err == nil || err.Error() != want {
		t.Errorf("prepare without SOA = %v, want %q", err, want)
	}
}
