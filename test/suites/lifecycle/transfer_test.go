package lifecycle

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/harness/nsd"
	"github.com/clusterset-dns/clusterset/test/harness/program"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// dig returns the answer section of a transfer, one record per line.
func (s *server) dig(args ...string) []string {
	s.t.Helper()
	host, p, err := net.SplitHostPort(s.addr)
	must(s.t, err)
	all := append([]string{"@" + host, "-p", p, "+noall", "+answer"}, args...)
	out, err := exec.CommandContext(s.t.Context(), program.Find(s.t, "dig"), all...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("dig %q: %v\n%s", all, err, out)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, ";") {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
	}
	return lines
}

const transferBlock = `
clusterset.local.:{port} {
	bind 127.0.0.1
	transfer {
		to {to}
	}
	clusterset {
		kubeconfig {kubeconfig}
		namespaces {namespaces}
		startup_timeout 90s
	}
}`

// TestTransferByDig compares what dig gets with the records of the zone.
func TestTransferByDig(t *testing.T) {
	ns := namespace(t, "axfr")
	apply(t, vip(ns, "web", "10.96.8.1"), headless(ns, "db"), slice(ns, "db-east", "db", "east", "10.5.0.1"))
	s := start(t, transferBlock, "{to}", "127.0.0.1", "{namespaces}", ns)
	serial := s.settledSerial()
	soa := fmt.Sprintf(
		"clusterset.local. 5 IN SOA ns.dns.clusterset.local. hostmaster.clusterset.local. %d 7200 1800 86400 5", serial)
	want := []string{
		soa,
		"clusterset.local. 5 IN NS ns.dns.clusterset.local.",
		"ns.dns.clusterset.local. 5 IN A 127.0.0.1",
		`dns-version.clusterset.local. 28800 IN TXT "1.0.0"`,
		"web.axfr.svc.clusterset.local. 5 IN A 10.96.8.1",
		"web.axfr.svc.clusterset.local. 5 IN SRV 0 100 80 web.axfr.svc.clusterset.local.",
		"_http._tcp.web.axfr.svc.clusterset.local. 5 IN SRV 0 100 80 web.axfr.svc.clusterset.local.",
		"db.axfr.svc.clusterset.local. 5 IN A 10.5.0.1",
		"db.axfr.svc.clusterset.local. 5 IN SRV 0 100 80 10-5-0-1.east.db.axfr.svc.clusterset.local.",
		"_http._tcp.db.axfr.svc.clusterset.local. 5 IN SRV 0 100 80 10-5-0-1.east.db.axfr.svc.clusterset.local.",
		"east.db.axfr.svc.clusterset.local. 5 IN A 10.5.0.1",
		"_http._tcp.east.db.axfr.svc.clusterset.local. 5 IN SRV 0 100 80 10-5-0-1.east.db.axfr.svc.clusterset.local.",
		"10-5-0-1.east.db.axfr.svc.clusterset.local. 5 IN A 10.5.0.1",
	}
	slices.Sort(want)
	for _, question := range [][]string{{"AXFR"}, {fmt.Sprintf("IXFR=%d", serial-1)}, {"IXFR=1"}} {
		got := s.dig(append([]string{"ClusterSet.local"}, question...)...)
		for i := range got {
			got[i] = strings.Replace(got[i], "ClusterSet", "clusterset", 1)
		}
		if got[0] != soa || got[len(got)-1] != soa {
			t.Errorf("dig %s: begins with %q and ends with %q, want %q", question, got[0], got[len(got)-1], soa)
		}
		if got = sorted(got[1:]); !slices.Equal(got, want) {
			t.Errorf("dig %s: got\n%s\nwant\n%s", question, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	for _, question := range []string{fmt.Sprintf("IXFR=%d", serial), fmt.Sprintf("IXFR=%d", serial+1)} {
		if got := s.dig("clusterset.local", question); !slices.Equal(got, []string{soa}) {
			t.Errorf("dig %s: got %q, want the SOA alone", question, got)
		}
	}
}

func TestTransferRefused(t *testing.T) {
	ns := namespace(t, "refused")
	for name, corefile := range map[string]string{
		"no transfer": strings.ReplaceAll(theBlock, "{namespaces}", ns),
		"others only": strings.NewReplacer("{to}", "192.0.2.1", "{namespaces}", ns).Replace(transferBlock),
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, corefile)
			s.want("clusterset.local AXFR tcp", "REFUSED")
			s.want("clusterset.local IXFR tcp", "REFUSED")
			s.want("clusterset.local AXFR", "REFUSED")
			s.want("svc.clusterset.local AXFR tcp", "REFUSED")
		})
	}
}

