package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/verify"
	"github.com/clusterset-dns/clusterset/api/reason"
)

// A verifyCommand is one call of "verify".
type verifyCommand struct {
	*factory
	options         verify.Options
	contexts        []string
	servers         []string
	format          string
	noPods, cleanup bool
}

func newVerify(f *factory) *cobra.Command {
	v := &verifyCommand{factory: f, options: verify.Defaults()}
	c := &cobra.Command{
		Use: "verify", Short: "Check that services of each member work in each other one", Args: noArguments,
		Long: `Check in each ordered pair of members that a service works: it is exported, imported, resolves in the importing cluster,
can be reached by TCP and UDP in each IP family, with an address and as a host of a headless service, and is gone when
it is no longer exported. The members are the cluster, and those of --contexts.

The command first names the fault: Pods, a controller, DNS, or the network. It uses a namespace of
its own in each member and the image of the member's controller, and removes everything in the end, also after Ctrl-C. A
later run removes what a killed run has left; --cleanup does so at once.

With --no-pods it checks export, import, withdrawal, and names at the servers of --dns-server.

docs/troubleshooting.md has all codes. Exit codes: 0, everything works; 1, the command failed or was interrupted; 2,
something does not work, or could not be removed; 3, something could not be checked.`,
		Example: `  clusterset verify --context east --contexts west,north
  clusterset verify --context east --contexts west --no-pods --dns-server west=10.2.0.10 -o junit
  clusterset verify --context east --contexts west --cleanup`,
	}
	flags := c.Flags()
	flags.StringSliceVar(&v.contexts, "contexts", nil, "`CONTEXT,...` of the other members in the kubeconfig, repeatable")
	flags.StringVar(&v.options.Image, "image", "", "`IMAGE` of the Pods, which has the program clusterset; default: that of the controller in the member")
	flags.BoolVar(&v.noPods, "no-pods", false, "run no Pods, and check only what needs none")
	flags.StringSliceVar(&v.servers, "dns-server", nil, "`CONTEXT=ADDRESS[:PORT]` of the DNS server to ask in a member, repeatable; default: that of its Pods")
	flags.StringVar(&v.options.Zone, "zone", v.options.Zone, "`ZONE` of the clusterset")
	f.namespaceFlag(c, "controller-namespace", &v.options.Namespace, "`NAMESPACE` of the controllers in their clusters")
	waits.flag(flags, &v.options.Timeout, "timeout", "`DURATION` after which a step counts as failed")
	flags.BoolVar(
		&v.cleanup, "cleanup", false, "only remove what earlier runs have left, also of one that may be going on")
	formatFlag(c, &v.format, "text", "json", "yaml", "junit")
	completeBy(c, "contexts", completeContexts(f.kube.ToRawKubeConfigLoader))
	c.RunE = func(c *cobra.Command, _ []string) error {
		v.options.Pods = !v.noPods
		v.options.Zone = strings.ToLower(strings.Trim(v.options.Zone, "."))
		v.options.Progress = func(what string) { fmt.Fprintln(f.ErrOut, what) }
		return v.run(c.Context())
	}
	return c
}

func (v *verifyCommand) run(ctx context.Context) error {
	clusters, err := v.clusters()
	if err != nil {
		return err
	}
	if v.cleanup {
		left, err := verify.Clean(ctx, clusters, v.options)
		return errors.Join(err, v.warn(left))
	}
	report, err := verify.Run(ctx, clusters, v.options)
	if err != nil {
		_ = v.warn(report.Left) // the error is the result
		return err
	}
	if err := printVerified(v.Out, v.format, report); err != nil {
		return err
	}
	switch left := v.warn(report.Left); {
	case left == nil && report.Verdict.Code == reason.Verified:
		return nil
	case left == nil && report.Verdict.Code == reason.Unverified:
		return errUnread
	}
	return errProblems
}

// warn prints what could not be removed.
func (v *verifyCommand) warn(left []string) error {
	for _, l := range left {
		fmt.Fprintln(v.ErrOut, "warning: not removed: "+l)
	}
	if len(left) > 0 {
		return errProblems
	}
	return nil
}

// clusters returns the selected cluster and those of further contexts.
func (v *verifyCommand) clusters() (all []verify.Member, err error) {
	err = v.eachMember(v.contexts, func(name string, config *rest.Config) {
		all = append(all, verify.Member{Name: name, Config: config})
	})
	if err != nil {
		return nil, err
	}
	for _, s := range v.servers {
		name, server, ok := strings.Cut(s, "=")
		i := slices.IndexFunc(all, func(c verify.Member) bool { return c.Name == name })
		if !ok || i < 0 {
			return nil, fmt.Errorf("--dns-server=%s: want CONTEXT=ADDRESS[:PORT], with the context of one of the members", s)
		}
		if all[i].DNSServer, err = withPort(server); err != nil {
			return nil, err
		}
	}
	return all, nil
}
