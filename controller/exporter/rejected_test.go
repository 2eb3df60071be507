package exporter

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

// denying makes the broker reject slices with the address 10.1.66.1 and records of the service "rejected".
const denying = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: denying}
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: [discovery.k8s.io], apiVersions: [v1], resources: [endpointslices], operations: [CREATE, UPDATE]}
      - {apiGroups: [broker.clusterset-dns.io], apiVersions: [v1alpha1], resources: [exportedservices], operations: [CREATE, UPDATE]}
  matchConditions:
    - {name: broker, expression: request.namespace.startsWith("member-")}
  validations:
    - expression: >-
        request.resource.resource != "endpointslices" || object.endpoints.all(e, !("10.1.66.1" in e.addresses))
    - expression: >-
        request.resource.resource != "exportedservices" || object.spec.name != "rejected"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: denying}
spec: {policyName: denying, validationActions: [Deny]}
`

// What the broker rejects does not stop the rest, and leaves nothing behind.
func TestExportRejected(t *testing.T) {
	b := newEnv(t)
	a := b.start(func(*Config) {})
	if err := b.Server.ApplyYAML(t.Context(), []byte(denying)); err != nil {
		t.Fatal(err)
	}
	bad := memberenv.NewSourceSlice(db, "probe", "10.1.66.1")
	bad.Namespace = memberenv.Namespace
	b.Await("the policy", func() bool {
		err := b.Admin.Create(t.Context(), bad.DeepCopyObject().(apiserver.Object))
		if err == nil {
			b.Delete(bad)
		}
		return member.Rejection(err) != ""
	})

	// One slice of two: the record comes nevertheless, and goes on being written.
	b.Create(memberenv.NewExport(db), memberenv.NewService(db), memberenv.NewSourceSlice(db, "db-1", "10.1.66.1"), memberenv.NewSourceSlice(db, "db-2", "10.1.0.2"))
	seen := func(svc types.NamespacedName, slices int) func() bool {
		return func() bool {
			return a.Member.Export(svc) != nil && a.Member.Service(svc) != nil && len(a.Member.SourceSlices(svc)) == slices
		}
	}
	a.Await("export seen", seen(db, 2))
	if err := a.Reconcile(t.Context(), db); member.Rejection(err) == "" {
		t.Errorf("a rejected slice: %v, want the rejection", err)
	}
	if record, slices := a.Broker.Own(db); record == nil || len(slices) != 1 || slices[0].Endpoints[0].Addresses[0] != "10.1.0.2" {
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
	if record, _ := a.Broker.Own(db); record == nil || record.Spec.Ports[0].Name != "postgres" {
		t.Errorf("record = %v, want the port of the Service", record)
	}

	// The record: its slices go again, and are not written at the next attempt.
	rejected := types.NamespacedName{Namespace: "shop", Name: "rejected"}
	b.Create(memberenv.NewExport(rejected), memberenv.NewService(rejected), memberenv.NewSourceSlice(rejected, "rejected-1", "10.1.0.3"))
	a.Await("export seen", seen(rejected, 1))
	for range 2 {
		a.Writes.Take()
		if err := a.Reconcile(t.Context(), rejected); member.Rejection(err) == "" {
			t.Errorf("a rejected record: %v, want the rejection", err)
		}
		if record, slices := a.Broker.Own(rejected); record != nil || len(slices) > 0 {
			t.Errorf("a rejected record: %v and %v are left", record, slices)
		}
		a.Await("condition seen", func() bool { return a.publisher.rejectedBefore(rejected) })
	}
	a.Expect("rejected again", a.Writes.Take(), "PATCH broker/exportedservices/rejected.shop")
}