// A secondary counts the NOTIFY messages of clusterset.local that it gets, each once: a sender that has no answer in
// time repeats one.
type secondary struct {
	*testing.T
	server *dns.Server

	mu  sync.Mutex
	ids map[uint16]bool
}

// newSecondary opens the socket of a secondary. It answers from listen on.
func newSecondary(t *testing.T) *secondary {
	t.Helper()
	conn, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port(t)))
	must(t, err)
	s := &secondary{T: t, ids: make(map[uint16]bool)}
	s.server = &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(s.notify)}
	return s
}

func (s *secondary) listen() (stop func()) {
	ended := make(chan error)
	go func() { ended <- s.server.ActivateAndServe() }()
	return func() {
		must(s.T, s.server.Shutdown())
		must(s.T, <-ended)
	}
}

func (s *secondary) notify(w dns.ResponseWriter, r *dns.Msg) {
	if r.Opcode != dns.OpcodeNotify || r.Question[0].Name != "clusterset.local." || r.Question[0].Qtype != dns.TypeSOA {
		s.Errorf("the secondary got %v, want a NOTIFY of clusterset.local.", r)
	}
	s.mu.Lock()
	s.ids[r.Id] = true
	s.mu.Unlock()
	m := new(dns.Msg)
	m.SetReply(r)
	_ = w.WriteMsg(m)
}

func (s *secondary) notified() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ids)
}

// A serialLog reads the serial of a server again and again. It counts moves, and fails the test if the serial goes back
// or is ahead of the clock.
type serialLog struct {
	*server
	last  uint32
	moves int
}

func (l *serialLog) read() {
	l.t.Helper()
	now := l.serial()
	if clock := uint32(time.Now().Unix()); now > clock {
		l.t.Errorf("serial %d at %d: ahead of the clock", now, clock)
	}
	switch {
	case now < l.last:
		l.t.Errorf("serial %d after %d: went back", now, l.last)
	case now > l.last:
		l.moves++
	}
	l.last = now
}

// TestSerial changes objects and reads the serial all the time: it moves at most once a second, never back, not ahead
// of the clock, and not for an update that DNS cannot show. Moves are followed by a NOTIFY, those during another one by
// one for all.
func TestSerial(t *testing.T) {
	tier.All(t)
	ns := namespace(t, "serial")
	second := newSecondary(t)
	s := start(t, transferBlock, "{to}", second.server.PacketConn.LocalAddr().String(), "{namespaces}", ns)
	defer second.listen()()
	log := &serialLog{server: s, last: s.serial()}
	begun := log.last
	var address string
	var lastChange time.Time
	for i := 0; i < 40 || log.moves < 2 && i < 200; i++ {
		address, lastChange = fmt.Sprintf("10.96.8.%d", 10+i), time.Now()
		apply(t, vip(ns, "web", address))
		log.read()
		time.Sleep(50 * time.Millisecond) // All changes take longer than a second.
	}
	s.await("web.serial.svc.clusterset.local A", "NOERROR "+address)
	until.OK(t, "a serial of the last change", func(context.Context) error {
		log.read()
		if int64(log.last) < lastChange.Unix() {
			return fmt.Errorf("%d, want at least %d", log.last, lastChange.Unix())
		}
		return nil
	})
	settled := s.settledSerial()
	log.read()
	most := int(settled - begun) // Each move is to a later second.
	if log.moves < 2 {
		t.Errorf("the serial moved %d times, want at least 2", log.moves)
	}
	until.OK(t, "NOTIFY", func(context.Context) error {
		if n := second.notified(); n < 2 { // the first one is that of the start
			return fmt.Errorf("%d after %d moves, want one for these at least", n, log.moves)
		}
		return nil
	})
	// On a slow machine the serial may move twice between two reads.
	if n := second.notified(); n > most+2 {
		t.Errorf("%d NOTIFYs for at most %d moves", n, most)
	}
	testInvisible(t, s, second, vip(ns, "web", address), settled)

	before := second.notified()
	apply(t, vip(ns, "web", "10.96.8.9"))
	until.OK(t, "one more NOTIFY", func(context.Context) error {
		if n := second.notified(); n <= before {
			return fmt.Errorf("%d, want more", n)
		}
		return nil
	})
	if now := s.settledSerial(); now <= settled {
		t.Errorf("serial %d after a change, want one above %d", now, settled)
	}
	axfr := s.dig("clusterset.local", "AXFR")
	if want := fmt.Sprintf(" %d 7200 ", s.serial()); !strings.Contains(axfr[0], want) {
		t.Errorf("AXFR begins with %q, want the serial of the SOA,%s", axfr[0], want)
	}
}

