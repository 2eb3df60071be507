// Package subprocess starts programs that do not outlive this process, however that ends.
package subprocess

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// A Command is a program to be started.
type Command struct {
	Bin  string
	Args []string
	Dir  string   // working directory
	Env  []string // the whole environment; nil means that of this process
	// SysProcAttr may have more than what Start sets.
	SysProcAttr syscall.SysProcAttr
}

// A Child is a program that runs, or has run.
type Child struct {
	Out Output // what it wrote so far

	cmd  *exec.Cmd
	done chan struct{} // closed when the child is gone; err is valid then
	err  error
}

// An Output may be written and read at the same time.
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

// String is all that was written.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Start starts c. The caller has to stop it.
func Start(c Command) (*Child, error) {
	child := &Child{cmd: exec.Command(c.Bin, c.Args...), done: make(chan struct{})}
	child.cmd.Dir, child.cmd.Env = c.Dir, c.Env
	child.cmd.Stdout, child.cmd.Stderr = &child.Out, &child.Out
	attr := c.SysProcAttr
	// A group of its own: Ctrl-C in a terminal is for this process alone, which then stops its children.
	attr.Setpgid = true
	dieWithParent(&attr)
	child.cmd.SysProcAttr = &attr
	started := make(chan error)
	go func() {
		defer close(child.done)
		// The kernel ends the child with the thread that made it, not with the process: this one has to stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := child.cmd.Start()
		started <- err
		if err == nil {
			child.err = child.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Bin, err)
	}
	return child, nil
}

// Pid is the number of the process.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Done is closed when the child is gone.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err is how the child ended, once it is gone; nil means with status 0.
func (c *Child) Err() error { return c.err }

// State says in words how the child ended, once it is gone.
func (c *Child) State() *os.ProcessState { return c.cmd.ProcessState }

// Wait returns when the child is gone. It kills it when ctx ends.
func (c *Child) Wait(ctx context.Context) error {
	select {
	case <-c.done:
	case <-ctx.Done():
		c.kill()
		return context.Cause(ctx)
	}
	if c.err != nil {
		return fmt.Errorf("%s: %w\n%s", c.cmd.Path, c.err, c.Out.String())
	}
	return nil
}

func (c *Child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

// Stop ends the child by SIGTERM, or by SIGKILL if that is not enough within patience. It returns when the child is gone,
// and reports whether SIGTERM was enough.
func (c *Child) Stop(patience time.Duration) bool {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
		return true
	case <-time.After(patience):
		c.kill()
		return false
	}
}
