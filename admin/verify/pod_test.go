package verify

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/admin/verify/plan"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// TestVerifyPods asks a name server on loopback as the Pod of an importing cluster does, and connects to what the Pod
// of an exporting one runs.
func TestVerifyPods(t *testing.T) {
	port, err := controlplane.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	listening, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- Serve(ctx, []string{port.String()}, "run east", func() { close(listening) })
	}()
	select {
	case <-listening:
	case err := <-ended:
		t.Fatal(err)
	}
	names := nameServer(t)
	ask := func(q plan.Question) plan.Answer {
		q.Zone = "clusterset.local"
		return Ask(t.Context(), []plan.Question{q}, names, time.Millisecond)[0] // one try
	}
	here := plan.Question{Name: "web.clusterset.local.", Want: []string{"127.0.0.1"}, Port: port.Number,
		Says: "run east"}
	until.OK(t, "all works", func(context.Context) error { // a busy machine may lose a packet
		if a := ask(here); !a.Worked() || a.TCP == nil || a.UDP == nil {
			return &failed{a}
		}
		return nil
	})
	other := here
	other.Says = "run west"
	until.OK(t, "another Pod", func(context.Context) error {
		if a := ask(other); a.DNS.Code != "" || a.TCP.Code != reason.NetworkOtherCluster ||
			a.UDP.Code != reason.NetworkOtherCluster {
			return &failed{a}
		}
		return nil
	})
	until.OK(t, "another address", func(context.Context) error {
		q := here
		q.Want = []string{"10.0.0.1"}
		if a := ask(q); a.DNS.Code != reason.DNSOtherAnswer || a.TCP != nil {
			return &failed{a}
		}
		return nil
	})
	until.OK(t, "no such name", func(context.Context) error {
		if a := ask(plan.Question{Name: "gone.clusterset.local.", Gone: true}); !a.Worked() {
			return &failed{a}
		}
		return nil
	})
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v, want nil", err)
	}
	until.OK(t, "nothing listens", func(context.Context) error {
		if a := ask(here); a.DNS.Code != "" || a.TCP.Code != reason.NetworkTCP || a.UDP.Code != reason.NetworkUDP {
			return &failed{a}
		}
		return nil
	})
}

type failed struct{ plan.Answer }

func (f *failed) Error() string {
	text := f.DNS.Evidence
	for _, o := range []*plan.Outcome{f.TCP, f.UDP} {
		if o != nil {
			text += "; " + string(o.Code) + " " + o.Evidence
		}
	}
	return text
}

// nameServer answers for web.clusterset.local with 127.0.0.1, and for nothing else.
func nameServer(t *testing.T) string {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	s := &dns.Server{PacketConn: packets, NotifyStartedFunc: func() { close(started) },
		Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
			m := new(dns.Msg).SetReply(q)
			rr, _ := dns.NewRR("web.clusterset.local. 5 IN A 127.0.0.1")
			if q.Question[0].Name == "web.clusterset.local." {
				m.Answer = []dns.RR{rr}
			} else {
				soa, _ := dns.NewRR("clusterset.local. 5 IN SOA ns.dns.clusterset.local. h.clusterset.local. 1 1 1 1 1")
				m.Rcode, m.Ns = dns.RcodeNameError, []dns.RR{soa}
			}
			_ = w.WriteMsg(m)
		})}
	ended := make(chan error, 1)
	go func() { ended <- s.ActivateAndServe() }()
	<-started
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return packets.LocalAddr().String()
}
