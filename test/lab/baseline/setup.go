package baseline

import (
	"os"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
)

func init() { plugin.Register("baseline", setup) }

func setup(c *caddy.Controller) error {
	f, err := parse(c)
	if err != nil {
		return plugin.Error("baseline", err)
	}
	dnsserver.GetConfig(c).AddPlugin(func(plugin.Handler) plugin.Handler { return f })
	return nil
}

func parse(c *caddy.Controller) (*handler, error) {
	c.Next()
	args := c.RemainingArgs()
	if len(args) != 1 {
		return nil, c.Errf("%d arguments: want the name of a master file", len(args))
	}
	file, err := os.Open(args[0])
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return prepare(file, args[0])
}
