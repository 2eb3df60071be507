// Command demo shows clusterset.local at work: it starts a real Kubernetes API server with the objects in examples/ and
// our CoreDNS over it, asks with dig, changes objects and asks again. Everything is on loopback, needs no root and is gone
// when the command ends.
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
	"syscall"
	"time"

	"github.com/clusterset-dns/clusterset/test/child"
	"github.com/clusterset-dns/clusterset/test/controlplane"
	"github.com/clusterset-dns/clusterset/test/server"
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
	stay bool // until ctx ends, after the questions

	root   string
	api    *controlplane.ControlPlane
	port   *controlplane.Port
	server *server.Server
}

// run returns nil if every answer was right, and when ctx ends after that.
func (d *demo) run(ctx context.Context) (err error) {
	if _, err := exec.LookPath("dig"); err != nil {
		return errors.New("dig is missing: apt-get install bind9-dnsutils")
	}
	d.printf("clusterset: multi-cluster DNS from a real Kubernetes API server\n\n")
	defer func() {
		err = errors.Join(err, d.close())
	}()
	for _, step := range []func(context.Context) error{d.startAPI, d.applyExamples, d.startDNS, d.questions, d.changes} {
		if err := step(ctx); err != nil {
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			return err
		}
	}
	if !d.stay {
		return nil
	}
	return d.linger(ctx)
}

// close ends all that run has started.
func (d *demo) close() error {
	var errs []error
	if d.server != nil {
		errs = append(errs, d.server.Stop())
	}
	if d.port != nil {
		errs = append(errs, d.port.Close())
	}
	if d.api != nil {
		errs = append(errs, d.api.Stop())
	}
	return errors.Join(errs...)
}

func (d *demo) printf(format string, args ...any) { fmt.Fprintf(d.out, format, args...) }

// step tells what is being done and, when the returned function is called, how long it took. Every ten seconds in between
// it tells that it goes on.
func (d *demo) step(format string, args ...any) (done func()) {
	what, began := fmt.Sprintf(format, args...), time.Now()
	d.printf("%s\n", what)
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
				d.printf("  %d s\n", int(time.Since(began).Seconds()))
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
		d.printf("  %s\n", duration(time.Since(began)))
	}
}

func duration(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func (d *demo) startAPI(ctx context.Context) (err error) {
	if d.root, err = server.Root(ctx); err != nil {
		return err
	}
	// Before the step, for it can take minutes and tells so by itself.
	if _, err := controlplane.Binaries(ctx, d.out); err != nil {
		return err
	}
	done := d.step("start etcd and kube-apiserver, and install the CRDs of the MCS API and the About API")
	defer done()
	d.api, err = controlplane.Start(ctx, controlplane.Options{Progress: d.out})
	return err
}

func (d *demo) applyExamples(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(d.root, "examples", "*.yaml"))
	if err != nil {
		return err
	}
	defer d.step("apply examples/: a shop in the clusters east (this one), west and south.registry1")()
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := d.api.ApplyYAML(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
	}
	return nil
}

// startDNS returns when the server answers. Its files lie beside the kubeconfig, in a folder that is removed also if this
// process is killed.
func (d *demo) startDNS(ctx context.Context) (err error) {
	bin := filepath.Join(d.root, "bin", "coredns")
	what := "check that bin/coredns is up to date"
	if _, err := os.Stat(bin); err != nil {
		what = "build bin/coredns, CoreDNS with this plugin (once; about 3 minutes on 2 cores)"
	}
	done := d.step("%s", what)
	err = server.Build(ctx, d.root, bin)
	done()
	if err != nil {
		return err
	}
	if d.port, err = controlplane.ReservePort(); err != nil {
		return err
	}
	corefile := fmt.Sprintf("%s:%d {\n    bind 127.0.0.1\n    clusterset {\n        kubeconfig %s\n    }\n}\n",
		zone, d.port.Number, d.api.Kubeconfig())
	dir := filepath.Dir(d.api.Kubeconfig())
	file := filepath.Join(dir, "Corefile")
	if err := os.WriteFile(file, []byte(corefile), 0o600); err != nil {
		return err
	}
	done = d.step("start CoreDNS with this Corefile:\n\n%s", indent(corefile))
	defer done()
	if d.server, err = server.Start(child.Command{Bin: bin, Args: []string{"-conf", file}, Dir: dir}); err != nil {
		return err
	}
	return d.server.Await(ctx, func(ctx context.Context) error { return server.Serves(ctx, d.port.String(), zone) })
}

// linger lets the user ask until ctx ends.
func (d *demo) linger(ctx context.Context) error {
	d.printf(`
It keeps running. In another terminal you can ask,

    dig @127.0.0.1 -p %d db.shop.svc.clusterset.local A

and, if you have kubectl, look at the objects and change them:

    export KUBECONFIG=%s
    kubectl get serviceimports,endpointslices --all-namespaces
    kubectl --namespace shop delete serviceimport cache

Ctrl-C ends it all and leaves nothing behind.
`, d.port.Number, d.api.Kubeconfig())
	select {
	case <-ctx.Done():
		d.printf("\nstopping\n")
		return nil
	case <-d.server.Done():
		return errors.New("CoreDNS ended by itself")
	}
}
