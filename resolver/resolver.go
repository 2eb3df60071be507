// Package resolver answers questions from an index, in two steps: [Find] finds the name, [Answer.Ask] the RRset that the
// name owns. It is pure: no clock, no counter, no log, no message. What differs from query to query is passed in as numbers.
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

// Policy is which clusters answer for a ClusterSetIP service without addresses in spec.ips (docs/spec/dns.md 3.2).
type Policy uint8

// The policies; the zero value is the default.
const (
	LocalFirst Policy = iota // the local cluster if it has ready addresses, else as RoundRobin
	RoundRobin               // one cluster for each client and second, in rotation
	All                      // every cluster
	NoCluster                // none: such a service has no address
)

// Options are the settings of a zone that shape its answers.
type Options struct {
	ClusterNames bool // the names <cluster id>.<service> own records
	Policy       Policy
	LocalCluster string // id of the local cluster, "" if unknown
	MaxAnswers   int    // most A, AAAA or SRV records in an answer; 0 for no cap
	MaxName      int    // most octets of a relative name, so that the owner name has at most 253; 0 for no limit
	Limit        int    // the position of this limit in index.Options.MaxNames
}

// A Question is one query.
type Question struct {
	Name string // relative to the zone, lower case
	Type uint16

	Rotation uint64 // another number for each query: the order of the records
	// ClientRotation is the same for all types of a name that a client asks for at a time; it moves by one each second, and differs by
	// client. It selects the cluster that answers, and the part that is shown of a capped answer.
	ClientRotation uint64

	// Union asks for the records of all clusters that answer in rotation, without the cap: for a zone transfer.
	Union bool
}

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

// Ask fills in the RRset of a.Name that q asks for. Whether a name exists does not depend on the type. ANY gets one RRset
// of the name (RFC 8482 section 4.1).
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

// phi spreads successive numbers evenly over 32 bits, also those that a client with a regular pattern of queries sees
// (golden ratio, Weyl sequence).
const phi = 0x9E3779B9

// spread maps a number that moves by one to one of n, so that each stretch of the sequence has each of them about as often.
func spread(number uint64, n int) int { return int(uint64(uint32(number*phi)) * uint64(n) >> 32) }

// order is the part of an RRset that is sent, and its order: n records of total, evenly spaced from start on. RRsets are in the
// order of clusters, so that an even part has records of each. Records that follow each other are far apart, too: an answer that
// is cut to what the client takes is as even as the whole.
//
//	RRset   e e e e e e w w w w     total 10: two clusters
//	sent      x   x   x   x   x     n 5, start 1: the part of a capped answer moves once a second and differs by client
//	order     1   3   5   2   4     every third of those that are sent (step 3); rotation 0: it differs from query to query
type order struct{ start, rotation, step, n, total uint32 }

// part is where the part starts that is shown of a capped answer, as a fraction of the RRset in 1/2^32.
func (q *Question) part() uint32 {
	x := q.ClientRotation // the finalizer of splitmix64: successive parts have nothing in common, whatever is capped to how many
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return uint32(x >> 32)
}

// set selects total records, or the most that an answer may have. It reports whether these are not all.
func (r *order) set(total int, q *Question, o *Options) (capped bool) {
	*r = order{n: uint32(total), total: uint32(total)}
	if o.MaxAnswers > 0 && total > o.MaxAnswers && !q.Union {
		r.n, capped = uint32(o.MaxAnswers), true
	}
	r.step = step(r.n)
	r.rotation = uint32(spread(q.Rotation, int(r.n)))
	return capped
}

// step is the number nearest to the golden section of n, or above it, that has no divisor in common with n: its multiples,
// modulo n, are all numbers below n, and any few of them that follow each other are far apart.
func step(n uint32) uint32 {
	s := uint32(uint64(n) * phi >> 32)
	for ; n > 2; s++ {
		a, b := n, s
		for b != 0 {
			a, b = b, a%b
		}
		if a == 1 {
			return s
		}
	}
	return 1
}

func (r *order) at(i int) int {
	turned := uint32(i) + r.rotation
	if turned >= r.n {
		turned -= r.n
	}
	nth := uint64(turned) * uint64(r.step) % uint64(r.n)
	if r.n == r.total {
		return int(nth)
	}
	pos := r.start + uint32(nth*uint64(r.total)/uint64(r.n))
	if pos >= r.total {
		pos -= r.total
	}
	return int(pos)
}

// Addresses are the address records of one name, in the order to be sent.
type Addresses struct {
	list index.List
	order
}

// Len is the number of records.
func (a *Addresses) Len() int { return int(a.n) }

// At is the address of record i: 4 or 16 octets in network order.
func (a *Addresses) At(i int) string { return a.list.At(a.at(i)) }

// fill makes a the A or AAAA records of n.
func (a *Addresses) fill(n *Name, f index.Family, q *Question, o *Options) {
	switch n.Kind {
	case Service:
		a.list = serviceAddresses(n.Service, f, q, o)
	case Cluster:
		a.list = n.Service.ClusterAddresses(int(n.cluster), f)
	case Host:
		a.list = n.Service.HostAddresses(int(n.host), f)
	default:
		return
	}
	if a.set(a.list.Len(), q, o) {
		a.start = uint32(a.list.Window(q.part()))
	}
}

func serviceAddresses(s *index.Service, f index.Family, q *Question, o *Options) index.List {
	if s.HasVIP() {
		return s.VIPs(f)
	}
	able := answering(s, o)
	if s.Type() == index.Headless || o.Policy == All || q.Union && able.n > 1 {
		return s.Addresses(f)
	}
	// A client of one family is never sent away because the cluster whose turn it is has no address of it: the next one
	// that has answers for that.
	turn := able.inRotation(q)
	for i := range able.n {
		if c := able.at(turn + i); s.ClusterHas(c, f) {
			return s.ClusterAddresses(c, f)
		}
	}
	return index.List{}
}

// clusters are n clusters of a service from first on.
type clusters struct {
	of       *index.Service
	first, n int
}

// answering are the clusters that can answer for a service, whatever the family: the local one alone, or all that are selected.
func answering(s *index.Service, o *Options) clusters {
	if o.Policy == NoCluster {
		return clusters{}
	}
	if c, ok := s.Cluster(o.LocalCluster); ok && c < s.Answering() && o.Policy == LocalFirst && (s.ClusterHas(c, index.V4) || s.ClusterHas(c, index.V6)) {
		return clusters{s, c, 1}
	}
	return clusters{s, 0, s.Answering()}
}

// inRotation is the position of the cluster that answers this query. Each answers as often as its weight says, also within a few seconds: those of a
// cluster with a large weight are spread over time as those of so many clusters would be.
func (c clusters) inRotation(q *Question) int {
	total := 0
	for i := range c.n {
		total += c.of.Weight(c.first + i)
	}
	left := spread(q.ClientRotation, total)
	for i := range c.n {
		if left -= c.of.Weight(c.first + i); left < 0 {
			return i
		}
	}
	return 0
}

// at is the cluster at a position; the first one follows the last.
func (c clusters) at(i int) int { return c.first + i%c.n }
