package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/gather"
	"github.com/clusterset-dns/clusterset/admin/read"
)

// A gatherCommand is one call of "gather".
type gatherCommand struct {
	*factory
	options  gather.Options
	contexts []string
}

func newGather(f *factory) *cobra.Command {
	g := &gatherCommand{factory: f, options: gather.Defaults()}
	c := &cobra.Command{
		Use: "gather [FILE]", Short: "Write what is needed to find a fault to an archive, without credentials",
		Args: cobra.MaximumNArgs(1),
		Long: `Write objects, logs, metrics and versions of the cluster, of the clusters of --contexts, and of the broker to an archive
(tar.gz). FILE must not exist; "-" is the standard output; default:
clusterset-TIME.tar.gz.

All text that looks like a credential or was read as one is replaced. Look into the archive before you give it
away.

Unreadable objects are listed in index.json and on the standard error. So are those of the broker that a member may not
read, without the flags of the broker; they do not count as missing.

Exit codes: 0, everything was read; 1, the command failed, and there is no archive; 3, not all could be read, or the
command was interrupted.`,
		Example: `  clusterset gather --context east --contexts west,north --broker-context hub
  clusterset gather - --since 1h | tar -tz`,
	}
	f.brokerReadFlags(c)
	flags := c.Flags()
	flags.StringSliceVar(&g.contexts, "contexts", nil, "`CONTEXT,...` of further members in the kubeconfig, repeatable")
	f.namespaceFlag(c, "controller-namespace", &g.options.Namespace, "`NAMESPACE` of the controllers in their clusters")
	f.namespaceFlag(c, "dns-namespace", &g.options.DNSNamespace, "`NAMESPACE` of the DNS server in each cluster")
	logAges.flag(flags, &g.options.Since, "since", "`DURATION` before now from which on logs are read")
	flags.Int64Var(&g.options.LogLines, "log-lines", g.options.LogLines, "`NUMBER` of lines of each log, the newest ones")
	waits.flag(flags, &g.options.Timeout, "timeout", "`DURATION` after which one request counts as failed")
	completeBy(c, "contexts", completeContexts(f.kube.ToRawKubeConfigLoader))
	c.RunE = func(c *cobra.Command, args []string) error {
		if g.options.LogLines < 0 {
			return fmt.Errorf("--log-lines=%d: want 0 or more", g.options.LogLines)
		}
		g.options.Version = programVersion()
		g.options.Progress = func(what string) { fmt.Fprintln(f.ErrOut, what) }
		return g.run(c.Context(), args)
	}
	return c
}

func (g *gatherCommand) run(ctx context.Context, args []string) error {
	clusters, missing, err := g.clusters(ctx)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("clusterset-%s.tar.gz", time.Now().UTC().Format("20060102-150405"))
	if len(args) > 0 {
		name = args[0]
	}
	index, err := g.write(ctx, name, clusters)
	if err != nil {
		return err
	}
	missing = append(missing, index.Missing()...)
	for _, m := range missing {
		fmt.Fprintln(g.ErrOut, "missing: "+m)
	}
	for _, l := range index.LeftOut() {
		fmt.Fprintln(g.ErrOut, "left out, as the credential of the cluster may not read it: "+l)
	}
	if name != "-" {
		fmt.Fprintf(g.Out, "%s has %d files of %d clusters.\n", name, index.Files(), len(index.Clusters))
	}
	if len(missing) > 0 {
		return errUnread
	}
	return nil
}

// write removes the file again if it is not complete.
func (g *gatherCommand) write(ctx context.Context, name string, clusters []gather.Cluster) (gather.Index,
	error) {
	if name == "-" {
		return gather.Run(ctx, g.Out, clusters, g.options)
	}
	out, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return gather.Index{}, fmt.Errorf("%s exists: want the name of a new file", name)
	}
	if err != nil {
		return gather.Index{}, err
	}
	index, err := gather.Run(ctx, io.Writer(out), clusters, g.options)
	if closed := out.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return index, errors.Join(err, os.Remove(name))
	}
	return index, nil
}

var notInFileName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// clusters returns the selected cluster, those of further contexts and the broker.
func (g *gatherCommand) clusters(ctx context.Context) (all []gather.Cluster, missing []string, err error) {
	err = g.eachMember(g.contexts, func(name string, config *rest.Config) {
		name = "members/" + notInFileName.ReplaceAllString(name, "_")
		for slices.ContainsFunc(all, func(c gather.Cluster) bool { return c.Name == name }) {
			name += "_"
		}
		all = append(all, gather.Cluster{Name: name, Role: read.RoleMember, Config: config})
	})
	if err != nil {
		return nil, nil, err
	}
	onBroker, err := g.broker()
	if err != nil {
		return nil, nil, err
	}
	limited := onBroker == nil
	if limited {
		ctx, cancel := context.WithTimeout(ctx, g.options.Timeout)
		defer cancel()
		if onBroker, err = read.BrokerOf(ctx, all[0].Config, g.options.Namespace); err != nil {
			return all, []string{"broker: " + err.Error()}, nil
		}
	}
	return append(all, gather.Cluster{Name: "broker", Role: read.RoleBroker, Config: onBroker, Limited: limited}), nil, nil
}
