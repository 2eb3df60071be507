package cache

import (
	"context"
	"encoding/pem"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/leaks"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

var (
	combinations = flag.Int("combinations", 12, "how many combinations TestPartialFailures tries")
	stalledOnly  = flag.Bool("stalled", false, "of those with a stalled watch")
	sideBySide   = flag.Int("side-by-side", 12, "how many of them run at once")
)

// The ways in which requests for one kind go wrong.
const (
	slow     = "slow" // each answer takes a second
	error500 = "500"
	busy     = "429"
	hold     = "hold"  // requests are accepted and never answered
	cutOff   = "cut"   // connections, or streams, end; those that are open, too
	stall    = "stall" // watches stay open and bring nothing; lists pass
)

// A partialProxy stands in front of an API server, and lets requests for some kinds go wrong.
type partialProxy struct {
	mu     sync.Mutex
	faults map[string]string // by the end of a path
	verb   string            // of the requests that go wrong: list, watch, or "" for both
	change chan struct{}     // closed when faults change
}

// set makes requests for kinds go wrong from now on.
func (p *partialProxy) set(faults map[string]string, verb string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.change != nil {
		close(p.change)
	}
	p.faults, p.verb, p.change = faults, verb, make(chan struct{})
}

// of returns the fault of a request, and a channel that is closed when faults change.
func (p *partialProxy) of(r *http.Request) (string, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	verb := onlyLists
	if isWatch(r) {
		verb = onlyWatches
	}
	if p.verb != "" && p.verb != verb {
		return "", p.change
	}
	return p.faults[r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]], p.change
}

// isWatch reports whether a request is a watch, or a list that is streamed as one.
func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

