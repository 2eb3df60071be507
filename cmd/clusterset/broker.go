package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

func newBroker(f *factory) *cobra.Command {
	c := &cobra.Command{
		Use: "broker", Short: "Prepare or uninstall a broker, or remove a member from it", Args: noArguments, RunE: showHelp,
	}
	c.AddCommand(newBrokerInit(f), newBrokerRemove(f), newBrokerUninstall(f))
	return c
}

func newBrokerInit(f *factory) *cobra.Command {
	var o join.InitOptions
	c := &cobra.Command{
		Use: "init", Short: "Prepare an API server to be the broker of a clusterset", Args: noArguments,
		Long: `Prepare an API server to be the broker of a clusterset, or update what an older version has installed: CRDs, roles, a
priority level and admission policies. The broker needs kube-controller-manager.

--vip and --merge set options for all members. "clusterset join" takes them, and "clusterset status" names members with
other ones. Clusters that are members already do not change.`,
		Example: `  clusterset broker init --broker-context hub
  clusterset broker init --broker-context hub --vip cidr --vip-cidr-pool 10.250.0.0/15
  clusterset broker init --broker-kubeconfig hub.yaml --dry-run=server`,
	}
	f.brokerFlags(c)
	out := f.outputFlags(c)
	c.Flags().StringVar(&o.VIP, "vip", "", "vip `MODE` of all members: derived, cidr or none; any lets each member choose; default: the one given before, or any")
	c.Flags().StringVar(&o.VIPPool, "vip-cidr-pool", "", "`CIDR[,CIDR]` that contain the VIP CIDRs of all members with --vip=cidr, one of each IP family; default: "+merge.DefaultVIPNetworks.String())
	completeWords(c, "vip", "derived", "cidr", "none", join.VIPAny)
	c.Flags().StringVar(&o.Merge, "merge", "", "merge `MODE` of all members: kep, lighthouse or first; default: the one given before, or kep")
	completeWords(c, "merge", "kep", "lighthouse", "first")
	c.Flags().BoolVar(&o.AggregateView, "aggregate-view", false,
		"also install the CRD ServiceImport, for members whose controller has aggregate_view on")
	c.RunE = func(c *cobra.Command, _ []string) error {
		o.Options = out.writeOptions()
		if o.VIPPool != "" && o.VIP != string(merge.CIDR) {
			return fmt.Errorf("--vip-cidr-pool=%s: want it with --vip=cidr", o.VIPPool)
		}
		config, err := f.requireBroker()
		if err != nil {
			return err
		}
		if err := join.Init(c.Context(), config, o); err != nil {
			return out.withPartialNote(err)
		}
		return out.finish(
			nil, nil,
			"The broker is ready. Next, for each cluster: clusterset join --context CLUSTER --broker-context BROKER --cluster-id ID --image IMAGE")
	}
	return c
}

func newBrokerRemove(f *factory) *cobra.Command {
	var o join.LeaveOptions
	c := &cobra.Command{
		Use: "remove ID", Short: "Remove the member of a cluster that no longer exists", Args: requireID,
		Long: `Remove from the broker the member of a cluster that no longer exists, or should be no member. Its exports disappear
from all other members, and its cluster ID becomes free. A cluster that still runs ends its imports; to clean it up,
too, run "clusterset leave" there.

The namespace of the member stays, marked as removed, until you run the command a second time, the cluster ID joins
again, or another member is removed a year later.

The command fails if the member renewed its heartbeat less than its TTL ago (at least a minute, at most an hour), unless
--force is given.`,
		Example:           `  clusterset broker remove east --broker-context hub`,
		ValidArgsFunction: f.completeMembers,
	}
	f.brokerFlags(c)
	out := f.outputFlags(c)
	c.Flags().BoolVar(&o.Force, "force", false, "remove the member even if it still renews its heartbeat")
	c.Flags().StringVar(&o.Prefix, "namespace-prefix", join.DefaultPrefix, "`PREFIX` of the broker namespace; used only if the Member no longer exists")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		o.Options = out.writeOptions()
		config, err := f.requireBroker()
		if err != nil {
			return err
		}
		result, err := join.Remove(c.Context(), config, args[0], o)
		if err != nil {
			return out.withPartialNote(err)
		}
		return out.finish(result, result.Warnings, fmt.Sprintf("%s is no longer a member, and its cluster id is free.\n"+
			"If the cluster comes back, run this with it: clusterset leave --force", args[0]))
	}
	return c
}

// requireID accepts one cluster id as the only argument.
func requireID(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s: %d arguments: want ID, the cluster id of one member", c.Name(), len(args))
	}
	return nil
}
