package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// A child is a program that does not outlive this process, however that ends.
type child struct {
	name string
	cmd  *exec.Cmd
	out  output
	done chan struct{} // closed when the child is gone; err is valid then
	err  error
}

// output keeps what a child writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func start(name string, args ...string) (*child, error) {
	c := &child{name: name, cmd: exec.Command(name, args...), done: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.out
	// A group of its own: Ctrl-C in a terminal is for this process alone, which then stops its children.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(c.cmd.SysProcAttr)
	started := make(chan error)
	go func() {
		defer close(c.done)
		// The kernel ends the child with the thread that made it, not with the process: this one has to stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.err = c.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// wait returns when the child is gone. It kills it when ctx ends.
func (c *child) wait(ctx context.Context) error {
	select {
	case <-c.done:
	case <-ctx.Done():
		c.kill()
		return context.Cause(ctx)
	}
	if c.err != nil {
		return fmt.Errorf("%s: %w\n%s", c.name, c.err, c.out.String())
	}
	return nil
}

// ended returns how the child ended and what it wrote, or nil while it runs.
func (c *child) ended() error {
	select {
	case <-c.done:
		return fmt.Errorf("it ended: %s\n%s", c.cmd.ProcessState, c.out.String())
	default:
		return nil
	}
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

// stop ends the child by SIGTERM, or by SIGKILL if that is not enough, and returns when it is gone.
func (c *child) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
	case <-time.After(10 * time.Second):
		c.kill()
	}
}