// start returns the access to the API server by way of the proxy, over connections for one request each, or over one
// for all.
func (p *partialProxy) start(t *testing.T, cp *controlplane.ControlPlane, http2 bool) *rest.Config {
	t.Helper()
	target, err := url.Parse(cp.Config().Host)
	must(t, err)
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.FlushInterval = -1
	forward.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	forward.Transport, err = rest.TransportFor(cp.Config())
	must(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		p.serve(forward, w, r)
	}))
	t.Cleanup(server.Close)
	if !http2 {
		server.Start()
		return &rest.Config{Host: server.URL, QPS: -1}
	}
	server.EnableHTTP2 = true
	server.StartTLS()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func (p *partialProxy) serve(forward http.Handler, w http.ResponseWriter, r *http.Request) {
	for waited := false; ; waited = true {
		fault, changed := p.of(r)
		switch {
		case fault == cutOff:
			panic(http.ErrAbortHandler)
		case fault == error500:
			fail(w, http.StatusInternalServerError)
			return
		case fault == busy:
			fail(w, http.StatusTooManyRequests)
			return
		case fault == hold, fault == slow && !waited:
			after := time.After(time.Second)
			if fault == hold {
				after = nil
			}
			select {
			case <-changed:
			case <-after:
			case <-r.Context().Done():
				return
			}
			continue
		}
		break
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if isWatch(r) {
		w = &watchWriter{ResponseWriter: w, proxy: p, request: r}
		go func() {
			for {
				fault, changed := p.of(r)
				if fault == cutOff {
					cancel()
				}
				select {
				case <-changed:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	forward.ServeHTTP(w, r.WithContext(ctx))
}

// A watchWriter holds back the events of a watch while it is stalled.
type watchWriter struct {
	http.ResponseWriter
	proxy   *partialProxy
	request *http.Request
}

func (w *watchWriter) Write(b []byte) (int, error) {
	for {
		fault, changed := w.proxy.of(w.request)
		if fault != stall {
			return w.ResponseWriter.Write(b)
		}
		select {
		case <-changed:
		case <-w.request.Context().Done():
			return 0, w.request.Context().Err()
		}
	}
}

func (w *watchWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A combination is one case: two kinds go wrong, each in its way, at some moment in the life of a Store.
type combination struct {
	phase  string
	faults map[string]string
	verb   string // see partialProxy
	http2  bool
}

const (
	pathImports, pathSlices, pathProperties              = "serviceimports", "endpointslices", "clusterproperties"
	atStart, withSnapshot, whileRunning, atReload, atEnd = "start", "start with a snapshot", "running", "reload", "end"
	onlyLists, onlyWatches                               = "list", "watch"
)

// allCombinations are all of them.
func allCombinations() (all []combination) {
	modes := []string{slow, error500, busy, hold, cutOff, stall}
	for _, phase := range []string{atStart, withSnapshot, whileRunning, atReload, atEnd} {
		for _, pair := range [][2]string{{pathImports, pathSlices}, {pathImports, pathProperties},
			{pathSlices, pathProperties}} {
			for _, a := range modes {
				for _, b := range modes {
					for _, verb := range []string{"", onlyLists, onlyWatches} {
						for _, http2 := range []bool{false, true} {
							all = append(all, combination{phase, map[string]string{pair[0]: a, pair[1]: b}, verb, http2})
						}
					}
				}
			}
		}
	}
	return all
}

// brings reports whether changes of a kind arrive while the faults last.
func (c combination) brings(kind string) bool {
	switch c.faults[kind] {
	case "", slow:
		return true
	case stall, cutOff:
		return c.verb == onlyLists && (c.phase == whileRunning || c.phase == atEnd)
	}
	return c.phase == whileRunning || c.phase == atEnd // the watch is open
}

// partialRun is the life of one combination. It writes to two namespaces of its own, since others run beside it. The
// values of a service count up.
type partialRun struct {
	*testing.T
	cp         *controlplane.ControlPlane
	bank, shop string // namespaces
	vip, pod   int    // the newest
}

func partialValue(prefix string, n int) string { return fmt.Sprintf("%s.%d.%d", prefix, n>>8, n&255) }

// write writes the next value of the import, of the slice, or of both.
func (r *partialRun) write(kinds ...string) {
	r.Helper()
	for _, kind := range kinds {
		switch kind {
		case pathImports:
			r.vip++
			apply(r.T, r.cp, strings.NewReplacer("bank", r.bank, "10.9.0.2", partialValue("10.9", r.vip)).Replace(bankPay))
		case pathSlices:
			r.pod++
			apply(r.T, r.cp, strings.NewReplacer("shop", r.shop, "10.1.0.7", partialValue("10.1", r.pod)).Replace(shopDB))
		}
	}
}

// served returns the values in a state, 0 for a missing one.
func (r *partialRun) served(st *State) (vip, pod int) {
	value := func(service string, of func(*index.Service) index.List) int {
		s := st.Index.Service(service)
		if s == nil {
			return 0
		}
		list := of(s)
		if list.Len() == 0 {
			return 0
		}
		a := list.At(0)
		return int(a[2])<<8 | int(a[3])
	}
	return value("pay."+r.bank, func(s *index.Service) index.List { return s.VIPs(index.V4) }),
		value("db."+r.shop, func(s *index.Service) index.List { return s.Addresses(index.V4) })
}

// marks reports whether an answer is not given, or has EDE 3 with a stale_after of three seconds.
func (s *running) marks(namespace string, slices bool) bool {
	st := s.State()
	return !st.Knows(namespace, slices) || st.Stale(namespace, slices) || s.Silence(namespace, slices) > 3*time.Second
}

// watchValues fails the test if a value that a Store serves goes back, or is gone, until the result is called.
func (r *partialRun) watchValues(s *running) (stop func()) {
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		var vip, pod int
		for {
			if st := s.State(); st.Ready {
				v, p := r.served(st)
				if v < vip || p < pod {
					r.Errorf("served %d, %d after %d, %d", v, p, vip, pod)
				}
				vip, pod = v, p
			}
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	return func() { close(done); group.Wait() }
}

// try lets a Store live through a combination.
func (r *partialRun) try(c combination) {
	proxy := &partialProxy{}
	proxy.set(nil, "")
	cfg := Config{REST: proxy.start(r.T, r.cp, c.http2), CheckInterval: time.Second}
	r.write(pathImports, pathSlices)
	both := func(s *running) func() bool {
		return func() bool { v, p := r.served(s.State()); return v == r.vip && p == r.pod }
	}
	if c.phase == withSnapshot {
		cfg.Snapshot = filepath.Join(r.TempDir(), "snapshot")
		s := startBeside(r.T, cfg, nil)
		until.True(r.T, "the first state", both(s))
		s.stop()
	}
	if c.phase == atStart || c.phase == withSnapshot {
		proxy.set(c.faults, c.verb)
	}
	s := startBeside(r.T, cfg, nil)
	switch c.phase {
	case whileRunning, atReload, atEnd:
		until.True(r.T, "the first state", both(s))
		until.True(r.T, "watching", s.watching)
		proxy.set(c.faults, c.verb)
	}
	if c.phase == atReload {
		defer s.stop() // see startBeside
		other := cfg
		other.REST, other.Reverse = rest.CopyConfig(cfg.REST), true
		s = startBeside(r.T, other, s.Store)
	}
	stop := r.watchValues(s)
	if c.phase == atEnd {
		r.write(pathSlices)
		stop()
		s.stop()
		return
	}
	r.write(pathImports, pathSlices)
	imports, slices := c.brings(pathImports), c.brings(pathSlices)
	if c.phase == atStart { // without a snapshot the first state waits for both
		imports, slices = imports && slices, imports && slices
	}
	until.True(r.T, fmt.Sprintf("imports %t, slices %t while %v", imports, slices, c.faults), func() bool {
		v, p := r.served(s.State())
		return (!imports || v == r.vip) && (!slices || p == r.pod)
	})
	until.True(r.T, "an old value has EDE 3, or no answer", func() bool {
		v, p := r.served(s.State())
		return (v == r.vip || s.marks(r.bank, false)) && (p == r.pod || s.marks(r.shop, true))
	})
	proxy.set(nil, "")
	until.True(r.T, fmt.Sprintf("all is well after %v", c.faults), func() bool {
		st := s.State()
		return both(s)() && st.Knows("", true) && !st.Stale("", true)
	})
	stop()
	s.stop()
}

// Two of three kinds go wrong, each in its way, at one moment. The third is not concerned, nothing that is served goes
// back, and all is well soon after (docs/outages.md).
func TestPartialFailures(t *testing.T) {
	tier.All(t)
	cp := shared(t)
	apply(t, cp, ourCluster)
	all := allCombinations()
	if *stalledOnly {
		all = slices.DeleteFunc(all, func(c combination) bool {
			return !slices.Contains(slices.Collect(maps.Values(c.faults)), stall)
		})
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	next := make(chan combination)
	before := goleak.IgnoreCurrent()
	var group sync.WaitGroup
	for i := range *sideBySide {
		run := &partialRun{cp: cp, bank: fmt.Sprintf("bank%d", i), shop: fmt.Sprintf("shop%d", i)}
		namespaces := strings.NewReplacer("bank", run.bank, "shop", run.shop).Replace(twoNamespaces)
		apply(t, cp, namespaces)
		t.Cleanup(func() { must(t, cp.DeleteYAML(context.WithoutCancel(t.Context()), []byte(namespaces))) })
		group.Go(func() {
			for c := range next {
				t.Run(fmt.Sprintf("%s %s %v http2 %t", c.phase, c.verb, c.faults, c.http2), func(t *testing.T) {
					run.T = t
					run.try(c)
				})
			}
		})
	}
	for _, c := range all[:min(len(all), *combinations)] {
		next <- c
	}
	close(next)
	group.Wait()
	leaks.None(t, before)
}
