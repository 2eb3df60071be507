// Package explain reads a member and its broker, and asks DNS servers. Package cause finds out why a name does not
// resolve.
package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/ask"
	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/admin/read"
)

// Run finds out why a name does not resolve in a member, or that it does (docs/spec/explain.md). Without onBroker,
// it reads the broker with the credential of the member. Failed reads are a part of the report, so there is an error
// only if a configuration is invalid, the zone is not served, or the cluster is a broker and not a member.
func Run(ctx context.Context, onBroker, onMember *rest.Config, o Options) (cause.Report, error) {
	in := cause.Input{Name: o.Name, Type: o.Type, Zone: strings.ToLower(strings.Trim(o.DNS.Zone, ".")), TTL: o.TTL,
		Namespace: o.Namespace}
	here, err := read.OpenWithin(onMember, o.Timeout, grantsMember)
	if err != nil {
		return cause.Report{}, fmt.Errorf("member: %w", err)
	}
	read.Parallel(func() { login(ctx, onMember) }, func() { login(ctx, onBroker) })()
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if o.NoAsk {
		in.Unasked = "--no-ask"
	}
	var badZone error
	var named, found []cause.Server
	all := []func(){
		func() { named = ask.Addresses(ctx, ask.Question{Name: o.Name, Type: o.Type}, o.Servers) },
		func() { found, in.Wiring, badZone = readDNS(ctx, here, o) },
	}
	var credential cause.Read[cause.Credential]
	if service, ok := cause.Locate(in.Name, in.Zone); ok {
		all = append(all, func() { in.Here = here.Member(ctx, service, o.Namespace) }, func() {
			credential, in.Broker, err = readHub(ctx, here, onBroker, service, o)
		})
	}
	read.Parallel(all...)()
	if err != nil {
		return cause.Report{}, fmt.Errorf("broker: %w", err)
	}
	if badZone != nil {
		return cause.Report{}, badZone
	}
	if set := in.Here.ClusterSet; set.Known() && set.State != cause.Present && in.Here.Import.State != cause.Present {
		if broker := here.BrokerText(ctx, in.Here.UID.Value); broker != "" {
			return cause.Report{}, fmt.Errorf("%s: want the kubeconfig of a member", broker)
		}
	}
	in.Here.Credential, in.Servers = credential, slices.Concat(named, found)
	in.Now = time.Now()
	return cause.Find(in), nil
}

// loginTimeout is that of a request for which a plugin gets a credential.
const loginTimeout = 5 * time.Second

// login lets a plugin get the credential of the user, which may take seconds, before the time for the API servers runs.
// client-go keeps what the plugin returns. A failure is one of the requests after it, too.
func login(ctx context.Context, config *rest.Config) {
	if config == nil || config.ExecProvider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	if client, err := rest.UnversionedRESTClientFor(dynamic.ConfigFor(config)); err == nil {
		client.Get().AbsPath("/version").Do(ctx)
	}
}

// readHub reads the broker with a configuration or, if that is nil, with the credential of the cluster.
func readHub(
	ctx context.Context, here *read.Cluster, onBroker *rest.Config, service cause.Target, o Options,
) (cause.Read[cause.Credential], cause.Broker, error) {
	var b cause.Broker
	var err error
	from := func(config *rest.Config, grants string) {
		var hub *read.Cluster
		if hub, err = read.OpenWithin(config, o.Timeout, grants); err == nil {
			b = hub.Broker(ctx, service)
		}
	}
	wait := func() {}
	if onBroker != nil {
		wait = read.Parallel(func() { from(onBroker, grantsBroker) })
	}
	credential, config := here.Credential(ctx, o.Namespace)
	if onBroker == nil && config != nil {
		from(config, grantsCredential)
	}
	wait()
	return credential, b, err
}
