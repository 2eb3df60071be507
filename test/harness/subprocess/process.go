// Package subprocess starts programs that end with this process at the latest, even if it is killed (on Linux).
package subprocess

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// A Command describes a program to start.
type Command struct {
	Bin  string
	Args []string
	Dir  string   // working directory
	Env  []string // the whole environment; nil means that of this process
	// What the program writes; nil means to Out of the process.
	Stdout, Stderr io.Writer
	// SysProcAttr holds further attributes; Start sets its own.
	SysProcAttr syscall.SysProcAttr
}

// A Process is a program that was started.
type Process struct {
	Out Output // what it wrote so far

	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended; err is valid then
	err  error
}

// An Output is text that several goroutines may write and read.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// String returns all that was written.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Reset drops what was written.
func (o *Output) Reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b.Reset()
}

// Start starts c. The caller has to call Stop or Wait.
func Start(c Command) (*Process, error) {
	p := &Process{cmd: exec.Command(c.Bin, c.Args...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = c.Dir, c.Env
	p.cmd.Stdout, p.cmd.Stderr = cmp.Or[io.Writer](c.Stdout, &p.Out), cmp.Or[io.Writer](c.Stderr, &p.Out)
	attr := c.SysProcAttr
	// A process group of its own: Ctrl-C in a terminal reaches this process alone, which then stops the program.
	attr.Setpgid = true
	dieWithParent(&attr)
	p.cmd.SysProcAttr = &attr
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Bin, err)
	}
	return p, nil
}

// Goroutine is the function that a goroutine runs for each process until that ends, as a search for leaked ones names
// it.
const Goroutine = "github.com/clusterset-dns/clusterset/test/harness/subprocess.(*Process).run"

// run starts the process and waits for its end.
func (p *Process) run(started chan<- error) {
	defer close(p.done)
	// The kernel ends the program with the thread that started it, not with the process: this thread has to stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
	}
}

// Pid returns the process ID.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns the error of a process that has ended; nil means status 0.
func (p *Process) Err() error { return p.err }

// State returns the exit state of a process that has ended.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Wait waits for the end of the process. It kills the process when ctx ends.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
	case <-ctx.Done():
		p.kill()
		return context.Cause(ctx)
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w\n%s", p.cmd.Path, p.err, p.Out.String())
	}
	return nil
}

// Await calls ready until it returns nil. It fails when ctx ends or when the process does.
func (p *Process) Await(ctx context.Context, ready func(context.Context) error) error {
	for {
		last := ready(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("ended: %s", p.State())
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Healthy fails unless a program answers a request for url with status 200.
func Healthy(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", request.URL.Path, response.Status)
	}
	return nil
}

func (p *Process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Stop ends the process by SIGTERM, and by SIGKILL if it still runs after patience. It returns when the process has
// ended, and reports whether SIGTERM was enough.
func (p *Process) Stop(patience time.Duration) bool {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return true
	case <-time.After(patience):
		p.kill()
		return false
	}
}
