// Command coredns is CoreDNS with the plugin clusterset and the usual plugins compiled in.
package main

import (
	"cmp"
	"fmt"
	"runtime/debug"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
)

// version is the version of clusterset. A release sets it with -ldflags "-X main.version=v1.2.3". Without it, the
// version that the Go toolchain recorded is used.
var version string

func init() {
	if err := dnsserver.SetDirectives(chain()); err != nil {
		panic(fmt.Sprintf("directives: %v", err))
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		build = &debug.BuildInfo{}
	}
	caddy.AppVersion = appVersion(version, build)
	coremain.GitCommit = cmp.Or(coremain.GitCommit, commit(build))
}

func main() {
	coremain.Run()
}

// appVersion returns the version of CoreDNS, followed by ours or, if that is empty, by the one that the Go toolchain
// recorded.
func appVersion(ours string, build *debug.BuildInfo) string {
	ours = cmp.Or(ours, build.Main.Version)
	if ours == "" || ours == "(devel)" {
		ours = "devel"
	}
	return coremain.CoreVersion + "+clusterset-" + ours
}

// commit returns the revision that was built, "" if the Go toolchain did not record one.
func commit(build *debug.BuildInfo) string {
	for _, s := range build.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}
