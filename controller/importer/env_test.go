package importer

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/exporter"
	"github.com/clusterset-dns/clusterset/controller/liveness"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/safety"
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

// importing is an instance of the member with an Importer. The test is its queue.
type importing struct {
	*memberenv.Instance
	*Importer
}

// start returns an instance whose caches are complete.
func (e *env) start(set func(*Config), serviceCIDRs ...netip.Prefix) importing {
	e.Helper()
	i := e.Start(serviceCIDRs...)
	o := merge.Options{VIP: merge.Derived, VIPNetworks: merge.DefaultVIPNetworks}
	cfg := Config{
		Member: i.Member, Broker: i.Broker, Membership: i.Membership, Freezes: i.Freezes, Conditions: i.Conditions,
		Metrics: i.Metrics,
		Log:     i.Log, Merge: o, ExportedAffinity: true, Rejections: NewRejections(i.Log, i.Metrics),
		Expiry: newExpiry(i, time.Minute, liveness.OnExpiry{Action: liveness.ActRemove}),
		Retry:  func(types.NamespacedName, time.Duration) {},
	}
	set(&cfg)
	own := exporter.New(exporter.Config{
		Member: i.Member, Broker: i.Broker, Membership: i.Membership, Freezes: i.Freezes, Conditions: i.Conditions,
		Metrics: i.Metrics,
		Policy:  cfg.Policy, Endpoints: apibroker.PodIP, Merge: cfg.Merge,
		Requeue: func(types.NamespacedName) {}, Retry: func(types.NamespacedName, time.Duration) {},
	})
	cfg.Own = own.Own()
	i.Follow(broker.Handlers{})
	e.Await("families", func() bool { return len(i.Member.Families()) > 0 })
	return importing{i, New(cfg)}
}

// with returns the instance with another Importer.
func (i importing) with(change func(*Config)) importing {
	cfg := i.cfg
	change(&cfg)
	i.Importer = New(cfg)
	return i
}

func newExpiry(i *memberenv.Instance, ttl time.Duration, o liveness.OnExpiry) *safety.Expiry {
	i.Helper()
	e, err := safety.NewExpiry(i.Context(), safety.ExpiryConfig{
		Member: i.Member, Broker: i.Broker, ClusterID: memberenv.ID, Namespace: wellknown.ControllerNamespace,
		Freezes: i.Freezes, TTL: func() time.Duration { return ttl }, OnExpiry: o, Log: i.Log,
		Requeue: func([]types.NamespacedName) func() bool { return func() bool { return true } },
	})
	if err != nil {
		i.Fatal(err)
	}
	return e
}

// silence waits until west, which sends no heartbeat, is silent and noted as such.
func (i importing) silence() {
	i.Helper()
	i.Create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: wellknown.ControllerNamespace,
		Name: wellknown.ControllerLease}})
	var panics atomic.Int32
	i.evaluate(func(e *safety.Expiry) {
		e.Barrier = &logging.Barrier{Panicked: func() { panics.Add(1) }}
		e.Requeue = func([]types.NamespacedName) func() bool { panic("costs neither the process nor the evaluation") }
	}, func(e *safety.Expiry) {
		i.Await("silence", func() bool { return e.Result().Silent("west") })
		i.Await("a panic", func() bool { return panics.Load() > 0 })
	})
}

// evaluate runs an Expiry during a test. This member sends heartbeats meanwhile.
func (i importing) evaluate(set func(*safety.Expiry), during func(*safety.Expiry)) {
	i.Helper()
	// others fall silent only while the own heartbeat comes back within half of it, also on a busy machine
	const ttl = 12 * time.Second
	e := newExpiry(i.Instance, ttl, liveness.OnExpiry{Action: liveness.ActRemove})
	set(e)
	ctx, cancel := context.WithCancel(i.Context())
	var g errgroup.Group
	g.Go(func() error { return e.Run(ctx) })
	g.Go(func() error {
		for ctx.Err() == nil {
			if err := i.Broker.Heartbeats.Renew(ctx, i.Broker.Own.Stamp(), ttl, 0, ""); err != nil && ctx.Err() == nil {
				return err
			}
			select {
			case <-ctx.Done():
			case <-time.After(ttl / 10):
			}
		}
		return nil
	})
	during(e)
	cancel()
	if err := g.Wait(); err != nil {
		i.Error(err)
	}
}

// silent returns an Expiry in which those are silent that are noted.
func (i importing) silent(a liveness.Action) *safety.Expiry {
	i.Helper()
	e := newExpiry(i.Instance, time.Minute, liveness.OnExpiry{Action: a, Limit: time.Hour})
	if !e.Result().Silent("west") {
		i.Fatal("the silence of west was not noted")
	}
	return e
}

// do reconciles the import, once ready reports that the caches are as needed, and returns the writes.
func (i importing) do(what string, ready func() bool) []string {
	i.Helper()
	i.Await(what, ready)
	i.Await("inventories", func() bool { return i.Listed(db) })
	i.Writes.Take()
	if err := i.Reconcile(i.Context(), db); err != nil {
		i.Fatalf("%s: %v", what, err)
	}
	return i.Writes.Take()
}

// review evaluates the membership until it has the wanted cluster id and certainty.
func (i importing) review(what, id string, known bool) {
	i.Helper()
	i.Await(what, func() bool {
		i.Membership.Review()
		is := i.Membership.Status()
		return is.ClusterID == id && is.Known == known
	})
}

// A partner is another member. The test is its controller.
type partner struct {
	*env
	id, namespace string
}

// partner joins a member whose pods are in 10.2.0.0/16.
func (e *env) partner(id string) partner {
	e.Helper()
	return partner{e, id, e.AddMember(id)}
}

func (p partner) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: p.namespace, Name: name, Labels: map[string]string{
		mcsv1beta1.LabelServiceName: "db", mcsv1beta1.LabelSourceCluster: p.id, apibroker.LabelSourceNamespace: "shop",
	}}
}

func (p partner) record() *v1alpha1.ExportedService {
	return &v1alpha1.ExportedService{ObjectMeta: p.meta("db.shop"), Spec: v1alpha1.ExportedServiceSpec{
		Namespace: "shop", Name: "db", Type: v1alpha1.ClusterSetIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		Ports:         []v1alpha1.ServicePort{{Name: "pg", Protocol: corev1.ProtocolTCP, Port: 5432}},
		Labels:        []v1alpha1.Label{{Key: "tier", Value: "gold"}},
		ExportCreated: metav1.Now().Rfc3339Copy(),
	}}
}

func (p partner) slice(source string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: p.meta(apibroker.SliceName("shop", "db", source)), AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: new("pg"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(5432))}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	return s
}

// edit changes an object as someone else would.
func (i importing) edit(o apiserver.Object, name, patch string) {
	i.Helper()
	o.SetNamespace("shop")
	o.SetName(name)
	if err := i.Admin.Patch(i.Context(), o, []byte(patch), "someone"); err != nil {
		i.Fatal(err)
	}
}
