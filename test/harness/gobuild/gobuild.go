// Package gobuild compiles programs and tests for the tools and tests and reports its progress. It uses the standard
// library alone, so that a program that builds others is itself built in seconds.
package gobuild

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// A Command is one run of `go build`.
type Command struct {
	Dir      string   // of the module
	Output   string   // file, or folder with a slash at the end
	Ldflags  string   // "-s -w" if empty
	Packages []string // main packages

	Tests bool // compile the packages, which need not be main packages, and their tests; link nothing

	What string // is built, for the lines of progress
	Next string // is built after that; may be empty
}

// flags are the same for all programs, so that they share compiled packages. A profile (PGO) would compile every
// package once more for its program, which takes minutes and changes nothing but speed. Data for debuggers take an
// eighth of the CPU time.
var flags = []string{"-pgo=off", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false"}

// Build runs c, which is quick if its programs are up to date. It writes to progress the name of the build, every ten
// seconds how far it is, and how long it took. All processes of the build have ended when Build returns, also if ctx
// ends.
func Build(ctx context.Context, c Command, progress io.Writer) error {
	cmd := command(ctx, c.Dir, c.args())
	var out output
	cmd.Stdout, cmd.Stderr = &out, &out

	count := counter{ctx: ctx, command: c, done: &out.packages}
	done := Report(progress, "building "+c.What, count.String)
	err := cmd.Run()
	done()
	if err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.Join(c.Packages, " "), err, out.text())
	}
	return nil
}

func (c *Command) args() []string {
	args := append([]string{"build", "-v", "-ldflags", cmp.Or(c.Ldflags, "-s -w"), "-o", c.Output}, flags...)
	if c.Tests {
		args = append([]string{"list", "-v", "-export", "-test", "-deps", "-f", "{{with .Error}}{{.}}{{end}}"}, flags...)
	}
	return append(args, c.Packages...)
}

func command(ctx context.Context, dir string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// Flags such as -race and a workspace are meant for other builds. Without garbage collection below 2 GiB the compiler
	// takes a quarter less CPU time.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOGC=off", "GOMEMLIMIT=2GiB")
	// With its compilers in a group of its own. On SIGINT go removes its temporary files.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// An output is what `go build -v` writes: the name of each package that it compiles, and errors. One goroutine writes.
type output struct {
	packages atomic.Int64
	b        bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.packages.Add(int64(bytes.Count(p, []byte("\n"))))
	return o.b.Write(p)
}

// text is what was written without the names of packages: "path" and "path [path.test]".
func (o *output) text() string {
	var b strings.Builder
	for line := range strings.Lines(o.b.String()) {
		if name, _, _ := strings.Cut(line, " ["); strings.ContainsAny(name, " :") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// A counter counts the packages that are compiled, and all. It counts the latter at the first call: a build
// that takes less than that does not need it. One goroutine calls it.
type counter struct {
	ctx     context.Context
	command Command
	done    *atomic.Int64
	all     int64 // 0 before the first call; -1 if unknown
}

// String is a part of a line of progress, such as ", 12 of 345 packages; next: etcd".
func (c *counter) String() string {
	if c.all == 0 {
		c.all = -1
		args := append([]string{"list", "-deps", "-test=" + strconv.FormatBool(c.command.Tests), "-f",
			"{{if .Stale}}.{{end}}"}, flags...)
		before := c.done.Load()
		if out, err := command(c.ctx, c.command.Dir, append(args, c.command.Packages...)).Output(); err == nil {
			c.all = before + int64(bytes.Count(out, []byte(".")))
		}
	}
	text := fmt.Sprintf(", %d packages", c.done.Load())
	if c.all > 0 {
		text = fmt.Sprintf(", %d of %d packages", min(c.done.Load(), c.all), c.all)
	}
	if c.command.Next != "" {
		text += "; next: " + c.command.Next
	}
	return text
}

// Report writes what goes on: at once, then every ten seconds with the seconds so far and what detail returns, and in
// the end, when the returned function is called. detail may be nil.
func Report(w io.Writer, what string, detail func() string) (done func()) {
	start, stop, stopped := time.Now(), make(chan struct{}), make(chan struct{})
	seconds := func() int { return int(time.Since(start).Seconds()) }
	fmt.Fprintf(w, "%s\n", what)
	go func() {
		defer close(stopped)
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				more := ""
				if detail != nil {
					more = detail()
				}
				fmt.Fprintf(w, "  %d s%s\n", seconds(), more)
			case <-stop:
				fmt.Fprintf(w, "  done after %d s\n", seconds())
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// Lock takes the lock on file, which the kernel releases when its holder dies. While another process has the lock,
// progress says so.
func Lock(ctx context.Context, file string, progress io.Writer) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	waiting := func() {}
	defer func() { waiting() }()
	for first := true; ; first = false {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // Closing unlocks.
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			break
		}
		if first {
			waiting = Report(progress, "waiting for another process that builds the same programs", nil)
		}
		if err = pause(ctx, 100*time.Millisecond); err != nil {
			break
		}
	}
	return nil, fmt.Errorf("lock %s: %w", file, errors.Join(err, f.Close()))
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
