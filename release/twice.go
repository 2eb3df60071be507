package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// twice builds HEAD two times, in circumstances that must not matter, compares the results, and leaves one of them in r.out.
func (r release) twice(ctx context.Context) error {
	work, err := os.MkdirTemp("", "clusterset-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	commit, err := output(ctx, "git", "rev-parse", "HEAD") // HEAD may move meanwhile
	if err != nil {
		return err
	}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		if seconds, err = output(ctx, "git", "log", "-1", "--format=%ct", commit); err != nil {
			return err
		}
	}
	one, other := filepath.Join(work, "one"), filepath.Join(work, "other", "with a longer name")
	first := attempt{dir: one, umask: "022"}
	second := attempt{
		dir: other, umask: "077",
		env: []string{
			"GOCACHE=" + filepath.Join(other, "cache"), "GOFLAGS=" + strings.TrimSpace("-trimpath "+os.Getenv("GOFLAGS")),
			"TZ=Asia/Kolkata", "LC_ALL=C",
		},
	}
	for i, a := range []attempt{first, second} {
		done := step("%s, %d of 2", r.version, i+1)
		if err := a.run(ctx, r, commit, seconds); err != nil {
			return fmt.Errorf("build %d of 2: %w", i+1, err)
		}
		done()
	}
	if err := equal(first.out(), second.out()); err != nil {
		return err
	}
	fmt.Println("both builds are the same")
	return move(first.out(), r.out)
}

// An attempt is one of the two builds.
type attempt struct {
	dir, umask string
	env        []string
}

func (a attempt) out() string { return filepath.Join(a.dir, "dist") }

// run builds in a process of its own, since a umask and an environment belong to one.
func (a attempt) run(ctx context.Context, r release, commit, seconds string) error {
	source := filepath.Join(a.dir, "source")
	if err := os.MkdirAll(source, 0o755); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	const script = `umask "$1"; git archive "$2" | tar -x -C "$3"; shift 3; exec "$@"`
	cmd := command(ctx, "bash", "-euo", "pipefail", "-c", script, "release", a.umask, commit, source,
		self, "-version", r.version, "-image", r.image, "-out", a.out(), "-source", source, "-time", seconds)
	cmd.Env = append(os.Environ(), a.env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// command returns a command whose processes get SIGTERM when ctx ends, all of them.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	return cmd
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// equal returns an error that names each file that only one folder has, or that differs.
func equal(a, b string) error {
	first, err := sums(a)
	if err != nil {
		return err
	}
	second, err := sums(b)
	if err != nil {
		return err
	}
	names := maps.Clone(first)
	maps.Copy(names, second)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if first[name] != second[name] {
			errs = append(errs, fmt.Errorf("%s: sha256 %q in one build, and %q in the other: want the same", name, first[name], second[name]))
		}
	}
	return errors.Join(errs...)
}

// sums returns the SHA-256 of each file below dir, by its name in it.
func sums(dir string) (map[string]string, error) {
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		all[filepath.ToSlash(name)] = fmt.Sprintf("%x", sha256.Sum256(content))
		return err
	})
	return all, err
}

// sumsFile is in the form of sha256sum.
const sumsFile = "SHA256SUMS"

func (r release) writeSums() error {
	all, err := sums(r.out)
	if err != nil {
		return err
	}
	delete(all, sumsFile)
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s  %s\n", all[name], name)
	}
	return write(r.name(sumsFile), b.Bytes())
}

// write writes a file that all may read, whatever the umask.
func write(name string, content []byte) error {
	if err := os.WriteFile(name, content, 0o644); err != nil {
		return err
	}
	return os.Chmod(name, 0o644)
}

// move replaces a folder, also on another file system.
func move(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	// CopyFS takes the umask into account, which is no part of a release.
	return filepath.WalkDir(to, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	})
}
