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
	"testing"

	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// demoEnv makes the test binary the demo.
const demoEnv = "CLUSTERSET_DEMO"

func TestMain(m *testing.M) {
	if os.Getenv(demoEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

var dnsPort = regexp.MustCompile(`clusterset\.local:(\d+) {`)

// nothingLeft waits until all that the demo started is gone. dir is the only folder it could write temporary files to.
func nothingLeft(t *testing.T, dir string, output []byte) {
	t.Helper()
	port := dnsPort.FindSubmatch(output)
	if port == nil {
		t.Fatalf("output = %s\nwant a Corefile in it", output)
	}
	until.OK(t, "nothing is left", func(context.Context) error {
		return errors.Join(empty(dir), noProcess(dir), portFree(string(port[1])))
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
	// Not that of the test, with a name too long for Unix sockets in it.
	dir, err := os.MkdirTemp("", "demo-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), demoEnv+"=1", "DEMO_ONCE=1", "TMPDIR="+dir)
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	nothingLeft(t, dir, output)
	var want int
	for _, s := range scenes {
		want += len(s.then)
	}
	// With dig or, where that is not installed, with our own program.
	if got := bytes.Count(output, []byte(" @127.0.0.1 -p ")); got != want {
		t.Errorf("%d questions, want %d:\n%s", got, want, output)
	}
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
