package identity_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/identity"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/protocol"
	"github.com/clusterset-dns/clusterset/controller/safety"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

// docs/spec/controller.md 3.6: the first heartbeat that is written after others failed is reported, once.
func TestHeartbeatResumes(t *testing.T) {
	tier.All(t)
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
	own(i, time.Hour)
	h := &identity.Heartbeat{
		Membership: i.Membership, Broker: i.Broker, Renew: 2 * time.Second, Pace: pace(2*time.Second, time.Hour), Log: i.Log,
		Resumed: func() { resumed.Add(1) }, Blind: noBlind,
		PublishAll: func(bool) func() bool { return func() bool { return true } },
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
	if err := env.Server.Delete(
		t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
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

// docs/spec/controller.md 8.1: a status that the broker rejects causes no heartbeats. It is tried again, and written
// when the broker takes it.
func TestStatusIsRejected(t *testing.T) {
	tier.All(t)
	env := memberenv.New(t)
	env.Join()
	const name = "no-status"
	env.Deny(memberenv.Policy{Name: name, Resources: []string{v1alpha1.Members.Group + "/*/members/status"},
		Want: []string{"false"}})
	i := env.Start()
	i.Follow(broker.Handlers{})
	own(i, 3*time.Hour)
	h := &identity.Heartbeat{
		Membership: i.Membership, Broker: i.Broker, Renew: time.Hour, Pace: pace(time.Hour, 3*time.Hour), Log: i.Log,
		Resumed: func() {}, Blind: noBlind,
		PublishAll: func(bool) func() bool { return func() bool { return true } },
	}
	p := &identity.Publication{Membership: i.Membership, Status: v1alpha1.MemberStatus{Version: "v1"}, Log: i.Log}
	ctx, cancel := context.WithCancel(t.Context())
	var g errgroup.Group
	g.Go(func() error { return h.Run(ctx) })
	g.Go(func() error { return p.Run(ctx) })
	var heartbeats, tries int
	env.Await("a heartbeat, and three attempts to write the status", func() bool {
		for _, w := range i.Writes.Take() {
			switch {
			case strings.Contains(w, "/leases/"):
				heartbeats++
			case strings.Contains(w, "/members/"):
				tries++
			}
		}
		return heartbeats > 0 && tries >= 3
	})
	if heartbeats != 1 {
		t.Errorf("%d heartbeats while the status was tried %d times, want 1", heartbeats, tries)
	}
	if n := i.Log.Count("the status of this member is not published: "); n != 1 {
		t.Errorf("logged %d times, want once: %s", n, i.Log)
	}
	if err := env.Server.Delete(
		t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	env.Await("the status", func() bool { return i.Broker.Members.Get(memberenv.ID).Status.Version == "v1" })
	cancel()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// docs/spec/controller.md 3.1: the broker shows a rejected export until a user deletes it. With an older CRD the broker
// takes the rest of the status.
func TestRejectedExportIsPublished(t *testing.T) {
	tier.All(t)
	env := memberenv.New(t)
	env.Join()
	exp := memberenv.NewExport(types.NamespacedName{Namespace: "default", Name: "web"})
	env.Create(exp.DeepCopy())
	exp.Status.Conditions = []metav1.Condition{{Type: "Valid", Status: metav1.ConditionFalse, Reason: "NoService",
		Message: "No Service.", ObservedGeneration: 1, LastTransitionTime: metav1.Now()}}
	i := env.Start()
	i.Follow(broker.Handlers{})
	status := func() v1alpha1.MemberStatus { return i.Broker.Members.Get(memberenv.ID).Status }
	publish := func(version string, shown func() bool) {
		ctx, cancel := context.WithCancel(t.Context())
		var g errgroup.Group
		p := &identity.Publication{Membership: i.Membership, Status: v1alpha1.MemberStatus{Version: version}, Log: i.Log}
		g.Go(func() error { return p.Run(ctx) })
		env.Await("status "+version, shown)
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	}
	if err := i.Admin.Apply(t.Context(), exp.DeepCopy(), "test", "status"); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.RejectedExport{Name: "web.default", Reason: "NoService", Message: "No Service"}
	publish("v1", func() bool { return slices.Equal(status().Rejected, []v1alpha1.RejectedExport{want}) })
	env.DropFields(crd.Members, ".status.rejected")
	publish("v2", func() bool {
		return status().Version == "v2" && i.Log.Count("update the CRDs of the broker with clusterset broker init") == 1
	})
	env.Delete(exp)
	publish("v3", func() bool { return status().Version == "v3" && len(status().Rejected) == 0 })
}

func noBlind(time.Time) string { return "" }

// docs/spec/controller.md 8.2: a heartbeat more than a TTL after the last one, also of an earlier process, follows the
// exports and says so. A heartbeat within the TTL, and the first of a cluster, wait for nothing.
func TestLateHeartbeat(t *testing.T) {
	tier.All(t)
	env := memberenv.New(t)
	env.Join()
	for _, tt := range []struct {
		name  string
		ago   time.Duration // the heartbeat of an earlier process; 0 if missing
		blind bool          // it said so
		lost  bool          // the broker was restored to before it
		ttl   time.Duration
		waits bool // for the exports
	}{
		{name: "the first", ttl: time.Hour},
		{name: "within the TTL", ago: 50 * time.Minute, ttl: time.Hour},
		{name: "later", ago: 2 * time.Hour, ttl: time.Hour, waits: true},
		{name: "within the TTL of a process that was blind", ago: 50 * time.Minute, blind: true, ttl: time.Hour, waits: true},
		{name: "from a clock that is ahead", ago: -time.Hour, ttl: time.Hour, waits: true},
		{name: "from a clock that is ahead, and lost", ago: -time.Hour, lost: true, ttl: time.Hour},
		{name: "within an hour, without a TTL of its own", ago: 50 * time.Minute},
		{name: "later, without a TTL of its own", ago: 2 * time.Hour, waits: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBeating(t, env, tt.ago, tt.ttl, tt.blind)
			if tt.lost {
				env.Delete(heartbeatLease())
			}
			b.run()
			env.Await("a heartbeat that fails", func() bool { return b.Log.Count("trying again") > 0 || b.looked.Load() > 2 })
			b.allow()
			if tt.waits {
				env.Await("checks of the exports", func() bool { return b.looked.Load() > 2 })
				if is := b.last(); is.Stamp != b.earlier {
					t.Errorf("the heartbeat was renewed at %s before the exports were written", is.Stamp)
				}
				b.written.Store(true)
			}
			var is protocol.Heartbeat
			env.Await("a heartbeat", func() bool { is = b.last(); return is.Stamp > b.earlier })
			if is.Complete > b.earlier != tt.waits || is.Blind || is.Stamp <= is.Complete {
				t.Errorf("heartbeat %+v after %s, want a pass since then: %t", is, b.earlier, tt.waits)
			}
		})
	}
}

// canBeBlind makes the heartbeat blind while the result is set.
func (b *beating) canBeBlind() *atomic.Bool {
	blind := new(atomic.Bool)
	b.heartbeat.Blind = func(time.Time) string {
		if blind.Load() {
			return "Service: forbidden"
		}
		return ""
	}
	return blind
}

// docs/spec/controller.md 8.2: a cluster that does not see itself reports it, and compares its exports before it
// reports that it does again.
func TestBlindHeartbeat(t *testing.T) {
	env := memberenv.New(t)
	env.Join()
	t.Run("heartbeat", func(t *testing.T) { // what ends before the environment does
		b := newBeating(t, env, 0, 3*time.Second, false)
		blind := b.canBeBlind()
		b.run()
		b.allow()
		env.Await("a heartbeat", func() bool { is := b.last(); return is.Stamp > 0 && !is.Blind })
		blind.Store(true)
		var last protocol.Heartbeat
		env.Await("one that is blind", func() bool { last = b.last(); return last.Blind })
		blind.Store(false)
		env.Await("checks of the exports", func() bool { return b.looked.Load() > 2 })
		if is := b.last(); !is.Blind {
			t.Errorf("%+v before the exports were written, want that it is blind", is)
		}
		b.written.Store(true)
		env.Await("one that sees", func() bool { is := b.last(); return !is.Blind && is.Complete > last.Stamp })
	})
}

// docs/spec/controller.md 8.5: the broker is restored between the first heartbeat of a process and the end of its first
// pass. The process trusts no own object of before. Its note tells the next process until the pass ends, also if it is
// blind meanwhile.
func TestHeartbeatAfterRestore(t *testing.T) {
	tier.All(t)
	env := memberenv.New(t)
	env.Join()
	t.Run("heartbeat", func(t *testing.T) { // what ends before the environment does
		b := newBeating(t, env, 0, 3*time.Second, false)
		blind := b.canBeBlind()
		part := apibroker.InventoryPart(memberenv.DB.Namespace, memberenv.DB.Name)
		before := &v1alpha1.Inventory{ObjectMeta: metav1.ObjectMeta{Name: part}}
		if err := b.Broker.Own.ApplyInventory(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		b.run()
		b.allow()
		env.Await("a heartbeat", func() bool { return b.last().Stamp > 0 })
		old := heartbeatLease()
		old.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-time.Minute)}
		if err := env.Admin.Apply(t.Context(), old, wellknown.ManagerExporter); err != nil {
			t.Fatal(err)
		}
		env.Await("that the restore is noticed", func() bool { return b.Log.Count("the broker has lost the last one") > 0 })
		looked := b.looked.Load()
		env.Await("checks of the exports", func() bool { return b.looked.Load() > looked+2 })
		if _, old := b.Broker.Own.Inventory(part); !old {
			t.Error("the process trusts an object of before the restore")
		}
		mending := func() bool {
			note := noteLease()
			if err := env.Admin.Get(t.Context(), note, note.Namespace, note.Name); err != nil {
				t.Fatal(err)
			}
			taken, _ := strconv.ParseInt(note.Annotations[wellknown.AnnotationTaken], 10, 64)
			return taken > note.Spec.RenewTime.UnixMicro()
		}
		blind.Store(true)
		env.Await("one that is blind", func() bool { return b.last().Blind })
		if !mending() {
			t.Error("a blind heartbeat drops the note of the restore")
		}
		blind.Store(false)
		b.written.Store(true)
		env.Await("one that sees", func() bool { is := b.last(); return is.Stamp > 0 && !is.Blind })
		if mending() {
			t.Error("the note of the restore stays after the pass")
		}
	})
}

// docs/spec/controller.md 8.1: a member of a large clusterset renews its heartbeat more seldom than it checks itself.
// It sends news at once.
func TestSeldomHeartbeat(t *testing.T) {
	env := memberenv.New(t)
	env.Join()
	t.Run("heartbeat", func(t *testing.T) { // what ends before the environment does
		b := newBeating(t, env, 0, time.Hour, false)
		var rounds, ttl atomic.Int64
		ttl.Store(3600)
		b.heartbeat.Renew = time.Second
		b.heartbeat.Pace = func() (time.Duration, time.Duration) {
			return 10_000 * time.Hour, time.Duration(ttl.Load()) * time.Second
		}
		b.heartbeat.Blind = func(time.Time) string { rounds.Add(1); return "" }
		b.written.Store(true)
		b.run()
		b.allow()
		var first protocol.Heartbeat
		env.Await("a heartbeat", func() bool { first = b.last(); return first.Stamp > 0 })
		after := rounds.Load()
		env.Await("further rounds", func() bool { return rounds.Load() > after+6 })
		if is := b.last(); is != first {
			t.Errorf("heartbeat %+v after %+v, want none before the hour is over", is, first)
		}
		ttl.Store(1800)
		l := heartbeatLease()
		env.Await("a heartbeat with another TTL", func() bool {
			return b.Admin.Get(t.Context(), l, l.Namespace, l.Name) == nil && *l.Spec.LeaseDurationSeconds == 1800 &&
				broker.HeartbeatOf(l).Stamp > first.Stamp
		})
		b.loseAnswers(func() { ttl.Store(1200) })
	})
}

// loseAnswers lets the broker store heartbeats and loses the answers. change makes one due. The next attempt finds the
// heartbeat of this process, which is no clone.
func (b *beating) loseAnswers(change func()) {
	b.t.Helper()
	b.Writes.LoseAnswers("/leases/" + apibroker.HeartbeatName)
	change()
	for range 3 {
		last := b.last().Stamp
		b.Await("another heartbeat", func() bool {
			b.Membership.Review()
			if why := b.Freezes.Suspended(safety.Export); why != "" {
				b.t.Fatal(why)
			}
			return b.last().Stamp > last
		})
	}
}

// docs/spec/controller.md 7.8: a cluster with an older note than its heartbeat on the broker waits. It goes on if
// nobody renews the heartbeat, and is frozen for good if somebody does, whether or not it leaves.
func TestHeartbeatOfCopy(t *testing.T) {
	tier.All(t)
	env := memberenv.New(t)
	env.Join()
	renew := func() protocol.Stamp {
		t.Helper()
		theirs := heartbeatLease()
		theirs.Spec.LeaseDurationSeconds = new(int32(2))
		theirs.Spec.RenewTime = new(metav1.NowMicro())
		if err := env.Admin.Apply(t.Context(), theirs, wellknown.ManagerExporter); err != nil {
			t.Fatal(err)
		}
		return broker.HeartbeatOf(theirs).Stamp
	}
	// process runs until the returned function is called; cloned reports whether it is frozen as a copy.
	process := func() (b *beating, cloned func() bool, end func()) {
		b = &beating{Instance: env.Start(), t: t}
		b.Follow(broker.Handlers{})
		own(b.Instance, time.Second)
		h := &identity.Heartbeat{
			Membership: b.Membership, Broker: b.Broker, Renew: time.Second, Pace: pace(time.Second, time.Second), Log: b.Log,
			Resumed: func() {}, Blind: noBlind,
			PublishAll: func(bool) func() bool { return func() bool { return true } },
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- h.Run(ctx) }()
		cloned = func() bool {
			b.Membership.Review()
			in := b.Freezes.InForce()
			return len(in) == 1 && in[0].Code == string(reason.ClusterCloned) && b.Freezes.Suspended(safety.Export) != ""
		}
		return b, cloned, func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			b.End()
		}
	}
	stamp := renew()
	b, cloned, end := process()
	env.Await("a process that looks on", cloned)
	env.Await("that it goes on after five TTLs", func() bool { return !cloned() && b.last().Stamp > stamp })
	end()
	b, cloned, end = process()
	stamp = b.last().Stamp
	env.Await("the next process, which goes on", func() bool { return !cloned() && b.last().Stamp > stamp })
	end()

	renew() // newer than what was noted
	b, cloned, end = process()
	env.Await("a process that looks on", cloned)
	env.Await("the note that it is a copy", func() bool {
		stamp = renew()
		note := noteLease()
		return env.Admin.Get(t.Context(), note, note.Namespace, note.Name) == nil &&
			note.Annotations[wellknown.AnnotationCopy] != ""
	})
	end()
	b, cloned, end = process()
	env.Await("the next process, which is frozen at once", cloned)
	env.Leave()
	env.Await("that it leaves", func() bool { return identity.Leaving(b.Member) })
	if !cloned() || b.last().Stamp != stamp {
		t.Error("a copy that leaves is not frozen, or took the heartbeat off the broker")
	}
	note := noteLease()
	if err := env.Admin.Get(t.Context(), note, note.Namespace, note.Name); err != nil {
		t.Fatal(err)
	}
	delete(note.Annotations, wellknown.AnnotationCopy)
	env.Update(note)
	env.Await("that it looks on when a person removed the note",
		func() bool { return cloned() && strings.Contains(b.Freezes.Suspended(safety.Export), "unless") })
	end()
}

// A beating is a Heartbeat whose broker denies heartbeats until allow is called. The test decides when its exports are
// written.
type beating struct {
	*memberenv.Instance
	t         *testing.T
	heartbeat *identity.Heartbeat
	earlier   protocol.Stamp // of the heartbeat of an earlier process; or 0
	looked    atomic.Int32
	written   atomic.Bool
}

const noHeartbeats = "no-heartbeats" // policy

// newBeating returns a beating that does not run yet. All that it made is gone after the test.
func newBeating(t *testing.T, env *memberenv.Env, ago, ttl time.Duration, blind bool) *beating {
	t.Helper()
	b := &beating{t: t}
	if ago != 0 {
		l := heartbeatLease()
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-ago).Truncate(time.Microsecond)}
		if blind {
			l.Annotations = map[string]string{apibroker.AnnotationBlind: "why"}
		}
		b.earlier = protocol.Stamp(l.Spec.RenewTime.UnixMicro())
		if err := env.Admin.Apply(t.Context(), l, wellknown.ManagerExporter); err != nil {
			t.Fatal(err)
		}
		note := noteLease()
		note.Spec.RenewTime = l.Spec.RenewTime
		env.Create(note)
	}
	env.Deny(memberenv.Policy{
		Name: noHeartbeats, Resources: []string{"coordination.k8s.io/v1/leases"}, Where: `request.namespace.startsWith("member-")`, Want: []string{"false"},
	})
	env.Await("the denial", func() bool {
		l := heartbeatLease()
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		return member.Rejection(env.Try(l)) != ""
	})
	b.Instance = env.Start()
	t.Cleanup(b.End)
	b.Follow(broker.Handlers{})
	own(b.Instance, ttl)
	b.heartbeat = &identity.Heartbeat{
		Membership: b.Membership, Broker: b.Broker, Renew: min(ttl/3, 10*time.Second),
		Pace: pace(min(ttl/3, 10*time.Second), ttl), Log: b.Log, Resumed: func() {}, Blind: noBlind,
		PublishAll: func(bool) func() bool {
			return func() bool {
				b.looked.Add(1)
				return b.written.Load()
			}
		},
	}
	return b
}

