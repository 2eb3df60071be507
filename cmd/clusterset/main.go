// Command clusterset makes clusters members of a clusterset, exports services and shows how all of it fares. Under the name
// kubectl-clusterset it is the plugin "kubectl clusterset".
//
// Exit codes: 0, all is well; 1, it could not be done or found out; 2, "status" found something wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// version is set by -ldflags "-X main.version=v1.2.3"; else the toolchain's stamp stands in.
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	stop()
	os.Exit(code)
}

// The exit codes.
const (
	exitFine  = 0
	exitError = 1
	exitWrong = 2
)

// errWrong means that everything has been said, and that it is not well.
var errWrong = errors.New("something is wrong")

// run is the program, args[0] its name. It ends when ctx does.
func run(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	root := newRoot(filepath.Base(args[0]), streams)
	if len(args) > 1 && strings.HasPrefix(args[1], cobra.ShellCompRequestCmd) {
		unquote(root)
	}
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if !c.Runnable() {
			c.RunE = help // cobra's own "completion", which else takes any word
		}
	}
	root.SetArgs(args[1:])
	switch err := root.ExecuteContext(ctx); {
	case errors.Is(err, errWrong):
		return exitWrong
	case err != nil:
		fmt.Fprintf(streams.ErrOut, "error: %v\n", err)
		return exitError
	}
	return exitFine
}

// A session is what all verbs share.
type session struct {
	genericiooptions.IOStreams
	kube *genericclioptions.ConfigFlags // of the member
	// kubeconfig and context of the broker's admin
	brokerKubeconfig, brokerContext string
}

func newRoot(name string, streams genericiooptions.IOStreams) *cobra.Command {
	s := &session{IOStreams: streams, kube: genericclioptions.NewConfigFlags(true)}
	root := &cobra.Command{
		Use:   "clusterset",
		Short: "Make clusters one clusterset, and export services in it",
		Long: `Make clusters one clusterset (Multi-Cluster Services API, KEP-1645), and export services in it.

The usual flags of kubectl name the cluster that joins, leaves or exports; --broker-kubeconfig and --broker-context name
the broker, as its admin reaches it.

Exit codes: 0, all is well; 1, it could not be done or found out; 2, "status" found something wrong.`,
		Example: `  clusterset broker init --broker-context hub
  clusterset join --context east --broker-context hub --cluster-id east
  clusterset export db -n shop --context east
  clusterset status --context east`,
		SilenceUsage: true, SilenceErrors: true,
		Args: cobra.NoArgs, RunE: help,
	}
	if strings.HasPrefix(name, "kubectl-") {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl clusterset"}
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	s.kube.AddFlags(root.PersistentFlags())
	root.AddCommand(
		newBroker(s), newJoin(s), newLeave(s), newExport(s), newUnexport(s), newStatus(s), newController(s), newVersion(s),
	)
	offerBy(root, "context", contexts(func() (clientcmdapi.Config, error) { return s.kube.ToRawKubeConfigLoader().RawConfig() }))
	offerBy(root, "namespace", s.completeNamespaces)
	return root
}

// help is what a command does that is only a group of others. With a word that is none of them it is not called.
func help(c *cobra.Command, _ []string) error { return c.Help() }

func newVersion(s *session) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this program", Args: cobra.NoArgs,
		Run: func(*cobra.Command, []string) { fmt.Fprintln(s.Out, ownVersion()) },
	}
}

// ownVersion is what was configured at build time, else what the toolchain knows.
func ownVersion() string {
	build, ok := debug.ReadBuildInfo()
	switch {
	case version != "":
		return version
	case ok && build.Main.Version != "" && build.Main.Version != "(devel)":
		return build.Main.Version
	}
	return "devel"
}
