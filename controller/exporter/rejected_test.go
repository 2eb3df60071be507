package exporter

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/safety"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

// denying makes the broker reject slices with the address 10.1.66.1, the deletion of those with 10.1.77.1,
// and records of the service "rejected" or with a port "denied".
var denying = []memberenv.Policy{
	{
		Name: "denying", Resources: []string{slicesResource}, Where: onBroker, Want: []string{
			`object.endpoints.all(e, !("10.1.66.1" in e.addresses))`,
		},
	},
	{
		Name: "denying-records", Resources: []string{"broker.clusterset-dns.io/v1alpha1/exportedservices"}, Where: onBroker,
		Want: []string{`object.spec.name != "rejected" && object.spec.ports.all(p, p.name != "denied")`},
	},
	{
		Name: "keeping", Resources: []string{slicesResource}, Operations: []admissionv1.OperationType{admissionv1.Delete},
		Where: onBroker,
		Want:  []string{`oldObject.endpoints.all(e, !("10.1.77.1" in e.addresses))`},
	},
}

const (
	slicesResource = "discovery.k8s.io/v1/endpointslices"
	onBroker       = `request.namespace.startsWith("member-")`
)

// A rejection by the broker does not stop the rest, and leaves nothing behind.
func TestExportRejected(t *testing.T) {
	b := newEnv(t)
	a := b.start(func(*Config) {})
	b.Deny(denying...)

	// One of two slices is rejected: the record comes nevertheless, and is still updated.
	b.Create(memberenv.NewExport(db), memberenv.NewService(db), memberenv.NewSourceSlice(db, "db-1", "10.1.66.1"),
		memberenv.NewSourceSlice(db, "db-2", "10.1.0.2"))
	seen := func(svc types.NamespacedName, slices int) func() bool {
		return func() bool {
			return a.Member.Export(svc) != nil && a.Member.Service(svc) != nil && len(a.Member.SourceSlices(svc)) == slices
		}
	}
	a.Await("export seen", seen(db, 2))
	if err := a.Reconcile(t.Context(), db); member.Rejection(err) == "" {
		t.Errorf("a rejected slice: %v, want the rejection", err)
	}
	if record, slices := a.Broker.Own.Objects(db); record == nil || len(slices) != 1 ||
		slices[0].Endpoints[0].Addresses[0] != "10.1.0.2" {
		t.Errorf("beside a rejected slice: record %v, slices %v, want both but that slice", record, slices)
	}
	if got, want := a.ConditionsOf(db), "Ready=False/Failed Valid=True/Valid"; got != want {
		t.Errorf("a rejected slice: conditions = %s, want %s", got, want)
	}
	service := memberenv.NewService(db)
	service.Spec.Ports[0].Name = "postgres"
	b.Update(service)
	a.Await("port seen", func() bool { return a.Member.Service(db).Spec.Ports[0].Name == "postgres" })
	if err := a.Reconcile(t.Context(), db); member.Rejection(err) == "" {
		t.Errorf("a rejected slice: %v, want the rejection", err)
	}
	if record, _ := a.Broker.Own.Objects(db); record == nil || record.Spec.Ports[0].Name != "postgres" {
		t.Errorf("record = %v, want the port of the Service", record)
	}

	// A record that the broker lost is written first, and lists the existing slices: without slices it would end them.
	a.Await("condition seen", func() bool { return a.publisher.rejectedBefore(db) })
	record, _ := a.Broker.Own.Objects(db)
	b.Delete(record.DeepCopy())
	a.Await("lost record", func() bool { is, _ := a.Broker.Own.Objects(db); return is == nil })
	a.Writes.Take()
	if err := a.Reconcile(t.Context(), db); member.Rejection(err) == "" {
		t.Errorf("a rejected slice: %v, want the rejection", err)
	}
	a.Expect("a lost record", a.Writes.Take(), recordWrite, sliceWrite("PATCH", "db-1"))

	b.endpointsGoOn(a, service)
	b.lostAndRejected(a)
	a.End()
	a = b.start(func(*Config) {})
	b.rejectedBeforeRestart(a)
	b.failingDelete(a)
	b.movedEndpoints(a)
	b.changedByAdmission(a)

	// The record: its slices go again, and are not written at the next attempt.
	rejected := types.NamespacedName{Namespace: "shop", Name: "rejected"}
	b.Create(memberenv.NewExport(rejected), memberenv.NewService(rejected),
		memberenv.NewSourceSlice(rejected, "rejected-1", "10.1.0.3"))
	a.Await("export seen", seen(rejected, 1))
	for range 2 {
		a.Writes.Take()
		if err := a.Reconcile(t.Context(), rejected); member.Rejection(err) == "" {
			t.Errorf("a rejected record: %v, want the rejection", err)
		}
		if record, slices := a.Broker.Own.Objects(rejected); record != nil || len(slices) > 0 {
			t.Errorf("a rejected record: %v and %v are left", record, slices)
		}
		a.Await("condition seen", func() bool { return a.publisher.rejectedBefore(rejected) })
	}
	a.Expect("rejected again", a.Writes.Take(), "PATCH broker/exportedservices/rejected.shop")
	b.failedAreTriedAgain(a, rejected)
}

