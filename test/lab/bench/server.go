package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
)

// A peer is one way to serve the zone.
type peer struct {
	name string
	// lines of its Corefile block.
	lines   func(source) []string
	program string   // "" means the one that all have
	env     []string // beside that of this process
}

// A source is where peers take the zone from.
type source struct{ kubeconfig, master string }

// The empty peer serves nothing: what CoreDNS itself takes.
var (
	emptyPeer    = peer{name: "empty", lines: func(source) []string { return nil }}
	baselinePeer = peer{name: "baseline", lines: func(s source) []string { return []string{"baseline " + s.master} }}

	inTreePeer = peer{name: "in-tree", lines: func(s source) []string {
		return []string{"kubernetes " + zone + " {", "kubeconfig " + s.kubeconfig, "multicluster " + zone, "}"}
	}}
	ourPeer = peer{name: "ours", lines: func(s source) []string {
		return []string{"clusterset {", "kubeconfig " + s.kubeconfig, "}"}
	}}
)

// NSD marks what an authoritative server written in C takes for the same zone. It is no CoreDNS: it has no Corefile.
var nsdPeer = peer{name: "NSD"}

// How long a server may take until it answers right.
const readyPatience = 5 * time.Minute

// A server is a CoreDNS with one peer, or NSD.
type server struct {
	peer        peer
	port, pprof *controlplane.Port
	process     *subprocess.Process
	forks       bool          // works in more than one process, all of its group
	ready       time.Duration // from its start until its first right answer
}

func (s *server) String() string { return s.peer.name }

// startServer returns when the server answers the questions right. The caller has to stop it.
func (b *bench) startServer(ctx context.Context, p peer, src source, questions []question) (*server, error) {
	began := time.Now()
	s, err := b.launch(p, src)
	if err != nil {
		return nil, err
	}
	if err := s.awaitAnswers(ctx, questions); err != nil {
		s.stop()
		return nil, fmt.Errorf("server %s: %w", p.name, err)
	}
	s.ready = time.Since(began)
	return s, nil
}

// launch starts a server. The caller has to stop it.
func (b *bench) launch(p peer, src source) (_ *server, err error) {
	s := &server{peer: p}
	defer func() {
		if err != nil {
			s.stop()
			err = fmt.Errorf("server %s: %w", p.name, err)
		}
	}()
	if s.port, err = controlplane.ReservePort(); err != nil {
		return nil, err
	}
	if s.pprof, err = controlplane.ReservePort(); err != nil {
		return nil, err
	}
	corefile, err := s.writeCorefile(b.dir, src)
	if err != nil {
		return nil, err
	}
	s.process, err = subprocess.Start(subprocess.Command{
		Bin: cmp.Or(p.program, b.coredns), Args: []string{"-conf", corefile}, Env: append(os.Environ(), p.env...),
	})
	return s, err
}

// startServers starts one server for each peer. The returned function stops those that run, also after an error.
func (b *bench) startServers(
	ctx context.Context, section string, peers []peer, src source, questions []question,
) ([]*server, func(), error) {
	var servers []*server
	stop := func() {
		for _, s := range servers {
			s.stop()
		}
	}
	for _, p := range peers {
		b.progress.say("%s: starting %s", section, p.name)
		s, err := b.startServer(ctx, p, src, questions)
		if err != nil {
			return nil, stop, err
		}
		servers = append(servers, s)
	}
	return servers, stop, nil
}

func (s *server) writeCorefile(dir string, src source) (string, error) {
	lines := append([]string{"bind 127.0.0.1", "pprof " + s.pprof.String()}, s.peer.lines(src)...)
	text := fmt.Sprintf("%s:%d {\n%s\n}\n", strings.TrimSuffix(zone, "."), s.port.Number, strings.Join(lines, "\n"))
	file := filepath.Join(dir, fmt.Sprintf("Corefile-%d", s.port.Number))
	return file, os.WriteFile(file, []byte(text), 0o600)
}

func (s *server) awaitAnswers(ctx context.Context, questions []question) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyPatience, fmt.Errorf("not ready after %s", readyPatience))
	defer cancel()
	for {
		last := check(ctx, s.port.String(), questions)
		if last == nil {
			return nil
		}
		if err := s.ended(); err != nil {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%w: %w\n%s", err, last, s.process.Out.String())
		}
	}
}

// stopPatience is how long a server may take to end by itself.
const stopPatience = 10 * time.Second

// ended returns how the server ended and what it wrote, or nil while it runs.
func (s *server) ended() error {
	select {
	case <-s.process.Done():
		return fmt.Errorf("it ended: %s\n%s", s.process.State(), s.process.Out.String())
	default:
		return nil
	}
}

func (s *server) stop() {
	if s.process != nil && !s.process.Stop(stopPatience) && s.forks {
		_ = syscall.Kill(-s.process.Pid(), syscall.SIGKILL)
	}
	for _, p := range []*controlplane.Port{s.port, s.pprof} {
		if p != nil {
			_ = p.Close()
		}
	}
}

func (s *server) cpuTime() (time.Duration, error) {
	if err := s.ended(); err != nil {
		return 0, err
	}
	if s.forks {
		return groupCPUTime(s.process.Pid())
	}
	return cpuTime(s.process.Pid())
}

// quiet returns the server's CPU time once it has stopped to grow: what is still in the socket belongs to the run that
// sent it.
func (s *server) quiet(ctx context.Context) (time.Duration, error) {
	last, err := s.cpuTime()
	for range 100 {
		if err != nil {
			return 0, err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
		var now time.Duration
		if now, err = s.cpuTime(); err == nil && now <= last+tick {
			return now, nil
		}
		last = now
	}
	return 0, errors.New("CPU time grows without queries")
}

// liveHeap collects garbage in the server and returns the octets of all that is left.
func (s *server) liveHeap(ctx context.Context) (int64, error) {
	var live int64
	// What pools hold survives the first collection.
	for range 2 {
		var err error
		if live, err = s.heapAfterGC(ctx); err != nil {
			return 0, fmt.Errorf("heap of %s: %w", s, err)
		}
	}
	return live, nil
}

func (s *server) heapAfterGC(ctx context.Context) (int64, error) {
	profile, err := s.fetch(ctx, "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(profile)) {
		if value, ok := strings.CutPrefix(line, "# HeapAlloc = "); ok {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, errors.New("profile without HeapAlloc")
}

// fetch gets a page of the plugin pprof.
func (s *server) fetch(ctx context.Context, path string) ([]byte, error) {
	return get(ctx, "http://"+s.pprof.String()+path)
}

// get returns the body of a page.
func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
