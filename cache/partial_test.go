package cache

import (
	"context"
	"encoding/pem"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

var combinations = flag.Int("combinations", 12, "how many combinations TestPartialFailures tries")

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

// partialRun is the life of one combination. The values of a service count up.
type partialRun struct {
	*testing.T
	cp       *controlplane.ControlPlane
	vip, pod int // the newest
}

func partialValue(prefix string, n int) string { return fmt.Sprintf("%s.%d.%d", prefix, n>>8, n&255) }

// write writes the next value of the import, of the slice, or of both.
func (r *partialRun) write(kinds ...string) {
	r.Helper()
	for _, kind := range kinds {
		switch kind {
		case pathImports:
			r.vip++
			apply(r.T, r.cp, strings.Replace(bankPay, "10.9.0.2", partialValue("10.9", r.vip), 1))
		case pathSlices:
			r.pod++
			apply(r.T, r.cp, strings.Replace(shopDB, "10.1.0.7", partialValue("10.1", r.pod), 1))
		}
	}
}

// served returns the values in a state, 0 for a missing one.
func served(st *State) (vip, pod int) {
	for _, line := range strings.Fields(show(st)) {
		service, value, _ := strings.Cut(strings.TrimSuffix(line, ","), "=")
		part := strings.Split(value, ".")
		if len(part) != 4 {
			continue
		}
		high, _ := strconv.Atoi(part[2])
		low, _ := strconv.Atoi(part[3])
		switch service {
		case "pay.bank":
			vip = high<<8 | low
		case "db.shop":
			pod = high<<8 | low
		}
	}
	return vip, pod
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
				v, p := served(st)
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
		return func() bool { v, p := served(s.State()); return v == r.vip && p == r.pod }
	}
	if c.phase == withSnapshot {
		cfg.Snapshot = filepath.Join(r.TempDir(), "snapshot")
		s := start(r.T, cfg)
		until.True(r.T, "the first state", both(s))
		s.stop()
	}
	if c.phase == atStart || c.phase == withSnapshot {
		proxy.set(c.faults, c.verb)
	}
	s := start(r.T, cfg)
	switch c.phase {
	case whileRunning, atReload, atEnd:
		until.True(r.T, "the first state", both(s))
		until.True(r.T, "watching", s.watching)
		proxy.set(c.faults, c.verb)
	}
	if c.phase == atReload {
		defer s.stop() // see startAfter
		other := cfg
		other.REST, other.Reverse = rest.CopyConfig(cfg.REST), true
		s = startAfter(r.T, other, s.Store)
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
		v, p := served(s.State())
		return (!imports || v == r.vip) && (!slices || p == r.pod)
	})
	until.True(r.T, "an old value has EDE 3, or no answer", func() bool {
		v, p := served(s.State())
		return (v == r.vip || s.marks("bank", false)) && (p == r.pod || s.marks("shop", true))
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
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	run := &partialRun{cp: cp}
	for i, c := range all[:min(len(all), *combinations)] {
		t.Run(fmt.Sprintf("%d %s %s %v http2 %t", i, c.phase, c.verb, c.faults, c.http2), func(t *testing.T) {
			run.T = t
			run.try(c)
		})
	}
}
