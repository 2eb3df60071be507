// Command demo-files is the first part of the demo: CoreDNS with the plugin clusterset serves the objects in the folder
// examples, without any API server, and answers three questions. While it serves on, it builds what the rest of the
// demo needs, and then becomes that.
//
// It is a program of its own because it depends on a third of the packages that CoreDNS with all plugins depends on. So
// on a machine that has compiled nothing yet, the first answers come minutes before everything is built.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/clusterset-dns/clusterset/test/harness/gobuild"
	"github.com/clusterset-dns/clusterset/test/tools/demo/ask"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Stdout)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	stop()
	if err == nil {
		// The same process goes on as the rest of the demo. Exec returns only if it fails.
		err = syscall.Exec("bin/demo", []string{"bin/demo"}, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "\ndemo:", err)
	os.Exit(1)
}

// run returns when all programs of the demo are up to date and the server has stopped. The working directory is that of
// the repository.
func run(ctx context.Context, out io.Writer) error {
	client := ask.Client{Out: out, Dig: ask.FindDig()}
	fmt.Fprintf(out, "clusterset: the Services of several Kubernetes clusters under one DNS name\n\n%s\n\n",
		asksWith(client))
	s, err := serve("examples")
	if err != nil {
		return err
	}
	defer s.stop()
	client.Port = s.port
	fmt.Fprintf(out, `1. DNS from files

   CoreDNS serves %s from the manifests in the folder examples, without an API server. They describe a
   shop in three clusters: ServiceImports, one for each Service, and EndpointSlices from each cluster.

%s
`, ask.Zone, s.corefile)
	if err := s.await(ctx); err != nil {
		return err
	}
	if err := client.All(ctx, questions); err != nil {
		return err
	}
	fmt.Fprintf(
		out,
		"   The next parts use real API servers. What they need is built now, if it is not there yet; the server above\n"+
			"   answers your questions meanwhile.\n\n")
	return build(ctx, out)
}

func asksWith(c ask.Client) string {
	if c.Dig == "" {
		return "dig is not installed, so bin/query asks the questions: it prints what dig would print."
	}
	return "dig asks the questions."
}

var questions = []ask.Question{
	{
		Shows: "web has one virtual IP for all clusters.",
		Name:  "web.shop", Qtype: "A", Want: []string{"A 10.200.0.10"},
	},
	{
		Shows: "db is headless: its name has the addresses of all ready Pods in all clusters.",
		Name:  "db.shop", Qtype: "A", Want: []string{"A 10.1.0.20", "A 10.1.0.21", "A 10.2.0.20", "A 10.3.0.20"},
	},
	{
		Shows: "Each Pod of a headless Service has a name below that of its cluster: db-0 in the cluster east.",
		Name:  "db-0.east.db.shop", Qtype: "A", Want: []string{"A 10.1.0.20"},
	},
}

// build builds the programs of the other parts: first ours, then those of a control plane.
func build(ctx context.Context, out io.Writer) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	ours := gobuild.Command{
		Dir: root, Output: "bin/", What: "bin/demo-coredns, bin/clusterset and bin/demo", Next: "etcd, kube-apiserver",
		Packages: []string{"./test/tools/demo/demo-coredns", "./cmd/clusterset", "./test/tools/demo",
			"./test/harness/controlplane/cmd/binaries"},
	}
	progress := indented{out}
	if err := gobuild.Build(ctx, ours, progress); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join("bin", "binaries"))
	cmd.Stderr = progress
	// It ends its compilers itself, given the chance.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build etcd and kube-apiserver: %w", err)
	}
	fmt.Fprintln(out)
	return nil
}
