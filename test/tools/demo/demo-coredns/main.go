// Command demo-coredns is CoreDNS with the plugin clusterset and the other two that the demo's Corefile names:
// cmd/coredns has 425 more packages to compile.
package main

import (
	"fmt"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"

	_ "github.com/clusterset-dns/clusterset"
)

func init() {
	if err := dnsserver.SetDirectives([]string{"bind", "errors", "clusterset"}); err != nil {
		panic(fmt.Sprintf("directives: %v", err))
	}
}

func main() {
	coremain.Run()
}
