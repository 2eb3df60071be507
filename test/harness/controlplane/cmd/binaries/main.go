// Command binaries builds the control plane that the tests run on, if it is not built yet, and prints its folder. With
// the flag -further it builds kube-controller-manager, kube-proxy and etcdutl instead, which few tests need.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	further := flag.Bool(
		"further", false, "build kube-controller-manager, kube-proxy and etcdutl instead of kube-apiserver and etcd")
	flag.Parse()
	file, err := build(ctx, *further)
	if err != nil {
		return err
	}
	fmt.Println(filepath.Dir(file))
	return nil
}

// build returns one of the programs that it has built.
func build(ctx context.Context, further bool) (string, error) {
	if further {
		if _, err := controlplane.EtcdUtl(ctx, os.Stderr); err != nil {
			return "", err
		}
		paths, err := controlplane.FurtherBinaries(ctx, os.Stderr)
		return paths.Proxy, err
	}
	paths, err := controlplane.Binaries(ctx, os.Stderr)
	return paths.APIServer, err
}
