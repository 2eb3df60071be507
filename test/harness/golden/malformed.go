package golden

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// The values that Malformed chooses from are few, so that they collide: a host with the name of a cluster ID, an
// address in two slices.
var (
	label63   = strings.Repeat("l", 63)
	id63      = strings.Repeat("c", 31) + "." + strings.Repeat("d", 31)
	spaces    = []string{"shop", "a", label63}
	names     = []string{"db", "web", "a", "tcp", "svc", label63}
	clusters  = []string{"", "east", "b", "a.b", "b.east", "West", "a.b.c", "under_score", id63, label63}
	hosts     = []string{"", "", "a", "b", "east", "web", "10-1-0-1", "Host", "two.labels", "-x", label63}
	portNames = []string{"http", "", "tcp", "a", "HTTP", "a.b", strings.Repeat("p", 62), label63}
	protocols = []string{"TCP", "UDP", "SCTP", "", "QUIC"}
	numbers   = []string{"80", "53", "", "0", "65535", "65536"}
	addresses = map[string][]string{
		"IPv4":  {"10.1.0.1", "10.1.0.2", "10.1.0.3", "192.0.2.255", "127.0.0.1", "10.01.0.1", "fd00::1"},
		"IPv6":  {"fd00::1", "fd00::", "::2:3", "FD00:0::1", "fe80::1", "::ffff:10.0.0.1", "fd00::2%eth0", "10.1.0.1"},
		"FQDN":  {"db.example.org", "10.1.0.1"},
		"Other": {"10.1.0.1"},
	}
	types = []string{"IPv4", "IPv4", "IPv6", "IPv6", "FQDN", "Other"}
	vips  = []string{"10.96.0.1", "fd00:96::1", "lb.example.org", "127.0.0.1", "10.96.0.2", "fd00:96::2"}
)

// Malformed returns object lines of n services, always the same for the same r: bad addresses, FQDN slices, nil ports,
// labels of 63 octets, hosts given twice, an address in two slices, mixed case, slices without labels, host names as
// ips, a hundred ports, a thousand endpoints.
func Malformed(r *rand.Rand, n int) []string {
	g := generator{r}
	seen := map[string]bool{}
	var objects []string
	for i := range n {
		id := g.choose(spaces) + "/" + g.choose(names)
		if seen[id] {
			id = fmt.Sprintf("%s/s%d", g.choose(spaces), i)
		}
		seen[id] = true
		line := "ServiceImport  " + id + "  " + g.choose([]string{"Headless", "Headless", "ClusterSetIP"})
		if r.IntN(3) == 0 {
			line += "  ips: " + strings.Join(g.some(2, vips), " ")
		}
		objects = append(objects, line+"  ports: "+g.ports())
		for range r.IntN(6) {
			objects = append(objects, g.slice(id))
		}
	}
	return objects
}

type generator struct{ *rand.Rand }

func (g generator) choose(from []string) string { return from[g.IntN(len(from))] }

func (g generator) some(most int, from []string) (list []string) {
	for range 1 + g.IntN(most) {
		list = append(list, g.choose(from))
	}
	return list
}

func (g generator) ports() string {
	var list []string
	for range g.IntN(4) {
		list = append(list, g.choose(portNames)+"/"+g.choose(protocols)+"/"+g.choose(numbers))
	}
	if g.IntN(8) == 0 {
		for i := range 100 {
			list = append(list, fmt.Sprintf("port-%d/TCP/%d", i, 1000+i))
		}
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, " ")
}

func (g generator) slice(id string) string {
	line := "EndpointSlice  " + id
	if cluster := g.choose(clusters); cluster != "" {
		line += "  cluster: " + cluster
	}
	typ := g.choose(types)
	line += "  type: " + typ
	if g.IntN(2) == 0 {
		line += "  ports: " + g.ports()
	}
	for range g.IntN(5) {
		ep := strings.Join(g.some(3, addresses[typ]), ",")
		if host := g.choose(hosts); host != "" {
			ep = host + "=" + ep
		}
		line += "  " + ep + g.choose([]string{"", "", "", "(not-ready)", "(ready,terminating)"})
	}
	if g.IntN(10) == 0 {
		base := g.IntN(3)
		for i := range 1000 {
			switch typ {
			case "IPv4":
				line += fmt.Sprintf("  h%d=10.%d.%d.%d", i, 2+base, i/250, 1+i%250)
			case "IPv6":
				line += fmt.Sprintf("  h%d=fd00:%x::%x", i, 2+base, 1+i)
			}
		}
	}
	return line
}
