package controlplane

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

// helperEnv makes the test binary a process that starts a control plane and comes to the bad end that the value names.
const helperEnv = "CLUSTERSET_CONTROLPLANE_HELPER"

func helper() {
	c, err := Start(context.Background(), Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	fmt.Println(c.dir, c.etcd.Pid(), c.api.Pid())
	_, _ = io.Copy(io.Discard, os.Stdin)
	switch os.Getenv(helperEnv) {
	case "panic":
		go panic("the helper panics in a goroutine that nothing recovers")
	case "exit":
		os.Exit(0)
	}
	select {}
}

func TestNothingIsLeftBehind(t *testing.T) {
	tier.All(t)
	for _, end := range []string{"panic", "exit", "kill"} {
		t.Run(end, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), helperEnv+"="+end)
			stdin, err := cmd.StdinPipe()
			must(t, err)
			stdout, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			line, err := bufio.NewReader(stdout).ReadString('\n')
			if err != nil {
				t.Fatal(err, cmd.Wait())
			}
			var dir string
			var etcd, api int
			_, err = fmt.Sscan(line, &dir, &etcd, &api)
			must(t, err)
			for _, pid := range []int{etcd, api} {
				if _, err := processState(pid); err != nil {
					t.Fatalf("the control plane should run: %v", err)
				}
			}
			if _, err := os.Stat(dir); err != nil {
				t.Fatal(err)
			}

			if end == "kill" {
				must(t, cmd.Process.Kill())
			}
			_ = stdin.Close()
			_ = cmd.Wait()
			wait(t, "etcd", func() bool { return !alive(etcd) })
			wait(t, "kube-apiserver", func() bool { return !alive(api) })
			wait(t, dir, func() bool { _, err := os.Stat(dir); return errors.Is(err, os.ErrNotExist) })
		})
	}
}

// wait fails the test if processes are left after a time in which any machine would be done.
func wait(t *testing.T, what string, gone func() bool) {
	t.Helper()
	for range 3600 {
		if gone() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("%s was left behind", what)
}

// alive is false for a zombie: the process that adopts orphans here may never wait for it.
func alive(pid int) bool {
	if state, err := processState(pid); err == nil {
		return state != "Z" && state != "X"
	}
	return syscall.Kill(pid, 0) == nil
}

// processState returns the letter that proc(5) has for the state of a process.
func processState(pid int) (string, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	_, after, ok := strings.Cut(string(b), ") ")
	if !ok {
		return "", fmt.Errorf("/proc/%d/stat: %q", pid, b)
	}
	return after[:1], nil
}
