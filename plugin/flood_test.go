package plugin_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// A flood of random names, from as many clients, leaves nothing behind: no memory, no time series. Names that exist are
// answered beside it.
func TestFloodOfNames(t *testing.T) {
	s := serve(t, setup{zones: []string{"clusterset.local"},
		objects: []string{"ServiceImport  shop/web  ClusterSetIP  ips: 10.96.0.1  ports: http/TCP/80"}})
	random := rand.New(rand.NewPCG(7, 21))
	flood := func(n int) {
		for range n {
			name := fmt.Sprintf("%x.%x.svc.clusterset.local.", random.Uint64(), random.Uint64())
			if m, _ := s.exchange(t, ask(name, dns.TypeA, 1232), false); m.Rcode != dns.RcodeNameError {
				t.Fatalf("%s: %s, want NXDOMAIN", name, dns.RcodeToString[m.Rcode])
			}
			if random.IntN(100) > 0 {
				continue
			}
			if m, _ := s.exchange(t, ask("web.shop.svc.clusterset.local.", dns.TypeA, 1232), false); len(m.Answer) != 1 {
				t.Fatalf("a name that exists: %v, want one address", m)
			}
		}
	}
	flood(1_000) // allocations that happen once
	memory, series := inUse(), timeSeries(t)
	flood(30_000)
	// Names and clients alone would be 3 MB.
	if more := int64(inUse()) - int64(memory); more > 1<<20 {
		t.Errorf("%d octets more in use after 30,000 names, want at most %d", more, 1<<20)
	}
	if more := timeSeries(t); more != series {
		t.Errorf("%d time series, want %d as before", more, series)
	}
}

func inUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the first one moves pools to where the second one frees them
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func timeSeries(t *testing.T) (n int) {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		n += len(f.GetMetric())
	}
	return n
}
