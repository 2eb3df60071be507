// Command build builds main packages of this module into a folder or file and shows its progress: build -o <output>
// -what <name> <package>... It needs the standard library alone, so it runs within seconds on a machine that has
// compiled nothing yet.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/clusterset-dns/clusterset/test/harness/gobuild"
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
	var c gobuild.Command
	flag.StringVar(&c.Output, "o", "bin/", "file, or folder with a slash at the end")
	flag.StringVar(&c.What, "what", "", "name of what is built")
	flag.StringVar(&c.Next, "next", "", "name of what is built after that")
	flag.BoolVar(&c.Tests, "tests", false, "compile the packages and their tests instead, and link nothing")
	flag.Parse()
	c.Packages = flag.Args()
	return gobuild.Build(ctx, c, os.Stdout)
}
