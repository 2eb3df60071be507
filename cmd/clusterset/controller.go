package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/clusterset-dns/clusterset/controller"
)

func newController(f *factory) *cobra.Command {
	config := controller.Defaults()
	var metricsAddress, healthAddress string
	c := &cobra.Command{
		Use: "controller", Short: "Run the controller of a cluster, without CoreDNS", Args: noArguments,
		Long: `Run the controller of a cluster, which exports and imports services, without CoreDNS, until SIGINT or SIGTERM.

Each directive of the controller in the Corefile is a flag, with "-" instead of "_". Give several arguments as one
quoted value. docs/controller.md describes them.`,
		Example: `  clusterset controller --broker /etc/clusterset/kubeconfig
  clusterset controller --broker /etc/clusterset/kubeconfig --lease "5s 30s" --vip none`,
	}
	var values []*optionValue
	for _, o := range controller.Options() {
		v := &optionValue{option: o, config: &config}
		values = append(values, v)
		flag := strings.ReplaceAll(o.Name, "_", "-")
		c.Flags().Var(v, flag, o.Help+": "+o.Args)
		if words := choices(o.Args); len(words) > 1 {
			completeWords(c, flag, words...)
		}
	}
	c.Flags().StringVar(&metricsAddress, "metrics-address", ":9153", "`ADDRESS` at which to serve /metrics; empty disables it")
	c.Flags().StringVar(&healthAddress, "health-address", ":8080", "`ADDRESS` at which to serve /healthz and /readyz; empty disables them")
	c.RunE = func(c *cobra.Command, _ []string) error {
		for _, v := range values {
			if err := v.apply(); err != nil {
				return err
			}
		}
		if config.Broker == "" {
			return errors.New("no --broker: want the kubeconfig FILE with which this member reaches the broker")
		}
		local, err := f.member()
		if err != nil {
			return err
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		config.Local, config.Version = local, programVersion()
		config.Metrics, config.Log = controller.NewMetrics(registry), newLogger(f.ErrOut)
		return runController(c.Context(), config, metricsAddress, healthAddress, registry)
	}
	return c
}

// choices returns the first words of the arguments of an option: for "derived|cidr [CIDR]|none" derived, cidr and none.
// Words in capitals are placeholders.
func choices(arguments string) []string {
	var words []string
	for choice := range strings.SplitSeq(arguments, "|") {
		if word, _, _ := strings.Cut(choice, " "); word == strings.ToLower(word) {
			words = append(words, word)
		}
	}
	return words
}

// An optionValue is the flag of one option of the controller. It implements pflag.Value.
type optionValue struct {
	option controller.Option
	config *controller.Config
	args   []string
}

func (v *optionValue) String() string {
	if v.args == nil {
		return v.option.Default
	}
	return strings.Join(v.args, " ")
}

// Type is empty: the usage of the flag ends with the arguments of the option.
func (v *optionValue) Type() string { return "" }

// Set takes the words of one flag. If an option takes any number of arguments, the words of repeated flags add up.
func (v *optionValue) Set(text string) error {
	words := strings.Fields(text)
	if v.option.Max == 1 {
		words = []string{text}
	}
	if v.option.Max < 0 {
		words = append(v.args, words...)
	}
	v.args = words
	return v.apply()
}

// apply sets the option in config.
func (v *optionValue) apply() error {
	n := len(v.args)
	switch {
	case v.args == nil:
		return nil
	case n < v.option.Min || v.option.Max >= 0 && n > v.option.Max:
		return fmt.Errorf("%d words: want %s", n, v.option.Args)
	}
	return v.option.Set(v.config, v.args)
}

// runController runs the controller and its HTTP servers until ctx ends, and returns when all of them have ended.
func runController(ctx context.Context, config controller.Config, metrics, health string,
	registry *prometheus.Registry) error {
	g, ctx := errgroup.WithContext(klog.NewContext(ctx, logr.Discard()))
	for address, mux := range httpPages(metrics, health, registry, config.Metrics.ReviewAge) {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("serve %s: %w", address, err)
		}
		defer listener.Close()
		g.Go(func() error { return serve(ctx, listener, mux) })
	}
	g.Go(func() error { return controller.Run(ctx, config) })
	return g.Wait()
}

// stuckAfter is the age of a review from which the controller counts as stuck.
const stuckAfter = time.Minute

// httpPages returns the HTTP handlers by address; metrics and health may be the same address. An instance that waits
// for the Lease is ready, too: another instance is the leader. A stuck instance is neither live nor ready; a lost API
// server does not count (docs/spec/controller.md 1.1).
func httpPages(metrics, health string, registry *prometheus.Registry,
	reviewAge func() time.Duration) map[string]*http.ServeMux {
	served := map[string]*http.ServeMux{}
	handle := func(address, page string, handler http.Handler) {
		if address == "" {
			return
		}
		if served[address] == nil {
			served[address] = http.NewServeMux()
		}
		served[address].Handle(page, handler)
	}
	probe := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if age := reviewAge(); age > stuckAfter {
			http.Error(w, fmt.Sprintf("stuck: the last review of the state ended %s ago", age.Round(time.Second)),
				http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	handle(metrics, "/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	handle(health, "/healthz", probe)
	handle(health, "/readyz", probe)
	return served
}

func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// A logger writes lines for an operator.
type logger struct{ *log.Logger }

func newLogger(w io.Writer) logger { return logger{log.New(w, "", log.LstdFlags|log.LUTC)} }

func (l logger) Infof(format string, args ...any)    { l.Printf("[INFO] "+format, args...) }
func (l logger) Warningf(format string, args ...any) { l.Printf("[WARNING] "+format, args...) }
func (l logger) Errorf(format string, args ...any)   { l.Printf("[ERROR] "+format, args...) }
