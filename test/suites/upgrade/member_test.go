//go:build upgrade

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A member runs a controller and DNS servers of any version.
type member struct {
	*testclusterset.Member
	controller *subprocess.Process
	dns        map[string]*testclusterset.DNS // by version
}

// prepare applies the rights of a version, and joins with its command: an upgrade does both before it changes the programs.
func (m *member) prepare(t *testing.T, v version, broker string, more ...string) {
	t.Helper()
	for _, folder := range []string{"controller", "dns"} {
		if err := m.ApplyYAML(t.Context(), v.manifest(t, folder+"/rbac.yaml")); err != nil {
			t.Fatalf("%s: rights of %s: %v", m.ID, v, err)
		}
	}
	args := []string{"join", "--broker-kubeconfig=" + broker, "--kubeconfig=" + m.Kubeconfig(), "--cluster-id=" + m.ID}
	for _, cidr := range m.PodCIDRs() {
		args = append(args, "--pod-cidr="+cidr)
	}
	v.run(t, append(args, more...)...)
	if err := m.MountSecret(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// roll ends the controller and starts that of another version.
func (m *member) roll(t *testing.T, v version) {
	t.Helper()
	m.stop(t)
	kubeconfig, err := m.ServiceAccountKubeconfig(t.Context(), wellknown.ControllerNamespace, "clusterset-controller")
	if err != nil {
		t.Fatal(err)
	}
	// The heartbeats must not expire on a slow machine: that would be no fault of a version.
	m.controller, err = subprocess.Start(subprocess.Command{Bin: filepath.Join(v.bin, "clusterset"), Args: []string{
		"controller", "--broker=" + m.BrokerKubeconfig(), "--kubeconfig=" + kubeconfig, "--lease=5s 30m", "--metrics-address=", "--health-address=",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: controller of %s", m.ID, v)
}

func (m *member) stop(t *testing.T) {
	t.Helper()
	if m.controller == nil {
		return
	}
	if t.Failed() {
		t.Logf("controller of %s:\n%s", m.ID, m.controller.Out.String())
	}
	if !m.controller.Stop(until.Patience) {
		t.Errorf("the controller of %s still ran %s after SIGTERM", m.ID, until.Patience)
	} else if err := m.controller.Err(); err != nil {
		t.Errorf("the controller of %s ended with %v", m.ID, err)
	}
	m.controller = nil
}

// serve starts a DNS server of a version, which runs until the end of the test.
func (m *member) serve(t *testing.T, v version) {
	t.Helper()
	kubeconfig, err := m.ServiceAccountKubeconfig(t.Context(), wellknown.ControllerNamespace, "clusterset-dns")
	if err != nil {
		t.Fatal(err)
	}
	port, err := controlplane.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { port.Close() })
	corefile := filepath.Join(t.TempDir(), "Corefile")
	text := fmt.Sprintf("clusterset.local:%d {\n bind 127.0.0.1\n errors\n clusterset {\n  kubeconfig %s\n }\n}\n", port.Number, kubeconfig)
	if err := os.WriteFile(corefile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := server.Start(subprocess.Command{Bin: filepath.Join(v.bin, "coredns"), Args: []string{"-conf", corefile}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	d := &testclusterset.DNS{Server: s, Address: port.String()}
	if err := s.Await(t.Context(), func(ctx context.Context) error { return server.Serves(ctx, d.Address, "clusterset.local.") }); err != nil {
		t.Fatal(err)
	}
	m.dns[v.name] = d
}

// answer waits until all DNS servers of the member give the same answer, which fits, and returns it.
func (m *member) answer(t *testing.T, name string, fits func(string) bool) (answer string) {
	t.Helper()
	until.OK(t, m.ID+": "+name, func(ctx context.Context) error {
		answers := make(map[string]string)
		for v, d := range m.dns {
			got, err := d.Ask(ctx, name, dns.TypeA)
			if err != nil {
				return fmt.Errorf("DNS server of %s: %w", v, err)
			}
			answers[v], answer = got, got
		}
		if all := slices.Compact(slices.Sorted(maps.Values(answers))); len(all) != 1 || !fits(answer) {
			return fmt.Errorf("answers %v", answers)
		}
		return nil
	})
	return answer
}

func is(want string) func(string) bool { return func(got string) bool { return got == want } }

// oneAddress is the answer for a service with a clusterset IP, which the cluster has chosen.
func oneAddress(got string) bool {
	return strings.HasPrefix(got, "NOERROR ") && strings.Count(got, " ") == 1
}

// A watch asks all DNS servers of a member for names, again and again, and takes down answers that are not as they were.
type watch struct {
	mu    sync.Mutex
	known map[string]string // answers by name
	asked int
	wrong []string
}

func (w *watch) expect(name, answer string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known[name] = answer
}

// round asks for each name once.
func (w *watch) round(ctx context.Context, m *member, servers map[string]*testclusterset.DNS) {
	w.mu.Lock()
	known := maps.Clone(w.known)
	w.mu.Unlock()
	for v, d := range servers {
		for name, want := range known {
			got, err := d.Ask(ctx, name, dns.TypeA)
			if ctx.Err() != nil {
				return
			}
			w.mu.Lock()
			if w.asked++; err != nil || got != want {
				w.wrong = append(w.wrong, fmt.Sprintf("%s, %s of %s: %s, %v, want %s", time.Now().Format(time.TimeOnly), v, m.ID, got, errors.Join(err, errors.New(name)), want))
			}
			w.mu.Unlock()
		}
	}
}

// start asks the servers that m has now until stop is called, which reports what was wrong.
func (w *watch) start(t *testing.T, m *member) (stop func()) {
	servers := maps.Clone(m.dns)
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() {
		for ctx.Err() == nil {
			w.round(ctx, m, servers)
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	return func() {
		cancel()
		asking.Wait()
		for _, wrong := range w.wrong[:min(len(w.wrong), 10)] {
			t.Error(wrong)
		}
		t.Logf("%s: %d questions, %d wrong answers", m.ID, w.asked, len(w.wrong))
		if w.asked == 0 {
			t.Errorf("%s: no question was asked", m.ID)
		}
		w.wrong = nil
	}
}
