package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// roleEnv makes the test binary the demo. The role "wrong" expects an answer that is not the right one, "waiting" waits for
// one that never comes, and "early" stays after the first scene.
const roleEnv = "CLUSTERSET_DEMO_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "wrong":
		scenes[0].then[0].Want = []string{"A 10.200.0.11"}
		main()
	case "waiting":
		scenes[0].then[0].Want = make([]string, 99)
		main()
	case "early":
		scenes = scenes[:1]
		main()
	case "demo":
		main()
	default:
		os.Exit(m.Run())
	}
}

// A run is the demo as a process of its own.
type run struct {
	cmd *exec.Cmd
	dir string // the only folder it can write temporary files to
	mu  sync.Mutex
	out bytes.Buffer
}

func (r *run) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Write(p)
}

func (r *run) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}

func start(t *testing.T, role string, env ...string) *run {
	t.Helper()
	// Not that of the test, with a name too long for Unix sockets in it.
	dir, err := os.MkdirTemp("", "demo-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &run{cmd: exec.CommandContext(t.Context(), os.Args[0]), dir: dir}
	r.cmd.Env = append(append(os.Environ(), roleEnv+"="+role, "TMPDIR="+dir), env...)
	r.cmd.Stdout, r.cmd.Stderr = r, r
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

var dnsPort = regexp.MustCompile(`clusterset\.local:(\d+) {`)

// nothingLeft waits until all that the demo started is gone.
func (r *run) nothingLeft(t *testing.T) {
	t.Helper()
	port := dnsPort.FindStringSubmatch(r.output())
	if port == nil {
		t.Fatalf("output = %s\nwant a Corefile in it", r.output())
	}
	until.OK(t, "nothing is left", func(context.Context) error {
		return errors.Join(empty(r.dir), noProcess(r.dir), portFree(port[1]))
	})
}

// empty fails if there is something in the folder, where control planes keep all their files and sockets.
func empty(dir string) error {
	left, err := os.ReadDir(dir)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%s is still in %s", left[0].Name(), dir)
	}
	return err
}

// noProcess fails if there is a process that the folder was named to, as it is to API servers, controllers and CoreDNS.
func noProcess(dir string) error {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, file := range lines {
		// One that is gone by now is not left.
		if line, err := os.ReadFile(file); err == nil && bytes.Contains(line, []byte(dir)) {
			return fmt.Errorf("%s still runs: %s", file, bytes.ReplaceAll(line, []byte{0}, []byte(" ")))
		}
	}
	return nil
}

func portFree(port string) error {
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return fmt.Errorf("CoreDNS still listens: %w", err)
	}
	return l.Close()
}

func TestDemoOnce(t *testing.T) {
	tier.All(t)
	r := start(t, "demo", "DEMO_ONCE=1")
	if err := r.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, r.output())
	}
	r.nothingLeft(t)
	var want int
	for _, s := range scenes {
		want += len(s.then)
	}
	// With dig or, where that is not installed, with our own program.
	if got := strings.Count(r.output(), " @127.0.0.1 -p "); got != want {
		t.Errorf("%d questions, want %d:\n%s", got, want, r.output())
	}
}

func TestDemoFailsOnAWrongAnswer(t *testing.T) {
	tier.All(t)
	r := start(t, "wrong", "DEMO_ONCE=1")
	err := r.cmd.Wait()
	if code := r.cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit status %d (%v), want 1\n%s", code, err, r.output())
	}
	// The address is one of south's service network.
	want := regexp.MustCompile(`WRONG: records \["A 10\.13\.\d+\.\d+"\], want \["A 10\.200\.0\.11"\]`)
	if !want.MatchString(r.output()) {
		t.Errorf("output = %s\nwant %s in it", r.output(), want)
	}
	r.nothingLeft(t)
}

func TestDemoStaysUntilASignal(t *testing.T) {
	tier.All(t)
	for _, tt := range []struct {
		signal syscall.Signal
		ends   bool // by itself, with status 0
	}{
		{syscall.SIGINT, true},
		{syscall.SIGKILL, false},
	} {
		t.Run(tt.signal.String(), func(t *testing.T) {
			r := start(t, "early", "DEMO_ONCE=")
			awaitOutput(t, r, "Press Ctrl-C")
			if err := r.cmd.Process.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}
			if err := r.cmd.Wait(); (err == nil) != tt.ends {
				t.Errorf("after %s: %v\n%s", tt.signal, err, r.output())
			}
			r.nothingLeft(t)
		})
	}
}

func TestDemoInterruptedEarly(t *testing.T) {
	tier.All(t)
	r := start(t, "waiting", "DEMO_ONCE=1")
	awaitOutput(t, r, "export web db -n shop --context west")
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err := r.cmd.Wait()
	if code := r.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(r.output(), "demo: interrupted") {
		t.Errorf("exit status %d (%v), want 1 and the reason\n%s", code, err, r.output())
	}
	r.nothingLeft(t)
}

func awaitOutput(t *testing.T, r *run, text string) {
	t.Helper()
	until.OK(t, text, func(context.Context) error {
		if !strings.Contains(r.output(), text) {
			return fmt.Errorf("output = %s\nwant %q in it", r.output(), text)
		}
		return nil
	})
}

func TestAbridge(t *testing.T) {
	const long = "a created\nb created\nwarning: w\nc created\nd unchanged\ne created\n\nDone.\nNext:\n  more\n"
	const want = "a created\nb created\nwarning: w\n... and 3 more\n\nDone.\n"
	if got := abridge(long); got != want {
		t.Errorf("abridge(%q) = %q, want %q", long, got, want)
	}
	const short = "a created\nb created\nc created\n\nDone.\n"
	if got := abridge(short); got != short {
		t.Errorf("abridge(%q) = %q, want the same", short, got)
	}
}
