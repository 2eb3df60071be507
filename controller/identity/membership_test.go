package identity

import (
	"testing"

	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/safety"
)

// docs/spec/controller.md 7: while something is unknown the cluster stays what it was.
func TestEvaluate(t *testing.T) {
	member := inputs{
		properties: properties{clusterID: "east", joined: true, brokerUID: "b1"},
		broker:     broker.State{Link: true, Membership: broker.Admitted}, linked: true, original: original,
	}
	with := func(change func(*inputs)) inputs {
		e := member
		change(&e)
		return e
	}
	unjoined := func(s broker.State) inputs {
		return with(func(e *inputs) { e.properties, e.broker = properties{clusterID: "east"}, s })
	}
	on := func(s broker.Membership) inputs { return with(func(e *inputs) { e.broker.Membership = s }) }
	for _, tt := range []struct {
		name   string
		given  inputs
		id     string
		known  bool
		freeze safety.Reason
		code   reason.Code
	}{
		{name: "member", given: member, id: "east", known: true},
		{name: "nothing at all", given: inputs{}, known: true},
		{name: "id but not joined", given: inputs{properties: properties{clusterID: "east"}}, known: true},
		{
			name: "a property that does not decode, which looks like none",
			given: with(func(e *inputs) {
				e.properties, e.built = properties{clusterID: "east", unreadable: "clusterset.k8s.io"}, "east"
			}), id: "east",
		},
		{name: "not joined, no kubeconfig", given: with(func(e *inputs) { e.joined, e.linked = false, false }), known: true},
		{name: "not joined, broker disagrees", given: unjoined(broker.State{Link: true, Membership: broker.Admitted}),
			id: "east", known: true, freeze: safety.BrokerIdentity, code: reason.MembershipDeleted},
		{name: "not joined, broker not asked yet", given: unjoined(broker.State{}), id: "east"},
		{name: "not joined, credential revoked", given: unjoined(broker.State{Credential: true}), known: true},
		{name: "not joined, not on the broker", given: unjoined(broker.State{Link: true, Membership: broker.Expelled}),
			known: true},
		{name: "not joined, no member on the broker", given: unjoined(broker.State{Link: true, Membership: broker.Empty}),
			known: true},
		{name: "not joined, id of another cluster", given: with(func(e *inputs) { e.joined, e.foreign = false, true }),
			known: true},
		{
			name:  "both properties gone, as with their CRD, broker disagrees",
			given: with(func(e *inputs) { e.properties, e.built, e.registered = properties{}, "east", true }), id: "east",
			known: true, freeze: safety.BrokerIdentity, code: reason.MembershipDeleted,
		},
		{
			name:  "both properties gone, broker not asked yet",
			given: with(func(e *inputs) { e.properties, e.built, e.broker = properties{}, "east", broker.State{} }), id: "east",
		},
		{
			name: "both properties gone before a restart, broker disagrees",
			given: with(func(e *inputs) {
				e.properties, e.broker.Membership, e.registered = properties{}, broker.Unknown,
					true
			}), freeze: safety.BrokerIdentity, code: reason.MembershipDeleted,
		},
		{name: "both properties gone before a restart, broker not asked yet", given: inputs{linked: true}},
		{
			name: "both properties gone, not on the broker", known: true,
			given: with(func(e *inputs) { e.properties, e.broker.Membership = properties{}, broker.Expelled }),
		},
		{name: "joined, id gone", given: with(func(e *inputs) { e.clusterID = "" })},
		{name: "joined, id not valid", given: with(func(e *inputs) { e.clusterID = "East_1" })},
		{name: "leaving", given: with(func(e *inputs) { e.leaving = true }), known: true},
		{name: "leaving while the broker is away", given: with(func(e *inputs) {
			e.leaving, e.broker = true,
				broker.State{}
		}), known: true},
		{name: "id of another cluster", given: with(func(e *inputs) { e.foreign = true }), id: "east", known: true,
			freeze: safety.BrokerIdentity, code: reason.ClusterIDTaken},
		{name: "a copy", given: with(func(e *inputs) { e.original, e.copied = isCopy, "why" }), id: "east", known: true,
			freeze: safety.BrokerIdentity, code: reason.ClusterCloned},
		{name: "a copy that leaves", given: with(func(e *inputs) { e.original, e.copied, e.leaving = isCopy, "why", true }),
			id: "east", known: true, freeze: safety.BrokerIdentity, code: reason.ClusterCloned},
		{name: "a copy while the broker is away", given: with(func(e *inputs) {
			e.original, e.copied, e.broker = isCopy,
				"why", broker.State{}
		}), id: "east", known: true, freeze: safety.BrokerIdentity, code: reason.ClusterCloned},
		{name: "perhaps a copy", given: with(func(e *inputs) { e.original, e.copied = lookingOn, "why" }), id: "east",
			known: true, freeze: safety.BrokerIdentity, code: reason.ClusterCloned},
		{name: "perhaps a copy, without a broker that could tell",
			given: with(func(e *inputs) { e.original, e.broker.Membership = lookingOn, broker.Empty }), id: "east", known: true,
			freeze: safety.BrokerEmpty, code: reason.BrokerUnprepared},
		{name: "not known whether it is a copy", given: with(func(e *inputs) { e.original = undecided }), id: "east"},
		{name: "not known whether it is a copy that leaves",
			given: with(func(e *inputs) { e.original, e.leaving = undecided, true }), id: "east"},
		{name: "broker has not answered yet", given: with(func(e *inputs) { e.broker = broker.State{} }), id: "east"},
		{name: "link lost", given: with(func(e *inputs) { e.broker.Link = false }), id: "east", known: true},
		{name: "removed", given: on(broker.Expelled), known: true},
		{
			name:  "removed by a broker that may be another one",
			given: with(func(e *inputs) { e.broker.Membership, e.brokerUID = broker.Expelled, "" }), id: "east", known: true,
			freeze: safety.BrokerIdentity, code: reason.MemberMissing,
		},
		{name: "no member namespace", given: on(broker.Empty), id: "east", known: true, freeze: safety.BrokerEmpty,
			code: reason.BrokerUnprepared},
		{name: "no CRDs", given: on(broker.NoCRDs), id: "east", known: true, freeze: safety.BrokerEmpty,
			code: reason.BrokerUnprepared},
		{name: "another broker", given: on(broker.Replaced), id: "east", known: true, freeze: safety.BrokerIdentity,
			code: reason.BrokerReplaced},
	} {
		got := evaluate(tt.given)
		if got.clusterID != tt.id || got.known != tt.known || got.freeze != tt.freeze || got.code != tt.code {
			t.Errorf("%s: %+v, want id %q, known %t, freeze reason %s, code %q", tt.name, got, tt.id, tt.known, tt.freeze,
				tt.code)
		}
		if plain := got.clusterID != "" && got.known && got.freeze == 0; (got.detail == "") != plain {
			t.Errorf("%s: detail = %q; want one unless all is well", tt.name, got.detail)
		}
	}
}
