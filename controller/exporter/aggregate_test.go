package exporter

import (
	"testing"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

// docs/spec/controller.md 2, "aggregate_view": the owner of the oldest export publishes the import, and takes it away.
func TestAggregates(t *testing.T) {
	b := newEnv(t)
	b.AddMember(alpha)
	on := func(c *Config) { c.Aggregates = true }
	a := b.start(on)
	b.Await("alpha seen", func() bool { return len(a.Broker.Members.All()) == 2 })
	const object = "broker/serviceimports/db.shop"
	const aggregate, aggregateStatus, gone = "PATCH " + object, "PATCH " + object + "/status", "DELETE " + object
	a.Expect("the oldest export", a.create(db, ""), recordWrite, aggregate, aggregateStatus, statusWrite)
	a.Expect("again", a.do(db, "", now))
	imp := &mcsv1beta1.ServiceImport{}
	if err := b.Admin.Get(t.Context(), imp, memberenv.Namespace, "db.shop"); err != nil {
		t.Fatal(err)
	}
	if len(imp.Spec.Ports) != 1 || len(imp.Status.Clusters) != 1 || imp.Status.Clusters[0].Cluster != memberenv.ID {
		t.Errorf("aggregate = %+v, want the port, and cluster %s", imp, memberenv.ID)
	}
	a.End()
	a = b.start(on)
	a.Expect("a restart", a.do(db, "", now))

	older := alphaRecord(db)
	b.Create(older)
	records := func(n int) func() bool { return func() bool { return len(a.Broker.Records(db)) == n } }
	a.Expect("no longer the oldest", a.do(db, "alpha's record seen", records(2)), gone)
	b.Delete(older)
	a.Expect("the oldest again", a.do(db, "alpha's record gone", records(1)), aggregate, aggregateStatus)

	a.End()
	a = b.start(func(*Config) {})
	a.Expect("aggregates off", a.do(db, "", now), gone)
	a.Expect("aggregates off, again", a.do(db, "", now))
}
