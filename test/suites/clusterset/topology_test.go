package clusterset

import (
	"testing"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

// TestTopology has a producer of two clusters say for which zone and region its slices are (KEP-2030): the labels
// travel to all importers, and the directive topology of a DNS server follows them (docs/spec/dns.md 3.5).
func TestTopology(t *testing.T) {
	tier.All(t)
	runAll(t)
	s := scriptIn(t, "topology", east, `Service db {clusterIP: None, ports: [{name: pg, port: 5432}]}
Endpoints db/a for-zone:a 10.21.0.1
Endpoints db/b for-zone:b for-region:r 10.21.0.2
Export db`)
	defer s.withdraw(t)
	s.change(t, north, `Service db {clusterIP: None, ports: [{name: pg, port: 5432}]}
Endpoints db/1 10.22.0.1
Endpoints db/2 for-region:s 10.22.0.2
Export db`)
	const imported = "db Headless [] of [IPv4] from [east north.registry1], slices Present, Ready=True/Ready\n  port \"pg\" TCP/5432 -\n"
	const ofNorth = "slice of db from north.registry1, headless, for-region s: pg=TCP/13432 at 10.22.0.2\n" +
		"slice of db from north.registry1, headless: pg=TCP/13432 at 10.22.0.1\n"
	s.awaitImports(t, imported+"slice of db from east, headless, for-zone a: pg=TCP/13432 at 10.21.0.1\n"+
		"slice of db from east, headless, for-zone b, for-region r: pg=TCP/13432 at 10.21.0.2\n"+ofNorth, clusters.Members...)

	near := testclusterset.StartDNS(t, north, "topology zone a region r")
	name := "db." + s.namespace
	near.Answers(t, name, dns.TypeA, "NOERROR 10.21.0.1 10.21.0.2 10.22.0.1")
	server.Answers(t, name, dns.TypeA, "NOERROR 10.21.0.1 10.21.0.2 10.22.0.1 10.22.0.2") // it does not know its zone

	s.change(t, east, "Endpoints db/b for-zone:b 10.21.0.2\nEndpoints db/a 10.21.0.1") // the labels go
	s.awaitImports(t, imported+"slice of db from east, headless, for-zone b: pg=TCP/13432 at 10.21.0.2\n"+
		"slice of db from east, headless: pg=TCP/13432 at 10.21.0.1\n"+ofNorth, clusters.Members...)
	near.Answers(t, name, dns.TypeA, "NOERROR 10.21.0.1 10.22.0.1")

	// A strategy divides the endpoints by their zones (docs/spec/controller.md 3.7).
	s.change(t, east, `Endpoints db/a 10.21.0.1@a 10.21.0.2@b
-Endpoints db/b
Export db {annotations: {clusterset-dns.io/slice-strategy: RequireZone}}`)
	s.awaitImports(t, imported+"slice of db from east, headless, for-zone a: pg=TCP/13432 at 10.21.0.1@a\n"+
		"slice of db from east, headless, for-zone b: pg=TCP/13432 at 10.21.0.2@b\n"+ofNorth, clusters.Members...)
	near.Answers(t, name, dns.TypeA, "NOERROR 10.21.0.1 10.22.0.1")

	s.change(t, east, "Endpoints db/a !10.21.0.1@a 10.21.0.2@b")
	s.change(t, north, "Endpoints db/1 !10.22.0.1")
	near.Answers(t, name, dns.TypeA, "NOERROR 10.21.0.2 10.22.0.2") // nothing near is ready: all that is
}
