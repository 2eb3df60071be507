package status

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/dns"
	"github.com/clusterset-dns/clusterset/admin/read"
)

// readDNS adds what the DNS servers of a member answer, if it has that of the clusterset.
func (s *collector) readDNS(ctx context.Context, config *rest.Config) {
	if s.options.DNS == nil || s.state.Cluster == nil || s.state.Cluster.ClusterSet == "" {
		return
	}
	found, now := s.options.Slow.freshDNS(s.options.Now()), s.options.Now()
	if found == nil {
		found = askDNS(ctx, config, *s.options.DNS)
		if s.options.Slow != nil {
			s.options.Slow.dnsAt, s.options.Slow.dns = now, found
		}
	}
	s.state.Problems = append(s.state.Problems, found.Problems...)
	s.state.Warnings = append(s.state.Warnings, found.Warnings...)
	s.state.Unread = append(s.state.Unread, found.Unread...)
}

func askDNS(ctx context.Context, config *rest.Config, o dns.Options) *read.Result {
	state, err := dns.Status(ctx, config, o)
	switch {
	case err != nil:
		return &read.Result{Unread: []string{"DNS: " + err.Error()}}
	case !state.Installed():
		return &read.Result{}
	}
	return &state.Result
}
