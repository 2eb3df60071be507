package explain

import (
	"context"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/ask"
	clusterdns "github.com/clusterset-dns/clusterset/admin/dns"
	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/apiserver"
)

// readDNS reads what the resolvers of the member do with the zone, and asks them and the DNS server of the clusterset.
// The error is about a zone that is not served.
func readDNS(ctx context.Context, c *read.Cluster, o Options) ([]cause.Server, cause.Read[cause.Wiring], error) {
	if o.DNS.Namespace == "" {
		return nil, cause.Read[cause.Wiring]{}, nil
	}
	member := rest.CopyConfig(c.API)
	member.Timeout = o.Timeout // of each request
	s, err := clusterdns.Read(ctx, member, o.DNS)
	if s.InProcess() && err == nil {
		o.DNS.InProcess = true // then a node cache is to forward to it
		s, err = clusterdns.Read(ctx, member, o.DNS)
	}
	var servers []cause.Server
	if !o.NoAsk && len(o.Servers) == 0 {
		servers = s.Ask(ctx, c, ask.Question{Name: o.Name, Type: o.Type})
	}
	return servers, wiringOf(&s, err), s.CheckZone()
}

func wiringOf(s *clusterdns.State, err error) cause.Read[cause.Wiring] {
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
