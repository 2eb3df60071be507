package gobuild

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func module(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.org/small\n\ngo 1.26\n", "main.go": source} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestBuild(t *testing.T) {
	c := Command{Dir: module(t, "package main\n\nfunc main() {}\n"), Packages: []string{"."}, What: "small"}
	c.Output = filepath.Join(t.TempDir(), "small")
	var progress bytes.Buffer
	if err := Build(t.Context(), c, &progress); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(c.Output); err != nil {
		t.Error(err)
	}
	if got := progress.String(); !strings.HasPrefix(got, "building small\n") || !strings.Contains(got, "done after ") {
		t.Errorf("progress = %q, want a line for the begin and one for the end", got)
	}
}

func TestBuildFails(t *testing.T) {
	c := Command{Dir: module(t, "package main\n\nfunc main() { undefinedName() }\n"), Packages: []string{"."},
		What: "small"}
	c.Output = filepath.Join(t.TempDir(), "small")
	if err := Build(t.Context(), c, io.Discard); err == nil || !strings.Contains(err.Error(), "undefined: undefinedName") {
		t.Errorf("Build = %v, want the error of the compiler", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Build(ctx, c, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("Build with a context that has ended = %v, want %v", err, context.Canceled)
	}
}

func TestCounter(t *testing.T) {
	c := Command{Dir: module(t, "package main\n\nfunc main() {}\n"), Packages: []string{"."}, Next: "etcd"}
	var out output
	count := counter{ctx: t.Context(), command: c, done: &out.packages}
	_, _ = out.Write([]byte("runtime\nexample.org/other\n"))
	// At least the main package is stale.
	first := count.String()
	if !strings.HasPrefix(first, ", 2 of ") || !strings.HasSuffix(first, " packages; next: etcd") || count.all < 3 {
		t.Errorf("after 2 packages: %q, want them, 3 packages at least, and what comes next", first)
	}
}
