package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// servers are the DNS servers of the members, by cluster id. All tests share them.
var servers = map[string]*testclusterset.DNS{}

// startServers starts a DNS server for each member.
func startServers(ctx context.Context) error {
	for _, m := range clusters.Members {
		server, err := m.StartDNS(ctx)
		if err != nil {
			return err
		}
		servers[m.ID] = server
	}
	return nil
}

func stopServers() (err error) {
	for _, server := range servers {
		if e := server.StopDNS(); err == nil {
			err = e
		}
	}
	return err
}

// A resolver asks the DNS server of a member for the names of one service, again and again over UDP: for the service,
// and for it in each cluster. Each answer has to be the one that is in force, or a later one that a test announced by
// change. An earlier one never comes back.
type resolver struct {
	t       testing.TB
	member  *testclusterset.Member
	service string // name and namespace
	cancel  context.CancelFunc
	done    chan struct{}

	mu     sync.Mutex
	names  []string
	wanted map[string][]string // by name: the answer in force, then those that are announced
	asked  int
	wrong  []string
}

// resolve begins to ask for a service that is imported in a member, with the addresses of its endpoints in east and
// west, "none" for a cluster that has none.
func resolve(t testing.TB, m *testclusterset.Member, namespace, name, inEast, inWest string) *resolver {
	t.Helper()
	imp, err := m.Import(t.Context(), namespace, name)
	if err != nil || len(imp.Spec.IPs) == 0 {
		t.Fatalf("import %s/%s in %s has IPs %v (%v), want some", namespace, name, m.ID, imp.Spec.IPs, err)
	}
	service := name + "." + namespace
	r := &resolver{t: t, member: m, service: service, done: make(chan struct{}), wanted: map[string][]string{
		service: {"NOERROR " + imp.Spec.IPs[0]}, "east." + service: {answer(inEast)}, "west." + service: {answer(inWest)},
	}}
	for name, want := range r.wanted {
		r.names = append(r.names, name)
		servers[m.ID].Answers(t, name, dns.TypeA, want[0])
	}
	slices.Sort(r.names)
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go r.run(ctx)
	t.Cleanup(r.stop)
	return r
}

// resolveBoth begins to ask both members for a service with the endpoints 10.21.0.1 in east and 10.22.0.1 in west.
func resolveBoth(t testing.TB, namespace, name string) (inEast, inWest *resolver) {
	t.Helper()
	return resolve(t, east, namespace, name, "10.21.0.1", "10.22.0.1"),
		resolve(t, west, namespace, name, "10.21.0.1", "10.22.0.1")
}

// answer returns the answer with these addresses, sorted.
func answer(addresses string) string {
	if addresses == "none" {
		return "NXDOMAIN"
	}
	return "NOERROR " + addresses
}

func (r *resolver) run(ctx context.Context) {
	defer close(r.done)
	for n := 0; ctx.Err() == nil; n++ {
		name := r.names[n%len(r.names)]
		got, err := servers[r.member.ID].Ask(ctx, name, dns.TypeA)
		if ctx.Err() != nil {
			return
		}
		r.add(name, got, err)
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// add takes one answer. An error is an answer that did not come, though the question was asked three times.
func (r *resolver) add(name, got string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	want := r.wanted[name]
	if i := slices.Index(want, got); err == nil && i >= 0 {
		r.wanted[name] = want[i:]
		return
	}
	r.wrong = append(r.wrong, fmt.Sprintf("question %d, %s: %q (%v), want %q", r.asked, name, got, err, want))
}

// change announces that the service will have these addresses in a cluster, "none" for no more: call it before what
// causes the change.
func (r *resolver) change(cluster, addresses string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := cluster + "." + r.service
	r.wanted[name] = append(r.wanted[name], answer(addresses))
}

// await waits until the last answer that was announced is in force for each name.
func (r *resolver) await() {
	r.t.Helper()
	until.OK(r.t, "answers of the server of "+r.member.ID, func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for name, want := range r.wanted {
			if len(want) > 1 && len(r.wrong) == 0 {
				return fmt.Errorf("%s: %q is still answered, want %q", name, want[0], want[1:])
			}
		}
		return nil
	})
}

func (r *resolver) stop() {
	r.cancel()
	<-r.done
}

// end is finish once the last answers are in force.
func (r *resolver) end(fault string) {
	r.t.Helper()
	r.await()
	r.finish(fault)
}

// finish stops to ask. It fails the test if an answer was wrong or lost, and reports for a fault how many there were.
func (r *resolver) finish(fault string) {
	r.t.Helper()
	r.mu.Lock()
	before := r.asked
	r.mu.Unlock()
	until.True(r.t, "another answer to each question", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.asked > before+len(r.names)
	})
	r.stop()
	if len(r.wrong) > 0 {
		r.t.Errorf("%d of %d answers of the server of %s were wrong or lost:\n%s",
			len(r.wrong), r.asked, r.member.ID, strings.Join(r.wrong[:min(len(r.wrong), 5)], "\n"))
	}
	outages.Measured(r.t, fault, "%d answers in %s, %d wrong or lost", r.asked, r.member.ID, len(r.wrong))
}
