package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/tools/demo/ask"
)

const zone = ask.Zone

// A demo is one run of it.
type demo struct {
	out  io.Writer
	stay bool // until ctx ends, after the last scene

	root       string // folder of the repository
	clusterset *testclusterset.Clusterset
	kubeconfig string // with a context for each cluster
	headings   int    // the number of the last one; heading 1 is in the first part

	east, west, south        *testclusterset.Member
	eastControl, westControl *subprocess.Process
	port                     *controlplane.Port
	server                   *server.Server // in south
}

func (d *demo) bin(name string) string { return filepath.Join(d.root, "bin", name) }

func (d *demo) printf(format string, args ...any) { fmt.Fprintf(d.out, format, args...) }

// heading begins a part of the demo and explains it.
func (d *demo) heading(title, says string) {
	d.headings++
	d.printf("%d. %s\n\n%s\n", d.headings, title, indent(says+"\n", "   "))
}

// step prints its name and, when the returned function is called, the time that it took. Every ten seconds in
// between it prints the time so far.
func (d *demo) step(what string) (done func()) {
	began := time.Now()
	d.printf("   %s\n", what)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				d.printf("     %d s\n", int(time.Since(began).Seconds()))
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
		d.printf("     %s\n", duration(time.Since(began)))
	}
}

func duration(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.0f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func indent(text, by string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" {
			line = by + line
		}
		b.WriteString(line)
	}
	return b.String()
}
