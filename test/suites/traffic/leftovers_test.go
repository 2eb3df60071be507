//go:build traffic && linux

package traffic

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// endEnv makes the test binary one whose TestTraffic comes to the bad end that the value names, in the middle.
const endEnv = "CLUSTERSET_TRAFFIC_END"

func TestMain(m *testing.M) {
	if os.Getenv(endEnv) != "" {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}

// mark begins a line with what has to be gone later.
const mark = "HAS TO GO: "

// end prints the processes and network namespaces that were started here, then ends in the way that the environment
// says.
func end(t *testing.T) {
	own, err := os.Readlink("/proc/self/ns/net")
	must(t, err)
	left := map[string]bool{}
	for _, pid := range children(t, os.Getpid()) {
		left["process "+pid] = true
	}
	for _, link := range namespaceLinks() {
		if link.namespace != own && strings.HasPrefix(link.file, fmt.Sprintf("/proc/%d/", os.Getpid())) {
			left[link.namespace] = true
		}
	}
	for what := range left {
		fmt.Println(mark + what)
	}
	switch os.Getenv(endEnv) {
	case "fail":
		t.Fatal("the test fails")
	case "panic":
		go panic("the test panics in a goroutine that nothing recovers")
	case "killed":
		fmt.Println(mark)
	}
	select {}
}

// children lists the processes that this one has started and that still run.
func children(t *testing.T, parent int) (pids []string) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	must(t, err)
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		pids = append(pids, strings.Fields(string(b))...)
	}
	return pids
}

// A namespaceLink is a file that holds a network namespace: a process or thread in it, or an open file.
type namespaceLink struct{ file, namespace string }

func namespaceLinks() (links []namespaceLink) {
	for _, pattern := range []string{"/proc/[0-9]*/ns/net", "/proc/[0-9]*/task/*/ns/net", "/proc/[0-9]*/fd/*"} {
		files, _ := filepath.Glob(pattern) // The pattern is a good one.
		for _, file := range files {
			if to, err := os.Readlink(file); err == nil && strings.HasPrefix(to, "net:[") {
				links = append(links, namespaceLink{file, to})
			}
		}
	}
	return links
}

// TestNothingIsLeft starts everything in a process of its own, which comes to a bad end in the middle.
func TestNothingIsLeft(t *testing.T) {
	for _, how := range []string{"fail", "panic", "killed"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			left := badEnd(t, how, dir)
			var processes, namespaces int
			for _, what := range left {
				if pid, ok := strings.CutPrefix(what, "process "); ok {
					processes++
					until.OK(t, what, func(context.Context) error { return gone(pid) })
					continue
				}
				namespaces++
				until.OK(t, what, func(context.Context) error { return closed(what) })
			}
			// Of each member etcd, kube-apiserver, kube-controller-manager, kube-proxy, CoreDNS and a shell that removes its
			// folder; of the broker the first two and the last.
			if processes != 15 || namespaces != 3 {
				t.Errorf("%q were started, want 15 processes and 3 network namespaces", left)
			}
			until.OK(t, "temporary files", func(context.Context) error { return empty(dir) })
		})
	}
}

// badEnd returns what the process had started before it ended. Its temporary files were in dir.
func badEnd(t *testing.T, how, dir string) (left []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*until.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestTraffic$")
	cmd.Env = append(os.Environ(), endEnv+"="+how, "TMPDIR="+dir)
	cmd.WaitDelay = time.Second
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var rest strings.Builder
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		what, ok := strings.CutPrefix(lines.Text(), mark)
		switch {
		case !ok:
			fmt.Fprintln(&rest, lines.Text())
		case what == "": // It was the last one.
			must(t, cmd.Process.Kill())
		default:
			left = append(left, what)
		}
	}
	if err := cmd.Wait(); err == nil || len(left) == 0 {
		t.Fatalf("the test ended with %v, want a bad end\n%s", err, &rest)
	}
	return left
}

// gone fails while the process runs. A zombie does not: its parent is whoever adopts orphans here, and may never ask
// for it.
func gone(pid string) error {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil //nolint:nilerr // There is no such process.
	}
	if _, state, ok := strings.Cut(string(b), ") "); ok && strings.HasPrefix(state, "Z") {
		return nil
	}
	return fmt.Errorf("runs: %s", b)
}

// empty fails while there is anything in the folder.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s is there", entries)
	}
	return err
}

// closed fails while anything holds the network namespace.
func closed(namespace string) error {
	for _, link := range namespaceLinks() {
		if link.namespace == namespace {
			return fmt.Errorf("%s holds it", link.file)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err == nil && strings.Contains(string(mounts), namespace) {
		err = errors.New("it is mounted")
	}
	return err
}
