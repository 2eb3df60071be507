package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/miekg/dns"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterset-dns/clusterset/admin/explain"
	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/reason"
)

// An explainCommand is one call of "explain".
type explainCommand struct {
	*factory
	options explain.Options
	servers []string
	service string
	format  string
}

func newExplain(f *factory) *cobra.Command {
	e := &explainCommand{factory: f, options: explain.Defaults()}
	c := &cobra.Command{
		Use: "explain [KIND] NAME [TYPE]", Short: "Find out why a name of the clusterset does not resolve",
		Args: cobra.RangeArgs(1, 3),
		Long: `Find out why a name does not resolve in a cluster. The command follows the service from its exports to an answer, stops
at the first fault, and says what to do. TYPE is A, AAAA or SRV; default: SRV for the name of a port, else A.

A service may be named as for kubectl: "db -n shop", "service db", "svc/db"; or "shop/db", "db.shop" and "db.shop.svc".

It asks all ready Pods of the cluster's DNS server and of the clusterset's, over TCP through the API server, and
compares their answers with the objects and with each other. It names rights that are missing, and explains the rest
without them.

docs/troubleshooting.md has all codes.
Exit codes: 0, the name resolves: each server that was asked answers as it should; 1, the command failed; 2, something
is wrong; 3, no problem was found, and something could not be read.`,
		Example: `  clusterset explain db.shop.svc.clusterset.local
  clusterset explain _http._tcp.web.shop.svc.clusterset.local SRV --dns-server 10.96.0.53
  clusterset explain service db -n shop -o json`,
		ValidArgsFunction: e.completeQuestion,
	}
	c.RunE = func(c *cobra.Command, args []string) error { return e.run(c.Context(), args) }
	e.flags(c)
	return c
}

func (e *explainCommand) flags(c *cobra.Command) {
	flags := c.Flags()
	e.brokerReadFlags(c)
	formatFlag(c, &e.format, "text", "json", "yaml")
	flags.StringSliceVar(&e.servers, "dns-server", nil, "`ADDRESS[:PORT]` of a DNS server to ask, over UDP and TCP, in place of the Pods; repeatable")
	flags.BoolVar(&e.options.NoAsk, "no-ask", false, "ask no DNS server: look at the objects alone")
	e.namespaceFlag(c, "controller-namespace", &e.options.Namespace, "`NAMESPACE` of the controller in the cluster")
	e.dnsFlags(c, &e.options.DNS, &e.service)
	leaseTTLs.flag(flags, &e.options.TTL, "lease-ttl", leaseTTLUsage)
	waits.flag(flags, &e.options.Timeout, "timeout", "`DURATION` for all that is read and asked together; what has not answered then counts as unreachable")
}

func (e *explainCommand) run(ctx context.Context, args []string) error {
	e.options.DNS.Zone = strings.ToLower(strings.Trim(e.options.DNS.Zone, "."))
	o := e.options
	name, types, err := e.question(args)
	if err != nil {
		return err
	}
	if o.DNS.Service, err = serviceFlag("dns-service", e.service); err != nil {
		return err
	}
	if strings.HasPrefix(name, "_") {
		types = append(types, "SRV")
	}
	types = append(types, "A")
	question, known := dns.StringToType[strings.ToUpper(types[0])]
	if !known {
		return fmt.Errorf("type %q: want A, AAAA or SRV", types[0])
	}
	o.Name, o.Type = name, question
	for _, s := range e.servers {
		address, err := withPort(s)
		if err != nil {
			return err
		}
		o.Servers = append(o.Servers, address)
	}
	onBroker, onMember, err := e.both(nil)
	if err != nil {
		return err
	}
	report, err := explain.Run(ctx, onBroker, onMember, o)
	if err != nil {
		return err
	}
	if report.Verdict.Found() {
		if all := e.nearNames(ctx, name); len(all) > 0 {
			report.Verdict.Remedy = fmt.Sprintf("Check the name: the cluster imports or exports %s. If it is right: %s",
				strings.Join(all, ", "), report.Verdict.Remedy)
		}
	}
	return e.print(report)
}

// kinds are the words of kubectl that may stand before the name of a service.
var kinds = []string{"service", "services", "svc", "serviceimport", "serviceimports", "serviceexport", "serviceexports"}

