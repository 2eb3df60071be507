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
		Resumed: func() { resumed.Add(1) }, PublishAll: func() func() bool { return func() bool { return true } },
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

// docs/spec/controller.md 8.2: a heartbeat that comes more than a TTL after the last one, which may be that of an earlier process, follows the exports. One within
// the TTL, and the first of a cluster, wait for nothing.
func TestLateHeartbeat(t *testing.T) {
	env := memberenv.New(t)
	env.Join()
	lease := func() *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: memberenv.Namespace, Name: apibroker.HeartbeatName}}
	}
	const none, renewals = "false", "object.spec.renewTime == oldObject.spec.renewTime" // which writes the broker takes at first: with the second all but renewals
	for _, tt := range []struct {
		name  string
		ago   time.Duration // the heartbeat of an earlier process; 0 if there was none
		ttl   time.Duration
		takes string
		waits bool // for the exports
		never bool // are they written
	}{
		{name: "the first", ttl: time.Hour, takes: none},
		{name: "within the TTL", ago: 50 * time.Minute, ttl: time.Hour, takes: none},
		{name: "later", ago: 2 * time.Hour, ttl: time.Hour, takes: none, waits: true},
		{name: "later, and the exports cannot be written", ago: 2 * time.Hour, ttl: 6 * time.Second, takes: none, waits: true, never: true},
		{name: "later, and only renewals are denied", ago: 2 * time.Hour, ttl: time.Hour, takes: renewals, waits: true},
		{name: "from a clock that is ahead", ago: -time.Hour, ttl: time.Hour, takes: none, waits: true},
		{name: "within an hour, without a TTL of its own", ago: 50 * time.Minute, takes: none},
		{name: "later, without a TTL of its own", ago: 2 * time.Hour, takes: none, waits: true},
		{name: "after the longest TTL that counts", ago: 2 * time.Hour, ttl: 24 * time.Hour, takes: none, waits: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var earlier time.Time
			if tt.ago != 0 {
				earlier = time.Now().Add(-tt.ago).Truncate(time.Microsecond)
				l := lease()
				l.Spec.RenewTime = &metav1.MicroTime{Time: earlier}
				env.Create(l)
			}
			const deny = "no-heartbeats"
			env.Deny(memberenv.Policy{Name: deny, Resources: []string{"coordination.k8s.io/v1/leases"}, Where: `request.namespace.startsWith("member-")`, Want: []string{tt.takes}})
			renewal := func() error {
				l := lease()
				l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
				return env.Admin.DryRun(t.Context(), l)
			}
			env.Await("the denial", func() bool { return renewal() != nil })
			i := env.Start()
			defer i.End()
			i.Follow(broker.Handlers{})
			var begun, looked atomic.Int32
			var written atomic.Bool
			written.Store(tt.takes == renewals)
			h := &identity.Heartbeat{
				Membership: i.Membership, Broker: i.Broker, Freezes: i.Freezes, Renew: min(tt.ttl/3, 10*time.Second), TTL: tt.ttl, Log: i.Log, Resumed: func() {},
				PublishAll: func() func() bool {
					begun.Add(1)
					return func() bool {
						looked.Add(1)
						return written.Load()
					}
				},
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- h.Run(ctx) }()
			renewed := func() time.Time {
				l := lease()
				if err := env.Admin.Get(t.Context(), l, l.Namespace, l.Name); err != nil {
					return time.Time{}
				}
				return l.Spec.RenewTime.Time
			}
			env.Await("a heartbeat that fails", func() bool { return i.Log.Count("trying again") > 0 })
			if n := begun.Load(); n > 0 && tt.takes == none {
				t.Errorf("%d times exports were written before a broker that takes no writes", n)
			}
			if tt.takes == renewals {
				tries := 0 // the note, and renewals that fail
				env.Await("renewals", func() bool { tries += len(i.Writes.Take()); return tries > 3 })
				if n := begun.Load(); n != 1 {
					t.Errorf("while renewals fail the exports were written %d times, want once", n)
				}
			}
			if err := env.Server.Delete(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: deny}}); err != nil {
				t.Fatal(err)
			}
			if tt.waits && !tt.never && tt.takes == none {
				env.Await("checks of the exports", func() bool { return looked.Load() > 2 })
				if is := renewed(); !is.Equal(earlier) {
					t.Errorf("the heartbeat was renewed at %s before the exports were written", is)
				}
				written.Store(true)
			}
			env.Await("a heartbeat", func() bool { is := renewed(); return !is.IsZero() && !is.Equal(earlier) })
			if got := begun.Load() > 0; got != tt.waits {
				t.Errorf("exports were written first: %t, want %t", got, tt.waits)
			}
			said := 0
			if tt.waits {
				said = 1
			}
			if got := i.Log.Count("writing the exports first"); got != said {
				t.Errorf("it was said %d times that the exports are written first, want %d", got, said)
			}
			if gaveUp := i.Log.Count("not all exports are written") > 0; gaveUp != tt.never {
				t.Errorf("it waited no longer: %t, want %t", gaveUp, tt.never)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			env.Delete(lease())
			if err := env.Server.Delete(t.Context(), &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: deny}}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A policy of the broker denies the note that a heartbeat is late, and nothing else: the exports are written, and the heartbeat follows.
func TestLateHeartbeatWithoutNote(t *testing.T) {
	env := memberenv.New(t)
	env.Join()
	earlier := metav1.NewMicroTime(time.Now().Add(-2 * time.Hour).Truncate(time.Microsecond))
	lease := func() *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: memberenv.Namespace, Name: apibroker.HeartbeatName},
			Spec:       coordinationv1.LeaseSpec{RenewTime: &earlier},
		}
	}
	env.Create(lease())
	env.Deny(memberenv.Policy{Name: "no-annotations", Resources: []string{"coordination.k8s.io/v1/leases"}, Where: `request.namespace.startsWith("member-")`,
		Want: []string{"!has(object.metadata.annotations)"}})
	env.Await("the denial", func() bool {
		noted := lease()
		noted.Annotations = map[string]string{"a": "b"}
		return env.Admin.DryRun(t.Context(), noted) != nil
	})
	i := env.Start()
	i.Follow(broker.Handlers{})
	var published atomic.Int32
	h := &identity.Heartbeat{
		Membership: i.Membership, Broker: i.Broker, Freezes: i.Freezes, Renew: 10 * time.Second, TTL: time.Hour, Log: i.Log, Resumed: func() {},
		PublishAll: func() func() bool { return func() bool { return published.Add(1) > 2 } },
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- h.Run(ctx) }()
	env.Await("a heartbeat", func() bool {
		l := lease()
		return env.Admin.Get(t.Context(), l, l.Namespace, l.Name) == nil && l.Spec.RenewTime.After(earlier.Time)
	})
	if n := published.Load(); n != 3 {
		t.Errorf("the exports were checked %d times before the heartbeat, want 3", n)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
