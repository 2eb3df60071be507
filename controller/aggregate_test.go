package controller

import (
	"testing"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// Section 2, "aggregate_view": the owner of the oldest export publishes the import, and takes it away.
func TestViews(t *testing.T) {
	b := newStage(t)
	b.join(alpha, "")
	on := func(c *Config) { c.AggregateView = true }
	a := b.act(on)
	b.await("alpha seen", func() bool { return len(a.broker.Members()) == 2 })
	const object = "broker/serviceimports/db.shop"
	const view, viewStatus, gone = "PATCH " + object, "PATCH " + object + "/status", "DELETE " + object
	a.expect("the oldest export", a.export(db, ""), recordWrite, view, viewStatus, statusWrite)
	a.expect("again", a.do(db, "", now))
	imp := &mcsv1beta1.ServiceImport{}
	if err := b.admin.Get(t.Context(), imp, stageNamespace, "db.shop"); err != nil {
		t.Fatal(err)
	}
	if len(imp.Spec.Ports) != 1 || len(imp.Status.Clusters) != 1 || imp.Status.Clusters[0].Cluster != stageID {
		t.Errorf("view = %+v, want the port, and cluster %s", imp, stageID)
	}
	a.end()
	a = b.act(on)
	a.expect("a restart", a.do(db, "", now))

	older := alphaRecord(db, nil)
	b.create(older)
	records := func(n int) func() bool { return func() bool { return len(a.broker.Records(db)) == n } }
	a.expect("no longer the oldest", a.do(db, "alpha's record seen", records(2)), gone)
	b.delete(older)
	a.expect("the oldest again", a.do(db, "alpha's record gone", records(1)), view, viewStatus)

	a.end()
	a = b.act(func(*Config) {})
	a.expect("views off", a.do(db, "", now), gone)
	a.expect("views off, again", a.do(db, "", now))
}
