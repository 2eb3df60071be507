package identity_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/identity"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

// docs/spec/controller.md 3.6: the first heartbeat that is written after others failed is reported, once.
func TestHeartbeatResumes(t *testing.T) {
	env := memberenv.New(t)
	env.Join()
	i := env.Start()
	i.Follow(broker.Handlers{})
	env.Await("membership", func() bool {
		i.Membership.Review()
		is := i.Membership.Status()
		return is.Known && is.ClusterID != ""
	})
	var resumed atomic.Int32
	h := &identity.Heartbeat{
		Membership: i.Membership, Broker: i.Broker, Freezes: i.Freezes, Renew: 2 * time.Second, TTL: time.Hour, Log: i.Log,
		Resumed: func() { resumed.Add(1) },
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- h.Run(ctx) }()
	renewed := func() time.Time {
		lease := &coordinationv1.Lease{}
		if err := env.Admin.Get(t.Context(), lease, memberenv.Namespace, apibroker.HeartbeatName); err != nil {
			return time.Time{}
		}
		return lease.Spec.RenewTime.Time
	}
	env.Await("a heartbeat", func() bool { return !renewed().IsZero() })

	const name = "no-heartbeats"
	env.Deny(memberenv.Policy{Name: name, Resources: []string{"coordination.k8s.io/v1/leases"}, Where: `request.namespace.startsWith("member-")`, Want: []string{"false"}})
	env.Await("a heartbeat that fails", func() bool { return i.Log.Count("heartbeat: ") > 0 })
	if n := resumed.Load(); n != 0 {
		t.Errorf("resumed %d times before a heartbeat failed", n)
	}
	failed := time.Now()
	if err := env.Server.Delete(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	env.Await("heartbeats again", func() bool { return resumed.Load() == 1 && renewed().After(failed) })
	before := renewed()
	env.Await("another one", func() bool { return renewed().After(before) })
	if n := resumed.Load(); n != 1 {
		t.Errorf("resumed %d times, want once", n)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