// failedAreTriedAgain has the broker take writes again: what failed meanwhile is reconciled, and nothing else
// (docs/spec/controller.md 3.6).
func (b *env) failedAreTriedAgain(a *exporting, failed types.NamespacedName) {
	b.Helper()
	var queued []types.NamespacedName
	a.cfg.Requeue = func(svc types.NamespacedName) { queued = append(queued, svc) }
	a.Resumed()
	if !slices.Contains(queued, failed) || slices.Contains(queued, db) {
		b.Errorf("after writes resume %v are queued, want %s, and not %s", queued, failed, db)
	}
	queued = nil
	if a.Resumed(); len(queued) > 0 {
		b.Errorf("queued again: %v", queued)
	}
}

// docs/spec/controller.md 3.6: an aggregate that could not be written is tried again when the broker takes writes
// again, as an export is.
func TestFailedAggregateIsTriedAgain(t *testing.T) {
	b := newEnv(t)
	var queued []types.NamespacedName
	a := b.start(func(c *Config) {
		c.Aggregates, c.Requeue = true, func(svc types.NamespacedName) { queued = append(queued, svc) }
	})
	b.Deny(memberenv.Policy{
		Name: "no-aggregates", Resources: []string{"multicluster.x-k8s.io/v1beta1/serviceimports"}, Where: onBroker,
		Want: []string{"false"},
	})
	b.Create(memberenv.NewExport(db), memberenv.NewService(db))
	a.Await("export seen", func() bool { return a.Member.Export(db) != nil && a.Member.Service(db) != nil })
	if err := a.Reconcile(t.Context(), db); member.Rejection(err) == "" {
		t.Errorf("an aggregate that is rejected: %v, want the rejection", err)
	}
	if a.Resumed(); !slices.Contains(queued, db) {
		t.Errorf("after writes resume %v are queued, want %s", queued, db)
	}
}

// endpointsGoOn changes a Service so that the record of its export is rejected: its endpoints still follow
// (docs/spec/controller.md 3.6).
func (b *env) endpointsGoOn(a *exporting, service *corev1.Service) {
	b.Helper()
	service.Spec.Ports[0].Name = "denied"
	b.Update(service)
	b.Create(memberenv.NewSourceSlice(db, "db-3", "10.1.0.3"))
	a.Await("port and slice seen", func() bool {
		return a.Member.Service(db).Spec.Ports[0].Name == "denied" && len(a.Member.SourceSlices(db)) == 3
	})
	if err := a.Reconcile(b.Context(), db); member.Rejection(err) == "" {
		b.Errorf("a rejected change of the record: %v, want the rejection", err)
	}
	record, slices := a.Broker.Own.Objects(db)
	if record.Spec.Ports[0].Name != "postgres" || len(slices) != 2 {
		b.Errorf("beside a rejected change of the record: port %s and %d slices, want postgres as before, and the new slice",
			record.Spec.Ports[0].Name, len(slices))
	}
	if got, want := a.ConditionsOf(db), "Ready=False/Failed Valid=True/Valid"; got != want {
		b.Errorf("a rejected change of the record: conditions = %s, want %s", got, want)
	}
}

