package ask

import (
	"slices"
	"testing"
)

func TestCheck(t *testing.T) {
	const rr = "web.shop.svc.clusterset.local. 5 IN A 10.200.0.10"
	soa := []string{"clusterset.local. 5 IN SOA ns.dns.clusterset.local. hostmaster.clusterset.local. 1 7200 1800 86400 5"}
	vip, none := Question{Want: []string{"A 10.200.0.10"}}, Question{Status: "NXDOMAIN"}
	for _, tt := range []struct {
		name string
		q    Question
		got  Reply
		ok   bool
	}{
		{"right", vip, Reply{Status: "NOERROR", Answer: []string{rr}}, true},
		{"twice", vip, Reply{Status: "NOERROR", Answer: []string{rr, rr}}, false},
		{"nothing", vip, Reply{Status: "NOERROR", Authority: soa}, false},
		{"another status", vip, Reply{Status: "SERVFAIL", Answer: []string{rr}}, false},
		{"denied", none, Reply{Status: "NXDOMAIN", Authority: soa}, true},
		{"denied without SOA", none, Reply{Status: "NXDOMAIN"}, false},
		{"denied with an answer", none, Reply{Status: "NXDOMAIN", Answer: []string{rr}, Authority: soa}, false},
		{"NODATA in place of NXDOMAIN", none, Reply{Status: "NOERROR", Authority: soa}, false},
	} {
		if err := tt.q.Check(tt.got); (err == nil) != tt.ok {
			t.Errorf("%s: Check(%+v) = %v, want ok %t", tt.name, tt.got, err, tt.ok)
		}
	}
}

func TestParse(t *testing.T) {
	const out = `;; Got Answer:
;; ->>HEADER<<- opcode: QUERY, status: NOERROR, id: 1
;; flags: qr aa rd; QUERY: 1, ANSWER: 1, AUTHORITY: 0, ADDITIONAL: 2

;; OPT PSEUDOSECTION:
; EDNS: version: 0, flags:; udp: 1232
;; ANSWER SECTION:
_x._tcp.a.b.	5 IN	SRV	0 100 80 c.a.b.

;; ADDITIONAL SECTION:
c.a.b.		5	IN	A	10.0.0.1

`
	r, err := parse(out)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"A 10.0.0.1", "SRV 0 100 80 c.a.b."}; !slices.Equal(r.records(), want) || r.Status != "NOERROR" {
		t.Errorf("parse = %+v, want records %q", r, want)
	}
	if _, err := parse(";; communications error\n"); err == nil {
		t.Error("parse of no answer gives no error")
	}
}

func TestWithoutDig(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if c := (Client{Dig: FindDig()}); c.Dig != "" || c.Program() != "bin/query" {
		t.Errorf("on a path without dig: %q is %q, want bin/query", c.Program(), c.Dig)
	}
}
