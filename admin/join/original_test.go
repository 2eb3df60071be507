package join

import (
	"context"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

// docs/spec/controller.md 7.8: join and leave fail while another cluster renews the heartbeat. Otherwise join notes it.
// TakeOver ends the credential of the other cluster.
func TestJoinOfCopy(t *testing.T) {
	tier.All(t)
	all := startControlPlanes(t, 2)
	onBroker, east := all[0], all[1]
	initBroker(t, onBroker)
	joined := mustJoin(t, onBroker, east, options("east"))
	leases := east.Dynamic().Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace(
		wellknown.ControllerNamespace)
	noted := func() (at time.Time, copied bool) {
		t.Helper()
		note, err := leases.Get(t.Context(), wellknown.HeartbeatLease, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		at, err = time.Parse(time.RFC3339Nano, read.StringAt(note, "spec", "renewTime"))
		if err != nil {
			t.Fatal(err)
		}
		_, copied = note.GetAnnotations()[wellknown.AnnotationCopy]
		return at, copied
	}
	account := func() string {
		t.Helper()
		a, err := onBroker.Dynamic().Resource(corev1.SchemeGroupVersion.WithResource("serviceaccounts")).Namespace(
			joined.Namespace).Get(t.Context(), broker.ServiceAccount, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return string(a.GetUID())
	}
	first := account()

	sent := time.Now().UTC().Truncate(time.Microsecond)
	renew(t, onBroker, joined.Namespace, broker.HeartbeatName, sent)
	mustJoin(t, onBroker, east, options("east"))
	if at, copied := noted(); !at.Equal(sent) || copied {
		t.Errorf("noted %s, copied: %t; want %s, false", at, copied, sent)
	}

	tryBoth := func() (join, leave error) {
		_, join = Join(t.Context(), onBroker.Config(), east.Config(), options("east"))
		_, leave = Leave(t.Context(), onBroker.Config(), east.Config(), leaveOptions())
		return join, leave
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error)
	renew(t, onBroker, joined.Namespace, broker.HeartbeatName, time.Now()) // before join looks
	go func() {
		for err := error(nil); ; {
			select {
			case <-ctx.Done():
				stopped <- err
				return
			case <-time.After(100 * time.Millisecond):
				err = errors.Join(err, onBroker.ApplyYAML(t.Context(),
					[]byte(leaseText(joined.Namespace, broker.HeartbeatName, time.Now()))))
			}
		}
	}()
	if join, leave := tryBoth(); !errors.Is(join, errCopy) || !errors.Is(leave, errCopy) {
		t.Errorf("while another cluster renews the heartbeat: join: %v, leave: %v; want that both fail", join, leave)
	}
	cancel()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if _, err := leases.Patch(t.Context(), wellknown.HeartbeatLease, "application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+wellknown.AnnotationCopy+`":"why"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if join, leave := tryBoth(); !errors.Is(join, errCopy) || !errors.Is(leave, errCopy) {
		t.Errorf("in a known copy: join: %v, leave: %v; want that both fail", join, leave)
	}
	if account() != first {
		t.Error("join replaced the account without TakeOver")
	}

	o := options("east")
	o.TakeOver = true
	mustJoin(t, onBroker, east, o)
	if at, copied := noted(); !at.After(time.Now()) || copied {
		t.Errorf("noted %s, copied: %t; want a time in the future, false", at, copied)
	}
	if account() == first {
		t.Error("TakeOver kept the account")
	}
	l := leaveOptions()
	l.TakeOver = true
	if _, err := Leave(t.Context(), onBroker.Config(), east.Config(), l); err != nil {
		t.Error(err)
	}
}
