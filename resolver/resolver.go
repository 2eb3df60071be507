// Package resolver answers questions from an index, in two steps: [Find] finds the name, [Answer.Ask] the RRset that
// the name owns. It is pure: no clock, no counter, no log, no message. What differs from query to query is passed in as
// numbers.
//
//	Question ──Find──► Name ──Ask──► Answer
//	                    │              Found     the RRset of the type
//	                    │              NoData    the name exists without that type, or is an empty non-terminal
//	                    └─ None ─────► NXDomain  neither the name nor a name below it exists
//
// SERVFAIL is not here: while a zone is not synced, package plugin does not ask.
//
// Names are relative to the zone, in lower case and without a final dot: "db-0.east.db.shop.svc", "" for the apex. Find
// takes a name apart from the right and looks each part up in what exists. It never counts labels, as a cluster id has
// one label or two (docs/spec/dns.md 1.4):
//
//	db-0.east.registry1 . db.shop . svc
//	        │                │       └── fixed
//	        │                └────────── Index.Service("db.shop"), or Index.Namespace("shop") if nothing is left of it
//	        └─────────────────────────── a port, if it begins with "_"; else a host label and a cluster id;
//	                                     else a cluster id; else the parent of a dotted cluster id
package resolver

import (
	"slices"

	"github.com/clusterset-dns/clusterset/cache/index"

	"github.com/miekg/dns"
)

// Outcome is the kind of an answer. The zero value is invalid.
type Outcome uint8

const (
	Found    Outcome = iota + 1 // the RRset asked for
	NoData                      // the name exists without that type; SOA in authority (RFC 2308 section 2.2)
	NXDomain                    // neither the name nor any below it exists; SOA in authority (RFC 8020)
)

// An Answer is the RRset that a name owns. At most one of Addresses and Services has records. For the apex, ns.dns and
// dns-version neither has: package plugin makes these records.
type Answer struct {
	Outcome   Outcome
	Type      uint16 // of the RRset: the question's, or the one chosen for ANY
	Name      Name
	Addresses Addresses
	Services  Services
}

// Resolve is Find and Ask.
func Resolve(x *index.Index, q Question, o *Options) Answer {
	a := Answer{Name: Find(x, q.Name, o)}
	a.Ask(&q, o)
	return a
}

// Ask fills in the RRset of a.Name that q asks for. Whether a name exists does not depend on the type. ANY gets one
// RRset of the name (RFC 8482 section 4.1).
func (a *Answer) Ask(q *Question, o *Options) {
	a.Type = q.Type
	switch {
	case a.Name.Kind == None:
		a.Outcome = NXDomain
	case q.Type != dns.TypeANY:
		a.rrset(q, o)
	default:
		a.Outcome = NoData
		for _, a.Type = range a.Name.types() {
			if a.rrset(q, o); a.Outcome == Found {
				return
			}
		}
		a.Type = dns.TypeANY
	}
}

// types lists the types that a name of this kind can own.
func (n *Name) types() []uint16 {
	switch n.Kind {
	case Apex:
		return []uint16{dns.TypeSOA, dns.TypeNS}
	case NameServer, Cluster, Host:
		return []uint16{dns.TypeA, dns.TypeAAAA}
	case Version:
		return []uint16{dns.TypeTXT}
	case Service:
		return []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV}
	case Port:
		return []uint16{dns.TypeSRV}
	}
	return nil
}

// rrset fills in the RRset of a.Type; a.Name exists.
func (a *Answer) rrset(q *Question, o *Options) {
	a.Outcome, a.Addresses.n, a.Services.n = NoData, 0, 0
	switch a.Name.Kind {
	case Apex, NameServer, Version:
		if slices.Contains(a.Name.types(), a.Type) {
			a.Outcome = Found
		}
		return
	}
	switch a.Type {
	case dns.TypeA:
		a.Addresses.fill(&a.Name, index.V4, q, o)
	case dns.TypeAAAA:
		a.Addresses.fill(&a.Name, index.V6, q, o)
	case dns.TypeSRV:
		a.Services.fill(&a.Name, q, o)
	}
	if a.Addresses.n > 0 || a.Services.n > 0 {
		a.Outcome = Found
	}
}
