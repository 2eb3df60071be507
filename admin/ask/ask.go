// Package ask asks DNS servers: by address over UDP and TCP, and Pods over TCP through the port forwarding of the API
// server, which needs no route to them. It judges no answer.
package ask

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/reason"
)

// A Question is asked once, without the repetitions of a client: they would hide a lost answer.
type Question struct {
	Name    string
	Type    uint16
	Timeout time.Duration // of one question to one server; 0 is [DefaultTimeout]
}

// DefaultTimeout is the time that CoreDNS gives an upstream server.
const DefaultTimeout = 2 * time.Second

func (q *Question) message() *dns.Msg {
	m := new(dns.Msg).SetQuestion(strings.ToLower(dns.Fqdn(q.Name)), q.Type)
	return m.SetEdns0(1232, false)
}

func (q *Question) timeout() time.Duration { return cmp.Or(q.Timeout, DefaultTimeout) }

// Addresses asks all servers at once, each over UDP and TCP.
func Addresses(ctx context.Context, q Question, addresses []string) []cause.Server {
	servers := make([]cause.Server, len(addresses))
	var all []func()
	for i, address := range addresses {
		servers[i].Name = address
		all = append(all,
			func() { servers[i].UDP = Address(ctx, q, "udp", address) },
			func() { servers[i].TCP = Address(ctx, q, "tcp", address) })
	}
	read.Parallel(all...)()
	return servers
}

// Address asks one server, "<host>:<port>", over udp or tcp.
func Address(ctx context.Context, q Question, network, address string) cause.Reply {
	ctx, cancel := context.WithTimeout(ctx, q.timeout())
	defer cancel()
	client := dns.Client{Net: network, Timeout: q.timeout()}
	answer, _, err := client.ExchangeContext(ctx, q.message(), address)
	if err != nil {
		return cause.Reply{Asked: true, Failure: fmt.Sprintf("%s %s: %s", network, address, logging.Line(err))}
	}
	if answer.Truncated && network == "udp" {
		return Address(ctx, q, "tcp", address) // as each client does
	}
	return reply(answer)
}

func reply(m *dns.Msg) cause.Reply {
	r := cause.Reply{Asked: true, Rcode: m.Rcode, Values: recordValues(m.Answer)}
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			r.Zone = strings.ToLower(strings.TrimSuffix(soa.Hdr.Name, "."))
		}
	}
	if opt := m.IsEdns0(); opt != nil {
		for _, option := range opt.Option {
			if e, ok := option.(*dns.EDNS0_EDE); ok {
				r.Extended = append(r.Extended, e.InfoCode)
				r.Reason = cmp.Or(r.Reason, reason.FromText(e.ExtraText))
			}
		}
	}
	return r
}

// recordValues returns addresses, texts, and services as "<port> <target>", sorted. A chain of CNAME records is passed
// over.
func recordValues(records []dns.RR) (values []string) {
	for _, rr := range records {
		switch rr := rr.(type) {
		case *dns.A:
			values = append(values, rr.A.String())
		case *dns.AAAA:
			values = append(values, rr.AAAA.String())
		case *dns.SRV:
			values = append(values, fmt.Sprintf("%d %s", rr.Port, strings.ToLower(strings.TrimSuffix(rr.Target, "."))))
		case *dns.TXT:
			values = append(values, strings.Join(rr.Txt, ""))
		case *dns.CNAME:
		default:
			values = append(values, strings.TrimPrefix(rr.String(), rr.Header().String()))
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}
