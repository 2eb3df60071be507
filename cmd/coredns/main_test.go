package main

import (
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	"github.com/clusterset-dns/clusterset/test/harness/server"
)

// upstream is the plugin chain of CoreDNS itself: this variable is set before any init function of package main runs.
var upstream = dnsserver.Directives

// omitted are the plugins that are not compiled in: they need one vendor's service or a data file of their own,
// translate addresses, or accept updates, which a DNS server of a clusterset does not do.
var omitted = []string{"azure", "clouddns", "dynupdate", "etcd", "geoip", "nomad", "route53", "siit"}

func TestDirectivesKeepTheOrderOfCoreDNS(t *testing.T) {
	var want []string
	for _, d := range upstream {
		if slices.Contains(omitted, d) {
			continue
		}
		if d == "kubernetes" {
			want = append(want, "clusterset")
		}
		want = append(want, d)
	}
	if !slices.Contains(want, "clusterset") {
		t.Fatalf("directives of CoreDNS = %q, want kubernetes among them", upstream)
	}
	if !slices.Equal(dnsserver.Directives, want) {
		t.Errorf("directives = %q\nwant %q", dnsserver.Directives, want)
	}
}

func TestDirectivesAreTheRegisteredPlugins(t *testing.T) {
	var got []string
	for _, name := range caddy.ListPlugins()["others"] {
		got = append(got, strings.TrimPrefix(name, "dns."))
	}
	want := slices.Sorted(slices.Values(dnsserver.Directives))
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("registered plugins = %q\nwant those of the directives, %q", got, want)
	}
}

func TestAppVersion(t *testing.T) {
	stamped := &debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20260102030405-0123456789ab"}}
	for _, tt := range []struct {
		name, ours string
		build      *debug.BuildInfo
		want       string
	}{
		{"release", "v1.2.3", stamped, coremain.CoreVersion + "+clusterset-v1.2.3"},
		{"stamped by the toolchain", "", stamped, coremain.CoreVersion + "+clusterset-v0.0.0-20260102030405-0123456789ab"},
		{"outside a repository", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}},
			coremain.CoreVersion + "+clusterset-devel"},
		{"nothing known", "", &debug.BuildInfo{}, coremain.CoreVersion + "+clusterset-devel"},
	} {
		if got := appVersion(tt.ours, tt.build); got != tt.want {
			t.Errorf("%s: appVersion(%q, %q) = %q, want %q", tt.name, tt.ours, tt.build.Main.Version, got, tt.want)
		}
	}
}

func TestCommit(t *testing.T) {
	build := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs", Value: "git"},
		{Key: "vcs.revision", Value: "0123abc"}}}
	if got := commit(build); got != "0123abc" {
		t.Errorf("commit = %q, want 0123abc", got)
	}
	if got := commit(&debug.BuildInfo{}); got != "" {
		t.Errorf("commit = %q, want none", got)
	}
}

// TestBinary checks the version that the program reports, and its list of plugins.
func TestBinary(t *testing.T) {
	bin, err := server.Program(t.Context(), "coredns")
	if err != nil {
		t.Fatal(err)
	}
	run := func(flag string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), bin, flag).CombinedOutput()
		if err != nil {
			t.Fatalf("coredns %s: %v\n%s", flag, err, out)
		}
		return string(out)
	}

	got := slices.Sorted(slices.Values(strings.Fields(run("-plugins"))))
	if want := slices.Sorted(slices.Values(dnsserver.Directives)); !slices.Equal(got, want) {
		t.Errorf("coredns -plugins = %q\nwant %q", got, want)
	}
	first, _, _ := strings.Cut(run("-version"), "\n")
	if want := "CoreDNS-" + coremain.CoreVersion + "+clusterset-"; !strings.HasPrefix(first, want) {
		t.Errorf("coredns -version = %q, want one that begins with %q", first, want)
	}
}
