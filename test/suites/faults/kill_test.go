package faults

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A controller, a process of its own, is killed by SIGKILL in the middle of its work, at a write that never arrives.
// The next one is killed at a write whose answer it does not get. A third one goes on where they ended. What was
// exported before stays in use here and in the other member, and each service ends as with a controller that was not
// killed.
func TestControllerIsKilled(t *testing.T) {
	tier.Nightly(t)
	const before, count = "before-kill", 10
	killed := func(n int) string { return fmt.Sprintf("%s%d", killedPrefix, n) }
	run(t, west, func(c *controller.Config) { c.TTL = time.Hour }) // east must not expire before another process leads
	west.Put(t, testclusterset.Namespace(before))
	k := &killer{t: t}
	k.start()
	export(t, east, before, "web", "10.21.0.1")
	want := awaitExported(t, before)
	awaitImport(t, west, before, "web", "10.21.0.1")
	inEast, inWest := undisturbed(t, east, before), undisturbed(t, west, before)

	k.killAt(30, false)
	for n := range count {
		export(t, east, killed(n), "web", "10.21.0.1")
	}
	k.awaitEnd()
	for n := range count / 2 {
		east.Drop(t, testclusterset.Export(killed(n), "web"))
	}
	k.killAt(15, true)
	k.start()
	k.awaitEnd()

	startController(t, func(string) bool { return true })
	for n := range count {
		if n < count/2 {
			awaitPicture(t, killed(n), "[]")
		} else {
			awaitPicture(t, killed(n), want)
		}
	}
	serve(t, east, before, "web", "10.21.0.2")
	awaitImport(t, west, before, "web", "10.21.0.2")
	inEast()
	inWest()
}

// killedPrefix begins the names of the namespaces in which controllers are killed.
const killedPrefix = "killed-"

// A killer runs a controller of east as a subprocess, and kills it at one of its writes in these namespaces.
type killer struct {
	t *testing.T

	mu      sync.Mutex
	process *subprocess.Process
	left    int    // how many writes it has until that one; 0 if it is not to be killed
	arrives bool   // the write reaches the API server
	last    string // the write that arrives and is not answered
}

// start starts another controller.
func (k *killer) start() {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	p := launchController(k.t, k.admit, k.answered)
	k.process = p
	k.t.Cleanup(func() { p.Stop(0) })
}

// killAt has the controller be killed at its n-th write from now on, which the API server gets if it arrives.
func (k *killer) killAt(n int, arrives bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left, k.arrives, k.last = n, arrives, ""
}

// awaitEnd waits until the controller is killed.
func (k *killer) awaitEnd() {
	k.t.Helper()
	k.mu.Lock()
	p := k.process
	k.mu.Unlock()
	until.True(k.t, "the kill in the middle of writes", func() bool {
		select {
		case <-p.Done():
			return true
		default:
			return false
		}
	})
	if status, ok := p.State().Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		k.t.Fatalf("the controller ended by itself: %s\n%s", p.State(), p.Out.String())
	}
}

func (k *killer) admit(write string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left == 0 || !strings.Contains(write, killedPrefix) {
		return true
	}
	if k.left--; k.left > 0 {
		return true
	}
	if k.arrives {
		k.last = write
		return true
	}
	k.kill()
	return false
}

func (k *killer) answered(write string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if write == k.last {
		k.last = ""
		k.kill()
	}
}

// kill kills the process and waits for its end. The caller holds k.mu.
func (k *killer) kill() {
	if err := k.process.Signal(syscall.SIGKILL); err != nil {
		k.t.Error(err)
	}
	<-k.process.Done()
}
