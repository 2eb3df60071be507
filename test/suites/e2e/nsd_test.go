package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/golden"
	"github.com/clusterset-dns/clusterset/test/harness/nsd"
	"github.com/clusterset-dns/clusterset/test/harness/program"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

var (
	nsdQuestions = flag.Int("questions", 5000, "how many random questions TestNSD asks")
	nsdSeed      = flag.Uint64("seed", 1, "what TestNSD makes objects and questions from")
)

// nsdZones are zones with random objects, and the directives of their blocks.
var nsdZones = []nsdZone{
	{origin: "z.", directives: "policy all\n"},
	{origin: "clusterset.local.", directives: "policy all\ncluster_names off\nttl 0\n"},
	{origin: "rotating.test.", directives: "policy round_robin\n", rotates: true},
	{origin: "first.test.", directives: "", rotates: true},
	{origin: strings.Repeat("long-zone.", 12) + "test.", directives: "policy none\n"},
}

type nsdZone struct {
	origin, directives string
	rotates            bool // one cluster after the other answers, and the zone has the records of all
}

// TestNSD serves random clustersets, and the same zones from NSD, whose authors share no line of code with us. It asks
// both the same random questions: each difference has to be one of nsdDifferences. `make differential` asks 100,000
// with another seed.
func TestNSD(t *testing.T) {
	path := program.Find(t, "nsd")
	t.Logf("%d questions, -seed %d", *nsdQuestions, *nsdSeed)
	r := rand.New(rand.NewPCG(*nsdSeed, 6))
	us, them := port(t), port(t)
	a := asker{
		Rand: r, us: dialer{port: us}, them: dialer{port: them},
		below: map[string][]string{}, owners: map[string]bool{}, records: map[string]bool{}, imports: map[string]string{},
		seen: map[string]int{},
	}
	var corefile strings.Builder
	for _, z := range nsdZones {
		objects := a.objects()
		a.addImports(z, objects)
		body := fmt.Sprintf("transfer {\nto *\n}\nclusterset {\nmanifests %s\n%s}\n", manifests(t, objects), z.directives)
		corefile.WriteString(block([]string{z.origin}, us, body))
	}
	start(t, corefile.String())
	dir := t.TempDir()
	for _, z := range nsdZones {
		rrs := transfer(t, us, new(dns.Msg).SetAxfr(z.origin))
		a.add(z, rrs)
		writeZone(t, filepath.Join(dir, z.origin+"zone"), rrs[:len(rrs)-1])
	}
	startNSD(t, path, dir, them)
	defer a.us.close()
	defer a.them.close()
	listed(t, "../../../docs/differences.md")
	for range *nsdQuestions {
		if a.compare(t); a.failed == maxShown {
			break
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.seen)) {
		t.Logf("%6d %s", a.seen[name], name)
	}
}

// listed checks that the document has a reason for each difference.
func listed(t *testing.T, document string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range nsdDifferences {
		if !strings.Contains(string(text), "\n| "+d.name+" | ") {
			t.Errorf("%s: no reason for the difference %q", document, d.name)
		}
	}
}

// writeZone writes records as a master file.
func writeZone(t *testing.T, path string, rrs []dns.RR) {
	t.Helper()
	var text strings.Builder
	for _, rr := range rrs {
		fmt.Fprintln(&text, rr)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// startNSD starts NSD with the zones in dir, and waits until it answers.
func startNSD(t *testing.T, path, dir string, p *controlplane.Port) {
	t.Helper()
	c := nsd.Config{Program: path, Dir: dir, Port: p.Number}
	for _, z := range nsdZones {
		c.Zones = append(c.Zones, nsd.Zone{Origin: z.origin, Options: []string{fmt.Sprintf("zonefile: %q", z.origin+"zone")}})
	}
	process, err := nsd.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !process.Stop(until.Patience) {
			t.Error("nsd did not end")
		}
		if t.Failed() {
			t.Logf("nsd:\n%s", process.Out.String())
		}
	})
	until.OK(t, "answers of NSD", func(ctx context.Context) error {
		for _, z := range nsdZones {
			m, err := dns.ExchangeContext(ctx, new(dns.Msg).SetQuestion(z.origin, dns.TypeSOA), p.String())
			if err != nil {
				return err
			}
			if len(m.Answer) == 0 {
				return fmt.Errorf("zone %s: %s", z.origin, dns.RcodeToString[m.Rcode])
			}
		}
		return nil
	})
}

// A dialer asks a server over connections that it keeps.
type dialer struct {
	port     *controlplane.Port
	udp, tcp *dns.Conn
}

func (d *dialer) close() {
	for _, c := range []*dns.Conn{d.udp, d.tcp} {
		if c != nil {
			c.Close()
		}
	}
}

