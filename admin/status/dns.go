package status

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/dns"
	"github.com/clusterset-dns/clusterset/admin/read"
)

// askDNS returns problems of the DNS servers of a member. A cluster without the clusterset's DNS server has none.
func askDNS(ctx context.Context, config *rest.Config, o dns.Options) *read.Result {
	state, err := dns.Status(ctx, config, o)
	if err == nil && !state.Installed() && o.Service == dns.Defaults().Service {
		o.Service.Name = "clusterset" // of the installation in one Deployment
		state, err = dns.Status(ctx, config, o)
	}
	if err == nil {
		err = state.CheckZone()
	}
	switch {
	case err != nil:
		return &read.Result{Unread: []string{"DNS: " + err.Error()}}
	case !state.Installed():
		return &read.Result{}
	}
	return &state.Result
}
