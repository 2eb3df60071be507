package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/dns"
	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

func newUninstall(f *factory) *cobra.Command {
	o := join.UninstallOptions{Namespace: wellknown.ControllerNamespace, DNS: dns.Defaults()}
	c := &cobra.Command{
		Use: "uninstall", Short: "Remove everything of clusterset from a cluster that has left", Args: noArguments,
		Long: `Remove everything of clusterset from a cluster that is not a member: what "dns apply" has written, the cluster ID,
policies, rights, imports, CRDs, and the namespace of the controller with all that is in it.

These stay and are listed: a cluster ID and CRDs that others have written, CRDs that have objects, and forwarding of the
zone that was pasted by hand. Rights and policies go by their names: run "helm uninstall" first. With --delete-exports
the ServiceExports of users are deleted, too, with their CRD.

The command waits until the namespace is deleted. On a broker, run "clusterset broker uninstall".
Exit codes: 0, nothing is left; 1, the command failed; 2, something is left.`,
		Example: `  clusterset uninstall --context east --dry-run
  clusterset uninstall --context east --delete-exports`,
	}
	out := f.outputFlags(c)
	c.Flags().BoolVar(&o.DeleteExports, "delete-exports", false, "also delete the ServiceExports of all namespaces")
	f.namespaceFlag(c, "controller-namespace", &o.Namespace, "`NAMESPACE` of the controller in the cluster")
	f.dnsNamespaceFlag(c, &o.DNS.Namespace)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return out.uninstall(c.Context(), f.member, join.Uninstall, o)
	}
	return c
}

func newBrokerUninstall(f *factory) *cobra.Command {
	var o join.UninstallOptions
	c := &cobra.Command{
		Use: "uninstall", Short: "Remove everything of clusterset from a broker without members", Args: noArguments,
		Long: `Remove from a broker without members what "clusterset broker init" has written, and the marks of removed members.
Exit codes: 0, nothing is left; 1, the command failed; 2, something is left.`,
		Example: "  clusterset broker uninstall --broker-context hub",
	}
	f.brokerFlags(c)
	out := f.outputFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return out.uninstall(c.Context(), f.requireBroker, join.UninstallBroker, o)
	}
	return c
}

// uninstall calls a function of package join for a cluster, and prints the objects that are left.
func (o *output) uninstall(ctx context.Context, load func() (*rest.Config, error),
	function func(context.Context, *rest.Config, join.UninstallOptions) (join.UninstallResult, error),
	options join.UninstallOptions) error {
	options.Options = o.writeOptions()
	config, err := load()
	if err != nil {
		return err
	}
	r, err := function(ctx, config, options)
	if err != nil {
		return o.withPartialNote(err)
	}
	next := "Nothing of clusterset is left."
	if len(r.Left) > 0 {
		next = ""
	}
	if err := o.finish(r, r.Warnings, next); err != nil {
		return err
	}
	if len(r.Left) == 0 {
		return nil
	}
	for _, l := range r.Left {
		fmt.Fprintln(o.ErrOut, "left: "+l)
	}
	return errProblems
}
