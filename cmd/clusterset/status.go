package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/status"
)

const statusLong = `Show the state of the cluster, and of all members of its clusterset. The output ends with one line for each problem and
each warning.

Problems mean that something does not work: heartbeats, credential, leader, broker, CRDs and policies, options vip and
merge of members, exports and imports that are not ready (the first ten of each are named; an import may be pending for
10s), addresses outside of the networks that the cluster declared, DNS servers that do not answer for the clusterset,
and a cluster that is not a member.

Warnings mean that services still work: conflicting exports, undeclared networks of Nodes, and what an upgrade to the
version of this program would change (docs/upgrading.md).

Where a service prefers clusters, a table has those in use, and for how long at least nothing has changed.

With --watch, a terminal shows the current state; elsewhere, and with -o json and yaml, each change is printed after the
last one. Ctrl-C ends it; the exit code is that of the last state.

Exit codes: 0, no problems (there may be warnings); 1, the command failed; 2, there are problems; 3, no problems, and
not all could be read.`

func newStatus(f *factory) *cobra.Command {
	o := status.Defaults()
	s := statusCommand{factory: f}
	brokerOnly, watch, interval := false, false, 2*time.Second
	c := &cobra.Command{
		Use: "status", Short: "Show the state of a cluster, its clusterset and all members", Args: noArguments,
		Annotations: map[string]string{forArguments: "; clusterset explain is for one service"},
		Long:        statusLong,
		Example: `  clusterset status --context east
  clusterset status --context east -o wide
  clusterset status --context east --watch
  clusterset status --broker-only --broker-context hub -o json`,
	}
	f.brokerReadFlags(c)
	formatFlag(c, &s.format, "a table", "wide", "json", "yaml")
	c.Flags().BoolVar(&brokerOnly, "broker-only", false, "read only the broker")
	f.namespaceFlag(c, "controller-namespace", &o.Namespace, "`NAMESPACE` of the controller in the cluster")
	leaseTTLs.flag(c.Flags(), &o.TTL, "lease-ttl", leaseTTLUsage)
	var service string
	f.dnsFlags(c, &o.DNS, &service)
	c.Flags().BoolVarP(
		&watch, "watch", "w", false, "show the state again when it changes, until the command is interrupted")
	waits.flag(c.Flags(), &interval, "interval", "`DURATION` between two reads of --watch")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if o.DNS.Service, err = serviceFlag("dns-service", service); err != nil {
			return err
		}
		var onBroker, onMember *rest.Config
		if brokerOnly {
			onBroker, err = f.requireBroker()
		} else {
			onBroker, onMember, err = f.both(nil)
		}
		if err != nil {
			return err
		}
		s.read = func(ctx context.Context) (status.State, error) { return status.Read(ctx, onBroker, onMember, o) }
		if watch {
			o.Slow = &status.SlowChecks{}
			return s.watch(c.Context(), interval)
		}
		return s.once(c.Context())
	}
	return c
}
