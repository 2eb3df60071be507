// Command demo shows a clusterset at work. It starts a broker and three clusters, all of them real Kubernetes API
// servers, and joins the clusters with bin/clusterset. Two clusters export Services, and the third resolves them with
// CoreDNS. Then Pods, exports and a whole cluster fail, and the demo asks again. Everything listens on loopback, needs
// no root and is gone when the command ends.
//
// The demo waits for Ctrl-C at the end, so that the user can ask questions; with DEMO_ONCE=1 it ends after the last
// question. The exit status is 1 if an answer was wrong.
//
// It is the second part of `make demo`; the first part is the program demo-files, which builds everything that this one
// runs.
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
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	d := demo{out: os.Stdout, headings: 1, stay: os.Getenv("DEMO_ONCE") == ""}
	err := d.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		os.Exit(1)
	}
}

// run returns nil if every answer was right, and when ctx ends after that.
func (d *demo) run(ctx context.Context) (err error) {
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
	d.printf("All answers were as expected.\n")
	if !d.stay {
		return nil
	}
	return d.linger(ctx)
}

// build brings the programs up to date. The first part has built them, so this takes time only if the demo is started
// by itself.
func (d *demo) build(ctx context.Context) (err error) {
	if d.root, err = server.Root(ctx); err != nil {
		return err
	}
	if _, err := controlplane.Binaries(ctx, d.out); err != nil {
		return err
	}
	for _, pkg := range []string{"./test/tools/demo/demo-coredns", "./cmd/clusterset"} {
		if err := server.BuildProgram(ctx, d.root, pkg, d.bin(filepath.Base(pkg))); err != nil {
			return err
		}
	}
	return nil
}

// close ends everything that run has started.
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
	if d.clusterset != nil {
		errs = append(errs, d.clusterset.Stop())
	}
	return errors.Join(errs...)
}

// stop sends SIGTERM to a controller and fails unless it ends with status 0.
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

// logs is the output of the controllers and of CoreDNS.
func (d *demo) logs() string {
	var b strings.Builder
	for who, c := range map[string]*subprocess.Process{"controller of east": d.eastControl,
		"controller of west": d.westControl} {
		if c != nil {
			fmt.Fprintf(&b, "\n%s:\n%s", who, c.Out.String())
		}
	}
	if d.server != nil {
		fmt.Fprintf(&b, "\nCoreDNS:\n%s", d.server.Output())
	}
	return b.String()
}

// linger lets the user ask until ctx ends.
func (d *demo) linger(ctx context.Context) error {
	d.printf(`
Everything keeps running until Ctrl-C, which ends all processes and removes all files of the demo. In another terminal,
in the folder of the repository, you can ask the DNS server,

    %[4]s @127.0.0.1 -p %[1]d web.shop.svc.clusterset.local A

see the state of the clusterset and change it,

    export KUBECONFIG=%[2]s
    bin/clusterset status --context south --lease-ttl %[3]s
    bin/clusterset unexport web -n shop --context east

and, with kubectl, read the objects in the clusters east and south and in the broker, whose context is hub:

    kubectl --context south -n shop get serviceimports,services,endpointslices
    kubectl --context east -n shop get serviceexport cache -o yaml
    kubectl --context hub get members,exportedservices -A

The command leave waits forever here: it needs a kube-controller-manager in the hub, which deletes the objects in a
namespace, and the demo does not start one.

Press Ctrl-C to end the demo.
`, d.port.Number, d.kubeconfig, leaseTTL, d.client().Program())
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
