package controller

import (
	"testing"

	"github.com/clusterset-dns/clusterset/apiserver"
	"k8s.io/apimachinery/pkg/types"
)

// refusing makes the broker refuse slices with the address 10.66.0.1 and records of the service "refused".
const refusing = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refusing}
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: [discovery.k8s.io], apiVersions: [v1], resources: [endpointslices], operations: [CREATE, UPDATE]}
      - {apiGroups: [broker.clusterset-dns.io], apiVersions: [v1alpha1], resources: [exportedservices], operations: [CREATE, UPDATE]}
  matchConditions:
    - {name: broker, expression: request.namespace.startsWith("member-")}
  validations:
    - expression: >-
        request.resource.resource != "endpointslices" || object.endpoints.all(e, !("10.66.0.1" in e.addresses))
    - expression: >-
        request.resource.resource != "exportedservices" || object.spec.name != "refused"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refusing}
spec: {policyName: refusing, validationActions: [Deny]}
`

// What the broker refuses costs itself alone, and leaves nothing behind.
func TestExportRefused(t *testing.T) {
	b := newStage(t)
	a := b.act(func(*Config) {})
	if err := b.server.ApplyYAML(t.Context(), []byte(refusing)); err != nil {
		t.Fatal(err)
	}
	bad := newSourceSlice(db, "probe", "10.66.0.1")
	bad.Namespace = stageNamespace
	b.await("the policy", func() bool {
		err := b.admin.Create(t.Context(), bad.DeepCopyObject().(apiserver.Object))
		if err == nil {
			b.delete(bad)
		}
		return refusal(err) != ""
	})

	// One slice of two: the record comes nevertheless, and goes on being written.
	b.create(newExport(db), newService(db), newSourceSlice(db, "db-1", "10.66.0.1"), newSourceSlice(db, "db-2", "10.1.0.2"))
	seen := func(svc types.NamespacedName, slices int) func() bool {
		return func() bool {
			return a.local.Export(svc) != nil && a.local.Service(svc) != nil && len(a.local.SourceSlices(svc)) == slices
		}
	}
	a.await("export seen", seen(db, 2))
	if err := a.reconcileExport(t.Context(), db); refusal(err) == "" {
		t.Errorf("a refused slice: %v, want the refusal", err)
	}
	if record, slices := a.broker.Own(db); record == nil || len(slices) != 1 || slices[0].Endpoints[0].Addresses[0] != "10.1.0.2" {
		t.Errorf("beside a refused slice: record %v, slices %v, want both but that slice", record, slices)
	}
	if got, want := a.conditions(db), "Ready=False/Failed Valid=True/Valid"; got != want {
		t.Errorf("a refused slice: conditions = %s, want %s", got, want)
	}
	service := newService(db)
	service.Spec.Ports[0].Name = "postgres"
	b.update(service)
	a.await("port seen", func() bool { return a.local.Service(db).Spec.Ports[0].Name == "postgres" })
	if err := a.reconcileExport(t.Context(), db); refusal(err) == "" {
		t.Errorf("a refused slice: %v, want the refusal", err)
	}
	if record, _ := a.broker.Own(db); record == nil || record.Spec.Ports[0].Name != "postgres" {
		t.Errorf("record = %v, want the port of the Service", record)
	}

	// The record: its slices go again, and are not written at the next attempt.
	refused := types.NamespacedName{Namespace: "shop", Name: "refused"}
	b.create(newExport(refused), newService(refused), newSourceSlice(refused, "refused-1", "10.1.0.3"))
	a.await("export seen", seen(refused, 1))
	for range 2 {
		a.writes.take()
		if err := a.reconcileExport(t.Context(), refused); refusal(err) == "" {
			t.Errorf("a refused record: %v, want the refusal", err)
		}
		if record, slices := a.broker.Own(refused); record != nil || len(slices) > 0 {
			t.Errorf("a refused record: %v and %v are left", record, slices)
		}
		a.await("condition seen", func() bool { return a.refusedBefore(refused) })
	}
	a.expect("refused again", a.writes.take(), "PATCH broker/exportedservices/refused.shop")
}
