package faults

import (
	"context"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// Endpoints of a service get addresses outside of the networks that the member has declared, as on new nodes. These are
// left out and reported; those that come with them are imported, and what was there stays
// (docs/spec/controller.md 3.4).
func TestUndeclaredAddresses(t *testing.T) {
	tier.Nightly(t)
	const ns = "undeclared"
	export(t, east, ns, "web", "10.21.0.1")
	export(t, west, ns, "web", "10.22.0.1")
	run(t, east)
	run(t, west)
	for _, m := range clusters.Members {
		awaitImport(t, m, ns, "web", "10.21.0.1 10.22.0.1")
	}
	inEast, inWest := undisturbed(t, east, ns), undisturbed(t, west, ns)
	askEast, askWest := resolveBoth(t, ns, "web")
	askEast.change("east", "10.21.0.1 10.21.0.2 10.99.0.1") // in its own cluster every address is right
	askWest.change("east", "10.21.0.1 10.21.0.2")
	begin := time.Now()
	serve(t, east, ns, "web", "10.21.0.1", "10.21.0.2", "10.99.0.1")
	awaitImport(t, west, ns, "web", "10.21.0.1 10.21.0.2 10.22.0.1")
	outages.Since(t, "F34", begin, time.Second, "the other endpoints imported")
	until.OK(t, "condition", func(ctx context.Context) error {
		exp, err := east.ServiceExport(ctx, ns, "web")
		if err != nil {
			return err
		}
		return testclusterset.Condition(exp.Status.Conditions, "Ready=True/"+wellknown.ReasonUndeclaredAddresses)
	})
	askEast.end("F34")
	askWest.end("F34")
	inEast()
	inWest()
}
