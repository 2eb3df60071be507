package netns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
)

// A namespace is a network namespace without a name. It is gone when it is closed and no process is left in it.
type namespace struct{ handle *os.File }

const ownNamespace = "/proc/thread-self/ns/net"

// newNamespace makes a namespace whose loopback is up.
func newNamespace(ctx context.Context) (*namespace, error) {
	n := &namespace{}
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); errors.Is(err, unix.EPERM) {
			return fmt.Errorf("%w: want to be root", err)
		} else if err != nil {
			return err
		}
		n.handle, err = os.Open(ownNamespace)
		return err
	})
	if err == nil {
		err = n.ip(ctx, "link set lo up")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("network namespace: %w", err), n.close())
	}
	return n, nil
}

// onThread runs f on a thread of its own, which f may move to another namespace.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		own, err := os.Open(ownNamespace)
		if err != nil {
			done <- err
			return
		}
		err = f()
		// A thread that does not find back ends with this goroutine.
		if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		own.Close()
		done <- err
	}()
	return <-done
}

// do runs f in the namespace: the sockets that it opens and the processes that it starts belong there, wherever they
// are used. f must not leave that to another goroutine.
func (n *namespace) do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.handle.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return f()
	})
}

// path is a file that stands for the namespace while it is not closed.
func (n *namespace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.handle.Fd()) }

// run runs a program to its end in the namespace, and returns what it wrote.
func (n *namespace) run(ctx context.Context, stdin, bin string, args ...string) (string, error) {
	var out []byte
	err := n.do(func() (err error) {
		cmd := exec.CommandContext(ctx, bin, args...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(append([]string{bin}, args...), " "), err, out)
	}
	return string(out), nil
}

// ip runs commands of ip(8).
func (n *namespace) ip(ctx context.Context, commands ...string) error {
	batch := strings.Join(commands, "\n") + "\n"
	if _, err := n.run(ctx, batch, "ip", "-batch", "-"); err != nil {
		return fmt.Errorf("%w\n%s", err, batch)
	}
	return nil
}

// command returns c as it has to be started to run in the namespace.
func (n *namespace) command(c subprocess.Command) subprocess.Command {
	c.Args = append([]string{"--net=" + n.path(), "--", c.Bin}, c.Args...)
	c.Bin = "nsenter"
	return c
}

func (n *namespace) close() error {
	if n.handle == nil {
		return nil
	}
	return n.handle.Close()
}