// lostAndRejected has the broker lose an export, and reject one of its slices from now on. The record lists that slice,
// so that importers keep what they have of it (docs/spec/controller.md 3.6).
func (b *env) lostAndRejected(a *exporting) {
	b.Helper()
	b.Create(memberenv.NewExport(lost), memberenv.NewService(lost), memberenv.NewSourceSlice(lost, "lost-1", "10.1.0.4"),
		memberenv.NewSourceSlice(lost, "lost-2", "10.1.0.5"))
	a.do(lost, "export seen", func() bool {
		return a.Member.Export(lost) != nil && a.Member.Service(lost) != nil && len(a.Member.SourceSlices(lost)) == 2
	})
	record, has := a.Broker.Own.Objects(lost)
	for _, s := range has {
		b.Delete(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}})
	}
	b.Await("loss of the slices seen", func() bool { _, has := a.Broker.Own.Objects(lost); return len(has) == 0 })
	b.Update(memberenv.NewSourceSlice(lost, "lost-1", "10.1.66.1"))
	b.listsAfterLoss(a, record)
	b.Await("condition seen", func() bool { return a.publisher.rejectedBefore(lost) })
}

// lost is the service of [env.lostAndRejected].
var lost = memberenv.Service("lost")

// rejectedBeforeRestart is [env.lostAndRejected] in a new process, with the record and without.
func (b *env) rejectedBeforeRestart(a *exporting) {
	b.Helper()
	record, _ := a.Broker.Own.Objects(lost)
	if err := a.Reconcile(b.Context(), lost); member.Rejection(err) == "" {
		b.Errorf("a slice that is rejected still: %v, want the rejection", err)
	}
	if is, _ := a.Broker.Own.Objects(lost); !slices.Equal(is.Spec.Slices, record.Spec.Slices) {
		b.Errorf("the record lists %v after a restart, want %v", is.Spec.Slices, record.Spec.Slices)
	}
	b.listsAfterLoss(a, record)
}

// listsAfterLoss deletes the record of [env.lostAndRejected] from the broker. The first write of the record lists both
// slices.
func (b *env) listsAfterLoss(a *exporting, record *v1alpha1.ExportedService) {
	b.Helper()
	b.Delete(&v1alpha1.ExportedService{ObjectMeta: metav1.ObjectMeta{Namespace: record.Namespace, Name: record.Name}})
	a.Await("loss seen", func() bool {
		is, _ := a.Broker.Own.Objects(lost)
		return is == nil && slices.ContainsFunc(a.Member.SourceSlices(lost),
			func(s *discoveryv1.EndpointSlice) bool { return s.Endpoints[0].Addresses[0] == "10.1.66.1" })
	})
	if err := a.Reconcile(b.Context(), lost); member.Rejection(err) == "" {
		b.Errorf("a lost slice that is rejected: %v, want the rejection", err)
	}
	is, has := a.Broker.Own.Objects(lost)
	if is == nil || len(has) != 1 || !slices.Equal(is.Spec.Slices, record.Spec.Slices) {
		b.Errorf("the broker has the record %v and %d slices, want one, and a record that lists %v", is, len(has),
			record.Spec.Slices)
	}
}