// testInvisible updates an import in a way that DNS cannot show: neither the serial moves nor is there a NOTIFY.
func testInvisible(t *testing.T, s *server, second *secondary, imp string, serial uint32) {
	t.Helper()
	before := settled(t, "the number of NOTIFYs", second.notified) // The one of the last move may be under way.
	for i := range 3 {
		apply(t, strings.Replace(imp, "metadata: {", fmt.Sprintf("metadata: {labels: {n: %q}, ", fmt.Sprint(i)), 1))
		time.Sleep(1100 * time.Millisecond) // Each could move the serial.
	}
	if now := s.settledSerial(); now != serial {
		t.Errorf("serial %d after updates that DNS cannot show, want %d", now, serial)
	}
	if n := settled(t, "the number of NOTIFYs", second.notified); n != before {
		t.Errorf("%d NOTIFYs after updates that DNS cannot show, want %d", n, before)
	}
}

// TestSecondary runs NSD as a secondary. It transfers the zone, gets NOTIFY messages and follows changes.
func TestSecondary(t *testing.T) {
	tier.All(t)
	path := program.Find(t, "nsd")
	ns := namespace(t, "secondary")
	apply(t, vip(ns, "web", "10.96.8.2"), headless(ns, "db"), slice(ns, "db-east", "db", "east", "10.5.0.2"))
	p := port(t)
	s := start(t, transferBlock, "{to}", fmt.Sprintf("127.0.0.1:%d", p), "{namespaces}", ns)
	_, primary, err := net.SplitHostPort(s.addr)
	must(t, err)
	secondaryOf := []string{fmt.Sprintf("request-xfr: 127.0.0.1@%s NOKEY", primary), "allow-notify: 127.0.0.1 NOKEY"}
	process, err := nsd.Start(nsd.Config{
		Program: path, Dir: t.TempDir(), Port: p, Zones: []nsd.Zone{{Origin: "clusterset.local", Options: secondaryOf}},
	})
	must(t, err)
	defer func() {
		if ended := process.Stop(until.Patience); !ended || t.Failed() {
			t.Errorf("nsd: ended by SIGTERM = %t\n%s", ended, process.Out.String())
		}
	}()
	secondary := &server{t: t, addr: fmt.Sprintf("127.0.0.1:%d", p)}
	secondary.await("web.secondary.svc.clusterset.local A", "NOERROR 10.96.8.2")
	for _, q := range []question{
		"clusterset.local SOA", "clusterset.local NS", "dns-version.clusterset.local TXT", "svc.clusterset.local A",
		"db.secondary.svc.clusterset.local A", "db.secondary.svc.clusterset.local SRV", "none.svc.clusterset.local A",
		"_http._tcp.east.db.secondary.svc.clusterset.local SRV", "10-5-0-2.east.db.secondary.svc.clusterset.local A",
	} {
		// The serial may move after the first transfer, see settledSerial.
		until.OK(t, string(q), func(context.Context) error {
			m, err := s.ask(q)
			if err != nil {
				return err
			}
			return secondary.says(q, say(m))
		})
	}
	for i := range 3 {
		ip := fmt.Sprintf("10.96.8.%d", 3+i)
		apply(t, vip(ns, "web", ip))
		secondary.await("web.secondary.svc.clusterset.local A", "NOERROR "+ip)
	}
}
