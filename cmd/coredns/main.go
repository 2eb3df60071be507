// Command coredns is CoreDNS with the plugin clusterset and the usual plugins compiled in.
package main

import (
	"fmt"
	"runtime/debug"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
)

// version is ours. A release sets it by -ldflags "-X main.version=v1.2.3"; else the toolchain's stamp stands in.
var version string

func init() {
	if err := dnsserver.SetDirectives(directives); err != nil {
		panic(fmt.Sprintf("directives: %v", err))
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		build = &debug.BuildInfo{}
	}
	caddy.AppVersion = appVersion(version, build)
	if coremain.GitCommit == "" {
		coremain.GitCommit = commit(build)
	}
}

func main() {
	coremain.Run()
}

// appVersion returns CoreDNS's version with ours: the configured one, else what the toolchain knows.
func appVersion(ours string, build *debug.BuildInfo) string {
	if ours == "" {
		ours = build.Main.Version
	}
	if ours == "" || ours == "(devel)" {
		ours = "devel"
	}
	return coremain.CoreVersion + "+clusterset-" + ours
}

// commit returns the revision that was built, or "" if the toolchain did not see one.
func commit(build *debug.BuildInfo) string {
	for _, s := range build.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}
