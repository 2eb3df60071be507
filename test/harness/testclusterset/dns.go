package testclusterset

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A DNS is the shipped CoreDNS over the API server of one member, with read rights only.
type DNS struct {
	*server.Server
	Address string // host and port, of UDP and TCP
	port    *controlplane.Port
}

// StartDNS starts a server for the member and returns when it answers. lines are added to its clusterset block.
func (m *Member) StartDNS(ctx context.Context, lines ...string) (_ *DNS, err error) {
	bin, err := server.Program(ctx, "coredns")
	if err != nil {
		return nil, err
	}
	kubeconfig, err := m.ServiceAccountKubeconfig(ctx, wellknown.ControllerNamespace, "clusterset-dns")
	if err != nil {
		return nil, err
	}
	d := &DNS{}
	if d.port, err = controlplane.ReservePort(); err != nil {
		return nil, err
	}
	d.Address = d.port.String()
	corefile := filepath.Join(filepath.Dir(m.Kubeconfig()), "Corefile")
	text := fmt.Sprintf("clusterset.local:%d {\n bind 127.0.0.1\n errors\n clusterset {\n  kubeconfig %s\n  %s\n }\n}\n",
		d.port.Number, kubeconfig, strings.Join(lines, "\n  "))
	if err := os.WriteFile(corefile, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if d.Server, err = server.Start(subprocess.Command{Bin: bin, Args: []string{"-conf", corefile}}); err != nil {
		return nil, err
	}
	err = d.Await(ctx, func(ctx context.Context) error { return server.Serves(ctx, d.Address, "clusterset.local.") })
	return d, err
}

// StopDNS stops the server and releases its port.
func (d *DNS) StopDNS() error {
	err := d.Stop()
	if e := d.port.Close(); err == nil {
		err = e
	}
	return err
}

// StartDNS is [Member.StartDNS] for a test. The server stops with the test.
func StartDNS(t testing.TB, m *Member, lines ...string) *DNS {
	t.Helper()
	d, err := m.StartDNS(t.Context(), lines...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.StopDNS(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Ask returns rcode and sorted records of the answer: "NOERROR 10.1.0.1 10.1.0.2". It appends svc.clusterset.local to
// name.
func (d *DNS) Ask(ctx context.Context, name string, qtype uint16) (string, error) {
	reply, err := server.Ask(ctx, d.Address, name+".svc.clusterset.local.", qtype)
	if err != nil {
		return "", err
	}
	var values []string
	for _, rr := range reply.Answer {
		values = append(values, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	slices.Sort(values)
	return strings.Join(append([]string{dns.RcodeToString[reply.Rcode]}, values...), " "), nil
}

// Answers waits until the answer is want.
func (d *DNS) Answers(t testing.TB, name string, qtype uint16, want string) {
	t.Helper()
	until.OK(t, name+" "+dns.TypeToString[qtype], func(ctx context.Context) error {
		got, err := d.Ask(ctx, name, qtype)
		if err == nil && got != want {
			err = fmt.Errorf("%s, want %s", got, want)
		}
		return err
	})
}
