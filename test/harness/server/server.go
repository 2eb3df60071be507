// Package server builds the CoreDNS that is shipped and runs it on loopback, for the demo and for tests.
//
// No server outlives the process that started it: on Linux the kernel ends it.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/harness/gobuild"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
)

// Root returns the folder of the repository, which the working directory must be inside of.
func Root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if filepath.Base(mod) != "go.mod" {
		return "", errors.New("working directory: want a folder inside the repository")
	}
	return filepath.Dir(mod), nil
}

// Program returns the path of a program below cmd, "coredns" or "clusterset", for tests. `make test` has built it; a
// plain `go test` builds it now. The working directory must be inside the repository.
func Program(ctx context.Context, name string) (bin string, err error) {
	root, err := Root(ctx)
	if err != nil {
		return "", err
	}
	bin = filepath.Join(root, "bin", "tests", name)
	return bin, BuildProgram(ctx, root, "./cmd/"+name, bin)
}

// BuildProgram builds a main package of this module as bin. It is quick if bin is up to date. Processes that build the
// same path do so one after the other.
func BuildProgram(ctx context.Context, root, pkg, bin string) error {
	if err := os.MkdirAll(filepath.Dir(bin), 0o755); err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	unlock, err := gobuild.Lock(ctx, bin+".lock", io.Discard)
	if err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	defer unlock()
	return gobuild.Build(ctx, gobuild.Command{Dir: root, Output: bin, Packages: []string{pkg}, What: pkg}, io.Discard)
}

// A Server is a running CoreDNS.
type Server struct{ *subprocess.Process }

// Start starts c, a CoreDNS. The caller has to call [Server.Stop].
func Start(c subprocess.Command) (*Server, error) {
	started, err := subprocess.Start(c)
	if err != nil {
		return nil, err
	}
	return &Server{started}, nil
}

// How long a server may take to answer or to end, on a machine that is busy with other tests.
const (
	startPatience = 3 * time.Minute
	stopPatience  = 2 * time.Minute
)

// Await waits until answered returns nil. It fails if the server ends, when ctx does, or after three minutes.
func (s *Server) Await(ctx context.Context, answered func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("no answer after %s", startPatience))
	defer cancel()
	deadline, _ := ctx.Deadline()
	var last error
	for {
		err := answered(ctx)
		if err == nil {
			return nil
		}
		// A check that is cut short proves nothing about the server. A connection may notice the deadline before ctx does.
		if last == nil || ctx.Err() == nil && time.Now().Before(deadline) {
			last = err
		}
		select {
		case <-s.Done():
			return fmt.Errorf("CoreDNS ended: %w\n%s", s.failure(), s.Output())
		case <-ctx.Done():
			return fmt.Errorf("CoreDNS: %w: %w\n%s", context.Cause(ctx), last, s.Output())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (s *Server) failure() error {
	if err := s.Err(); err != nil {
		return err
	}
	return errors.New("with status 0")
}

// Output returns what the server has written so far.
func (s *Server) Output() string { return strings.TrimSpace(s.Out.String()) }

// Stop ends the server by SIGTERM and waits for its end. It fails if the server had ended before, had to be killed, or
// reports a failure.
func (s *Server) Stop() error {
	select {
	case <-s.Done():
		return fmt.Errorf("CoreDNS had ended: %w\n%s", s.failure(), s.Output())
	default:
	}
	if !s.Process.Stop(stopPatience) {
		return fmt.Errorf("CoreDNS still ran %s after SIGTERM\n%s", stopPatience, s.Output())
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("CoreDNS ended badly: %w\n%s", err, s.Output())
	}
	return nil
}

// Ask sends one question over UDP, with an OPT record, and returns the answer. As a resolver does, it asks up to three
// times: a busy machine may lose a datagram, or answer late.
func Ask(ctx context.Context, address, name string, qtype uint16) (reply *dns.Msg, err error) {
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), qtype)
	m.SetEdns0(dns.DefaultMsgSize, false)
	client := dns.Client{Timeout: 5 * time.Second}
	for range 3 {
		reply, _, err = client.ExchangeContext(ctx, m, address)
		if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() || ctx.Err() != nil {
			break
		}
	}
	return reply, err
}

// Serves asks for the SOA record of zone, which a server has once it serves.
func Serves(ctx context.Context, address, zone string) error {
	reply, err := Ask(ctx, address, zone, dns.TypeSOA)
	if err != nil {
		return err
	}
	if reply.Rcode != dns.RcodeSuccess || len(reply.Answer) == 0 {
		return fmt.Errorf("SOA of %s: %s with %d records", zone, dns.RcodeToString[reply.Rcode], len(reply.Answer))
	}
	return nil
}
