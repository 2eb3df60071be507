package plugin_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
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
)

// A client may advertise 65,535 octets; a datagram over IPv4 has room for fewer (RFC 791).
func TestDatagramLimit(t *testing.T) {
	s := serve(t, setup{zones: []string{"clusterset.local"}, objects: large})
	for _, qtype := range []uint16{dns.TypeA, dns.TypeSRV} {
		m, size := s.exchange(t, ask("db.shop.svc.clusterset.local.", qtype, 65535), false)
		if size > 65507 || !m.Truncated {
			t.Errorf("%s: %d octets, TC %t, want at most 65507 and TC", dns.TypeToString[qtype], size, m.Truncated)
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

// docs/spec/dns.md 4.7, docs/spec/dns.md 5.5: glue of NS is cut without TC; the addresses of ns.dns are cut with TC, and rotate.
func TestManyAddressesOfThisServer(t *testing.T) {
	s := serve(t, setup{zones: []string{"clusterset.local"}})
	for i := range 200 {
		s.handler.Addresses = append(s.handler.Addresses, netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}))
	}
	if m := s.ask(t, ask("clusterset.local.", dns.TypeNS, 0), false); m.Truncated || len(m.Answer) != 1 || len(m.Extra) == 0 {
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

// RFC 1996: a secondary that does not answer does not delay the end.
func TestNotifyEndsWithItsContext(t *testing.T) {
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
	// Had the end waited for the secondary, there would have been a second try.
	if err := silent.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := silent.ReadFrom(make([]byte, 512)); err == nil {
		t.Error("Notify tried again before it ended")
	}
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
