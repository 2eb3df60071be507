// Command clusterset is the command line of an administrator: it prepares a broker, joins clusters to a clusterset,
// exports services and shows the state of the clusterset. It can also run the controller. Installed as
// kubectl-clusterset, it is the plugin "kubectl clusterset" of kubectl.
//
// docs/cli.md has all commands, flags and exit codes. It is generated from the commands in this package; after a
// change, run "go generate" here.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

//go:generate go test -run ^TestReference$ . -update

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	stop()
	os.Exit(code)
}

// run executes the command line args, with the name of the program in args[0], and returns the exit code. It returns
// soon after ctx ends.
func run(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	root := newRoot(filepath.Base(args[0]), streams)
	if len(args) > 1 && strings.HasPrefix(args[1], cobra.ShellCompRequestCmd) {
		unquoteUsage(root)
	}
	root.SetArgs(args[1:])
	c, err := root.ExecuteContextC(ctx)
	switch err = grantedBy(c, err); {
	case errors.Is(err, errProblems):
		return exitProblems
	case errors.Is(err, errUnread):
		return exitUnread
	case err != nil && ctx.Err() != nil:
		fmt.Fprintf(streams.ErrOut, "error: interrupted: %v\n", err)
		return exitError
	case err != nil:
		fmt.Fprintf(streams.ErrOut, "error: %v\n", err)
		return exitError
	}
	return exitOK
}

// newRoot returns the whole tree of commands. name is the name of the program file.
func newRoot(name string, streams genericiooptions.IOStreams) *cobra.Command {
	f := &factory{IOStreams: streams, kube: genericclioptions.NewConfigFlags(true)}
	root := &cobra.Command{
		Use:   "clusterset",
		Short: "Join clusters to a clusterset and export services in it",
		Long: `Join clusters to a clusterset and export services in it (Multi-Cluster Services API, KEP-1645).

Most commands work on one cluster, the member, which the usual flags of kubectl select. Commands that also need the
broker take --broker-kubeconfig and --broker-context.

` + exitCodes,
		Example: `  clusterset broker init --broker-context hub
  clusterset join --context east --broker-context hub --cluster-id east --image registry.example.org/clusterset:1.0
  clusterset export db -n shop --context east
  clusterset status --context east`,
		SilenceUsage: true, SilenceErrors: true,
		Args: noArguments, RunE: showHelp,
	}
	if strings.HasPrefix(name, "kubectl-") {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl clusterset"}
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	f.kube.AddFlags(root.PersistentFlags())
	root.AddCommand(
		newBroker(f), newJoin(f), newLeave(f), newExport(f), newUnexport(f), newStatus(f), newExplain(f), newVerify(f),
		newVerifyPod(f), newGather(f), newUninstall(f), newDNS(f), newController(f),
		newVersion(f),
	)
	completeBy(root, "context", completeContexts(f.kube.ToRawKubeConfigLoader))
	completeBy(root, "namespace", f.completeNamespaces)
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if !c.Runnable() {
			c.RunE = showHelp // the "completion" command of cobra, which otherwise accepts any argument
		}
	}
	return root
}
