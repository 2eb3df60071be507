// Package lifecycle holds tests of the process: how it starts, loses its API server, reloads and ends, transfers its zones and
// works beside the usual plugins of CoreDNS. They run CoreDNS in this process, or as a child, over a real API server.
package lifecycle

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	coreplugin "github.com/coredns/coredns/plugin"

	_ "github.com/coredns/coredns/plugin/acl"
	_ "github.com/coredns/coredns/plugin/autopath"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/dnssec"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/file"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/k8s_external"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/metadata"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/minimal"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
	_ "github.com/coredns/coredns/plugin/rewrite"
	_ "github.com/coredns/coredns/plugin/template"
	_ "github.com/coredns/coredns/plugin/transfer"
	_ "github.com/coredns/coredns/plugin/view"
	_ "github.com/coredns/coredns/plugin/whoami"

	_ "github.com/clusterset-dns/clusterset"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// childEnv makes this program a CoreDNS, with the plugins of the tests and under the race detector as they are.
const childEnv = "CLUSTERSET_LIFE_CHILD"

// The chain of CoreDNS itself with clusterset in its place, and plugins that fail before and behind it.
func init() {
	at := slices.Index(dnsserver.Directives, "kubernetes")
	dnsserver.Directives = slices.Insert(slices.Clone(dnsserver.Directives), at, failingBefore, "clusterset", failing)
	coreplugin.Register(failingBefore, setupFailing)
	coreplugin.Register(failing, setupFailing)
}

// These plugins fail where their argument says.
const failingBefore, failing = "failing_before", "failing"

func setupFailing(c *caddy.Controller) error {
	c.Next()
	if !c.NextArg() {
		return c.ArgErr()
	}
	fail := func() error { return errors.New("failing: as it was told") }
	switch c.Val() {
	case "setup":
		return fail()
	case "startup":
		c.OnStartup(fail)
	case "panic":
		c.OnStartup(func() error { panic(failing) })
	case "shutdown":
		c.OnShutdown(fail)
	}
	return nil
}

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		caddy.OnProcessExit = append(caddy.OnProcessExit, tellAlive)
		coremain.Run()
		os.Exit(0)
	}
	log.SetOutput(&journal)
	caddy.Quiet = true
	dnsserver.Quiet = true
	code := m.Run()
	if cp := theControlPlane; cp != nil {
		if err := cp.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// tellAlive writes what of ours still runs when a child is about to end. What net/http and client-go do in the background with
// a connection that is being closed may take a moment.
func tellAlive() {
	if ours := alive("clusterset/cache.", "clusterset/plugin."); len(ours) > 0 {
		fmt.Printf("STILL ALIVE: %s\n", ours)
	}
	var theirs []string
	for range 500 {
		if theirs = alive("k8s.io/client-go/"); len(theirs) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if len(theirs) > 0 {
		fmt.Printf("STILL ALIVE: %s\n", theirs)
	}
	fmt.Println("ALL WAITED FOR, but for what is told above")
}

// alive lists the stacks of goroutines in code that has one of the names.
func alive(names ...string) (stacks []string) {
	buffer := make([]byte, 16<<20)
	buffer = buffer[:runtime.Stack(buffer, true)]
	for stack := range strings.SplitSeq(string(buffer), "\n\n") {
		if slices.ContainsFunc(names, func(name string) bool { return strings.Contains(stack, name) }) {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

// journal keeps what CoreDNS logs in this process.
var journal output

// An output may be written and read at the same time.
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

// mark returns a function that returns what was written since.
func (o *output) mark() func() string {
	from := len(o.String())
	return func() string { return o.String()[from:] }
}

var theControlPlane *controlplane.ControlPlane

// api returns the control plane of all tests, which run one after the other. Whoever stops the API server starts it again.
func api(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	if theControlPlane == nil {
		var err error
		if theControlPlane, err = controlplane.Start(t.Context(), controlplane.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	return theControlPlane
}
