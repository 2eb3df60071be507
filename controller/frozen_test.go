package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/about"
	aboutv1beta1 "github.com/clusterset-dns/clusterset/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/safety"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// docs/spec/controller.md 8.7: the Lease has the reasons in force, and is written when they change.
func TestFrozenNote(t *testing.T) {
	tier.All(t)
	env := memberenv.New(t)
	env.Join()
	i := env.Start()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: wellknown.ControllerNamespace,
		Name: wellknown.ControllerLease}}
	const put = "PUT " + wellknown.ControllerNamespace + "/leases/" + wellknown.ControllerLease
	cfg := Defaults()
	cfg.Namespace, cfg.Log = wellknown.ControllerNamespace, i.Log
	f, now := newFrozenNote(i.Member, cfg, i.Freezes), time.Now()
	// save saves so long after now, and returns the annotation. Freezes begin by the clock, so later means hours: more
	// than the test takes until then.
	save := func(later time.Duration) string {
		t.Helper()
		if err := f.save(t.Context(), now.Add(later)); err != nil {
			t.Fatal(err)
		}
		read := &coordinationv1.Lease{}
		if err := env.Admin.Get(t.Context(), read, lease.Namespace, lease.Name); err != nil {
			t.Fatal(err)
		}
		return read.Annotations[wellknown.AnnotationFrozen]
	}
	if err := f.save(t.Context(), now); err != nil {
		t.Errorf("without a Lease: %v", err)
	}
	f.at = time.Time{}
	lease.Annotations = map[string]string{"other": "kept", wellknown.AnnotationFrozen: "of an instance before this one"}
	env.Create(lease)
	i.Writes.Take()
	if text := save(0); text != "" {
		t.Errorf("nothing is frozen, and the annotation is %q", text)
	}
	i.Expect("what an instance before this one saved", i.Writes.Take(), put)

	i.Freezes.SetFor(safety.BrokerIdentity, reason.ClusterCloned, "first")
	if text := save(0); text != "" {
		t.Errorf("annotation = %q at once, want it after %s", text, frozenDelay)
	}
	first := save(time.Hour)
	got := wellknown.ParseFreezes(first)
	if len(got) != 1 || got[0].Reason != "broker_identity" || got[0].Code != "cluster-cloned" ||
		got[0].Detail != "first" || got[0].Suspends == "" || got[0].Since.IsZero() {
		t.Errorf("annotation = %s, want the reason with its code, detail, and what is suspended", first)
	}
	i.Freezes.SetFor(safety.BrokerIdentity, reason.ClusterCloned, "second")
	if text := save(time.Hour + frozenAgain/2); text != first {
		t.Errorf("annotation = %s after another detail, want %s", text, first)
	}
	i.Expect("a reason", i.Writes.Take(), put)

	env.Delete(lease)
	lease.ResourceVersion, lease.UID, lease.Annotations = "", "", nil
	env.Create(lease)
	if text := save(2 * time.Hour); text != strings.Replace(first, "first", "second", 1) {
		t.Errorf("annotation = %q of a Lease that was made anew, want %s with the other detail", text, first)
	}
	i.Freezes.Set(safety.LostMembers, "two of three")
	if got := wellknown.ParseFreezes(save(3 * time.Hour)); len(got) != 2 || got[1].Code != "controller-frozen" {
		t.Errorf("freezes = %+v, want two", got)
	}
	i.Freezes.Set(safety.LostMembers, "")
	i.Freezes.Set(safety.BrokerIdentity, "")
	if text := save(3 * time.Hour); text != "" {
		t.Errorf("nothing is frozen any longer, and the annotation is %q", text)
	}
	i.Expect("a new Lease, a second reason, and no reason", i.Writes.Take(), put, put, put)

	cfg.Namespaces.Names = []string{"shop"}
	f = newFrozenNote(i.Member, cfg, i.Freezes)
	save(0)
	read := &coordinationv1.Lease{}
	if err := env.Admin.Get(t.Context(), read, lease.Namespace, lease.Name); err != nil {
		t.Fatal(err)
	}
	if got, want := read.Annotations[wellknown.AnnotationNamespaces], `{"names":["shop"]}`; got != want {
		t.Errorf("annotation of the namespaces = %q, want %q", got, want)
	}
}

// frozenByDeletion deletes the membership by hand: the Lease reports that the instance is frozen, until the property is
// back.
func frozenByDeletion(t *testing.T, env *memberenv.Env) {
	t.Helper()
	freezes := func(ctx context.Context) []wellknown.Freeze {
		read := &coordinationv1.Lease{}
		if env.Admin.Get(ctx, read, wellknown.ControllerNamespace, wellknown.ControllerLease) != nil {
			return nil
		}
		return wellknown.ParseFreezes(read.Annotations[wellknown.AnnotationFrozen])
	}
	env.Delete(&aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: about.ClusterSetName}})
	until.True(t, "its Lease says that it is frozen", func() bool {
		all := freezes(t.Context())
		return len(all) == 1 && all[0].Reason == safety.BrokerIdentity.String() &&
			all[0].Code == string(reason.MembershipDeleted)
	})
	env.JoinSet()
	until.True(t, "its Lease says that it is not frozen", func() bool { return len(freezes(t.Context())) == 0 })
}
