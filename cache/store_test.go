package cache

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/test/harness/leaks"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A journal keeps log lines for a test.
type journal struct {
	t     *testing.T
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(level, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, time.Now().Format("15:04:05.000 ")+level+" "+fmt.Sprintf(format, args...))
}

func (j *journal) Infof(format string, args ...any)    { j.add("info", format, args...) }
func (j *journal) Warningf(format string, args ...any) { j.add("warning", format, args...) }
func (j *journal) Errorf(format string, args ...any)   { j.add("error", format, args...) }

// count is how many lines hold text.
func (j *journal) count(text string) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range j.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// A countedConn reports when it is closed.
type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// A running is a Store that runs until stop, or until the test ends.
type running struct {
	*Store
	first *State // that of before Run
	log   *journal
	stop  func()
}

// start runs a Store, and fails the test if anything is alive when Run has returned.
func start(t *testing.T, cfg Config) *running {
	t.Helper()
	before := goleak.IgnoreCurrent()
	r := startBeside(t, cfg, nil)
	stop := r.stop
	r.stop = sync.OnceFunc(func() {
		stop()
		leaks.None(t, before) // but for connections, which are counted
	})
	t.Cleanup(r.stop)
	return r
}

// startBeside runs a Store that has inherited from another one, if that is not nil. It checks no goroutines, since
// other Stores run longer; the end of those is checked.
func startBeside(t *testing.T, cfg Config, old *Store) *running {
	t.Helper()
	log := &journal{t: t}
	var conns atomic.Int64
	if cfg.REST != nil {
		cfg.REST.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			conns.Add(1)
			return &countedConn{Conn: conn, closed: sync.OnceFunc(func() { conns.Add(-1) })}, nil
		}
	}
	cfg.Log = log
	if cfg.Index.Equal(&index.Options{}) {
		cfg.Index.ClusterNames = true
	}
	if cfg.Name == "" {
		cfg.Name = "test"
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if old != nil {
		s.Inherit(old)
	}
	r := &running{Store: s, first: s.State(), log: log}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(until.Patience):
			t.Fatal("Run does not end")
		}
		until.True(t, "no connection is open", func() bool { return conns.Load() == 0 })
	})
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Logf("log:\n%s", strings.Join(log.lines, "\n"))
		}
	})
	return r
}

// show is the content of a state in one line: services with their addresses.
func show(st *State) string {
	var out []string
	for _, s := range st.Index.All() {
		line := s.Key() + "="
		for _, f := range []index.Family{index.V4, index.V6} {
			for _, list := range []index.List{s.VIPs(f), s.Addresses(f)} {
				for i := range list.Len() {
					addr, _ := netip.AddrFromSlice([]byte(list.At(i)))
					line += addr.String() + ","
				}
			}
		}
		out = append(out, line)
	}
	return strings.Join(out, " ")
}

// names is the keys of all services.
func names(st *State) string {
	var out []string
	for _, s := range st.Index.All() {
		out = append(out, s.Key())
	}
	return strings.Join(out, " ")
}

// awaitNames waits until the services are want, "<name>.<namespace>" by namespace and name.
func (r *running) awaitNames(t *testing.T, want string) *State {
	t.Helper()
	until.True(t, "services "+want, func() bool { return r.State().Ready && names(r.State()) == want })
	return r.State()
}

// awaitLogged waits until a line with text was logged n times, and fails the test if it was logged more often.
func (r *running) awaitLogged(t *testing.T, text string, n int) {
	t.Helper()
	until.True(t, fmt.Sprintf("%d log lines with %q", n, text), func() bool { return r.log.count(text) >= n })
	if got := r.log.count(text); got != n {
		t.Errorf("%d log lines with %q, want %d", got, text, n)
	}
}

// settled returns the state once the serial shows it all and the next change moves it at once: a second change of one
// second moves it only when that second is over.
func (r *running) settled(t *testing.T) *State {
	t.Helper()
	until.True(t, "no move of the serial is behind", func() bool {
		r.publisher.mu.Lock()
		defer r.publisher.mu.Unlock()
		return !r.publisher.behind && time.Now().Unix() > r.State().serialOf()
	})
	return r.State()
}

// watchedVersion is the version of ServiceImports that is watched, with the group.
func (r *running) watchedVersion() string {
	h := r.set.Health(r.watches.all[0].id())
	if h.State != apiserver.Watching {
		return ""
	}
	return h.Version
}

// watching reports whether all watches are open.
func (r *running) watching() bool {
	for _, w := range r.all {
		if h := r.set.Health(w.id()); h.State != apiserver.Watching || !h.Healthy() {
			return false
		}
	}
	return true
}
