package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/status"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A screen is what a command that runs has printed so far.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// watches changes the state that "status --watch" shows. docs/spec/operations.md 2.
func watches(t *testing.T, member string) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out screen
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"clusterset", "status", "--watch", "--interval=20ms", member},
			genericiooptions.IOStreams{Out: &out, ErrOut: &out})
	}()
	shows := func(text string) {
		t.Helper()
		until.OK(t, text, func(context.Context) error {
			if !strings.Contains(out.String(), text) {
				return fmt.Errorf("printed\n%s", out.String())
			}
			return nil
		})
	}
	shows("Exports:      0 of 0 ready")
	shows("problem: no leader")
	want(t, exitOK, nil, "export", "db", member, "-n", "shop", "--wait=false")
	shows("Exports:      0 of 1 ready")
	interrupt()
	if got := <-code; got != exitProblems {
		t.Errorf("exit code %d, want that of the last state, %d", got, exitProblems)
	}
	// A read that fails is shown as a change, and so is the next one.
	if n, failed := strings.Count(out.String(), "Clusterset:"), strings.Count(out.String(), "not read: "); n > 2+2*failed {
		t.Errorf("the state was printed %d times with %d failed reads, want once at the start, once for a change and twice for a failed read:\n%s", n, failed, out.String())
	}
	want(t, exitOK, nil, "unexport", "db", member, "-n", "shop", "--wait=false")
}

// On a terminal each state covers the one before: each line erases the rest of its own, and the last one the lines
// below.
func TestRedraw(t *testing.T) {
	var out, errOut bytes.Buffer
	s := &statusCommand{factory: &factory{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}}}
	state := status.State{Result: read.Result{Problems: []string{"one"}, Unread: []string{"the broker is away"}}}
	must(t, s.redraw(&state))
	var plain bytes.Buffer
	must(t, s.print(&plain, &state))
	want := "\x1b[H" + strings.ReplaceAll(plain.String(), "\n", "\x1b[K\n") + "\x1b[J"
	if out.String() != want || errOut.Len() > 0 || !strings.Contains(want, "problem: one\x1b[K\n") {
		t.Errorf("printed\n%q\nand %q as errors, want\n%q", out.String(), errOut.String(), want)
	}
}

// Ages and renewals are no change; anything else is.
func TestChangeable(t *testing.T) {
	state := func(change func(*status.State)) string {
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		s := status.State{
			Cluster: &status.ClusterState{ClusterID: "east", Leader: "a", LeaderRenewed: &at},
			Members: []status.MemberState{{ClusterID: "west", Heartbeat: &at, HeartbeatAge: "5m0s", Expired: true}},
			Result:  read.Result{Problems: []string{`member "west" last renewed its heartbeat 5m0s ago: it has expired`}},
		}
		change(&s)
		return changeable(s)
	}
	same, later := state(func(*status.State) {}), time.Now()
	for _, tt := range []struct {
		name   string
		change func(*status.State)
		shown  bool
	}{
		{"ages", func(s *status.State) {
			s.Members[0].Heartbeat, s.Members[0].HeartbeatAge, s.Cluster.LeaderRenewed = &later, "6m0s", &later
			s.Problems[0] = `member "west" last renewed its heartbeat 6m0s ago: it has expired`
		}, false},
		{"leader", func(s *status.State) { s.Cluster.Leader = "b" }, true},
		{"problem", func(s *status.State) { s.Problems = append(s.Problems, "no leader") }, true},
		{"services", func(s *status.State) { s.Members[0].Services = 1 }, true},
	} {
		if shown := state(tt.change) != same; shown != tt.shown {
			t.Errorf("%s: shown %t, want %t", tt.name, shown, tt.shown)
		}
	}
}
