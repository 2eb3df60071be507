package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/clusterset-dns/clusterset/admin"
)

func newUpgrade(f *factory) *cobra.Command {
	o := admin.UpgradeOptions{StatusOptions: admin.StatusDefaults(), Version: programVersion()}
	var check bool
	var format string
	c := &cobra.Command{
		Use: "upgrade --check", Short: "Show what an upgrade to the version of this program would change, and in which order", Args: cobra.NoArgs,
		Long: `Compare the cluster that the flags of kubectl select, its broker, and the versions of all members with this program, and list what has to
change until they agree, in the order in which that has to happen: the broker, then members, and in each of them rights before programs. The
command only reads. Run it in each member; docs/upgrading.md has the reasons for the order.

The broker is read with the credential of the cluster, unless --broker-kubeconfig or --broker-context is given.

Exit codes: 0, there is nothing to do; 1, the command failed, or the clusterset is newer than this program; 2, there is something to do.`,
		Example: "  clusterset upgrade --check --context east --broker-context hub",
	}
	f.brokerReadFlags(c)
	c.Flags().BoolVar(&check, "check", false, "required: the command changes nothing by itself")
	c.Flags().StringVarP(&format, "output", "o", "", "`FORMAT` of the output: json or yaml; default: text")
	completeWords(c, "output", "json", "yaml")
	c.Flags().StringVar(&o.Namespace, "controller-namespace", o.Namespace, "`NAMESPACE` of the controller in the cluster")
	completeBy(c, "controller-namespace", f.completeNamespaces)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if !check {
			return errors.New("no --check: this command only shows what an upgrade would change")
		}
		if err := checkFormat(format, "", "json", "yaml"); err != nil {
			return err
		}
		onBroker, onMember, err := f.statusConfigs(false)
		if err != nil {
			return err
		}
		plan, err := admin.UpgradeCheck(c.Context(), onBroker, onMember, o)
		if err != nil {
			return err
		}
		if format == "" {
			printPlan(f.Out, plan)
		} else if err := printAs(f.Out, format, plan); err != nil {
			return err
		}
		if len(plan.Steps) > 0 {
			return errProblems
		}
		return nil
	}
	return c
}

func printPlan(w io.Writer, plan admin.UpgradePlan) {
	for i, s := range plan.Steps {
		fmt.Fprintf(w, "%d. %s: %s (%s)\n", i+1, s.Where, s.What, s.How)
		for _, r := range s.Reason {
			fmt.Fprintf(w, "   - %s\n", r)
		}
	}
	for _, warning := range plan.Warnings {
		fmt.Fprintln(w, "warning: "+warning)
	}
	if len(plan.Steps) == 0 {
		fmt.Fprintf(w, "Everything is as version %s wants it.\n", plan.Version)
	}
}
