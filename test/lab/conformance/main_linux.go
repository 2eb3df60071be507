// Command conformance runs the public conformance suite of the Multi-Cluster Services API, the folder "conformance" of
// kubernetes-sigs/mcs-api, against this checkout. The suite is built from a checkout that the caller has.
//
//	broker                east                                   west
//	API server            API server, kube-controller-manager    the same
//	                      bin/clusterset controller
//	                      network namespace: kube-proxy, CoreDNS, Pods
//
// All of this is real, with the manifests and rights that are shipped, except for the kubelet and the scheduler. A
// [kubelet] stands in for both: it has no containers. Its Pods answer at port 42, as those of the suite do, and its
// "exec" runs commands in the network namespace, with the programs of this machine and the DNS configuration of a Pod.
//
// With -vip cidr the members join with VIP CIDRs, and the controllers run with "--vip cidr".
//
// It needs Linux, root, and the programs ip, nft, nsenter, unshare, nslookup (of BIND) and nc (of OpenBSD). The exit
// status is that of the suite. `make conformance` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

func main() {
	r := run{}
	flag.StringVar(&r.checkout, "checkout", "", "folder with a checkout of kubernetes-sigs/mcs-api")
	flag.StringVar(&r.out, "out", "bin/conformance", "folder for the report of the suite")
	flag.StringVar(&r.vip, "vip", "", "option vip of joins and controllers: derived, cidr or none; the default if empty")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := r.run(ctx, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// A run is one run of the suite.
type run struct {
	checkout, out, vip string

	root       string            // folder of this repository
	bin        map[string]string // programs by name
	clusterset *testclusterset.Clusterset
	nodes      *nodes
}

// run returns nil if all specs passed. args are further flags of the suite, such as -ginkgo.focus.
func (r *run) run(ctx context.Context, args []string) (err error) {
	if r.checkout == "" {
		return errors.New("-checkout: want a folder with a checkout of kubernetes-sigs/mcs-api")
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.build(ctx); err != nil {
		return err
	}
	r.clusterset, err = testclusterset.Start(ctx, testclusterset.Options{IDs: []string{"east", "west"}})
	if err != nil {
		return err
	}
	if r.nodes, err = startNodes(ctx, r.bin, r.vip, r.clusterset.Members); err != nil {
		return err
	}
	kubeconfig, err := r.kubeconfig()
	if err != nil {
		return err
	}
	err = r.suite(ctx, kubeconfig, args)
	return errors.Join(err, r.nodes.failed())
}

func (r *run) close() error {
	var errs []error
	if r.nodes != nil {
		errs = append(errs, r.nodes.close())
	}
	if r.clusterset != nil {
		errs = append(errs, r.clusterset.Stop())
	}
	return errors.Join(errs...)
}

// build builds the suite and our programs.
func (r *run) build(ctx context.Context) (err error) {
	if r.root, err = server.Root(ctx); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	r.bin = map[string]string{"suite": filepath.Join(r.out, "suite")}
	for _, name := range []string{"coredns", "clusterset"} {
		r.bin[name] = filepath.Join(r.root, "bin", "test-"+name)
		if err := server.BuildProgram(ctx, r.root, "./cmd/"+name, r.bin[name]); err != nil {
			return err
		}
	}
	further, err := controlplane.FurtherBinaries(ctx, os.Stderr)
	if err != nil {
		return err
	}
	r.bin["kube-proxy"] = further.Proxy
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", r.bin["suite"], ".")
	cmd.Dir = filepath.Join(r.checkout, "conformance")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the suite in %s: %w\n%s", cmd.Dir, err, out)
	}
	return nil
}

// kubeconfig writes a file with a context for each member. It is removed with the broker, even if this process is
// killed.
func (r *run) kubeconfig() (string, error) {
	all := clientcmdapi.NewConfig()
	for _, m := range r.clusterset.Members {
		one, err := clientcmd.LoadFromFile(m.Kubeconfig())
		if err != nil {
			return "", err
		}
		from := one.Contexts[one.CurrentContext]
		all.Clusters[m.ID], all.AuthInfos[m.ID] = one.Clusters[from.Cluster], one.AuthInfos[from.AuthInfo]
		all.Contexts[m.ID] = &clientcmdapi.Context{Cluster: m.ID, AuthInfo: m.ID}
	}
	path := filepath.Join(filepath.Dir(r.clusterset.Broker.Kubeconfig()), "kubeconfig")
	return path, clientcmd.WriteToFile(*all, path)
}

// suite runs all specs. The suite writes its report into its working directory.
func (r *run) suite(ctx context.Context, kubeconfig string, args []string) error {
	version, err := r.version(ctx)
	if err != nil {
		return err
	}
	var contexts []string
	for _, m := range r.clusterset.Members {
		contexts = append(contexts, m.ID)
	}
	args = append([]string{
		"-test.timeout=1h", "-kubeconfig=" + kubeconfig, "-contexts=" + strings.Join(contexts, ","),
		"-organization=clusterset-dns", "-project=clusterset", "-version=" + version,
		"-url=https://github.com/clusterset-dns/clusterset",
	}, args...)
	cmd := exec.CommandContext(ctx, r.bin["suite"], args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.out, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the suite: %w; its report is in %s", err, r.out)
	}
	fmt.Println("conformance: the report is in", r.out)
	return nil
}

// version is the commit of this checkout, as git describes it.
func (r *run) version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "git", "-C", r.root, "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "", fmt.Errorf("git describe: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
