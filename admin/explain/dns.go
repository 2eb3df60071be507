package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/miekg/dns"
	"k8s.io/client-go/rest"

	clusterdns "github.com/clusterset-dns/clusterset/admin/dns"
	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/wiring"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/apiserver"
)

// readWiring reads what the resolvers of the member do with the zone.
func readWiring(ctx context.Context, member *rest.Config, o Options) cause.Read[cause.Wiring] {
	if o.DNSNamespace == "" {
		return cause.Read[cause.Wiring]{}
	}
	member = rest.CopyConfig(member)
	member.Timeout = o.Timeout // of each request
	options := clusterdns.Defaults()
	options.Zone, options.Namespace, options.Service = o.Zone, o.DNSNamespace, o.DNSService
	s, err := clusterdns.Read(ctx, member, options)
	if slices.ContainsFunc(s.Resolvers, func(r wiring.Resolver) bool { return r.InProcess }) && err == nil {
		options.InProcess = true // then a node cache is to forward to it
		s, err = clusterdns.Read(ctx, member, options)
	}
	switch class := apiserver.Classify(err); {
	case err == nil:
		return cause.Read[cause.Wiring]{State: cause.Present, Value: cause.Wiring{
			Resolvers: s.Resolvers, Wanted: s.Server.Addresses, Problem: s.Server.Problem,
			Unread: strings.Join(s.Warnings, "; "), Kubelet: s.Kubelet,
		}}
	case class == apiserver.Unauthorized:
		return cause.Read[cause.Wiring]{State: cause.Unauthorized, Why: "the API server rejects the credential (401)"}
	case class == apiserver.Forbidden:
		return cause.Read[cause.Wiring]{State: cause.Forbidden,
			Why: logging.Line(err) + "; " + grantsMember + " has that right"}
	}
	return cause.Read[cause.Wiring]{State: cause.Unreachable, Why: logging.Line(err)}
}

// askServers asks all servers at once, each over UDP and TCP.
func askServers(ctx context.Context, o Options) []cause.Server {
	servers := make([]cause.Server, len(o.Servers))
	var all []func()
	for i, address := range o.Servers {
		servers[i].Name = address
		all = append(all,
			func() { servers[i].UDP = AskOnce(ctx, "udp", address, o) },
			func() { servers[i].TCP = AskOnce(ctx, "tcp", address, o) })
	}
	read.Parallel(all...)()
	return servers
}

// AskOnce asks once: a client would ask again, and the command is to show what one question meets.
func AskOnce(ctx context.Context, network, address string, o Options) cause.Reply {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	m := new(dns.Msg).SetQuestion(strings.ToLower(dns.Fqdn(o.Name)), o.Type)
	m.SetEdns0(1232, false)
	client := dns.Client{Net: network, Timeout: o.Timeout}
	reply, _, err := client.ExchangeContext(ctx, m, address)
	if err != nil {
		return cause.Reply{Asked: true, Failure: fmt.Sprintf("%s %s: %s", network, address, logging.Line(err))}
	}
	r := cause.Reply{Asked: true, Rcode: reply.Rcode}
	for _, rr := range reply.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			r.Zone = strings.ToLower(strings.TrimSuffix(soa.Hdr.Name, "."))
		}
	}
	if opt := reply.IsEdns0(); opt != nil {
		for _, option := range opt.Option {
			if e, ok := option.(*dns.EDNS0_EDE); ok {
				r.Extended = append(r.Extended, e.InfoCode)
				r.Reason = cmp.Or(r.Reason, reason.FromText(e.ExtraText))
			}
		}
	}
	r.Values = recordValues(reply.Answer)
	return r
}

// recordValues returns addresses, and services as "<port> <target>", sorted. A chain of CNAME records is passed over.
func recordValues(records []dns.RR) (values []string) {
	for _, rr := range records {
		switch rr := rr.(type) {
		case *dns.A:
			values = append(values, rr.A.String())
		case *dns.AAAA:
			values = append(values, rr.AAAA.String())
		case *dns.SRV:
			values = append(values, fmt.Sprintf("%d %s", rr.Port, strings.ToLower(strings.TrimSuffix(rr.Target, "."))))
		case *dns.CNAME:
		default:
			values = append(values, strings.TrimPrefix(rr.String(), rr.Header().String()))
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}
