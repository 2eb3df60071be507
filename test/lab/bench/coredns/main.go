// Command coredns is the server that the benchmark starts for every peer: one binary, so that peers differ in nothing
// but the plugin that answers. What a Corefile does not name takes no part.
package main

import (
	"fmt"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/multisocket"
	_ "github.com/coredns/coredns/plugin/pprof"
	_ "github.com/coredns/coredns/plugin/transfer"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/clusterset-dns/clusterset"
	_ "github.com/clusterset-dns/clusterset/test/lab/baseline"
)

func main() {
	directives := []string{"bind", "multisocket", "pprof", "cache", "transfer", "baseline", "clusterset", "kubernetes"}
	if err := dnsserver.SetDirectives(directives); err != nil {
		panic(fmt.Sprintf("directives: %v", err))
	}
	coremain.Run()
}
