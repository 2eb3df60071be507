package broker

import (
	"encoding/json"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// maxDetail is the most octets of a reason that goes into logs and conditions, whatever the bad value is.
const maxDetail = 1000

// FuzzMember validates any Member. A valid one has the namespace of its name, and networks that parse; VIP CIDRs never
// overlap.
func FuzzMember(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"east"},"spec":{"kubeSystemUID":"0b0e7cd4-4d6f-4c0a-9c6e-1f6e0b6f6f6f","namespace":"m-`+broker.Hash(16, "east")+
		`","podCIDRs":["10.1.0.0/16"],"vipCIDRs":["243.0.0.0/16"]}}`), []byte(`{"metadata":{"name":"west"},"spec":{"vipCIDRs":["243.0.0.0/8"]}}`))
	f.Add([]byte(`{"metadata":{"name":"a.b"},"spec":{"podCIDRs":["::/0","x"]}}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var members []v1alpha1.Member
		for _, text := range [][]byte{a, b} {
			var m v1alpha1.Member
			if json.Unmarshal(text, &m) != nil {
				continue
			}
			if err := m.Validate(); err != nil {
				if len(err.Error()) > maxDetail {
					t.Errorf("error of %d octets", len(err.Error()))
				}
			} else if !broker.IsLabel(m.Spec.Namespace) || !broker.IsClusterID(m.Name) {
				t.Errorf("member %q with namespace %q is valid", m.Name, m.Spec.Namespace)
			}
			members = append(members, m)
		}
		pools := merge.Pools(members, merge.VIPNetworks{})
		for i, p := range pools {
			for _, q := range pools[:i] {
				if p.Prefix.Overlaps(q.Prefix) {
					t.Errorf("pools %v and %v", p, q)
				}
			}
		}
	})
}

// FuzzLease observes any Lease, twice. The second time it has not changed, and what it asks for is within the bound.
func FuzzLease(f *testing.F) {
	f.Add([]byte(`{"metadata":{"namespace":"m"},"spec":{"renewTime":"2026-01-01T00:00:00.000000Z","leaseDurationSeconds":60}}`))
	f.Add([]byte(`{"spec":{"renewTime":"0001-01-01T00:00:00.000000Z","leaseDurationSeconds":-1}}`))
	f.Add([]byte(`{"spec":{"leaseDurationSeconds":2147483647}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var l coordinationv1.Lease
		if json.Unmarshal(text, &l) != nil {
			return
		}
		h := Heartbeats{seen: map[string]renewal{}}
		h.observe(&l, true)
		r := h.seen[l.Namespace]
		if h.observe(&l, true); h.seen[l.Namespace] != r {
			t.Errorf("%s: want a change the first time alone", text)
		}
		if r.ttl < 0 || r.ttl > broker.MaxHeartbeatTTL || r.at.IsZero() {
			t.Errorf("%s: TTL %s, seen %s", text, r.ttl, r.at)
		}
		if !h.Echo().IsZero() {
			t.Errorf("%s: it is an echo of what was not written", text)
		}
	})
}

// FuzzRecord validates any export record. A valid one is valid again after a round trip over the wire, and has one
// name.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"namespace":"shop","name":"web","type":"ClusterSetIP","ipFamilies":["IPv4"],"sessionAffinity":"None","exportCreated":"2026-01-01T00:00:00Z",` +
		`"ports":[{"name":"http","protocol":"TCP","port":80}]}`))
	f.Add([]byte(`{"namespace":"shop","name":"web","type":"Headless","vip":{"ips":["243.0.0.1"],"allocatedBy":"east","at":"9999-12-31T23:59:59Z"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var spec, again v1alpha1.ExportedServiceSpec
		if json.Unmarshal(text, &spec) != nil {
			return
		}
		if err := spec.Validate(); err != nil {
			if len(err.Error()) > maxDetail {
				t.Errorf("error of %d octets", len(err.Error()))
			}
			return
		}
		wire, err := json.Marshal(&spec)
		if err != nil {
			return // a time of a year that RFC 3339 cannot say
		}
		if err := json.Unmarshal(wire, &again); err != nil || again.Validate() != nil {
			t.Errorf("%s is valid, %s is not: %v", text, wire, again.Validate())
		}
		if svc, ok := ServiceOf(broker.RecordName(spec.Namespace, spec.Name)); !ok || svc.Namespace != spec.Namespace ||
			svc.Name != spec.Name {
			t.Errorf("%s: the record of %s/%s is that of %v", text, spec.Namespace, spec.Name, svc)
		}
	})
}

// FuzzProperties reads the ClusterProperties that any Member publishes. Each counts or is rejected by itself, and those
// that count keep all bounds and are valid again together.
func FuzzProperties(f *testing.F) {
	f.Add([]byte(`{"properties":[{"name":"region.topology.k8s.io","value":"eu"},{"name":"region.topology.k8s.io","value":"us"}]}`))
	f.Add([]byte(`{"properties":[{"name":"A b","value":"x"},{"name":"a.example","value":""},{"name":"b.example","value":"\u0000"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s, again v1alpha1.MemberStatus
		if json.Unmarshal(text, &s) != nil {
			return
		}
		valid, rejected := s.ValidProperties()
		if len(valid)+len(rejected) != len(s.Properties) {
			t.Errorf("%s: %d of %d properties are valid and %d rejected", text, len(valid), len(s.Properties), len(rejected))
		}
		for _, err := range rejected {
			if len(err.Error()) > maxDetail {
				t.Errorf("error of %d octets", len(err.Error()))
			}
		}
		size := 0
		for name, value := range valid {
			if !broker.IsSubdomain(name) || !broker.IsPropertyValue(value) {
				t.Errorf("property %q with value %q is valid", name, value)
			}
			size += len(name) + len(value)
			again.Properties = append(again.Properties, v1alpha1.Property{Name: name, Value: value})
		}
		if len(valid) > broker.MaxProperties || size > broker.MaxPropertySize {
			t.Errorf("%s: %d properties of %d octets are valid", text, len(valid), size)
		}
		if _, rejected := again.ValidProperties(); len(rejected) > 0 {
			t.Errorf("%s: valid, but not again: %v", text, rejected)
		}
	})
}
