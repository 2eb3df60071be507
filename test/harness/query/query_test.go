package query

import (
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func TestParse(t *testing.T) {
	got, err := parse(strings.Fields(
		"-r @127.0.0.1 -p 1053 +nocmd +nostats +noquestion +tries=2 +timeout=7 web.example srv"))
	want := request{server: "127.0.0.1", port: "1053", name: "web.example.", qtype: dns.TypeSRV, tries: 2,
		timeout: 7 * time.Second}
	if err != nil || got != want {
		t.Errorf("parse = %+v, %v, want %+v", got, err, want)
	}
	for _, line := range []string{
		"", "@127.0.0.1", "web.example", "@127.0.0.1 web.example NOTYPE", "@127.0.0.1 +short web.example",
		"@127.0.0.1 +tries=0 web.example",
		"@127.0.0.1 web.example -p",
	} {
		if got, err := parse(strings.Fields(line)); err == nil {
			t.Errorf("parse(%q) = %+v, want an error", line, got)
		}
	}
}

// Real responses are compared with the output of dig in test/tools/demo/demo-files; this one has what those do not.
func TestFormat(t *testing.T) {
	m := new(dns.Msg)
	m.SetQuestion("a.example.", dns.TypeA)
	m.Id, m.Response, m.RecursionDesired, m.Rcode = 7, true, false, dns.RcodeServerFailure
	m.SetEdns0(1232, true)
	m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeNotReady,
		ExtraText: "no list yet"})
	const want = `;; Got answer:
;; ->>HEADER<<- opcode: QUERY, status: SERVFAIL, id: 7
;; flags: qr; QUERY: 1, ANSWER: 0, AUTHORITY: 0, ADDITIONAL: 1

;; OPT PSEUDOSECTION:
; EDNS: version: 0, flags: do; udp: 1232
; EDE: 14 (Not Ready): (no list yet)
`
	if got := format(m); got != want {
		t.Errorf("format = %s\nwant %s", got, want)
	}
}
