package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/dns"
	"github.com/clusterset-dns/clusterset/admin/wiring"
)

func newDNS(f *factory) *cobra.Command {
	c := &cobra.Command{
		Use: "dns", Short: "Make the DNS server of a cluster forward clusterset.local", Args: noArguments, RunE: showHelp,
		Long: `Make the DNS server of a cluster forward the zone clusterset.local to the DNS server of the clusterset.

The commands find out which DNS server the cluster has, and change only what they have written themselves. If something
else would reset a change, they print what to put where. docs/deployment.md lists the DNS servers.`,
		Example: `  clusterset dns diff --context east
  clusterset dns apply --context east
  clusterset dns status --context east
  clusterset dns undo --context east`,
	}
	c.AddCommand(newDNSStatus(f), newDNSDiff(f), newDNSApply(f), newDNSUndo(f))
	return c
}

// A dnsCommand is one of the commands below "dns".
type dnsCommand struct {
	*factory
	options dns.Options
	service string
}

// desiredFlags adds the flags for the desired state.
func (d *dnsCommand) desiredFlags(c *cobra.Command) {
	d.service = d.options.Service.String()
	d.dnsNamespaceFlag(c, &d.options.Namespace)
	c.Flags().StringVar(&d.options.Zone, "zone", d.options.Zone, "`ZONE` that is forwarded")
	c.Flags().StringVar(&d.service, "service", d.service, "Service of the DNS server of the clusterset, as `NAMESPACE/NAME`")
	c.Flags().BoolVar(&d.options.InProcess, "in-process", false,
		"the image of the cluster's DNS server has the plugin clusterset: it serves the zone itself")
}

func (d *dnsCommand) askFlag(c *cobra.Command) {
	c.Flags().StringVar(&d.options.Ask, "ask", "", "`HOST[:PORT]` of a resolver to ask in place of the Pods of the cluster's DNS servers")
}

func restartFlag(c *cobra.Command, restart *bool) {
	c.Flags().BoolVar(restart, "restart", false,
		"start the Pods of a DNS server anew that does not read its configuration again")
}

// call completes the options from the flags, and calls a function of package dns for the cluster.
func (d *dnsCommand) call(ctx context.Context,
	function func(context.Context, *rest.Config, dns.Options) (dns.State, error)) (s dns.State, err error) {
	if d.service != "" {
		if d.options.Service, err = serviceFlag("service", d.service); err != nil {
			return s, err
		}
	}
	member, err := d.member()
	if err != nil {
		return s, err
	}
	return function(ctx, member, d.options)
}

// serviceFlag is the value of a flag.
func serviceFlag(flag, value string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(value, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}, fmt.Errorf("--%s=%s: want NAMESPACE/NAME", flag, value)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

func newDNSStatus(f *factory) *cobra.Command {
	d := &dnsCommand{factory: f, options: dns.Defaults()}
	var format string
	c := &cobra.Command{
		Use: "status", Short: "Show how the DNS server of a cluster treats the zone", Args: noArguments,
		Long: `Show which DNS server the cluster has, its configuration for the zone, and the answers of all Pods of this server and of
the DNS server of the clusterset to dns-version.ZONE TXT. The question goes through the API server.

Exit codes: 0, the zone is forwarded; 1, the command failed; 2, there are problems; 3, not all Pods could be asked.`,
	}
	d.desiredFlags(c)
	d.askFlag(c)
	formatFlag(c, &format, "a table", "wide", "json", "yaml")
	c.RunE = func(c *cobra.Command, _ []string) error {
		state, err := d.call(c.Context(), dns.Status)
		if err != nil {
			return err
		}
		if format == "json" || format == "yaml" {
			err = printAs(f.Out, format, state)
		} else {
			err = printDNS(f.Out, &state, format == "wide")
		}
		if err == nil {
			err = judge(&state.Result)
		}
		return err
	}
	return c
}

func newDNSDiff(f *factory) *cobra.Command {
	d := &dnsCommand{factory: f, options: dns.Defaults()}
	var format string
	c := &cobra.Command{
		Use: "diff", Short: "Show what \"dns apply\" would change", Args: noArguments,
		Long: `Show what "clusterset dns apply" would change, or print to do by hand.

Exit codes: 0, there is nothing to do; 1, the command failed; 2, there is something to do.`,
	}
	d.desiredFlags(c)
	formatFlag(c, &format, "a diff", "json", "yaml")
	c.RunE = func(c *cobra.Command, _ []string) error {
		state, err := d.call(c.Context(), dns.Diff)
		if err != nil {
			return err
		}
		changes := dnsChanges(&state)
		if format != "" {
			err = printAs(f.Out, format, changes)
		} else {
			for _, text := range changes.text() {
				fmt.Fprint(f.Out, text)
			}
		}
		for _, text := range append(state.Problems, state.Warnings...) {
			fmt.Fprintln(f.ErrOut, text)
		}
		if err == nil && (len(changes.Edits)+len(changes.ByHand) > 0 || len(state.Problems) > 0) {
			err = errProblems
		}
		return err
	}
	return c
}

// A dnsEdit is a change of one object, for output.
type dnsEdit struct {
	Resolver string `json:"resolver"`
	Object   string `json:"object"`
	Field    string `json:"field"`
	Before   string `json:"before"`
	After    string `json:"after"`
	diff     string
}

// A dnsPaste is a change to make by hand.
type dnsPaste struct {
	Resolver string `json:"resolver"`
	Reason   string `json:"reason"`
	Text     string `json:"text"`
}

type dnsPlan struct {
	Edits  []dnsEdit  `json:"edits"`
	ByHand []dnsPaste `json:"byHand"`
}

func dnsChanges(state *dns.State) dnsPlan {
	plan := dnsPlan{Edits: []dnsEdit{}, ByHand: []dnsPaste{}}
	for i := range state.Resolvers {
		r := &state.Resolvers[i]
		if r.State == wiring.Manual {
			plan.ByHand = append(plan.ByHand, dnsPaste{Resolver: r.Name(), Reason: r.Reason, Text: r.Paste})
		}
		if r.Apply != nil {
			o := r.Apply.Object()
			plan.Edits = append(plan.Edits, dnsEdit{
				Resolver: r.Name(), Object: strings.ToLower(o.GetKind()) + "/" + o.GetName(), Field: r.Apply.Field,
				Before: r.Apply.Old, After: r.Apply.New, diff: r.Apply.Diff(),
			})
		}
	}
	return plan
}

// text returns each change once: two resolvers may read one object.
func (p dnsPlan) text() (all []string) {
	shown := map[string]bool{}
	for _, e := range p.Edits {
		if !shown[e.diff] {
			shown[e.diff] = true
			all = append(all, e.diff)
		}
	}
	for _, m := range p.ByHand {
		all = append(all, fmt.Sprintf("%s, by hand:\n%s", m.Resolver, m.Text))
	}
	return all
}

func newDNSApply(f *factory) *cobra.Command {
	d := &dnsCommand{factory: f, options: dns.Defaults()}
	c := &cobra.Command{
		Use: "apply", Short: "Make the DNS server of a cluster forward the zone", Args: noArguments,
		Long: `Make the DNS server of the cluster forward the zone to the DNS server of the clusterset. The command waits until that is
ready, writes, asks all Pods of the cluster's DNS server through the API server, and waits until they answer.

Exit codes: 0, the zone is forwarded; 1, the command failed; 2, something is left to do by hand, or a Pod does not
answer; 3, not all Pods could be asked.`,
		Example: `  clusterset dns apply --context east
  clusterset dns apply --context east --dry-run=server
  clusterset dns apply --context east --restart --service clusterset-system/clusterset`,
	}
	d.desiredFlags(c)
	d.askFlag(c)
	restartFlag(c, &d.options.Restart)
	c.Flags().BoolVar(
		&d.options.Wait, "wait", true, "wait until the DNS server is ready before writing, and for the answer afterwards")
	waits.flag(c.Flags(), &d.options.Timeout, "timeout", "`DURATION` of each wait at most")
	out := f.outputFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		d.options.Options = out.writeOptions()
		state, err := d.call(c.Context(), dns.Apply)
		if err != nil {
			return out.withPartialNote(err)
		}
		return d.finish(out, &state, afterDNSApply(&state, len(out.steps) > 0))
	}
	return c
}

