// Package program finds the programs that tests run and that other projects make, such as dig.
//
// `make test` gets these programs before the tests start. If it cannot get one, it names the program in [SkipEnv], and
// the tests that need it are skipped. A test has no other way to skip itself: without that variable a missing program
// is a failure.
package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/test/harness/server"
)

// SkipEnv names the environment variable that lists the programs, divided by blanks, whose tests are to be skipped.
const SkipEnv = "CLUSTERSET_SKIP"

// Find returns the path of a program, which is in bin/ of the repository, on the path or in /usr/sbin. If it is
// missing, the test is skipped if [SkipEnv] has the program's name, and fails otherwise.
func Find(t testing.TB, name string) string {
	t.Helper()
	if skips(os.Getenv(SkipEnv), name) {
		t.Skipf("%s is missing", name)
	}
	root, err := server.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	path, err := find(root, name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// skips reports whether a value of [SkipEnv] has the name.
func skips(value, name string) bool { return slices.Contains(strings.Fields(value), name) }

// find returns the first of the places of a program where it is.
func find(root, name string) (string, error) {
	// Programs of administrators are not on every user's path.
	for _, place := range []string{filepath.Join(root, "bin", name), name, filepath.Join("/usr/sbin", name)} {
		if path, err := exec.LookPath(place); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf(
		"program %q is missing: want it installed; make test does so, or skips the tests that %s=%s names", name, SkipEnv, name)
}
