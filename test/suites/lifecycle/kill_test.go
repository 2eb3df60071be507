package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// TestKilled kills CoreDNS by SIGKILL in the middle of the write of its snapshot. The next process serves the snapshot
// of before while there is no API server, and writes a new one in spite of what the killed one has left.
func TestKilled(t *testing.T) {
	tier.All(t)
	ns := namespace(t, "slain")
	apply(t, vip(ns, "web", "10.96.7.8"), headless(ns, "db"))
	for i := range 12 { // more than a pipe holds
		var addresses []string
		for n := range 1000 {
			addresses = append(addresses, fmt.Sprintf("10.%d.%d.%d", 8+i, n/250, 1+n%250))
		}
		apply(t, slice(ns, fmt.Sprintf("db-%d", i), "db", "east", addresses...))
	}
	corefile := strings.Replace(strings.ReplaceAll(theBlock, "{namespaces}", ns), "startup_timeout",
		"snapshot {file}\n\t\tstartup_timeout", 1)
	file := filepath.Join(t.TempDir(), "snapshot")
	next := filepath.Join(filepath.Dir(file), ".snapshot.next")
	const web = question("web.slain.svc.clusterset.local A")
	p := startSubprocess(t, corefile, "{file}", file)
	p.await(web, "NOERROR 10.96.7.8")
	p.terminate()

	apply(t, vip(ns, "web", "10.96.7.9"))
	must(t, syscall.Mkfifo(next, 0o600))
	p = startSubprocess(t, corefile, "{file}", file)
	p.await(web, "NOERROR 10.96.7.9")
	part := killWhileWriting(t, p, next)
	if whole, err := os.Stat(file); err != nil || int64(len(part)) >= whole.Size() {
		t.Fatalf("%d octets of the new snapshot were written: want fewer than the %d of the old one (%v)", len(part),
			whole.Size(), err)
	}
	must(t, os.Remove(next))
	must(t, os.WriteFile(next, part, 0o600))

	must(t, api(t).Freeze())
	defer func() { must(t, api(t).Thaw()) }()
	p = startSubprocess(t, corefile, "{file}", file)
	p.await(web, "NOERROR EDE3 10.96.7.8")
	must(t, api(t).Thaw())
	p.await(web, "NOERROR 10.96.7.9")
	// from slices that were listed: a snapshot is written only of all kinds
	p.await("none.db.slain.svc.clusterset.local A", "NXDOMAIN")
	p.terminate()
	if _, err := os.Stat(next); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what the killed process has left is still there (%v)", err)
	}
	must(t, api(t).Freeze())
	p = startSubprocess(t, corefile, "{file}", file)
	p.await(web, "NOERROR EDE3 10.96.7.9")
	must(t, api(t).Thaw())
	p.await(web, "NOERROR 10.96.7.9")
	p.terminate()
}

// killWhileWriting kills the process when it has begun to write to a named pipe, and returns what it has written: a
// pipe that is not read holds the writer up.
func killWhileWriting(t *testing.T, p *coreDNS, pipe string) (part []byte) {
	t.Helper()
	opened := make(chan *os.File, 1)
	go func() {
		f, err := os.Open(pipe) // waits for a writer
		if err != nil {
			t.Error(err)
		}
		opened <- f
	}()
	var f *os.File
	until.True(t, "a process that writes its snapshot", func() bool {
		select {
		case f = <-opened:
			return true
		default:
			return false
		}
	})
	defer f.Close()
	first := make([]byte, 4096)
	_, err := io.ReadFull(f, first)
	must(t, err)
	p.signal(syscall.SIGKILL)
	<-p.Done()
	rest, err := io.ReadAll(f)
	must(t, err)
	return append(first, rest...)
}

// TestSnapshotHangs reloads and ends CoreDNS while the disk of its snapshot hangs: a named pipe that nobody reads is
// where the new file is opened. Both go on without the write, and the log names the snapshot. Once the disk is back,
// the process has left nothing running.
func TestSnapshotHangs(t *testing.T) {
	tier.All(t)
	ns := namespace(t, "hangs")
	apply(t, vip(ns, "web", "10.96.7.10"))
	block := strings.Replace(theBlock, "startup_timeout", "snapshot {file}\n\t\tstartup_timeout", 1)
	file := filepath.Join(t.TempDir(), "snapshot")
	next := filepath.Join(filepath.Dir(file), ".snapshot.next")
	const web = question("web.hangs.svc.clusterset.local A")
	must(t, syscall.Mkfifo(next, 0o600))
	p := startSubprocess(t, strings.ReplaceAll(block, "{namespaces}", ns), "{file}", file)
	wrote := func(text string, times int) {
		t.Helper()
		until.OK(t, text, func(context.Context) error { return p.wroteTimes(text, times) })
	}
	p.await(web, "NOERROR 10.96.7.10")
	wrote("snapshot "+file+": the disk takes longer than", 1)

	// other objects: another store writes to the same file
	p.write(strings.ReplaceAll(block, "{namespaces}", ns+" default"))
	p.signal(syscall.SIGUSR1)
	wrote("did not end within", 1)
	wrote("Reloading complete", 1)
	apply(t, vip(ns, "web", "10.96.7.11"))
	p.await(web, "NOERROR 10.96.7.11")
	wrote("snapshot "+file+": the disk takes longer than", 2)

	p.signal(syscall.SIGTERM)
	wrote("BEGIN OF THE LIST", 1) // all that would hold up the exit is behind it
	wrote("did not end within", 2)
	pipe, err := os.Open(next)
	must(t, err)
	defer pipe.Close()
	_, err = io.Copy(io.Discard, pipe)
	must(t, err)
	p.awaitEnd()
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the snapshot after the disk is back: %v", err)
	}
}
