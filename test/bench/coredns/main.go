// Command coredns is the server that the benchmark starts for every peer: one binary, so that peers differ in nothing but
// the plugin that answers.
package main

import (
	"fmt"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/pprof"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/clusterset-dns/clusterset"
	_ "github.com/clusterset-dns/clusterset/test/floor"
)

func main() {
	if err := dnsserver.SetDirectives([]string{"bind", "pprof", "floor", "clusterset", "kubernetes"}); err != nil {
		panic(fmt.Sprintf("directives: %v", err))
	}
	coremain.Run()
}
