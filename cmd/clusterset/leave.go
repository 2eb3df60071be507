package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

func newLeave(f *factory) *cobra.Command {
	o := join.LeaveOptions{Namespace: wellknown.ControllerNamespace}
	c := &cobra.Command{
		Use: "leave", Short: "Take a cluster out of the clusterset", Args: noArguments,
		Long: `Take a cluster out of the clusterset: withdraw its exports, delete its imports, its objects on the broker, its
credential, and ClusterProperty clusterset.k8s.io. The ServiceExports stay; so do cluster ID, controller and
DNS, until "clusterset uninstall". Its namespace on the broker stays for a year, marked as removed.`,
		Example: `  clusterset leave --context east --broker-context hub
  clusterset leave --context east --force    # the broker no longer exists`,
	}
	f.brokerFlags(c)
	out := f.outputFlags(c)
	c.Flags().BoolVar(
		&o.Force, "force", false, "clean up only the cluster if the broker does not answer, is another one, or is not given")
	c.Flags().BoolVar(
		&o.TakeOver, "take-over", false,
		"remove the member even if its original or a copy renews its heartbeat")
	f.namespaceFlag(c, "controller-namespace", &o.Namespace, "`NAMESPACE` of the controller in the cluster")
	c.Flags().StringVar(&o.Prefix, "namespace-prefix", join.DefaultPrefix, "`PREFIX` of the broker namespace; used only if the Member no longer exists")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		o.Options = out.writeOptions()
		missing := fmt.Errorf("%w, or --force if the broker no longer exists", errNoBroker)
		if o.Force {
			missing = nil
		}
		onBroker, onMember, err := f.both(missing)
		if err != nil {
			return err
		}
		result, err := join.Leave(c.Context(), onBroker, onMember, o)
		if err != nil {
			return out.withPartialNote(err)
		}
		if len(out.written()) == 0 {
			out.warn(result.Warnings)
			return errors.New("leave: this cluster is not a member of a clusterset, and nothing of a membership is left")
		}
		return out.finish(
			result, result.Warnings, "This cluster is no longer a member. Its ServiceExports stay, without effect.\n"+
				"To remove its cluster ID, controller, DNS server and forwarding of the zone: clusterset uninstall\n"+
				"To join again: clusterset join")
	}
	return c
}
