package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	coreplugin "github.com/coredns/coredns/plugin"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/cache"
	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/plugin"
	"github.com/clusterset-dns/clusterset/resolver"
	"github.com/clusterset-dns/clusterset/test/tools/demo/ask"
)

func init() {
	if err := dnsserver.SetDirectives([]string{"bind", "errors", plugin.Name}); err != nil {
		panic(fmt.Sprintf("directives: %v", err))
	}
	coreplugin.Register(plugin.Name, setup)
	caddy.Quiet, dnsserver.Quiet = true, true
	log.SetOutput(io.Discard)
}

// setup adds the plugin to a server block that reads manifests. That of the product brings the controller along, with
// all it depends on.
func setup(c *caddy.Controller) error {
	config, _, err := plugin.Parse(c)
	if err != nil {
		return err
	}
	store, err := cache.New(cache.Config{
		Manifests: config.Manifests, Name: "manifests", CheckInterval: config.StaleAfter / 2, Log: plugin.Log,
		Index: index.Options{ClusterNames: config.ClusterNames, MaxNames: resolver.MaxNames(config.Zones...)},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	handler := plugin.NewHandler(config, store, plugin.NewRotation())
	dnsserver.GetConfig(c).AddPlugin(func(next coreplugin.Handler) coreplugin.Handler {
		handler.Next = next
		return handler
	})
	c.OnStartup(func() error {
		go func() {
			defer close(ended)
			_ = store.Run(ctx) // It returns nil when ctx ends.
		}()
		return nil
	})
	c.OnShutdown(func() error {
		cancel()
		<-ended
		return nil
	})
	return nil
}

// A dnsServer is CoreDNS in this process.
type dnsServer struct {
	instance *caddy.Instance
	port     uint16
	corefile string
}

// serve starts CoreDNS with the manifests of a folder on a free port of loopback.
func serve(manifests string) (*dnsServer, error) {
	var last error
	// Another process can take the port in between.
	for range 10 {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		s := &dnsServer{port: port, corefile: fmt.Sprintf(
			"     %s:%d {\n         bind 127.0.0.1\n         errors\n         clusterset {\n"+
				"             manifests %s\n         }\n     }\n", ask.Zone, port, manifests)}
		s.instance, last = caddy.Start(caddy.CaddyfileInput{
			Filepath: "Corefile", Contents: []byte(s.corefile), ServerTypeName: "dns",
		})
		if last == nil {
			return s, nil
		}
	}
	return nil, fmt.Errorf("start CoreDNS: %w", last)
}

// freePort returns a port that is free for UDP and TCP.
func freePort() (uint16, error) {
	tcp, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, err
	}
	port := tcp.Addr().(*net.TCPAddr).Port
	return uint16(port), tcp.Close()
}

// await returns when the server answers with data.
func (s *dnsServer) await(ctx context.Context) error {
	m := new(dns.Msg)
	m.SetQuestion(ask.Zone+".", dns.TypeSOA)
	address := fmt.Sprintf("127.0.0.1:%d", s.port)
	for {
		reply, err := dns.ExchangeContext(ctx, m, address)
		if err == nil && reply.Rcode == dns.RcodeSuccess {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// stop returns when everything that serve started has ended.
func (s *dnsServer) stop() {
	for _, err := range s.instance.ShutdownCallbacks() {
		log.Print(err)
	}
	_ = s.instance.Stop()
}

// An indented writer indents each line, as the text of the demo is. Each call of Write gets whole lines.
type indented struct{ w io.Writer }

// Write implements io.Writer.
func (i indented) Write(p []byte) (int, error) {
	start := true
	out := make([]byte, 0, len(p)+16)
	for _, c := range p {
		if start && c != '\n' {
			out = append(out, "   "...)
		}
		out = append(out, c)
		start = c == '\n'
	}
	_, err := i.w.Write(out)
	return len(p), err
}
