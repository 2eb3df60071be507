package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	root, path := t.TempDir(), t.TempDir()
	t.Setenv("PATH", path)
	for _, file := range []string{filepath.Join(root, "bin", "both"), filepath.Join(path, "both"),
		filepath.Join(path, "other")} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"both": filepath.Join(root, "bin", "both"),
		"other": filepath.Join(path, "other")} {
		if got, err := find(root, name); got != want || err != nil {
			t.Errorf("find(%q) = %q, %v, want %q", name, got, err, want)
		}
	}
	if got, err := find(root, "no-such-program"); err == nil ||
		!strings.Contains(err.Error(), SkipEnv+"=no-such-program") {
		t.Errorf("find of a missing program = %q, %v, want an error that says how to skip its tests", got, err)
	}
}

// A test that is skipped on purpose would be counted as one, so this is about the decision alone.
func TestSkips(t *testing.T) {
	for name, want := range map[string]bool{"dig": true, "nsd": true, "di": false, "promtool": false} {
		if got := skips("dig nsd", name); got != want {
			t.Errorf("skips(%q, %q) = %t, want %t", "dig nsd", name, got, want)
		}
	}
}
