package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

// Each case is a package that a real go test runs.
func TestSummarise(t *testing.T) {
	tier.All(t)
	for _, tt := range []struct {
		name, source, last string
		ok                 bool
		says, not          []string
	}{
		{
			name:   "tests pass",
			source: `func TestA(t *testing.T) { t.Log("quiet") }; func TestB(t *testing.T) { t.Run("sub", TestA) }`,
			last:   "3 passed, 0 failed, 0 skipped", ok: true, says: []string{"ok  \texample.org/tested\t"},
			not: []string{"quiet"},
		},
		{
			name:   "one fails",
			source: `func TestA(t *testing.T) { t.Error("loud") }; func TestB(t *testing.T) { t.Log("quiet") }`,
			last:   "1 passed, 1 failed, 0 skipped", says: []string{"failed TestA\n", "loud", "FAIL"}, not: []string{"quiet"},
		},
		{
			name:   "one is skipped",
			source: `func TestA(t *testing.T) { t.Log("before"); t.Skip("the reason") }; func TestB(t *testing.T) {}`,
			last:   "1 passed, 0 failed, 1 skipped", ok: true,
			says: []string{"\nskipped, the reason:\n  example.org/tested TestA\n"},
		},
		{
			name:   "two are skipped for one reason",
			source: `func TestA(t *testing.T) { t.Skip("why") }; func TestB(t *testing.T) { t.Run("sub", TestA) }; func TestC(t *testing.T) {}`,
			last:   "2 passed, 0 failed, 2 skipped", ok: true,
			says: []string{"\nskipped, why:\n  example.org/tested TestA\n  example.org/tested TestB/sub\n"},
		},
		{
			name:   "one is skipped without a reason",
			source: `func TestA(t *testing.T) { t.SkipNow() }; func TestB(t *testing.T) {}`,
			last:   "1 passed, 0 failed, 1 skipped", ok: true,
			says: []string{"\nskipped, no reason given:\n  example.org/tested TestA\n"},
		},
		{
			name:   "panic",
			source: `func TestA(t *testing.T) { panic("loud") }`,
			last:   "0 passed, 1 failed, 0 skipped", says: []string{"panic: loud"},
		},
		{
			name:   "exit in the middle",
			source: `func TestA(t *testing.T) { os.Exit(7) }`,
			last:   "0 passed, 1 failed, 0 skipped", says: []string{"not ended TestA\n", "FAIL\t"},
		},
		{
			name:   "fails after its tests",
			source: `func TestA(t *testing.T) {}; func TestMain(m *testing.M) { m.Run(); println("a leak"); os.Exit(1) }`,
			last:   "1 passed, 1 failed, 0 skipped", says: []string{"a leak"},
		},
		{
			name:   "does not build",
			source: `func TestA(t *testing.T) { undefinedName() }`,
			last:   "0 passed, 1 failed, 0 skipped", says: []string{"undefined: undefinedName"},
		},
		{
			name:   "no tests",
			source: `var _ testing.TB`,
			last:   "0 passed, 0 failed, 0 skipped", says: []string{"no tests to run"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "go.mod", "module example.org/tested\n\ngo 1.26\n")
			write(t, dir, "a_test.go", "package tested\n\nimport (\n\"os\"\n\"testing\"\n)\n\nvar _ = os.Exit\n"+tt.source+"\n")
			cmd := exec.CommandContext(t.Context(), "go", "test", "-json", "./...")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
			in, runErr := cmd.Output()
			var out bytes.Buffer
			ok, err := summarise(bytes.NewReader(in), &out)
			if err != nil {
				t.Fatal(err)
			}
			if ok != tt.ok {
				t.Errorf("summarise = %t, want %t (go test: %v)", ok, tt.ok, runErr)
			}
			if !strings.HasSuffix(out.String(), "\n"+tt.last+"\n") {
				t.Errorf("got:\n%s\nwant the last line %q", &out, tt.last)
			}
			for _, s := range tt.says {
				if !strings.Contains(out.String(), s) {
					t.Errorf("got:\n%s\nwant %q in it", &out, s)
				}
			}
			for _, s := range tt.not {
				if strings.Contains(out.String(), s) {
					t.Errorf("got:\n%s\nwant no %q in it", &out, s)
				}
			}
		})
	}
}

func TestCutOff(t *testing.T) {
	const started = `{"Action":"start","Package":"p"}{"Action":"output","Package":"p","Test":"TestA","Output":"so far\n"}`
	var out bytes.Buffer
	ok, err := summarise(strings.NewReader(started), &out)
	if ok || err != nil || out.String() != "p: not ended TestA\nso far\n0 passed, 1 failed, 0 skipped\n" {
		t.Errorf("summarise of a run that was cut off = %t, %v:\n%s", ok, err, &out)
	}
	if ok, err := summarise(strings.NewReader(started+`{"Act`), &out); ok || err == nil {
		t.Errorf("summarise of half a line = %t, %v, want an error", ok, err)
	}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
