// Command binaries builds the control plane that the tests run on, if it is not built yet, and prints its folder.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/clusterset-dns/clusterset/test/controlplane"
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
	paths, err := controlplane.Binaries(ctx, os.Stderr)
	if err != nil {
		return err
	}
	fmt.Println(filepath.Dir(paths.APIServer))
	return nil
}