func (d *dialer) ask(m *dns.Msg, tcp bool) (*dns.Msg, error) {
	conn, network := &d.udp, "udp"
	if tcp {
		conn, network = &d.tcp, "tcp"
	}
	c := dns.Client{Net: network, Timeout: until.Patience, UDPSize: dns.MaxMsgSize}
	var err error
	for range 2 { // a server may close a connection after a time or a number of questions
		if *conn == nil {
			if *conn, err = c.Dial(d.port.String()); err != nil {
				return nil, err
			}
		}
		var reply *dns.Msg
		if reply, _, err = c.ExchangeWithConn(m, *conn); err == nil {
			return reply, nil
		}
		(*conn).Close()
		*conn = nil
	}
	return nil, err
}

// maxShown is how many unexplained differences are shown.
const maxShown = 5

// An asker asks both servers.
type asker struct {
	*rand.Rand
	us, them dialer
	below    map[string][]string // the names directly below each name
	owners   map[string]bool     // of records
	labels   []string            // of all names
	records  map[string]bool
	imports  map[string]string // the types of the services, by their names
	failed   int
	seen     map[string]int // how often each difference was
}

// objects returns random objects, malformed ones among them.
func (a *asker) objects() []string {
	// NSD compares each record of an RRset with all others when it loads one: a hundred ports of a thousand endpoints take
	// it hours.
	objects := slices.DeleteFunc(golden.Malformed(a.Rand, 10),
		func(line string) bool { return strings.Contains(line, "port-99/") })
	objects = append(objects, "ClusterProperty  cluster.clusterset.k8s.io  east")
	for i := range 15 {
		id := fmt.Sprintf("ns%d/svc%d", a.IntN(3), i)
		imp := "ServiceImport  " + id + []string{"  Headless", "  ClusterSetIP",
			"  ClusterSetIP  ips: 10.96.1.1 fd00:96::1"}[a.IntN(3)]
		objects = append(objects, imp+"  ports: http/TCP/80 dns/UDP/53 dns-tcp/TCP/53")
		for range a.IntN(4) {
			slice := "EndpointSlice  " + id + "  cluster: " + []string{"east", "west", "north.one"}[a.IntN(3)]
			address := []string{"10.1.%d.%d", "fd00:1:%d::%d"}[a.IntN(2)]
			for n := range a.IntN(60) {
				slice += "  " + []string{"", fmt.Sprintf("db-%d=", n)}[a.IntN(2)] + fmt.Sprintf(address, a.IntN(100), 1+a.IntN(200))
			}
			objects = append(objects, slice)
		}
	}
	return objects
}

// addImports takes the names of services. A headless one without endpoints has none.
func (a *asker) addImports(z nsdZone, objects []string) {
	for _, line := range objects {
		fields := strings.Fields(line)
		if namespace, name, ok := strings.Cut(fields[1], "/"); ok && fields[0] == "ServiceImport" {
			a.imports[name+"."+namespace+".svc."+z.origin] = fields[2]
		}
	}
}

// add takes the names and the records of a zone.
func (a *asker) add(z nsdZone, rrs []dns.RR) {
	labels := map[string]bool{}
	for _, rr := range rrs {
		a.records[strings.ToLower(rr.String())] = true
		a.owners[rr.Header().Name] = true
		for name := rr.Header().Name; name != z.origin; {
			at, _ := dns.NextLabel(name, 0)
			parent := name[at:]
			if slices.Contains(a.below[parent], name) {
				break
			}
			a.below[parent] = append(a.below[parent], name)
			labels[name[:at-1]] = true
			name = parent
		}
	}
	a.labels = append(a.labels, slices.Sorted(maps.Keys(labels))...)
}

// name returns a name that exists: those of services are as frequent as those of their many hosts.
func (a *asker) name() string {
	name := nsdZones[a.IntN(len(nsdZones))].origin
	if a.IntN(16) > 0 {
		name = "svc." + name
	}
	for len(a.below[name]) > 0 && a.IntN(4) > 0 {
		name = a.below[name][a.IntN(len(a.below[name]))]
	}
	return name
}

// nsdTypes are types of questions; those at the front are asked more often.
var nsdTypes = []uint16{
	dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeANY, dns.TypeTXT, dns.TypeNS, dns.TypeSOA, dns.TypeCNAME, dns.TypeDNAME,
	dns.TypeDS,
	dns.TypeDNSKEY, dns.TypeRRSIG, dns.TypeNSEC, dns.TypeNSEC3, dns.TypeNSEC3PARAM, dns.TypeCDS, dns.TypeCDNSKEY,
	dns.TypeMX, dns.TypePTR,
	dns.TypeHTTPS, dns.TypeSVCB, dns.TypeCAA, dns.TypeNAPTR, dns.TypeTLSA, dns.TypeLOC, dns.TypeHINFO, dns.TypeSPF,
	dns.TypeNULL,
	dns.TypeMAILA, dns.TypeMAILB, dns.TypeMB,
}

