// Package nsd starts NSD, an authoritative server of another project, to compare ours with or to transfer zones to.
package nsd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
)

// A Config has the zones that an NSD serves on 127.0.0.1, without limits of rate and without chroot.
type Config struct {
	Program string // its path
	Dir     string // of its files, zone files included
	Port    int
	Zones   []Zone
}

// A Zone has the options of nsd.conf(5) for a zone, a line each, beside its name.
type Zone struct {
	Origin  string
	Options []string
}

const server = `server:
	ip-address: 127.0.0.1
	port: %[2]d
	username: ""
	chroot: ""
	zonesdir: %[1]q
	database: ""
	pidfile: "%[1]s/nsd.pid"
	zonelistfile: "%[1]s/zone.list"
	xfrdfile: "%[1]s/xfrd.state"
	xfrdir: %[1]q
	server-count: 1
	minimal-responses: yes
	refuse-any: no
	rrl-ratelimit: 0
	rrl-whitelist-ratelimit: 0
remote-control:
	control-enable: no
`

func (c Config) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, server, c.Dir, c.Port)
	for _, z := range c.Zones {
		fmt.Fprintf(&b, "zone:\n\tname: %q\n", z.Origin)
		for _, o := range z.Options {
			fmt.Fprintf(&b, "\t%s\n", o)
		}
	}
	return b.String()
}

// Start starts NSD. It may not answer yet. The caller has to stop it.
func Start(c Config) (*subprocess.Process, error) {
	file := filepath.Join(c.Dir, "nsd.conf")
	if err := os.WriteFile(file, []byte(c.String()), 0o600); err != nil {
		return nil, err
	}
	return subprocess.Start(subprocess.Command{Bin: c.Program, Args: []string{"-d", "-c", file}, Dir: c.Dir})
}