// failingDelete withdraws an export of three slices, the first of which cannot be deleted: that costs the others
// nothing.
func (b *env) failingDelete(a *exporting) {
	b.Helper()
	svc := memberenv.Service("kept")
	sources := []string{"kept-1", "kept-2", "kept-3"}
	name := func(source string) string { return apibroker.SliceName("shop", "kept", source) }
	slices.SortFunc(sources, func(x, y string) int { return strings.Compare(name(x), name(y)) })
	b.Create(memberenv.NewExport(svc), memberenv.NewService(svc))
	for i, source := range sources {
		b.Create(memberenv.NewSourceSlice(svc, source, []string{"10.1.77.1", "10.1.0.7", "10.1.0.8"}[i]))
	}
	a.do(svc, "export seen", func() bool {
		return a.Member.Export(svc) != nil && a.Member.Service(svc) != nil && len(a.Member.SourceSlices(svc)) == 3
	})
	b.Delete(memberenv.NewExport(svc))
	a.Await("end of export seen", func() bool { return a.Member.Export(svc) == nil })
	if err := a.settle(svc); member.Rejection(err) == "" {
		b.Errorf("a slice that cannot be deleted: %v, want the rejection", err)
	}
	if record, left := a.Broker.Own.Objects(svc); record != nil || len(left) != 1 || left[0].Name != name(sources[0]) {
		b.Errorf("beside a slice that cannot be deleted: record %v and slices %v, want that slice alone", record, left)
	}
}

// movedEndpoints moves an endpoint to a slice that the broker rejects: it stays in its slice, which loses deleted
// endpoints.
func (b *env) movedEndpoints(a *exporting) {
	b.Helper()
	moving := types.NamespacedName{Namespace: "shop", Name: "moving"}
	source := func(name string, addresses ...string) *discoveryv1.EndpointSlice {
		e := memberenv.NewSourceSlice(moving, name, addresses[0])
		for _, address := range addresses[1:] {
			e.Endpoints = append(e.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
		}
		return e
	}
	// reconciles waits for the names of the source slices, and compares the addresses on the broker by the lists of each
	// slice.
	reconciles := func(what, sources, want string, wantErr bool) {
		b.Helper()
		a.Await(what+" seen", func() bool {
			var names []string
			for _, e := range a.Member.SourceSlices(moving) {
				names = append(names, fmt.Sprint(e.Name, len(e.Endpoints)))
			}
			slices.Sort(names)
			return strings.Join(names, " ") == sources && a.Member.Export(moving) != nil && a.Member.Service(moving) != nil
		})
		if err := a.Reconcile(b.Context(), moving); (err != nil) != wantErr {
			b.Errorf("%s: %v, want an error: %t", what, err, wantErr)
		}
		var got []string
		_, has := a.Broker.Own.Objects(moving)
		for _, e := range has {
			var addresses []string
			for _, ep := range e.Endpoints {
				addresses = append(addresses, ep.Addresses...)
			}
			got = append(got, strings.Join(addresses, "+"))
		}
		if slices.Sort(got); strings.Join(got, " ") != want {
			b.Errorf("%s: the broker has %q, want %q", what, got, want)
		}
	}
	b.Create(memberenv.NewExport(moving), memberenv.NewService(moving), source("moving-1", "10.1.0.7", "10.1.0.8"))
	reconciles("export", "moving-12", "10.1.0.7+10.1.0.8", false)
	b.Delete(source("moving-1", "10.1.0.7", "10.1.0.8"))
	b.Create(source("moving-2", "10.1.0.7", "10.1.66.1"))
	for range 2 {
		reconciles("moved to a slice that is rejected", "moving-22", "10.1.0.7", true)
	}
	b.Update(source("moving-2", "10.1.0.7", "10.1.0.9"))
	a.Await("another address seen", func() bool {
		return a.Member.SourceSlices(moving)[0].Endpoints[1].Addresses[0] == "10.1.0.9"
	})
	reconciles("to one that is not", "moving-22", "10.1.0.7+10.1.0.9", false)
	b.Create(source("moving-3", "10.1.0.7", "10.1.66.1"))
	b.Update(source("moving-2", "10.1.0.9"))
	for range 2 {
		reconciles("one of two moved to a slice that is rejected", "moving-21 moving-32", "10.1.0.9+10.1.0.7", true)
	}
	b.Update(source("moving-3", "10.1.0.7"))
	reconciles("to one that is not", "moving-21 moving-31", "10.1.0.7 10.1.0.9", false)

	// Two slices that both lose endpoints, one of them to the other, which is rejected. The first one by name is written
	// first.
	first, second := "moving-1", "moving-2"
	if name := func(source string) string {
		return apibroker.SliceName("shop", "moving", source)
	}; name(first) > name(second) {
		first, second = second, first
	}
	seen := func(n, m int) string {
		all := []string{fmt.Sprint(first, n), fmt.Sprint(second, m)}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	for _, source := range a.Member.SourceSlices(moving) {
		b.Delete(source)
	}
	b.Create(source(first, "10.1.0.1", "10.1.0.2"), source(second, "10.1.0.3", "10.1.0.4", "10.1.0.5"))
	reconciles("divided", seen(2, 3), "10.1.0.1+10.1.0.2 10.1.0.3+10.1.0.4+10.1.0.5", false)
	b.Update(source(first, "10.1.0.1"))
	b.Update(source(second, "10.1.0.2", "10.1.66.1"))
	for range 2 {
		reconciles("one moved to a slice that loses others and is rejected", seen(1, 2),
			"10.1.0.1+10.1.0.2 10.1.0.3+10.1.0.4+10.1.0.5", true)
	}
	b.Update(source(second, "10.1.0.2"))
	reconciles("to one that is not", seen(1, 1), "10.1.0.1 10.1.0.2", false)
	b.Update(source(second, "10.1.0.1"))
	b.Update(source(first, "10.1.0.2", "10.1.0.6")) // once this is seen, so is the other one
	reconciles("two change places", seen(2, 1), "10.1.0.1 10.1.0.2+10.1.0.6", false)

	// Another slice has the name of the new one, and a family that cannot change.
	taken := source("moving-4", "2001:db8::1")
	taken.AddressType, taken.Labels = discoveryv1.AddressTypeIPv6, map[string]string{"of": "someone"}
	taken.Namespace, taken.Name = a.Membership.Namespace, apibroker.SliceName("shop", "moving", "moving-4")
	b.Create(taken, source("moving-4", "10.1.0.1"))
	for _, source := range []string{first, second} {
		b.Delete(memberenv.NewSourceSlice(moving, source, "10.1.0.1"))
	}
	for range 2 {
		reconciles("moved to a slice whose name is taken", "moving-41", "10.1.0.1", true)
	}
	b.Delete(taken)
	reconciles("to one whose name is not", "moving-41", "10.1.0.1", false)
}

// changing makes the broker take the address 10.1.55.1 out of slices that have 10.1.0.3, too.
func (b *env) changing() {
	b.Helper()
	metadata := metav1.ObjectMeta{Name: "changing"}
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metadata, Spec: admissionv1.MutatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule: admissionv1.Rule{APIGroups: []string{"discovery.k8s.io"}, APIVersions: []string{"v1"},
					Resources: []string{"endpointslices"}},
			},
		}}},
		MatchConditions: []admissionv1.MatchCondition{
			{Name: "where", Expression: onBroker}, {Name: "which", Expression: `object.endpoints.exists(e, "10.1.0.3" in e.addresses)`},
		},
		Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{
			Expression: `[JSONPatch{op: "replace", path: "/endpoints", value: object.endpoints.filter(e, !("10.1.55.1" in e.addresses))}]`,
		}}},
		ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
	}}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metadata, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: metadata.Name},
	}
	if err := b.Server.Apply(b.Context(), policy, binding); err != nil {
		b.Fatal(err)
	}
}

