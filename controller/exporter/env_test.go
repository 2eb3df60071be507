package exporter

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

var db = memberenv.DB

// An env is a member and its broker on one API server. Its services are reconciled by hand.
type env struct{ *memberenv.Env }

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{memberenv.New(t)}
	e.Join()
	return e
}

// exporting is an instance of the member with an Exporter. The test is its queue.
type exporting struct {
	*memberenv.Instance
	*Exporter
}

// start returns an instance whose caches are complete. It ends with the test, or by End.
func (e *env) start(set func(*Config)) *exporting {
	e.Helper()
	x := e.startWithoutBroker(set)
	x.Follow(broker.Handlers{})
	e.Await("the broker may be written", func() bool { return x.waitsFor() == "" })
	return x
}

// startWithoutBroker returns an instance that has not heard of the broker.
func (e *env) startWithoutBroker(set func(*Config)) *exporting {
	e.Helper()
	i := e.Start()
	cfg := Config{
		Member: i.Member, Broker: i.Broker, Membership: i.Membership, Freezes: i.Freezes, Conditions: i.Conditions,
		Metrics: i.Metrics, Log: i.Log, Endpoints: apibroker.PodIP,
		Merge:      merge.Options{VIP: merge.Derived, VIPNetworks: merge.DefaultVIPNetworks},
		TTL:        func() time.Duration { return 0 },
		Silent:     func(string) bool { return false },
		RequeueNow: func(types.NamespacedName) {},
		Requeue:    func(types.NamespacedName) {},
		Retry:      func(types.NamespacedName, time.Duration) {},
	}
	set(&cfg)
	return &exporting{i, New(cfg)}
}

// do reconciles a service, once ready reports that the caches are as needed, and returns the writes.
func (x *exporting) do(svc types.NamespacedName, what string, ready func() bool) []string {
	x.Helper()
	x.Await(what, ready)
	x.Writes.Take()
	if err := x.settle(svc); err != nil {
		x.Fatalf("%s: %v", what, err)
	}
	if r := x.exported(svc); !x.publisher.upToDate(svc, r) && x.Membership.Status().ClusterID != "" {
		x.Errorf("%s: something is still to be written", what)
	}
	return x.taken()
}

// settle reconciles a service, and once more if that changed the inventory.
func (x *exporting) settle(svc types.NamespacedName) error {
	err := x.Reconcile(x.Context(), svc)
	if part := apibroker.InventoryPart(svc.Namespace, svc.Name); x.inventory.due(part) {
		if failed := x.inventory.write(x.Context(), part); failed != nil {
			return errors.Join(err, failed)
		}
		err = x.Reconcile(x.Context(), svc)
	}
	return err
}

// taken returns the writes without those of the inventory.
func (x *exporting) taken() []string {
	return slices.DeleteFunc(x.Writes.Take(), func(w string) bool { return strings.Contains(w, " broker/inventories/") })
}

// exported returns what this cluster exports of a service.
func (x *exporting) exported(svc types.NamespacedName) export.Result {
	r, _, _ := x.own.Export(svc, x.Membership.Status())
	return r
}

// review evaluates the membership, once the caches show what follows, until it has the wanted cluster id and certainty.
func (x *exporting) review(what, id string, known bool) {
	x.Helper()
	x.Await(what, func() bool {
		x.Membership.Review()
		is := x.Membership.Status()
		return is.ClusterID == id && is.Known == known
	})
}
