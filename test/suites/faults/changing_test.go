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

	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A changer changes exports and endpoints of east all the time, and measures how long each change takes until the DNS
// server of west answers it.
type changer struct {
	t         testing.TB
	namespace string
	cancel    context.CancelFunc // ends the changes, not what waits for their answers
	wg        sync.WaitGroup

	mu   sync.Mutex
	made int
	took []time.Duration // of those that are answered
}

// changed is how many services a changer exports before it changes their endpoints one after the other, and begins anew
// with other services.
const changed = 5

// keepChanging makes one change in each period until end is called: it exports a service, or changes the endpoints of
// one.
func keepChanging(t testing.TB, namespace string, period time.Duration) *changer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &changer{t: t, namespace: namespace, cancel: cancel}
	c.wg.Go(func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			c.change(n)
		}
	})
	t.Cleanup(func() { // the context of the test has ended
		cancel()
		c.wg.Wait()
	})
	return c
}

// change makes the n-th change. Of twenty changes, five export a service each, and each of these gets other endpoints
// three times.
func (c *changer) change(n int) {
	name := fmt.Sprintf("often-%d-%d", n/(4*changed), n%changed)
	address := fmt.Sprintf("10.21.%d.%d", 1+n/250, 1+n%250)
	service := testclusterset.Service(c.namespace, name, testclusterset.Port("http", 80))
	begin := time.Now()
	// Not the context that ends the changes: this one is made or fails.
	err := east.Apply(c.t.Context(), service, testclusterset.Slice(service, name,
		testclusterset.Endpoint{Address: address}),
		testclusterset.Export(c.namespace, name))
	if err != nil {
		if c.t.Context().Err() == nil {
			c.t.Errorf("change %d: %v", n, err)
		}
		return
	}
	c.mu.Lock()
	c.made++
	c.mu.Unlock()
	c.wg.Go(func() { c.measure(name, address, begin) })
}

// measure waits until west answers an address of a service, or a later one: a change soon after may overtake this one.
func (c *changer) measure(name, address string, begin time.Time) {
	ctx := c.t.Context()
	for ctx.Err() == nil {
		got, err := servers[west.ID].Ask(ctx, "east."+name+"."+c.namespace, dns.TypeA)
		if err == nil && number(got) >= number(answer(address)) {
			c.mu.Lock()
			c.took = append(c.took, time.Since(begin))
			c.mu.Unlock()
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// number returns a number that is larger for a later change; 0 for an answer without an address.
func number(answer string) (n int) {
	text, found := strings.CutPrefix(answer, "NOERROR 10.21.")
	var high, low int
	if _, err := fmt.Sscanf(text, "%d.%d", &high, &low); !found || err != nil {
		return 0
	}
	return 256*high + low
}

func (c *changer) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.took)
}

// await waits until so many more changes are answered.
func (c *changer) await(more int) {
	c.t.Helper()
	want := c.count() + more
	until.True(c.t, fmt.Sprintf("answers to %d changes", want), func() bool { return c.count() >= want })
}

// end ends the changes and waits until all are answered. It returns how many there were, and the times in which half
// and 99 of 100 were answered.
func (c *changer) end() (made int, median, p99 time.Duration) {
	c.t.Helper()
	c.cancel()
	until.True(c.t, "answers to all changes", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.took) == c.made
	})
	c.wg.Wait()
	slices.Sort(c.took)
	return c.made, c.took[len(c.took)/2], c.took[len(c.took)*99/100]
}