// question returns the name and the types that the arguments ask for.
func (e *explainCommand) question(args []string) (name string, types []string, err error) {
	if len(args) > 1 && slices.Contains(kinds, args[0]) {
		args = args[1:]
	}
	if len(args) > 2 {
		return "", nil, fmt.Errorf("%s: want NAME and TYPE", strings.Join(args, " "))
	}
	name = args[0]
	before, after, ok := strings.Cut(name, "/")
	switch {
	case ok && slices.Contains(kinds, before):
		name = after
	case ok:
		name = after + "." + before
	}
	if !strings.Contains(name, ".") {
		namespace, _, err := e.kube.ToRawKubeConfigLoader().Namespace()
		if err != nil {
			return "", nil, err
		}
		name += "." + namespace
	}
	return e.qualified(name), args[1:], nil
}

// qualified completes the name of a service that lacks the zone, as "db.shop" and "db-0.east.db.shop.svc" do.
func (e *explainCommand) qualified(name string) string {
	switch below, isShort := strings.CutSuffix(name, ".svc"); {
	case name == e.options.DNS.Zone:
	case isShort, strings.Count(below, ".") == 1 && !strings.HasSuffix(name, "."):
		return below + ".svc." + e.options.DNS.Zone
	}
	return name
}

// shortName is the name of a service, to be qualified.
func shortName(o *unstructured.Unstructured) string { return o.GetName() + "." + o.GetNamespace() }

// nearNames returns up to three imports and exports with a name at most two letters away, with namespace and service
// swapped, or in another namespace. It returns nil for the name of one, and without the right to list them.
func (e *explainCommand) nearNames(ctx context.Context, name string) (all []string) {
	t, ok := cause.Locate(name, e.options.DNS.Zone)
	member, _, err := e.namespaced()
	if !ok || err != nil {
		return nil
	}
	imports, _ := listing{of: read.ServiceImports, word: shortName}.hints(ctx, member) // without them, no name is near
	exports, _ := listing{of: read.ServiceExports, word: shortName}.hints(ctx, member)
	names := slices.Concat(imports, exports)
	typed, swapped := t.Service+"."+t.Namespace, t.Namespace+"."+t.Service
	if slices.Contains(names, typed) {
		return nil
	}
	// The last names are in other namespaces: near finds prefixes, too.
	for _, like := range slices.Concat(near(swapped, names), near(typed, names), near(t.Service+".", names)) {
		if like = e.qualified(like); !slices.Contains(all, like) {
			all = append(all, like)
		}
	}
	return all[:min(len(all), 3)]
}

// withPort adds port 53 to the address of a server that has no port.
func withPort(server string) (string, error) {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		host, port = strings.Trim(server, "[]"), "53"
	}
	if host == "" || port == "" || strings.ContainsAny(host, "/ ") {
		return "", fmt.Errorf("--dns-server=%s: want ADDRESS or ADDRESS:PORT", server)
	}
	return net.JoinHostPort(host, port), nil
}

func (e *explainCommand) print(r cause.Report) error {
	var err error
	if e.format == "" {
		err = printReport(e.Out, r)
	} else {
		err = printAs(e.Out, e.format, r)
	}
	switch {
	case err != nil:
		return err
	case r.Verdict.Problem():
		return errProblems
	case !r.Verdict.Known():
		return errUnread
	}
	return nil
}

// printReport prints the verdict and then the chain.
func printReport(w io.Writer, r cause.Report) error {
	fmt.Fprintf(w, "%s %s\n\n%s: %s\n", r.Name, r.Type, r.Verdict.Code, r.Verdict.Sentence)
	if r.Verdict.Code != reason.Resolves && r.Verdict.Resolves {
		fmt.Fprintln(w, "The name has an answer nevertheless.")
	}
	fmt.Fprintf(w, "What to do: %s\n\n", r.Verdict.Remedy)
	table := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	for _, s := range r.Chain {
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Mark, s.Name, s.Evidence)
	}
	return table.Flush()
}

// completeQuestion completes the services that the cluster imports, in the selected namespace or in all, and then
// types.
func (e *explainCommand) completeQuestion(c *cobra.Command, args []string, prefix string) ([]string,
	cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
	case 1:
		return withPrefix([]string{"A", "AAAA", "SRV"}, prefix), cobra.ShellCompDirectiveNoFileComp
	default:
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	member, _, err := e.namespaced()
	return completeListed(c, member, err, listing{of: read.ServiceImports, namespace: *e.kube.Namespace,
		word: func(o *unstructured.Unstructured) string { return e.qualified(shortName(o)) }}, prefix)
}
