package faults

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// Somebody deletes the heartbeat of a member on the broker, and then those of all. A member that lives makes its own
// again, and keeps the rest of its TTL until then: neither of two members loses anything in the other
// (docs/spec/controller.md 8.1).
func TestHeartbeatsAreDeleted(t *testing.T) {
	tier.Nightly(t)
	const ns = "leases"
	export(t, east, ns, "web", "10.21.0.1")
	export(t, west, ns, "web", "10.22.0.1")
	// West renews seldom, so east evaluates the heartbeats many times while there is none of west.
	seldom := func(c *controller.Config) { c.Renew, c.TTL = 10*renew, 4*ttl }
	e, w := run(t, east), run(t, west, seldom)
	for _, m := range clusters.Members {
		awaitImport(t, m, ns, "web", "10.21.0.1 10.22.0.1")
	}
	e.awaitHeartbeat("west")
	w.awaitHeartbeat("east")
	// Without a Lease the time since the start of a controller must not count for the silence of others, so it has to be
	// long enough.
	known := time.Now()
	until.True(t, "more than a TTL after the start", func() bool { return time.Since(known) > ttl+ttl/2 })
	inEast, inWest := undisturbed(t, east, ns), undisturbed(t, west, ns)
	last := awaitRenewal(t, west, nil)
	last = awaitRenewal(t, west, last) // so the next one is seconds away
	if err := clusters.Broker.Dynamic().Resource(leases).Namespace(west.BrokerNamespace()).Delete(t.Context(),
		broker.HeartbeatName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitRenewal(t, west, awaitRenewal(t, west, last))
	deleteFromBroker(t, leases)
	for _, m := range clusters.Members {
		awaitRenewal(t, m, awaitRenewal(t, m, nil))
	}
	for _, ip := range []string{"10.22.0.2", "10.22.0.3"} {
		serve(t, west, ns, "web", ip)
		awaitImport(t, east, ns, "web", "10.21.0.1 "+ip)
	}
	inEast()
	inWest()
}

// awaitRenewal waits until the broker has a heartbeat of a member with another time than last, and returns its time.
func awaitRenewal(t *testing.T, m *testclusterset.Member, last any) (renewed any) {
	t.Helper()
	until.OK(t, "heartbeat of "+m.ID, func(ctx context.Context) error {
		l, err := clusters.Broker.Dynamic().Resource(leases).Namespace(m.BrokerNamespace()).Get(ctx, broker.HeartbeatName,
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		if renewed = l.Object["spec"].(map[string]any)["renewTime"]; renewed == last {
			return errors.New("it was not renewed")
		}
		return nil
	})
	return renewed
}
