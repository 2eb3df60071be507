package plugin_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin/metadata"
	"github.com/coredns/coredns/plugin/test"
	"github.com/coredns/coredns/plugin/transfer"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/cache"
	"github.com/clusterset-dns/clusterset/plugin"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

// docs/spec/dns.md 5.5: a client may advertise 65,535 octets, but a large datagram is fragmented, and one over IPv4 has
// room for 65,507 (RFC 791).
func TestDatagramLimit(t *testing.T) {
	everySize(t)
	for directive, limit := range map[string]int{"": 1232, "udp_size 512": 512, "udp_size 65507": 65507} {
		s := serve(t, setup{zones: []string{"clusterset.local"}, corefile: directive, objects: large})
		for _, qtype := range []uint16{dns.TypeA, dns.TypeSRV} {
			for _, advertised := range []int{600, 1300, 5000, 65535} {
				m, size := s.exchange(t, ask("db.shop.svc.clusterset.local.", qtype, uint16(advertised)), false)
				if most := min(limit, advertised); size > most || size < most-100 || !m.Truncated {
					t.Errorf("%q, %s for %d: %d octets, TC %t, want almost %d and TC", directive, dns.TypeToString[qtype], advertised, size,
						m.Truncated, most)
				}
			}
			if m, _ := s.exchange(t, ask("db.shop.svc.clusterset.local.", qtype, 0), true); len(m.Answer) < 500 {
				t.Errorf("%q, %s over TCP: %d records", directive, dns.TypeToString[qtype], len(m.Answer))
			}
		}
	}
}

// everySize asks for one RRset with sizes that a client can advertise, with each of those up to the limit: a reply fits
// it, and has TC as records are left out.
func everySize(t *testing.T) {
	t.Helper()
	const records = 80 // a few more than fit udp_size, which is at its default
	s := serve(t, setup{zones: []string{"clusterset.local"}, objects: hosts(records)})
	step := 1
	for advertised := 0; advertised < 1<<16; advertised += step {
		if advertised == 1300 {
			step = tier.Size(100, 1)
		}
		m, size := s.exchange(t, ask("db.shop.svc.clusterset.local.", dns.TypeA, uint16(advertised)), false)
		if most := min(max(dns.MinMsgSize, advertised), 1232); size > most || size < most-100 || !m.Truncated ||
			len(m.Answer) >= records {
			t.Fatalf("A for %d: %d octets, %d of %d records, TC %t, want almost %d and TC", advertised, size, len(m.Answer),
				records, m.Truncated, most)
		}
	}
}

// docs/spec/dns.md 5.5: the plugin dnssec adds a signature for each RRset, to clients that ask for it. A reply has room
// for them.
func TestRoomForSignatures(t *testing.T) {
	s := serve(t, setup{zones: []string{"clusterset.local"}, objects: large})
	const signature = 2 + 10 + 18 + 18 + 256 // RFC 4034 section 3.1, of RSA with 2048 bits
	for _, signed := range []bool{false, true} {
		s.handler.Signed = signed
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV} {
			for _, do := range []bool{false, true} {
				r := ask("db.shop.svc.clusterset.local.", qtype, 1232)
				r.IsEdns0().SetDo(do)
				m, size := s.exchange(t, r, false)
				want := 1232
				if signed && do {
					want -= signature
				}
				if size > want || size < want-100 || !m.Truncated {
					t.Errorf("%s, signed %t, DO %t: %d octets, want almost %d", dns.TypeToString[qtype], signed, do, size, want)
				}
			}
		}
		r := ask("_pg._tcp.east.db.shop.svc.clusterset.local.", dns.TypeSRV, 1232)
		r.IsEdns0().SetDo(true)
		m, size := s.exchange(t, r, false)
		sets := map[string]bool{}
		for _, rr := range m.Extra {
			if rr.Header().Rrtype != dns.TypeOPT {
				sets[rr.Header().Name+" "+dns.TypeToString[rr.Header().Rrtype]] = true
			}
		}
		if total := size + (1+len(sets))*signature; signed && total > 1232 {
			t.Errorf("%d octets with signatures of the answer and of %d RRsets of glue, want at most 1232", total, len(sets))
		}
	}
}

