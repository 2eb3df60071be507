package write

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/test/harness/logtest"
)

// docs/spec/controller.md 5.7: what the API server does not keep of the status of a derived Service is not written
// again; what someone else overwrites is, after a while.
func TestServiceStatusThatIsNotKept(t *testing.T) {
	carrying := func(ip string) *corev1.Service {
		s := &corev1.Service{}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip}}
		return s
	}
	log, waits := &logtest.Recorder{}, 0
	writer := New(Config{Log: log, Retry: func(types.NamespacedName, time.Duration) { waits++ }})
	wanted := carrying("243.7.0.9")
	reconcile := func(existing string) *Import {
		return writer.ImportOf(db, desired.Objects{Service: carrying(existing)})
	}
	check := func(what string, w *Import, want bool) {
		t.Helper()
		if got := w.derived.mayWriteStatus(wanted); got != want {
			t.Errorf("%s: written = %t, want %t", what, got, want)
		}
	}

	w := reconcile("192.0.2.1")
	check("the first time", w, true)
	writer.overwritten.Wrote(db.String(), askedOf(wanted), time.Now())
	check("something else is kept", w, false)
	writer.overwritten = &member.Overwritten{} // all waiting is over
	check("an hour later", reconcile("192.0.2.1"), false)
	if n := log.Count("keeps the status of derived Service different"); n != 1 || waits != 0 {
		t.Errorf("logged %d times and %d more attempts, want once and no attempt: %v", n, waits, log)
	}

	check("someone else writes another one", reconcile("192.0.2.2"), true)
	writer.overwritten.Wrote(db.String(), askedOf(wanted), time.Now())
	w = reconcile("192.0.2.3")
	check("someone else overwrites it", w, false)
	check("someone else overwrites it, compared again", w, false)
	if waits != 2 {
		t.Errorf("%d more attempts, want one for each", waits)
	}
	writer.overwritten = &member.Overwritten{}
	check("that is put right later", reconcile("192.0.2.3"), true)

	// Exports of others change the desired address: no reason to log it again.
	for i := range 3 {
		ip := fmt.Sprintf("243.7.1.%d", i)
		wanted = carrying(ip)
		w = reconcile("192.0.2.4")
		check("another address: "+ip, w, true)
		writer.overwritten.Wrote(db.String(), askedOf(wanted), time.Now())
		check("something else is kept: "+ip, w, false)
	}
	if n := log.Count("keeps the status of derived Service different"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
}
