package main

import (
	"context"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
)

// coreDNS is the package of the server that is measured.
const coreDNS = "github.com/clusterset-dns/clusterset/test/lab/bench/coredns"

// A bench is one run.
type bench struct {
	sections map[string]*bool
	full     bool
	rounds   int
	duration time.Duration // of one measurement
	services int           // of the section together
	out      string

	dir              string // removed at the end
	coredns, dnsperf string // programs
	progress         *progress
}

// goBuild runs `go build` in this module. The working directory is that of the repository; files among the arguments
// have absolute names.
func goBuild(ctx context.Context, args ...string) error {
	c, err := subprocess.Start(subprocess.Command{Bin: "go", Args: append([]string{"build", "-C", "test/lab"}, args...)})
	if err != nil {
		return err
	}
	return c.Wait(ctx)
}
