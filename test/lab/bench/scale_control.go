package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/series"
	shipped "github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

// A control is the controller of a member, as a process.
type control struct {
	command subprocess.Command
	metrics *controlplane.Port
	process *subprocess.Process // nil while none runs
}

// newControl builds the program. The caller has to close it.
func (b *bench) newControl(ctx context.Context, m *testclusterset.Member) (*control, error) {
	root, err := shipped.Root(ctx)
	if err != nil {
		return nil, err
	}
	c := &control{command: subprocess.Command{Bin: filepath.Join(b.dir, "clusterset")}}
	if err := shipped.BuildProgram(ctx, root, "./cmd/clusterset", c.command.Bin); err != nil {
		return nil, err
	}
	kubeconfig, err := m.ServiceAccountKubeconfig(ctx, wellknown.ControllerNamespace, "clusterset-controller")
	if err != nil {
		return nil, err
	}
	if c.metrics, err = controlplane.ReservePort(); err != nil {
		return nil, err
	}
	c.command.Args = []string{
		"controller", "--kubeconfig", kubeconfig, "--broker", m.BrokerKubeconfig(),
		"--metrics-address", c.metrics.String(), "--health-address=",
	}
	return c, nil
}

func (c *control) start() (err error) {
	c.process, err = subprocess.Start(c.command)
	return err
}

// stop ends the process by SIGTERM.
func (c *control) stop() error {
	if c.process == nil {
		return nil
	}
	if err := c.ended(); err != nil {
		return err
	}
	ended := c.process
	c.process = nil
	if !ended.Stop(stopPatience) {
		return fmt.Errorf("controller: still ran %s after SIGTERM\n%s", stopPatience, ended.Out.String())
	}
	return nil
}

func (c *control) close() error { return errors.Join(c.stop(), c.metrics.Close()) }

func (c *control) ended() error {
	select {
	case <-c.process.Done():
		return fmt.Errorf("controller: it ended: %s\n%s", c.process.State(), c.process.Out.String())
	default:
		return nil
	}
}

// alive does something that the process has to live for.
func (c *control) alive(ctx context.Context, do func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	done := make(chan struct{})
	g.Go(func() error {
		select {
		case <-c.process.Done():
			return c.ended()
		case <-done:
			return nil
		}
	})
	g.Go(func() error {
		defer close(done)
		return do(ctx)
	})
	return g.Wait()
}

// scrape returns the metrics of the process.
func (c *control) scrape(ctx context.Context) (series.Set, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	text, err := get(ctx, fmt.Sprintf("http://%s/metrics", c.metrics))
	if err != nil {
		return nil, err
	}
	return series.Parse(string(text))
}

// A wanted is the value that a metric of the controller should have.
type wanted struct {
	name  string
	value int
}

// idle is what the metrics are of a controller that acts, holds nothing and has nothing left to do.
var idle = []wanted{{"leader", 1}, {"member", 1}, {"broker_connected", 1}, {"frozen", 0}, {"queue_depth", 0}}

// scalePatience is how long a controller may take until nothing is left to do.
const scalePatience = 10 * time.Minute

// await waits until the metrics have these values.
func (c *control) await(ctx context.Context, all ...wanted) error {
	ctx, cancel := context.WithTimeoutCause(ctx, scalePatience, fmt.Errorf("controller: not idle after %s", scalePatience))
	defer cancel()
	for {
		last := c.shows(ctx, all)
		if last == nil {
			return nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("%w: %w", err, last)
		}
	}
}

// shows returns an error unless the metrics have these values.
func (c *control) shows(ctx context.Context, all []wanted) error {
	m, err := c.scrape(ctx)
	if err != nil {
		return err
	}
	for _, want := range all {
		if got := int(m.Named(series.Controller + want.name).Sum()); got != want.value {
			return fmt.Errorf("%s is %d, want %d", want.name, got, want.value)
		}
	}
	return nil
}

// writes returns how many requests of the controller wrote, as "broker Lease apply", but for Leases, and those.
func writes(m series.Set) (others map[string]float64, leases float64) {
	others = map[string]float64{}
	for what, n := range m.Named(series.Controller+"writes_total").By("side", "kind", "verb") {
		if strings.Contains(what, " Lease ") {
			leases += n
		} else {
			others[what] = n
		}
	}
	return others, leases
}
