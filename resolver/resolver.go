// Package resolver answers questions from an index: which name it is, and what that name owns. It is pure: no clock, no
// counter, no log, no message. What changes from query to query is handed in as numbers.
//
// Names are relative to the zone, in lower case and without a final dot: "db-0.east.db.shop.svc", "" for the apex.
package resolver

import (
	"github.com/clusterset-dns/clusterset/cache/index"

	"github.com/miekg/dns"
)

// Policy says which clusters answer for a ClusterSetIP service without addresses of its own.
type Policy uint8

// The policies; the zero value is the default.
const (
	LocalFirst Policy = iota // the local cluster if it has ready addresses of the family, else one other in turn
	RoundRobin               // one cluster a query, in turn
	All                      // every cluster
)

// Options are the settings that shape answers.
type Options struct {
	ClusterNames bool // names below the service by cluster id own records
	Policy       Policy
	LocalCluster string // id of the local cluster, "" if not known
	MaxAnswers   int    // most addresses or SRV records in an answer, 0 for no cap
	MaxName      int    // most octets of a relative name, so that the owner name stays within 253; 0 for no limit
}

// A Question is what one query asks.
type Question struct {
	Name string // relative to the zone, lower case
	Type uint16

	Turn        uint64 // moves from query to query: the order of the records
	ClusterTurn uint64 // moves by one for each query of one service and type: the cluster that answers
	Second      uint64 // moves once a second: the window of a capped answer

	// Union asks for what all clusters that take turns say together, uncapped: a zone transfer.
	Union bool
}

// Outcome is the kind of an answer. The zero value is invalid.
type Outcome uint8

const (
	Found    Outcome = iota + 1 // the RRset asked for
	NoData                      // the name exists without that type; SOA in authority (RFC 2308 section 2.2)
	NXDomain                    // neither the name nor any below it exists; SOA in authority (RFC 8020)
)

// An Answer is the RRset that a name owns. At most one of Addresses and Services has records; the records of the apex,
// of ns.dns and of dns-version are the server's own.
type Answer struct {
	Outcome   Outcome
	Type      uint16 // of the RRset: the question's, or the one chosen for ANY
	Name      Name
	Addresses Addresses
	Services  Services
}

// Resolve finds the name of a question and answers it.
func Resolve(x *index.Index, q Question, o *Options) Answer {
	n := Find(x, q.Name, o)
	return n.Answer(q, o)
}

// Answer tells what n owns of the type asked for. Existence does not depend on the type. An ANY question gets one RRset
// of the name (RFC 8482 section 4.1).
func (n Name) Answer(q Question, o *Options) Answer {
	if n.Kind == None {
		return Answer{Outcome: NXDomain, Type: q.Type, Name: n}
	}
	if q.Type != dns.TypeANY {
		return n.rrset(q, o)
	}
	a := Answer{Outcome: NoData, Type: q.Type, Name: n}
	for _, t := range n.types() {
		q.Type = t
		if a = n.rrset(q, o); a.Outcome == Found {
			return a
		}
	}
	a.Type = dns.TypeANY
	return a
}

// types lists what a name of its kind can own.
func (n Name) types() []uint16 {
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

func (n Name) rrset(q Question, o *Options) Answer {
	a := Answer{Outcome: NoData, Type: q.Type, Name: n}
	switch n.Kind {
	case Apex, NameServer, Version:
		for _, t := range n.types() {
			if t == q.Type {
				a.Outcome = Found
			}
		}
		return a
	}
	switch q.Type {
	case dns.TypeA:
		a.Addresses = n.addresses(index.V4, q, o)
	case dns.TypeAAAA:
		a.Addresses = n.addresses(index.V6, q, o)
	case dns.TypeSRV:
		a.Services = n.services(q, o)
	}
	if a.Addresses.Len() > 0 || a.Services.Len() > 0 {
		a.Outcome = Found
	}
	return a
}

// phi spreads successive numbers evenly over 32 bits, whatever stride a client asks in (golden ratio, Weyl sequence).
const phi = 0x9E3779B9

// order is the part of an RRset that is shown: n records of total from start on, beginning within them at turn.
type order struct{ start, turn, n, total int }

// newOrder caps total records to limit. Window says where a window that moves with the second starts.
func newOrder(total int, q Question, o *Options, window func(at uint32) int) order {
	r := order{n: total, total: total}
	if o.MaxAnswers > 0 && total > o.MaxAnswers && !q.Union {
		r.n = o.MaxAnswers
		r.start = window(uint32(q.Second * phi))
	}
	r.turn = int(uint64(uint32(q.Turn*phi)) * uint64(r.n) >> 32)
	return r
}

func (r order) at(i int) int {
	i += r.turn
	if i >= r.n {
		i -= r.n
	}
	i += r.start
	if i >= r.total {
		i -= r.total
	}
	return i
}

// Addresses are the address records of one name, in the order to be sent.
type Addresses struct {
	list index.List
	order
}

func newAddresses(l index.List, q Question, o *Options) Addresses {
	return Addresses{list: l, order: newOrder(l.Len(), q, o, l.Window)}
}

// Len is the number of records.
func (a Addresses) Len() int { return a.n }

// At is the address of record i, 4 or 16 octets in network order.
func (a Addresses) At(i int) string { return a.list.At(a.at(i)) }

// addresses are the A or AAAA records of n.
func (n Name) addresses(f index.Family, q Question, o *Options) Addresses {
	s := n.Service
	switch n.Kind {
	case Service:
		return n.serviceAddresses(f, q, o)
	case Cluster:
		return newAddresses(s.ClusterAddresses(n.cluster, f), q, o)
	case Host:
		return newAddresses(s.HostAddresses(n.host, f), q, o)
	}
	return Addresses{}
}

func (n Name) serviceAddresses(f index.Family, q Question, o *Options) Addresses {
	s := n.Service
	switch {
	case s.HasVIP():
		return newAddresses(s.VIPs(f), q, o)
	case s.Type() == index.Headless, o.Policy == All:
		return newAddresses(s.Addresses(f), q, o)
	}
	able := answering(s, f, o)
	switch {
	case len(able) == 0:
		return Addresses{}
	case q.Union && len(able) > 1:
		return newAddresses(s.Addresses(f), q, o)
	}
	return newAddresses(s.ClusterAddresses(able[q.ClusterTurn%uint64(len(able))], f), q, o)
}

// answering lists the clusters that take turns for addresses of a family.
func answering(s *index.Service, f index.Family, o *Options) []int {
	if c, ok := s.Cluster(o.LocalCluster); ok && o.Policy == LocalFirst && s.ClusterAddresses(c, f).Len() > 0 {
		return []int{c}
	}
	var able []int
	for c := range s.Clusters() {
		if s.ClusterAddresses(c, f).Len() > 0 {
			able = append(able, c)
		}
	}
	return able
}
