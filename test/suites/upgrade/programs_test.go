//go:build upgrade

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/test/harness/gobuild"
	"github.com/clusterset-dns/clusterset/test/harness/server"
)

// A version is what one release consists of.
type version struct {
	name   string
	source string // folder
	bin    string // folder with the programs clusterset and coredns
}

func (v version) String() string { return v.name }

// manifest returns a file in deploy.
func (v version) manifest(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(v.source, "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// build compiles the programs.
func (v version) build(t *testing.T) version {
	t.Helper()
	v.bin = t.TempDir()
	command := gobuild.Command{
		Dir: v.source, Output: v.bin + "/", Packages: []string{"./cmd/clusterset", "./cmd/coredns"},
		Ldflags: "-s -w -X main.version=" + v.name, What: v.name,
	}
	if err := gobuild.Build(t.Context(), command, io.Discard); err != nil {
		t.Fatal(err)
	}
	return v
}

// run runs a command of the version, which must succeed, and returns what it prints.
func (v version) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(v.bin, "clusterset"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("clusterset %s of %s: %v\n%s", strings.Join(args, " "), v, err, out)
	}
	return string(out)
}

// A release in the table of docs/upgrading.md.
var release = regexp.MustCompile("(?m)^\\| ([0-9]+\\.[0-9]+\\.[0-9]+) \\| `([0-9a-f]{40})` \\|$")

// versions builds this checkout and the last release in the table of docs/upgrading.md.
func versions(t *testing.T) (previous, current version) {
	t.Helper()
	root, err := server.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "upgrading.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := release.FindAllSubmatch(text, -1)
	if len(all) == 0 {
		t.Fatal("docs/upgrading.md: want a table of releases and their commits")
	}
	last := all[len(all)-1]
	previous = version{name: "v" + string(last[1]), source: t.TempDir()}
	if err := checkout(t.Context(), root, string(last[2]), previous.source); err != nil {
		t.Fatal(err)
	}
	return previous.build(t), version{name: "v99.0.0", source: root}.build(t)
}

// checkout writes the files of a commit to an empty folder.
func checkout(ctx context.Context, root, commit, folder string) error {
	if err := exec.CommandContext(ctx, "git", "-C", root, "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		return fmt.Errorf("commit %s, which docs/upgrading.md names, is not in this clone: want the whole history, as from git fetch --unshallow", commit)
	}
	archive := filepath.Join(folder, "archive.tar")
	err := exec.CommandContext(ctx, "git", "-C", root, "archive", "--output="+archive, commit).Run()
	if err == nil {
		err = exec.CommandContext(ctx, "tar", "-x", "-C", folder, "-f", archive).Run()
	}
	return errors.Join(err, os.Remove(archive))
}
