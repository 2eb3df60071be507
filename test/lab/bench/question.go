package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/lab/baseline"
)

// A question is one query with the form of its right answer.
type question struct {
	owner string
	qtype uint16
	edns  bool // with OPT and [baseline.EDNSSize]
	tcp   bool // over TCP, else UDP
	want  answer
	least int // if over 0, from so many up to want.records records are right: as many as fit, and sizes differ
}

// An answer is what the benchmark looks at. The zero value of addr means any.
type answer struct {
	rcode              int
	records, ns, extra int // per section; OPT does not count
	truncated          bool
	addr               netip.Addr
}

func (a answer) String() string {
	s := fmt.Sprintf("%s, TC %t, %d records, authority %d, additional %d",
		dns.RcodeToString[a.rcode], a.truncated, a.records, a.ns, a.extra)
	if a.addr.IsValid() {
		s += ", " + a.addr.String()
	}
	return s
}

func (q question) String() string {
	s := q.owner + " " + dns.TypeToString[q.qtype]
	if q.edns {
		s += fmt.Sprintf(" EDNS %d", baseline.EDNSSize)
	}
	if q.tcp {
		s += " TCP"
	}
	return s
}

func (q question) message() *dns.Msg {
	m := new(dns.Msg)
	m.SetQuestion(q.owner, q.qtype)
	m.RecursionDesired = true
	if q.edns {
		m.SetEdns0(baseline.EDNSSize, false)
	}
	return m
}

// room returns how many octets of records fit an answer over UDP.
func room(owner string, edns bool) int {
	const header, opt = 12, 11
	left := dns.MinMsgSize - header - (len(owner) + 1 + 4)
	if edns {
		left += baseline.EDNSSize - dns.MinMsgSize - opt
	}
	return left
}

// addressesThatFit returns how many A records of one owner, which is the qname, fit an answer over UDP.
func addressesThatFit(owner string, edns bool) int {
	// Compression leaves two octets of each owner name.
	const address = 16
	return room(owner, edns) / address
}

// targetsThatFit returns how many SRV records of one owner, which is the qname, fit an answer over UDP with OPT: fewest
// if those with the longest targets come first, most if those with the shortest do.
func targetsThatFit(owner string, targets []string) (fewest, most int) {
	// Compression leaves two octets of each owner name, and nothing less of a target (RFC 2782).
	const fixed = 2 + 10 + 6
	sizes := make([]int, len(targets))
	for i, target := range targets {
		sizes[i] = fixed + len(target) + 1
	}
	fit := func() int {
		left := room(owner, true)
		for i, size := range sizes {
			if left -= size; left < 0 {
				return i
			}
		}
		return len(sizes)
	}
	slices.Sort(sizes)
	most = fit()
	slices.Reverse(sizes)
	return fit(), most
}

// The questions of the benchmark. Each returns those of many names, so that no name stays in the processor's cache.

func askVIP(services []service) []question {
	var all []question
	for _, s := range services {
		all = append(all, question{owner: s.owner(), qtype: dns.TypeA, want: answer{records: 1, addr: s.ip}})
	}
	return all
}

func askSRV(services []service) []question {
	var all []question
	for _, s := range services {
		all = append(all, question{owner: s.srvOwner(), qtype: dns.TypeSRV, want: answer{records: 1, extra: 1}})
	}
	return all
}

// askUnknown asks for services that do not exist, in namespaces that do.
func askUnknown(services []service) []question {
	var all []question
	for _, s := range services {
		s.name = "no-" + s.name
		all = append(all, question{
			owner: s.owner(), qtype: dns.TypeA, want: answer{rcode: dns.RcodeNameError, ns: 1},
		})
	}
	return all
}

// askAAAA asks for addresses of the family that the services lack.
func askAAAA(services []service) []question {
	var all []question
	for _, s := range services {
		all = append(all, question{owner: s.owner(), qtype: dns.TypeAAAA, want: noData})
	}
	return all
}

// noData is NODATA (RFC 2308 section 2.2).
var noData = answer{ns: 1}

// askBelow asks for names that do not exist, below services that do.
func askBelow(services []service) []question {
	var all []question
	for _, s := range services {
		all = append(all, question{
			owner: "nope." + s.owner(), qtype: dns.TypeA, want: answer{rcode: dns.RcodeNameError, ns: 1},
		})
	}
	return all
}

// askHeadless asks for all endpoints of services, as a client that sends OPT does.
func askHeadless(services []service) []question {
	var all []question
	for _, s := range services {
		q := question{owner: s.owner(), qtype: dns.TypeA, edns: true, want: answer{records: s.endpoints}}
		if fit := addressesThatFit(q.owner, true); fit < s.endpoints {
			q.want = answer{records: fit, truncated: true}
		}
		all = append(all, q)
	}
	return all
}