func pace(renew, ttl time.Duration) func() (time.Duration, time.Duration) {
	return func() (time.Duration, time.Duration) { return renew, ttl }
}

// own lets an instance find out whether it is the original.
func own(i *memberenv.Instance, ttl time.Duration) {
	i.Helper()
	i.Membership.Original = &identity.Original{Broker: i.Broker, TTL: ttl, Sent: new(atomic.Int64),
		Note: member.LeaseNote{Cluster: i.Member, Namespace: wellknown.ControllerNamespace, Lease: wellknown.HeartbeatLease}}
}

// run runs the Heartbeat until the test ends, and removes what the broker has of it then.
func (b *beating) run() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	ended := make(chan error)
	go func() { ended <- b.heartbeat.Run(ctx) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
		b.Delete(heartbeatLease(), noteLease())
		if err := b.Server.Delete(
			b.Context(), &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: noHeartbeats}}); err != nil {
			b.t.Error(err)
		}
	})
}

// allow has the broker take heartbeats.
func (b *beating) allow() {
	b.t.Helper()
	if err := b.Server.Delete(
		b.t.Context(),
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: noHeartbeats}}); err != nil {
		b.t.Fatal(err)
	}
}

// last returns the heartbeat that the broker has.
func (b *beating) last() protocol.Heartbeat {
	l := heartbeatLease()
	if err := b.Admin.Get(b.t.Context(), l, l.Namespace, l.Name); err != nil {
		return protocol.Heartbeat{}
	}
	return broker.HeartbeatOf(l)
}

func noteLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: wellknown.ControllerNamespace,
		Name: wellknown.HeartbeatLease}}
}

func heartbeatLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: memberenv.Namespace,
		Name: apibroker.HeartbeatName}}
}
