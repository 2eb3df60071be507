package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/clusterset-dns/clusterset/test/floor"
	"github.com/miekg/dns"
)

// A question is what is asked, and what a right answer looks like.
type question struct {
	owner string
	qtype uint16
	edns  bool // with OPT and [floor.EDNSSize]
	want  answer
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
		s += fmt.Sprintf(" EDNS %d", floor.EDNSSize)
	}
	return s
}

func (q question) message() *dns.Msg {
	m := new(dns.Msg)
	m.SetQuestion(q.owner, q.qtype)
	m.RecursionDesired = true
	if q.edns {
		m.SetEdns0(floor.EDNSSize, false)
	}
	return m
}

// addressesThatFit returns how many A records of one owner, which is the qname, fit an answer over UDP.
func addressesThatFit(owner string, edns bool) int {
	const header, opt, address = 12, 11, 16
	// Compression leaves two octets of each owner name.
	room := dns.MinMsgSize - header - (len(owner) + 1 + 4)
	if edns {
		room += floor.EDNSSize - dns.MinMsgSize - opt
	}
	return room / address
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

// askHeadless asks for whole services, as a client that sends OPT does.
func askHeadless(services []service) []question {
	var all []question
	for _, s := range services {
		all = append(all, question{owner: s.owner(), qtype: dns.TypeA, edns: true, want: answer{records: s.endpoints}})
	}
	return all
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

// check asks each question once over UDP and compares the answer with the one wanted.
func check(ctx context.Context, addr string, questions []question) error {
	client := &dns.Client{Timeout: 5 * time.Second, UDPSize: floor.EDNSSize}
	for _, q := range questions {
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
	if got != q.want {
		return fmt.Errorf("question %s: answer is %s: want %s", q, got, q.want)
	}
	return nil
}

// pack returns the questions in the form that dnsperf reads with -B: messages with their length before them, as over TCP.
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