// changedByAdmission moves an endpoint to a slice from which the broker takes it out: it stays in the slice in which it
// is (docs/spec/controller.md 3.6).
func (b *env) changedByAdmission(a *exporting) {
	b.Helper()
	changed := memberenv.Service("changed")
	source := func(name string, addresses ...string) *discoveryv1.EndpointSlice {
		e := memberenv.NewSourceSlice(changed, name, addresses[0])
		for _, address := range addresses[1:] {
			e.Endpoints = append(e.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
		}
		return e
	}
	b.Create(memberenv.NewExport(changed), memberenv.NewService(changed), source("changed-1", "10.1.55.1", "10.1.0.2"))
	a.do(changed, "export seen", func() bool {
		return a.Member.Export(changed) != nil && a.Member.Service(changed) != nil && len(a.Member.SourceSlices(changed)) == 1
	})
	b.changing()
	probe := source("probe", "10.1.55.1", "10.1.0.3")
	a.Await("the policy", func() bool {
		is := probe.DeepCopy()
		is.Namespace = a.Membership.Namespace
		return b.Try(is) == nil && len(is.Endpoints) == 1
	})
	b.Create(source("changed-2", "10.1.55.1", "10.1.0.3"))
	b.Delete(source("changed-1", "10.1.55.1"))
	a.Await("moved", func() bool {
		all := a.Member.SourceSlices(changed)
		return len(all) == 1 && all[0].Name == "changed-2"
	})
	for range 2 {
		if err := a.Reconcile(b.Context(), changed); err != nil {
			b.Error(err)
		}
		var got []string
		_, has := a.Broker.Own.Objects(changed)
		for _, e := range has {
			for _, ep := range e.Endpoints {
				got = append(got, ep.Addresses...)
			}
		}
		if slices.Sort(got); !slices.Equal(got, []string{"10.1.0.3", "10.1.55.1"}) {
			b.Errorf("moved to a slice that the broker changes: it has %q, want both endpoints", got)
		}
	}
}

// docs/spec/controller.md 8.2: before a late heartbeat everything is tried once, what failed and what the broker has of
// earlier exports, too, and the watches have brought back what was written. While the broker may not be written,
// nothing is done, and what was tried then is tried again.
func TestPublishAll(t *testing.T) {
	b := newEnv(t)
	var queued []types.NamespacedName
	onTried := func() {}
	a := b.start(func(c *Config) {
		c.RequeueAll = func(all []types.NamespacedName) (tried func() bool) {
			queued = all
			return func() bool {
				onTried()
				return true
			}
		}
	})
	b.Create(memberenv.NewExport(db), memberenv.NewService(db))
	a.do(db, "exported", func() bool { return a.Member.Export(db) != nil && a.Member.Service(db) != nil })
	withdrawn, failed := memberenv.Service("withdrawn"), memberenv.Service("failed")
	record, _ := a.Broker.Own.Objects(db)
	record = record.DeepCopy()
	record.UID, record.ResourceVersion, record.Spec.Name = "", "", withdrawn.Name
	if err := a.Broker.Own.ApplyRecord(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	a.failed.add(failed)
	b.Update(changedService(a, db))
	a.Await("change seen", func() bool { return a.Member.Service(db).Spec.SessionAffinity == "ClientIP" })
	reconcile := func() {
		if err := a.Reconcile(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}

	a.Freezes.Set(safety.BrokerEmpty, "a test")
	done := a.PublishAll(true)
	if done() || len(queued) > 0 {
		t.Errorf("while the broker may not be written: %v are queued, done %t", queued, done())
	}
	a.Freezes.Set(safety.BrokerEmpty, "")
	if done() || !slices.Contains(queued, db) || !slices.Contains(queued, withdrawn) || !slices.Contains(queued, failed) {
		t.Errorf("%v are queued, want %s, %s and %s, and not to be done", queued, db, withdrawn, failed)
	}

	// A freeze comes between.
	a.Freezes.Set(safety.BrokerEmpty, "a test")
	reconcile()
	a.Freezes.Set(safety.BrokerEmpty, "")
	queued = nil
	if done() || !slices.Contains(queued, db) {
		t.Errorf("after a freeze that came between, %v are queued, want %s", queued, db)
	}

	onTried = reconcile
	release := a.Writes.HoldWatches("")
	a.Writes.Take()
	if done() {
		t.Error("done before the watch brought back what was written")
	}
	a.Expect("tried", a.Writes.Take(), "PATCH broker/exportedservices/db.shop", "PATCH shop/serviceexports/db/status")
	if done() {
		t.Error("done before the watch brought back what was written")
	}
	release()
	b.Await("done", done)
}

// changedService returns the service with another session affinity.
func changedService(a *exporting, svc types.NamespacedName) *corev1.Service {
	s := a.Member.Service(svc).DeepCopy()
	s.Spec.SessionAffinity = "ClientIP"
	return s
}