// afterDNSApply reports the result.
func afterDNSApply(state *dns.State, changed bool) string {
	text := "The cluster's DNS server forwards " + state.Zone + "."
	if !changed {
		text = "Nothing to do: the cluster's DNS server forwards " + state.Zone + " already."
	}
	if state.Answered() {
		return text + " It answers."
	}
	return text +
		"\nTo ask it: kubectl run clusterset-ask --rm -i --restart=Never --image=busybox -- nslookup -type=txt dns-version." + state.Zone
}

// finish prints the end of a command that writes.
func (d *dnsCommand) finish(out *output, state *dns.State, next string) error {
	if len(state.Problems) > 0 {
		next = ""
	}
	warnings := append([]string{}, state.Warnings...)
	for _, text := range state.Unread {
		warnings = append(warnings, "not read: "+text)
	}
	if err := out.finish(state, warnings, next); err != nil {
		return err
	}
	return cmp.Or(out.leftByHand(state), judge(&state.Result))
}

// leftByHand prints the remaining manual steps for the cluster's DNS server; the error is the exit code for it.
func (o *output) leftByHand(state *dns.State) error {
	if len(state.Problems) == 0 {
		return nil
	}
	if o.format == "" {
		for _, p := range dnsChanges(state).ByHand {
			fmt.Fprintf(o.Out, "\n%s, by hand:\n%s", p.Resolver, p.Text)
		}
		for _, text := range state.Problems {
			fmt.Fprintln(o.ErrOut, "problem: "+text)
		}
	}
	return errProblems
}

func newDNSUndo(f *factory) *cobra.Command {
	d := &dnsCommand{factory: f, options: dns.Defaults()}
	c := &cobra.Command{
		Use: "undo", Short: "Remove what \"dns apply\" has written", Args: noArguments,
		Long: `Remove from the configuration of the cluster's DNS server what "clusterset dns apply" has written. Changes of others
stay. If they have changed what clusterset had written, it is left alone, with exit code 2.`,
		Example: `  clusterset dns undo --context east`,
	}
	d.dnsNamespaceFlag(c, &d.options.Namespace)
	restartFlag(c, &d.options.Restart)
	out := f.outputFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		d.options.Options = out.writeOptions()
		state, err := d.call(c.Context(), dns.Undo)
		if err != nil {
			return out.withPartialNote(err)
		}
		next := "The cluster's DNS server is configured as it was before."
		if len(out.steps) == 0 {
			next = "Nothing to do: there is nothing of clusterset in the configuration of the cluster's DNS server."
		}
		return d.finish(out, &state, next)
	}
	return c
}