// spoiling are labels that no zone has, or that some name has elsewhere.
var spoiling = []string{
	"*", "_tcp", "_udp", "_http", "_", "x", "east", "svc", "dns", "ns", "dns-version", "-", "--", "a\\.b", "\\000",
	"\\255\\200", " ", "xn--0",
	strings.Repeat("z", 63), "10-1-0-1", "0--2-3", "\\@", "\\\"", "\\;",
}

// question returns a random one: names that exist, and such that differ little from them.
func (a *asker) question() (m *dns.Msg, tcp bool) {
	name := a.name()
	for a.IntN(3) == 0 {
		if other := a.spoil(name); valid(other) {
			name = other
		}
	}
	if a.IntN(20) == 0 && name != "." {
		name = a.longest(name)
	}
	if a.IntN(4) == 0 {
		name = a.mixCase(name)
	}
	qtype := nsdTypes[a.IntN(4)]
	switch a.IntN(8) {
	case 0, 1, 2:
		qtype = nsdTypes[a.IntN(len(nsdTypes))]
	case 3:
		// From 128 up there are pseudo types, of which some are asked above. EDNS has OPT.
		if qtype = uint16(1 + a.IntN(1<<16-1)); qtype >= 128 && qtype < 256 || qtype == dns.TypeOPT {
			qtype = dns.TypeA
		}
	}
	m = new(dns.Msg).SetQuestion(name, qtype)
	m.RecursionDesired = a.IntN(2) == 0
	m.CheckingDisabled = a.IntN(8) == 0
	if a.IntN(3) > 0 {
		m.SetEdns0([]uint16{0, 512, 1232, 4096, 65535}[a.IntN(5)], a.IntN(2) == 0)
	}
	if a.IntN(50) == 0 {
		m.Question[0].Qclass = []uint16{dns.ClassCHAOS, dns.ClassANY, dns.ClassHESIOD, 4711}[a.IntN(4)]
	}
	return m, a.IntN(4) == 0
}

func valid(name string) bool {
	_, ok := dns.IsDomainName(name)
	return ok
}

func (a *asker) label() string {
	if a.IntN(2) == 0 {
		return spoiling[a.IntN(len(spoiling))]
	}
	return a.labels[a.IntN(len(a.labels))]
}

// spoil changes a name at one place.
func (a *asker) spoil(name string) string {
	labels := dns.SplitDomainName(name)
	if len(labels) == 0 {
		return a.label() + "."
	}
	at := a.IntN(len(labels))
	if a.IntN(4) > 0 {
		at = 0 // in most cases the zone stays
	}
	switch a.IntN(6) {
	case 0:
		labels = slices.Insert(labels, at, a.label())
	case 1:
		labels[at] = a.label()
	case 2:
		labels = slices.Delete(labels, at, at+1)
	case 3:
		to := a.IntN(len(labels))
		labels[at], labels[to] = labels[to], labels[at]
	case 4:
		labels = slices.Insert(labels, at, labels[at])
	case 5:
		labels[at] += string("abz019-_"[a.IntN(8)])
	}
	return dns.Fqdn(strings.Join(labels, "."))
}

// longest puts labels in front until the name has the most octets that a question can have, or a few less.
func (a *asker) longest(name string) string {
	const most = 254 // as text, with the final dot
	for room := most - a.IntN(3) - len(name); room >= 2; room = most - len(name) {
		name = strings.Repeat("y", min(63, room-1)) + "." + name
	}
	return name
}

func (a *asker) mixCase(name string) string {
	mixed := []byte(name)
	for i, c := range mixed {
		if 'a' <= c && c <= 'z' && a.IntN(2) == 0 {
			mixed[i] -= 'a' - 'A'
		}
	}
	return string(mixed)
}

// compare asks one question.
func (a *asker) compare(t *testing.T) {
	t.Helper()
	m, tcp := a.question()
	ours, err := a.us.ask(m, tcp)
	theirs, other := a.them.ask(m, tcp)
	if err := errors.Join(err, other); err != nil {
		t.Fatalf("%v TCP %t: %v", m, tcp, err)
	}
	p := pair{asker: a, query: m, tcp: tcp, ours: ours, theirs: theirs}
	if p.equal() {
		return
	}
	for _, d := range nsdDifferences {
		if d.holds(&p) {
			a.seen[d.name]++
			return
		}
	}
	a.failed++
	t.Errorf("-seed %d: %.1000s\nover TCP: %t\nours:\n%.3000s\n\nNSD:\n%.3000s", *nsdSeed, m, tcp, ours, theirs)
}
