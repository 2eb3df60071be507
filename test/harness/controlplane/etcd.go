package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// SaveEtcd copies all that etcd holds and returns the copy's folder, for [ControlPlane.RestoreEtcd] and
// [ControlPlane.RestoreSnapshot]. The API server is away meanwhile.
func (c *ControlPlane) SaveEtcd(ctx context.Context) (saved string, err error) {
	err = c.withoutEtcd(ctx, func() error {
		if saved, err = os.MkdirTemp(c.dir, "saved-"); err != nil {
			return err
		}
		return os.CopyFS(saved, os.DirFS(c.dataDir()))
	})
	if err != nil {
		return "", fmt.Errorf("save etcd: %w", err)
	}
	return saved, nil
}

// RestoreEtcd takes etcd, and so the API server, back to what SaveEtcd saved: later objects and resource versions never
// were. A folder can be restored any number of times.
func (c *ControlPlane) RestoreEtcd(ctx context.Context, saved string) error {
	err := c.withoutEtcd(ctx, func() error {
		if err := os.RemoveAll(c.dataDir()); err != nil {
			return err
		}
		return os.CopyFS(c.dataDir(), os.DirFS(saved))
	})
	if err != nil {
		return fmt.Errorf("restore etcd: %w", err)
	}
	return nil
}

// RestoreSnapshot is RestoreEtcd as an administrator does it, by etcdutl. bump is the value of --bump-revision, with
// --mark-compacted; 0 for neither.
func (c *ControlPlane) RestoreSnapshot(ctx context.Context, saved string, bump uint64) error {
	etcdutl, err := EtcdUtl(ctx, c.opts.Progress)
	if err != nil {
		return fmt.Errorf("restore a snapshot: %w", err)
	}
	args := []string{
		// only etcdctl appends a hash
		"snapshot", "restore", filepath.Join(saved, "member", "snap", "db"), "--skip-hash-check",
		"--data-dir=" + c.dataDir(), "--name=etcd", "--initial-advertise-peer-urls=unix://" + etcdPeer,
		"--initial-cluster=etcd=unix://" + etcdPeer,
	}
	if bump > 0 {
		args = append(args, fmt.Sprint("--bump-revision=", bump), "--mark-compacted")
	}
	err = c.withoutEtcd(ctx, func() error {
		if err := os.RemoveAll(c.dataDir()); err != nil {
			return err
		}
		if out, err := exec.CommandContext(ctx, etcdutl, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("restore a snapshot: %w", err)
	}
	return nil
}

// withoutEtcd stops both programs, calls f, and starts both.
func (c *ControlPlane) withoutEtcd(ctx context.Context, f func() error) error {
	c.spent.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := errors.Join(c.stopAPIServer(), c.stopEtcd()); err != nil {
		return err
	}
	// etcd leaves its socket behind if it had to be killed; its presence would look like a running one.
	for _, socket := range []string{etcdClient, etcdPeer} {
		if err := os.RemoveAll(filepath.Join(c.dir, socket)); err != nil {
			return err
		}
	}
	if err := f(); err != nil {
		return err
	}
	var err error
	if c.etcd, err = c.startEtcd(ctx); err != nil {
		return err
	}
	c.api, err = c.startAPIServer(ctx, c.port)
	return err
}

// Freeze stops the API server in its tracks: connections stay open and take data, but nothing answers, as
// behind a network that drops packets. [ControlPlane.Thaw] and all that stops the API server undo it.
func (c *ControlPlane) Freeze() error {
	return c.signalAPIServer(syscall.SIGSTOP, awaitStopped)
}

// Thaw lets a frozen API server go on.
func (c *ControlPlane) Thaw() error {
	return c.signalAPIServer(syscall.SIGCONT, func(int) error { return nil })
}

func (c *ControlPlane) signalAPIServer(s syscall.Signal, await func(pid int) error) error {
	c.spent.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.api.running() {
		return fmt.Errorf("send %s: the API server does not run", s)
	}
	if err := c.api.signal(s); err != nil {
		return fmt.Errorf("send %s to the API server: %w", s, err)
	}
	return await(c.api.Pid())
}
