// Package lifecycle tests CoreDNS with the plugin from its start to its end: start without API server, loss of the API
// server, reload, end, zone transfer, and work beside the usual plugins of CoreDNS. CoreDNS runs in this process or in
// a subprocess, over a real API server.
package lifecycle

import (
	"errors"
	"fmt"
	"log"
	"os"
	"runtime"
	"slices"
	"strings"
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
	_ "github.com/coredns/coredns/plugin/timeouts"
	_ "github.com/coredns/coredns/plugin/transfer"
	_ "github.com/coredns/coredns/plugin/view"
	_ "github.com/coredns/coredns/plugin/whoami"

	_ "github.com/clusterset-dns/clusterset"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// subprocessEnv is an environment variable that makes this program a CoreDNS, with the plugins of the tests and with
// the race detector if the tests have it.
const subprocessEnv = "CLUSTERSET_LIFECYCLE_SUBPROCESS"

// The plugin chain is that of CoreDNS with clusterset at its usual place and a failing plugin on each side.
func init() {
	at := slices.Index(dnsserver.Directives, "kubernetes")
	dnsserver.Directives = slices.Insert(slices.Clone(dnsserver.Directives), at, failingBefore, "clusterset", failing)
	coreplugin.Register(failingBefore, setupFailing)
	coreplugin.Register(failing, setupFailing)
}

// These plugins fail at the point that their argument names: setup, startup, panic or shutdown.
const failingBefore, failing = "failing_before", "failing"

func setupFailing(c *caddy.Controller) error {
	c.Next()
	if !c.NextArg() {
		return c.ArgErr()
	}
	fail := func() error { return errors.New("failing: as configured") }
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
	if os.Getenv(subprocessEnv) != "" {
		caddy.OnProcessExit = append(caddy.OnProcessExit, printAlive)
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

// printAlive writes the goroutines of the plugin and of client-go that are left at the end of a subprocess. A goroutine
// that has reported its end may still be on its last instructions, and client-go closes connections in the background:
// printAlive gives them time.
func printAlive() {
	fmt.Println("BEGIN OF THE LIST")
	var stacks []string
	for end := time.Now().Add(until.Patience / 2); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if stacks = alive("clusterset/cache.", "clusterset/plugin.", "k8s.io/client-go/"); len(stacks) == 0 {
			break
		}
	}
	for _, stack := range stacks {
		fmt.Printf("STILL ALIVE: %s\n", stack)
	}
	fmt.Println("END OF THE LIST")
}

// alive returns the stacks of goroutines that contain one of the names.
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

// journal holds the log of CoreDNS in this process.
var journal output

// An output is text of which a test reads parts.
type output struct{ subprocess.Output }

// mark returns a function that returns the text written since the call of mark.
func (o *output) mark() func() string {
	from := len(o.String())
	return func() string { return o.String()[from:] }
}

var theControlPlane *controlplane.ControlPlane

// api returns the control plane that all tests share; they run one after the other. A test that stops the API server
// starts it again.
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
