package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

// One of many exports is withdrawn. It takes effect at once, but for DNS (docs/spec/controller.md 3.2, docs/spec/controller.md 8.6,
// docs/spec/dns.md 6.9), and the others stay. docs/controller.md has the times that are measured here.
func TestUnexport(t *testing.T) {
	const ns = "unexport"
	var names []string
	for i := range apiserver.WithholdFrom {
		names = append(names, fmt.Sprintf("web-%d", i))
		export(t, east, ns, names[i], fmt.Sprintf("10.21.2.%d", i))
	}
	west.Put(t, testclusterset.Namespace(ns))
	run(t, east)
	run(t, west)
	for i, name := range names {
		awaitImport(t, west, ns, name, fmt.Sprintf("10.21.2.%d", i))
	}
	inWest := steady(t, west, ns, names[1:]...)
	other := resolve(t, west, ns, names[1], "10.21.2.1", "none")
	servers[west.ID].Answers(t, "east."+names[0]+"."+ns, dns.TypeA, "NOERROR 10.21.2.0")

	begin := time.Now()
	east.Drop(t, testclusterset.Export(ns, names[0]))
	awaitRecord(t, east, ns, names[0], false)
	withdrawn := time.Since(begin)
	awaitImport(t, west, ns, names[0], "none")
	removed := time.Since(begin)
	servers[west.ID].Answers(t, names[0]+"."+ns, dns.TypeA, "NXDOMAIN")
	outages.Measured(t, "F23", "one of many exports deleted: withdrawn after %.1f s, import removed after %.1f s, no longer answered after %.1f s",
		withdrawn.Seconds(), removed.Seconds(), time.Since(begin).Seconds())
	other.end("F23")
	inWest()
}