// askTargets asks for the SRV records of all endpoints, as a client that sends OPT does.
func askTargets(services []service) []question {
	var all []question
	for _, s := range services {
		q := question{
			owner: s.srvOwner(), qtype: dns.TypeSRV, edns: true, want: answer{records: s.endpoints, extra: s.endpoints},
		}
		if fewest, most := targetsThatFit(q.owner, s.targets()); fewest < s.endpoints {
			q.least, q.want = fewest, answer{records: most, truncated: true}
		}
		all = append(all, q)
	}
	return all
}

// overTCP returns the questions, one a service, as TCP clients ask them: nothing is cut.
func overTCP(services []service, questions []question) []question {
	all := slices.Clone(questions)
	for i := range all {
		q := &all[i]
		q.tcp = true
		if !q.want.truncated {
			continue
		}
		q.least, q.want = 0, answer{records: services[i].endpoints}
		if q.qtype == dns.TypeSRV {
			q.want.extra = services[i].endpoints
		}
	}
	return all
}

// A share is how many of each some questions are asked.
type share struct {
	of        int
	questions []question
}

// mix takes from each share its number of questions, n times, going round where there are fewer.
func mix(n int, shares ...share) []question {
	var all []question
	for turn := range n {
		for _, s := range shares {
			for i := range s.of {
				all = append(all, s.questions[(turn*s.of+i)%len(s.questions)])
			}
		}
	}
	return all
}

// rcodeShares returns what part of right answers has each rcode.
func rcodeShares(questions []question) map[string]float64 {
	shares := map[string]float64{}
	for _, q := range questions {
		shares[dns.RcodeToString[q.want.rcode]] += 1 / float64(len(questions))
	}
	return shares
}

// askTruncated asks for a service that is too large for UDP.
func askTruncated(s service, edns bool) []question {
	want := answer{records: addressesThatFit(s.owner(), edns), truncated: true}
	return []question{{owner: s.owner(), qtype: dns.TypeA, edns: edns, want: want}}
}

// askHosts asks for every step-th host.
func askHosts(services []service, step int) []question {
	var all []question
	n := 0
	for _, s := range services {
		for host, addr := range s.hosts() {
			if n%step == 0 {
				all = append(all, question{owner: host, qtype: dns.TypeA, want: answer{records: 1, addr: addr}})
			}
			n++
		}
	}
	return all
}

// some returns up to n of the questions, evenly spread.
func some(questions []question, n int) []question {
	if len(questions) <= n {
		return questions
	}
	spread := make([]question, n)
	for i := range spread {
		spread[i] = questions[i*(len(questions)-1)/(n-1)]
	}
	return spread
}

// check asks each question once and compares the answer with the one wanted.
func check(ctx context.Context, addr string, questions []question) error {
	for _, q := range questions {
		client := &dns.Client{Timeout: 5 * time.Second, UDPSize: baseline.EDNSSize}
		if q.tcp {
			client.Net = "tcp"
		}
		m, _, err := client.ExchangeContext(ctx, q.message(), addr)
		if err != nil {
			return fmt.Errorf("question %s: %w", q, err)
		}
		if err := q.compare(m); err != nil {
			return err
		}
	}
	return nil
}

func (q question) compare(m *dns.Msg) error {
	got := answer{
		rcode: m.Rcode, truncated: m.Truncated,
		records: len(m.Answer), ns: len(m.Ns), extra: len(m.Extra),
	}
	if m.IsEdns0() != nil {
		got.extra--
	}
	if q.want.addr.IsValid() && len(m.Answer) > 0 {
		if a, ok := m.Answer[0].(*dns.A); ok {
			got.addr, _ = netip.AddrFromSlice(a.A.To4())
		}
	}
	want := q.want
	if q.least > 0 && q.least <= got.records && got.records < want.records {
		want.records = got.records
	}
	if got != want {
		return fmt.Errorf("question %s: answer is %s: want %s", q, got, q.want)
	}
	return nil
}

// pack returns the questions in the form that dnsperf reads with -B: messages with their length before them, as over
// TCP.
func pack(questions []question) ([]byte, error) {
	var all []byte
	for _, q := range questions {
		wire, err := q.message().Pack()
		if err != nil {
			return nil, fmt.Errorf("question %s: %w", q, err)
		}
		all = binary.BigEndian.AppendUint16(all, uint16(len(wire)))
		all = append(all, wire...)
	}
	return all, nil
}
