package tools

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

// A machine has the programs that a script can run, in one folder, and nothing else on its path.
type machine struct {
	t   *testing.T
	bin string
}

// newMachine returns a machine with bash and what the scripts need at least.
func newMachine(t *testing.T) machine {
	m := machine{t: t, bin: t.TempDir()}
	for _, name := range []string{"bash", "chmod", "touch"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(m.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// add adds a program that is a script.
func (m machine) add(name, script string) {
	m.t.Helper()
	text := "#!" + filepath.Join(m.bin, "bash") + "\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(m.bin, name), []byte(text), 0o700); err != nil {
		m.t.Fatal(err)
	}
}

// need runs need.sh for the target "check".
func (m machine) need(env string, args ...string) (stdout, stderr string, status int) {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), filepath.Join(m.bin, "bash"),
		append([]string{"need.sh", "check"}, args...)...)
	cmd.Env = []string{"PATH=" + m.bin, env}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		m.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// aptGet writes down what it is asked for. What it installs is there afterwards, dig in the package bind9-dnsutils.
const aptGet = `echo "$RUNLEVEL $DEBIAN_FRONTEND $*" >>"${0%/*}/calls"
if [[ "$*" == *" install "*bind9-dnsutils* ]]; then touch "${0%/*}/dig"; chmod +x "${0%/*}/dig"; fi`

func TestNeed(t *testing.T) {
	for _, tt := range []struct {
		name         string
		prepare      func(machine)
		env          string
		args         []string
		out, err     string
		status, apts int // apts counts calls of apt-get
	}{
		{
			name:    "everything is there",
			prepare: func(m machine) { m.add("dig", ""); m.add("gcc", "") },
			args:    []string{"dig", "-optional", "gcc"},
		},
		{
			name: "no apt-get: optional",
			args: []string{"-optional", "dig", "dnsperf", "gcc"}, out: "dig dnsperf gcc\n",
			err: "make check: missing: dig dnsperf gcc; cannot install: no apt-get here; left out: tests that ask with dig " +
				"(test/suites/e2e, test/suites/lifecycle, test/tools/demo); tests that run dnsperf; the race detector\n",
		},
		{
			name:    "a compiler without headers",
			prepare: func(m machine) { m.add("gcc", "exit 1") },
			args:    []string{"-optional", "gcc"}, out: "gcc\n",
			err: "make check: missing: gcc; cannot install: no apt-get here; left out: the race detector\n",
		},
		{
			name: "no apt-get: required",
			args: []string{"dig", "-optional", "gcc"}, status: 1,
			err: "make check: missing: dig; cannot install: no apt-get here; Debian has them in: bind9-dnsutils\n",
		},
		{
			name: "no apt-get: CI",
			env:  "CI=true", args: []string{"-optional", "dig", "gcc"}, status: 1,
			err: "make check: missing: dig gcc; cannot install: no apt-get here; Debian has them in: bind9-dnsutils gcc libc6-dev\n",
		},
		{
			name:    "not root",
			prepare: func(m machine) { m.add("apt-get", aptGet); m.add("id", "echo 1000") },
			args:    []string{"-optional", "dnsperf"}, out: "dnsperf\n",
			err: "make check: missing: dnsperf; cannot install: not root; left out: tests that run dnsperf\n",
		},
		{
			name:    "root",
			prepare: func(m machine) { m.add("apt-get", aptGet); m.add("id", "echo 0") },
			args:    []string{"dig"}, apts: 2,
			err: "make check: installing bind9-dnsutils with apt-get (missing: dig)\n",
		},
		{
			name:    "root, and a package does not have the program",
			prepare: func(m machine) { m.add("apt-get", aptGet); m.add("id", "echo 0") },
			args:    []string{"-optional", "dig", "dnsperf"}, out: "dnsperf\n", apts: 2,
			err: "make check: installing bind9-dnsutils dnsperf with apt-get (missing: dig dnsperf)\n" +
				"make check: missing: dnsperf; cannot install: not in what apt-get installed; left out: tests that run dnsperf\n",
		},
		{
			name: "apt-get fails",
			prepare: func(m machine) {
				m.add("apt-get", "echo reading; echo no network >&2; exit 100")
				m.add("id", "echo 0")
			},
			args: []string{"-optional", "dnsperf"}, out: "dnsperf\n",
			err: "make check: installing dnsperf with apt-get (missing: dnsperf)\n" +
				"make check: missing: dnsperf; cannot install: apt-get failed: no network; left out: tests that run dnsperf\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			if tt.prepare != nil {
				tt.prepare(m)
			}
			out, errs, status := m.need(tt.env, tt.args...)
			if out != tt.out || errs != tt.err || status != tt.status {
				t.Errorf("need.sh check %s: status %d, %q and\n%swant status %d, %q and\n%s",
					strings.Join(tt.args, " "), status, out, errs, tt.status, tt.out, tt.err)
			}
			calls, _ := os.ReadFile(filepath.Join(m.bin, "calls"))
			if got := strings.Count(string(calls), "1 noninteractive -o"); got != tt.apts {
				t.Errorf("apt-get was called %d times, want %d:\n%s", got, tt.apts, calls)
			}
		})
	}
}

func TestStress(t *testing.T) {
	const second = `n=$(<"$0.n") || n=0; echo $((n + 1)) >"$0.n"; (($((n + 1)) != 2))` // The second run fails.
	for _, tt := range []struct {
		env, command, last string
		ok                 bool
	}{
		{command: "exit 0", last: "stress: 3 of 3 runs passed\n", ok: true},
		{command: second, last: "stress: 1 of 3 runs passed\n"},
		{command: second, env: "KEEP_GOING=1", last: "stress: 2 of 3 runs passed\n"},
	} {
		file := filepath.Join(t.TempDir(), "command")
		if err := os.WriteFile(file, []byte("#!/usr/bin/env bash\n"+tt.command+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "./stress.sh", "3", file)
		cmd.Env = append(os.Environ(), "KEEP_GOING=", tt.env)
		out, err := cmd.CombinedOutput()
		if (err == nil) != tt.ok || !strings.HasSuffix(string(out), tt.last) {
			t.Errorf("stress.sh 3 %q: %v\n%swant the last line %q", tt.command, err, out, tt.last)
		}
	}
}

// TestStressEndsWhatItStarted ends the script in the middle of a run. No process of its group may be left, such as a
// busy loop.
func TestStressEndsWhatItStarted(t *testing.T) {
	tier.All(t)
	cmd := exec.CommandContext(t.Context(), "./stress.sh", "1", "bash", "-c", "echo started; exec sleep 600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "started"; {
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 143 {
		t.Errorf("stress.sh after SIGTERM: %v, want status 143", err)
	}
	if err := syscall.Kill(-cmd.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("processes of stress.sh after its end: %v, want none (%v)", err, syscall.ESRCH)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
}
