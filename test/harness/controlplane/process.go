package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
)

// A process is a child that does not outlive this process, however that ends.
type process struct {
	*subprocess.Process
	name string
	log  string
}

// start starts the program bin in the folder dir, where its output is appended to a file. env is added to the
// environment.
func start(name, bin, dir string, args []string, env ...string) (*process, error) {
	log := filepath.Join(dir, name+".log")
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer out.Close() // the child has it
	// Start gives it a group of its own: Ctrl-C in a terminal must not reach etcd before Stop has ended the API server.
	p, err := subprocess.Start(subprocess.Command{Bin: bin, Args: args, Dir: dir, Env: append(os.Environ(), env...),
		Stdout: out, Stderr: out})
	if err != nil {
		return nil, err
	}
	return &process{Process: p, name: name, log: log}, nil
}

// stop ends the child by SIGTERM, and by SIGKILL if it takes longer than patience. It returns when the child is gone.
func (p *process) stop(patience time.Duration) error {
	// A frozen process would not see the SIGTERM.
	_ = p.signal(syscall.SIGCONT)
	if !p.Stop(patience) {
		return fmt.Errorf("stop %s: still running %s after SIGTERM, so it was killed%s", p.name, patience, p.tail())
	}
	return nil
}

func (p *process) kill() {
	_ = p.signal(syscall.SIGKILL)
	<-p.Done()
}

// discard kills the child, if there is one, and fails if it was dead already.
func (p *process) discard() error {
	if p == nil {
		return nil
	}
	if !p.running() {
		return fmt.Errorf("%s had ended: %s%s", p.name, p.State(), p.tail())
	}
	p.kill()
	return nil
}

func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.Done():
		return false
	default:
		return true
	}
}

func (p *process) signal(s os.Signal) error {
	err := p.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// await calls ready until it returns nil. It fails when ctx ends or when the child does.
func (p *process) await(ctx context.Context, ready func(context.Context) error) error {
	if err := p.Await(ctx, ready); err != nil {
		return fmt.Errorf("%s: %w%s", p.name, err, p.tail())
	}
	return nil
}

// tail returns the end of the child's output, for an error text.
func (p *process) tail() string {
	f, err := os.Open(p.log)
	if err != nil {
		return ""
	}
	defer f.Close()
	const most = 4 << 10
	if st, err := f.Stat(); err == nil && st.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd)
	}
	b, _ := io.ReadAll(f)
	return fmt.Sprintf("\n--- end of %s:\n%s", p.log, bytes.TrimSpace(b))
}

// A sweeper is a shell that removes a folder when this process closes its end of a pipe, or when the kernel does
// because this process is gone.
type sweeper struct {
	pipe io.Closer
	cmd  *exec.Cmd
}

// Processes that die together with this one may still write for a moment, so removal is tried again for ten seconds.
const sweep = `read -r _
i=0
until rm -rf -- "$1" 2>/dev/null && [ ! -e "$1" ]; do
	i=$((i + 1))
	[ $i -lt 100 ] || exit 1
	sleep 0.1
done`

func newSweeper(dir string) (*sweeper, error) {
	cmd := exec.Command("sh", "-c", sweep, "sh", dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start sh: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start sh: %w", err)
	}
	return &sweeper{pipe: pipe, cmd: cmd}, nil
}

// run removes the folder.
func (s *sweeper) run() error {
	s.pipe.Close()
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("remove the folder of a control plane: %w", err)
	}
	return nil
}
