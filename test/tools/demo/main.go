// Command demo shows a clusterset at work: a broker and three clusters, all real Kubernetes API servers, are joined by
// bin/clusterset; two of them export services, and dig asks our CoreDNS in the third. Then things happen, and it asks again.
// Everything is on loopback, needs no root and is gone when the command ends.
//
// It stays until Ctrl-C, for questions of your own; with DEMO_ONCE=1 it ends after the last question. The exit status is
// 1 if an answer was not what it should be.
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
	"strings"
	"syscall"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

const zone = "clusterset.local"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	d := demo{out: os.Stdout, stay: os.Getenv("DEMO_ONCE") == ""}
	err := d.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		os.Exit(1)
	}
}

// A demo is one run of it.
type demo struct {
	out  io.Writer
	stay bool // until ctx ends, after the last scene

	root       string // folder of the repository
	fleet      *testclusterset.Clusterset
	kubeconfig string // with a context for each cluster
	headings   int

	east, west, south        *testclusterset.Member
	eastControl, westControl *subprocess.Process
	port                     *controlplane.Port
	server                   *server.Server // in south
}

// run returns nil if every answer was right, and when ctx ends after that.
func (d *demo) run(ctx context.Context) (err error) {
	if _, err := exec.LookPath("dig"); err != nil {
		return errors.New("dig is missing: apt-get install bind9-dnsutils")
	}
	d.printf("clusterset: services of several Kubernetes clusters under one name\n\n")
	defer func() {
		err = errors.Join(err, d.close())
	}()
	for _, part := range []func(context.Context) error{
		d.build, d.startClusters, d.initBroker, d.join, d.startControllers, d.startDNS, d.play,
	} {
		if err := part(ctx); err != nil {
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			return fmt.Errorf("%w\n%s", err, d.logs())
		}
	}
	d.printf("All answers were right.\n")
	if !d.stay {
		return nil
	}
	return d.linger(ctx)
}

// build makes what the demo runs, which takes some minutes once.
func (d *demo) build(ctx context.Context) (err error) {
	if d.root, err = server.Root(ctx); err != nil {
		return err
	}
	// Not a step, for it tells by itself when it takes a while.
	if _, err := controlplane.Binaries(ctx, d.out); err != nil {
		return err
	}
	for _, name := range []string{"coredns", "clusterset"} {
		what := "check that bin/" + name + " is up to date"
		if _, err := os.Stat(d.bin(name)); err != nil {
			what = "build bin/" + name + " (once; some minutes)"
		}
		done := d.step(what)
		err := server.BuildProgram(ctx, d.root, "./cmd/"+name, d.bin(name))
		done()
		if err != nil {
			return err
		}
	}
	d.printf("\n")
	return nil
}

func (d *demo) bin(name string) string { return filepath.Join(d.root, "bin", name) }

// close ends all that run has started.
func (d *demo) close() error {
	var errs []error
	if d.server != nil {
		errs = append(errs, d.server.Stop())
	}
	for _, c := range []*subprocess.Process{d.eastControl, d.westControl} {
		if c != nil {
			errs = append(errs, stop(c))
		}
	}
	if d.port != nil {
		errs = append(errs, d.port.Close())
	}
	if d.fleet != nil {
		errs = append(errs, d.fleet.Stop())
	}
	return errors.Join(errs...)
}

// stop ends a controller, which has to end by itself and well.
func stop(c *subprocess.Process) error {
	select {
	case <-c.Done():
		return fmt.Errorf("a controller had ended: %s\n%s", c.State(), c.Out.String())
	default:
	}
	if !c.Stop(30*time.Second) || c.Err() != nil {
		return fmt.Errorf("a controller ended badly: %s\n%s", c.State(), c.Out.String())
	}
	return nil
}

// logs is what the programs wrote that do our work.
func (d *demo) logs() string {
	var b strings.Builder
	for who, c := range map[string]*subprocess.Process{"controller of east": d.eastControl, "controller of west": d.westControl} {
		if c != nil {
			fmt.Fprintf(&b, "\n%s:\n%s", who, c.Out.String())
		}
	}
	if d.server != nil {
		fmt.Fprintf(&b, "\nCoreDNS:\n%s", d.server.Output())
	}
	return b.String()
}

func (d *demo) printf(format string, args ...any) { fmt.Fprintf(d.out, format, args...) }

// heading begins a part of the demo and says why.
func (d *demo) heading(title, says string) {
	d.headings++
	d.printf("%d. %s\n\n%s\n", d.headings, title, indent(says+"\n", "   "))
}

// step tells what is being done and, when the returned function is called, how long it took. Every ten seconds in between
// it tells that it goes on.
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

// linger lets the user ask until ctx ends.
func (d *demo) linger(ctx context.Context) error {
	d.printf(`
It keeps running. In another terminal you can ask,

    dig @127.0.0.1 -p %[1]d web.shop.svc.clusterset.local A

look and change, from the folder of the repository,

    export KUBECONFIG=%[2]s
    bin/clusterset status --context south --lease-ttl %[3]s
    bin/clusterset unexport web -n shop --context east

and, if you have kubectl, see the objects behind it, at the contexts east, south and hub:

    kubectl --context south -n shop get serviceimports,services,endpointslices
    kubectl --context east -n shop get serviceexport cache -o yaml
    kubectl --context hub get members,exportedservices -A

The hub here has no kube-controller-manager, which a real one needs: it empties no namespace, and so leave and broker remove wait
for it in vain.

Ctrl-C ends it all and leaves nothing behind.
`, d.port.Number, d.kubeconfig, leaseTTL)
	select {
	case <-ctx.Done():
		d.printf("\nstopping\n")
		return nil
	case <-d.server.Done():
		return errors.New("CoreDNS ended by itself")
	case <-d.eastControl.Done():
		return errors.New("the controller of east ended by itself")
	}
}