// docs/spec/dns.md 5.2: SOA and NS name the server that ns gives, and its addresses where they are known; a transfer
// does as well.
func TestNameServer(t *testing.T) {
	const below, elsewhere = "ns.dns.clusterset.local.", "dns.example."
	for directive, want := range map[string]struct {
		name      string
		addresses []string
	}{
		"":                                     {below, []string{"127.0.0.1"}},
		"ns " + below + " 192.0.2.53 fd00::53": {below, []string{"192.0.2.53", "fd00::53"}},
		"ns " + elsewhere:                      {elsewhere, nil},
	} {
		s := serve(t, setup{zones: []string{"clusterset.local"}, corefile: directive})
		addresses := func(rrs []dns.RR, owner string) (out []string) {
			for _, rr := range rrs {
				switch rr := rr.(type) {
				case *dns.A:
					out = append(out, rr.A.String())
				case *dns.AAAA:
					out = append(out, rr.AAAA.String())
				}
				if h := rr.Header(); h.Name != owner && (h.Rrtype == dns.TypeA || h.Rrtype == dns.TypeAAAA) {
					t.Errorf("%q: address of %s, want of %s", directive, h.Name, owner)
				}
			}
			return out
		}
		ns := s.ask(t, ask("clusterset.local.", dns.TypeNS, 1232), false)
		if got := ns.Answer[0].(*dns.NS).Ns; got != want.name ||
			!slices.Equal(addresses(ns.Extra, want.name), want.addresses) {
			t.Errorf("%q: NS %s with %v, want %v", directive, got, ns.Extra, want)
		}
		if got := s.ask(t, ask("CLUSTERSET.local.", dns.TypeSOA, 0), false).Answer[0].(*dns.SOA).Ns; !strings.EqualFold(got,
			want.name) {
			t.Errorf("%q: MNAME %s, want %s", directive, got, want.name)
		}
		var own []string
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			own = append(own, addresses(s.ask(t, ask(below, qtype, 0), false).Answer, below)...)
		}
		if !slices.Equal(own, want.addresses) {
			t.Errorf("%q: %s has %v, want %v", directive, below, own, want.addresses)
		}
		ch, err := s.handler.Transfer("clusterset.local.", 0)
		if err != nil {
			t.Fatal(err)
		}
		var all []dns.RR
		for rrs := range ch {
			all = append(all, rrs...)
		}
		if got := addresses(all, below); all[0].(*dns.SOA).Ns != want.name || !slices.Equal(got, want.addresses) {
			t.Errorf("%q: transferred %v, want %v", directive, all, want)
		}
	}
}

// A failed write is an error for the errors plugin, unless the client went away.
func TestWriteTooLong(t *testing.T) {
	s := serve(t, setup{zones: []string{"clusterset.local"}})
	tooLong := &net.OpError{Op: "write", Err: errors.New("message too long")}
	rcode, err := s.handler.ServeDNS(t.Context(), &broken{err: tooLong}, ask("clusterset.local.", dns.TypeSOA, 0))
	if rcode != dns.RcodeServerFailure || !errors.Is(err, tooLong) {
		t.Errorf("ServeDNS = %s, %v, want SERVFAIL and the error", dns.RcodeToString[rcode], err)
	}
}

// A plugin such as rewrite changes the name in the message before a label is read.
func TestMetadataIsOfTheFirstName(t *testing.T) {
	s := serve(t, setup{zones: []string{"clusterset.local"}, objects: hosts(1)})
	query := ask("h0000.east.db.shop.svc.clusterset.local.", dns.TypeA, 0)
	r := request.Request{Req: query, W: &test.ResponseWriter{}}
	ctx := s.handler.Metadata(metadata.ContextWithMetadata(context.Background()), r)
	query.Question[0].Name = "x."
	for label, want := range map[string]string{"kind": "host", "hostname": "h0000", "cluster": "east", "service": "db"} {
		if got := metadata.ValueFunc(ctx, "clusterset/"+label)(); got != want {
			t.Errorf("%s = %q, want %q", label, got, want)
		}
	}
}

