package lifecycle

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// largeSlices slices of 1,000 addresses each, as many as the API permits, are a large service.
const largeSlices = 40

// TestLargeServiceChanges patches one of 40 slices with 1,000 addresses each, 20 times a second for 5 seconds, under
// load. It measures the time from the API server's answer to a patch until the name of the host has the new address, or
// that of a later patch (docs/spec/dns.md 6.10).
func TestLargeServiceChanges(t *testing.T) {
	tier.All(t)
	ns := namespace(t, "large")
	objects := []string{headless(ns, "db"), vip(ns, "web", "10.96.14.1")}
	for i := range largeSlices {
		addresses := make([]string, 1000)
		for j := range addresses {
			addresses[j] = fmt.Sprintf("10.%d.%d.%d", 100+i, 1+j/250, 1+j%250)
		}
		objects = append(objects, slice(ns, fmt.Sprintf("db-%d", i), "db", "east", addresses...))
	}
	apply(t, objects...)
	s := start(t, theBlock, "{namespaces}", ns)
	client, err := kubernetes.NewForConfig(api(t).Config())
	must(t, err)
	patch := func(i int) error {
		body := fmt.Sprintf(`[{"op": "replace", "path": "/endpoints/0", "value": {"addresses": ["%s"], "hostname": "probe"}}]`, probed(i))
		_, err := client.DiscoveryV1().EndpointSlices(ns).Patch(t.Context(), "db-7", types.JSONPatchType, []byte(body),
			metav1.PatchOptions{})
		return err
	}
	const probe = question("probe.east.db.large.svc.clusterset.local A")
	must(t, patch(0))
	s.await(probe, "NOERROR "+probed(0))
	l := startLoad(t, s.addr, permitted{
		"web.large.svc.clusterset.local A":                 {"NOERROR 10.96.14.1"},
		"10-120-1-1.east.db.large.svc.clusterset.local A":  {"NOERROR 10.120.1.1"},
		"10-120-1-1.north.db.large.svc.clusterset.local A": {"NXDOMAIN"},
	})
	const patches, pause = 100, 50 * time.Millisecond
	w := &waits{answered: make([]time.Time, patches+1), took: make([]time.Duration, patches+1)}
	ctx, cancel := context.WithCancel(t.Context())
	var watcher sync.WaitGroup
	watcher.Go(func() { s.watchProbe(ctx, probe, w) })
	for i := 1; i <= patches; i++ {
		next := time.Now().Add(pause)
		must(t, patch(i))
		w.patched(i, time.Now())
		time.Sleep(time.Until(next))
	}
	until.True(t, "the last address", w.all)
	cancel()
	watcher.Wait()
	l.stop()
	slices.Sort(w.took)
	outages.Took(t, "F22", w.took[patches*99/100], 250*time.Millisecond,
		fmt.Sprintf("p99 of %d patches of a service with %d endpoints", patches, largeSlices*1000))
}

// probed is the address of the probe after patch i.
func probed(i int) string { return fmt.Sprintf("10.99.%d.%d", i/250, 1+i%250) }

// waits is how long patches took until an answer showed them.
type waits struct {
	mu       sync.Mutex
	answered []time.Time // by the API server; zero before that
	took     []time.Duration
	shown    int // the newest patch that an answer showed
}

// patched notes when the API server had answered patch i. An answer of DNS may have come before: that took no time.
func (w *waits) patched(i int, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered[i] = at
}

// show notes that an answer shows patch i, and with it those before.
func (w *waits) show(i int, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.shown < i {
		w.shown++
		if answered := w.answered[w.shown]; !answered.IsZero() {
			w.took[w.shown] = max(0, at.Sub(answered))
		}
	}
}

// all reports whether all patches are shown.
func (w *waits) all() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shown == len(w.took)-1
}

// watchProbe asks for the probe, one question after the other, until ctx ends.
func (s *server) watchProbe(ctx context.Context, probe question, w *waits) {
	for ctx.Err() == nil {
		m, err := s.ask(probe)
		if err != nil || len(m.Answer) != 1 {
			s.t.Errorf("%s: got %v, %v", probe, m, err)
			return
		}
		address, _ := netip.ParseAddr(m.Answer[0].(*dns.A).A.String())
		octets := address.As4()
		w.show(int(octets[2])*250+int(octets[3])-1, time.Now())
	}
}
