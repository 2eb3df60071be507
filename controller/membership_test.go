package controller

import (
	"testing"

	"github.com/clusterset-dns/clusterset/controller/broker"
)

// Section 7: what is not known for sure leaves the cluster what it was.
func TestJudge(t *testing.T) {
	member := evidence{id: "east", property: true, joinUID: "b1", broker: broker.State{Link: true, Standing: broker.Admitted}}
	with := func(change func(*evidence)) evidence {
		e := member
		change(&e)
		return e
	}
	on := func(s broker.Standing) evidence { return with(func(e *evidence) { e.broker.Standing = s }) }
	for _, tt := range []struct {
		name    string
		given   evidence
		id      string
		settled bool
		held    hold
	}{
		{name: "member", given: member, id: "east", settled: true},
		{name: "nothing at all", given: evidence{}, settled: true},
		{name: "id but not joined", given: evidence{id: "east"}, settled: true},
		{name: "not joined, whatever the broker says", given: with(func(e *evidence) { e.property = false }), settled: true},
		{name: "joined, id gone", given: with(func(e *evidence) { e.id = "" })},
		{name: "joined, id not valid", given: with(func(e *evidence) { e.id = "East_1" })},
		{name: "leaving", given: with(func(e *evidence) { e.leaving = true }), settled: true},
		{name: "leaving while the broker is away", given: with(func(e *evidence) { e.leaving, e.broker = true, broker.State{} }), settled: true},
		{name: "id of another cluster", given: with(func(e *evidence) { e.taken = true }), id: "east", settled: true, held: holdBrokerIdentity},
		{name: "broker not heard of yet", given: with(func(e *evidence) { e.broker = broker.State{} }), id: "east"},
		{name: "link lost", given: with(func(e *evidence) { e.broker.Link = false }), id: "east", settled: true},
		{name: "expelled", given: on(broker.Expelled), settled: true},
		{
			name:  "expelled by a broker that may be another one",
			given: with(func(e *evidence) { e.broker.Standing, e.joinUID = broker.Expelled, "" }), id: "east", settled: true, held: holdBrokerIdentity,
		},
		{name: "no member namespace", given: on(broker.Empty), id: "east", settled: true, held: holdBrokerEmpty},
		{name: "no CRDs", given: on(broker.NoCRDs), id: "east", settled: true, held: holdBrokerEmpty},
		{name: "another broker", given: on(broker.Replaced), id: "east", settled: true, held: holdBrokerIdentity},
	} {
		got := judge(tt.given)
		if got.id != tt.id || got.settled != tt.settled || got.held != tt.held {
			t.Errorf("%s: %+v, want id %q, settled %t, held %q", tt.name, got, tt.id, tt.settled, tt.held)
		}
		if plain := got.id != "" && got.settled && got.held == ""; (got.detail == "") != plain {
			t.Errorf("%s: detail = %q; want one unless all is well", tt.name, got.detail)
		}
	}
}
