package plugin_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/test"
	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/cache"
	"github.com/clusterset-dns/clusterset/plugin"
)

// A broken writer fails to write.
type broken struct {
	test.ResponseWriter
	err error
}

func (b *broken) WriteMsg(*dns.Msg) error { return b.err }

// docs/spec/dns.md 5: a reply that cannot be packed is an error, and the client gets SERVFAIL from the server. A reply
// that the client does not take is no error: clients that hang up must not fill the log.
func TestWriteFails(t *testing.T) {
	s := serve(t, setup{zones: []string{"clusterset.local"}})
	for _, tt := range []struct {
		name  string
		err   error
		rcode int
		want  error
	}{
		{"cannot be packed", dns.ErrRdata, dns.RcodeServerFailure, dns.ErrRdata},
		{"client has gone", &net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)}, dns.RcodeSuccess, nil},
	} {
		rcode, err := s.handler.ServeDNS(t.Context(), &broken{err: tt.err}, ask("clusterset.local.", dns.TypeSOA, 0))
		if rcode != tt.rcode || !errors.Is(err, tt.want) {
			t.Errorf("%s: ServeDNS = %s, %v, want %s, %v", tt.name, dns.RcodeToString[rcode], err,
				dns.RcodeToString[tt.rcode], tt.want)
		}
	}
}

// neverSynced returns a handler with a store that does not run.
func neverSynced(t *testing.T, directive string) *plugin.Handler {
	t.Helper()
	config := plugin.ParsedT(t, []string{"clusterset.local"}, directive)
	path := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := cache.New(source(config, path))
	if err != nil {
		t.Fatal(err)
	}
	h := plugin.NewHandler(config, store, plugin.NewRotation())
	h.Next = test.NextHandler(dns.RcodeSuccess, errors.New("the next plugin was asked"))
	return h
}

// docs/spec/dns.md 6: before the first sync everything is SERVFAIL with EDE 14, for clients that sent OPT: no NXDOMAIN,
// no fallthrough, no transfer.
func TestNotReady(t *testing.T) {
	h := neverSynced(t, "fallthrough")
	for _, name := range []string{"clusterset.local.", "x.clusterset.local.", "web.shop.svc.clusterset.local.",
		"dns-version.clusterset.local."} {
		for _, size := range []uint16{0, 1232} {
			for _, qtype := range qtypes {
				recorder := dnstest.NewRecorder(&test.ResponseWriter{})
				_, err := h.ServeDNS(t.Context(), recorder, ask(name, qtype, size))
				if err != nil || recorder.Msg == nil || recorder.Rcode != dns.RcodeServerFailure || len(recorder.Msg.Answer) > 0 {
					t.Fatalf("%s %s before the first sync: %v, %v, want SERVFAIL", name, dns.TypeToString[qtype], recorder.Msg, err)
				}
				if got := extendedError(recorder.Msg); size > 0 && got != int(dns.ExtendedErrorCodeNotReady) || size == 0 &&
					got >= 0 {
					t.Errorf("%s %s with OPT %d: EDE %d", name, dns.TypeToString[qtype], size, got)
				}
			}
		}
	}
	if _, err := h.Transfer("clusterset.local.", 0); err == nil {
		t.Error("a transfer before the first sync: no error")
	}
}

// extendedError is the code in a message, or -1.
func extendedError(m *dns.Msg) int {
	if opt := m.IsEdns0(); opt != nil {
		for _, option := range opt.Option {
			if ede, ok := option.(*dns.EDNS0_EDE); ok {
				return int(ede.InfoCode)
			}
		}
	}
	return -1
}