// docs/spec/dns.md 2: reverse names go to the next plugin, also if the zone is the root.
func TestReverseNamesAreOthers(t *testing.T) {
	s := serve(t, setup{zones: []string{"."}})
	s.handler.Next = test.NextHandler(dns.RcodeRefused, errors.New("next"))
	for _, name := range []string{"1.0.0.10.in-addr.arpa.", "1.0.IP6.arpa.", "in-addr.arpa."} {
		_, err := s.handler.ServeDNS(t.Context(), &test.ResponseWriter{}, ask(name, dns.TypePTR, 0))
		if err == nil || err.Error() != "next" {
			t.Errorf("%s: %v, want the next plugin", name, err)
		}
	}
}

// docs/spec/dns.md 4.7, docs/spec/dns.md 5.5: glue of NS is cut without TC; the addresses of ns.dns are cut with TC,
// and rotate.
func TestManyAddressesOfThisServer(t *testing.T) {
	s := serve(t, setup{zones: []string{"clusterset.local"}})
	for i := range 200 {
		s.handler.Addresses = append(s.handler.Addresses, netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}))
	}
	if m := s.ask(t, ask("clusterset.local.", dns.TypeNS, 0), false); m.Truncated || len(m.Answer) != 1 ||
		len(m.Extra) == 0 {
		t.Errorf("NS: %d records, %d glue, TC %t, want 1, some, and no TC", len(m.Answer), len(m.Extra), m.Truncated)
	}
	first := map[string]bool{}
	for range 5 {
		m := s.ask(t, ask("ns.dns.clusterset.local.", dns.TypeA, 0), false)
		if !m.Truncated || len(m.Answer) == 0 {
			t.Fatalf("ns.dns: %d records, TC %t, want some and TC", len(m.Answer), m.Truncated)
		}
		first[m.Answer[0].String()] = true
	}
	if len(first) != 5 {
		t.Errorf("5 answers begin with %d different records", len(first))
	}
	if m := s.ask(t, ask("ns.dns.clusterset.local.", dns.TypeA, 0), true); m.Truncated || len(m.Answer) != 201 {
		t.Errorf("ns.dns over TCP: %d records, TC %t, want 201", len(m.Answer), m.Truncated)
	}
}

// RFC 1996: a secondary that does not answer does not delay the end. A Notify that waits for it ends after its second
// try, which comes after two seconds. A busy machine may take as long to end one that does not wait, so it has to be
// seen once in ten times.
func TestNotifyEndsWithItsContext(t *testing.T) {
	for range 10 {
		if endsBeforeASecondTry(t) {
			return
		}
	}
	t.Error("Notify tried again before it ended, each time")
}

// endsBeforeASecondTry ends Notify after it has asked a secondary that does not answer.
func endsBeforeASecondTry(t *testing.T) bool {
	t.Helper()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	config := plugin.ParsedT(t, []string{"clusterset.local"}, "")
	path := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := cache.New(source(config, path))
	if err != nil {
		t.Fatal(err)
	}
	h := plugin.NewHandler(config, store, plugin.NewRotation())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() { defer close(ended); h.Notify(ctx, transferTo(t, silent.LocalAddr().String()), 0) }()
	go func() {
		defer close(stopped)
		if err := store.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	if _, _, err := silent.ReadFrom(make([]byte, 512)); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-stopped
	<-ended
	if err := silent.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, _, err = silent.ReadFrom(make([]byte, 512))
	return err != nil
}

// transferTo is the transfer plugin as a Corefile sets it up.
func transferTo(t *testing.T, secondary string) *transfer.Transfer {
	t.Helper()
	c := caddy.NewTestController("dns", "transfer {\nto "+secondary+"\n}")
	c.ServerBlockKeys = []string{"clusterset.local."}
	setup, err := caddy.DirectiveAction("dns", "transfer")
	if err != nil {
		t.Fatal(err)
	}
	if err := setup(c); err != nil {
		t.Fatal(err)
	}
	return dnsserver.GetConfig(c).Plugin[0](nil).(*transfer.Transfer)
}
