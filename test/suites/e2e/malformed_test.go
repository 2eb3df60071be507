package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/golden"
	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A lockedText is a log that many goroutines write to.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// serveMalformed starts a server with malformed objects and with the plugins that log errors. A line that is logged
// after the start fails the test.
func serveMalformed(t *testing.T) *controlplane.Port {
	t.Helper()
	p := port(t)
	objects := golden.Malformed(rand.New(rand.NewPCG(5, 5)), 20)
	logged := new(lockedText)
	log.SetOutput(logged)
	t.Cleanup(func() { log.SetOutput(io.Discard) })
	start(t, block([]string{zone}, p, "errors\nnsid\nclusterset {\nmanifests "+manifests(t, objects)+"\n}\n"))
	until.True(t, "the last line of the start", func() bool { return strings.Contains(logged.String(), "serving ") })
	started := len(logged.String())
	t.Cleanup(func() {
		if text := logged.String()[started:]; text != "" {
			t.Errorf("clients left in the log:\n%s", text[:min(len(text), 2000)])
		}
	})
	return p
}

// A malformed query gets FORMERR from the server. Nothing that a client sends can cause a panic, an allocation without
// bound or a log line. The expectations are those of CoreDNS and of the DNS library.
func TestMalformedQueries(t *testing.T) {
	p := serveMalformed(t)
	valid := func(change func(*dns.Msg)) []byte {
		m := new(dns.Msg).SetQuestion("web.shop.svc."+zone, dns.TypeA)
		change(m)
		b, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	patched := func(change func(b []byte) []byte) []byte { return change(valid(func(*dns.Msg) {})) }
	for _, tt := range []struct {
		name   string
		octets []byte
		want   int
	}{
		{"cut within the question", patched(func(b []byte) []byte { return b[:20] }), dns.RcodeFormatError},
		{"only a header that promises a question", patched(func(b []byte) []byte { return b[:12] }), dns.RcodeServerFailure},
		{"no question", patched(func(b []byte) []byte { b[5] = 0; return b[:12] }), dns.RcodeFormatError},
		{"two questions", valid(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }), dns.RcodeFormatError},
		{"a name that points at itself", patched(func(b []byte) []byte { b[12], b[13] = 0xc0, 12; return b }),
			dns.RcodeFormatError},
		{"a name that points ahead", patched(func(b []byte) []byte { b[12], b[13] = 0xc0, 200; return b }),
			dns.RcodeFormatError},
		{"a reserved kind of label", patched(func(b []byte) []byte { b[12] = 0x80; return b }), dns.RcodeFormatError},
		{"an additional record that is not there", patched(func(b []byte) []byte { b[11] = 1; return b }),
			dns.RcodeNameError},
		{"class CHAOS", valid(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }), dns.RcodeRefused},
		{"class ANY", valid(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassANY }), dns.RcodeRefused},
		{"opcode STATUS", valid(func(m *dns.Msg) { m.Opcode = dns.OpcodeStatus }), dns.RcodeNotImplemented},
		{"opcode UPDATE", valid(func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }), dns.RcodeNotImplemented},
		{"EDNS version 1", valid(func(m *dns.Msg) { m.SetEdns0(4096, false); m.IsEdns0().SetVersion(1) }), dns.RcodeBadVers},
		{"another zone", valid(func(m *dns.Msg) { m.Question[0].Name = "example.org." }), dns.RcodeRefused},
		{"a zone that only ends alike", valid(func(m *dns.Msg) { m.Question[0].Name = "xclusterset.local." }),
			dns.RcodeRefused},
		{"type 0", valid(func(m *dns.Msg) { m.Question[0].Qtype = 0 }), dns.RcodeNameError},
		{"type OPT", valid(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeOPT }), dns.RcodeNameError},
		{"a name with a dot in a label", valid(func(m *dns.Msg) { m.Question[0].Name = `web\.shop.svc.` + zone }), dns.RcodeNameError},
		{"a name of control characters", valid(func(m *dns.Msg) { m.Question[0].Name = `\000\010\255.svc.` + zone }), dns.RcodeNameError},
		{"a label that ends like the zone", valid(func(m *dns.Msg) { m.Question[0].Name = `svc\.clusterset.local.` }), dns.RcodeRefused},
	} {
		for _, network := range []string{"udp", "tcp"} {
			got := send(t, network, p, tt.octets)
			if got.Rcode != tt.want {
				t.Errorf("%s, %s: %s, want %s", tt.name, network, dns.RcodeToString[got.Rcode], dns.RcodeToString[tt.want])
			}
			if got.Id != binary.BigEndian.Uint16(tt.octets) || !got.Response {
				t.Errorf("%s, %s: the reply has id %d and QR %t", tt.name, network, got.Id, got.Response)
			}
		}
	}
}

// send sends octets as one message and returns the reply. A datagram may be lost: it is sent again.
func send(t *testing.T, network string, p *controlplane.Port, octets []byte) (m *dns.Msg) {
	t.Helper()
	until.OK(t, fmt.Sprintf("%s: %x", network, octets), func(context.Context) error {
		conn, err := dns.DialTimeout(network, p.String(), until.Patience)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			return err
		}
		if _, err := conn.Write(octets); err != nil {
			return err
		}
		if m, err = conn.ReadMsg(); m == nil {
			return err
		}
		return nil // also with an error: the header is there
	})
	return m
}

// TestNoise sends octets that are almost queries: a million packets in `make faults`. No reply is longer than the query
// permits, and 1,232 octets. The server has to answer queries after that.
func TestNoise(t *testing.T) {
	tier.All(t)
	p := serveMalformed(t)
	r := rand.New(rand.NewPCG(6, 6))
	rounds, each := 20, 500
	if outages.Long() {
		rounds = 1000
	}
	replies := 0
	for range rounds {
		udp := dialNoise(t, p)
		tcp, err := net.Dial("tcp", p.String())
		if err != nil {
			t.Fatal(err)
		}
		for range each {
			octets := noise(r)
			udp.send(octets)
			// The server may close a connection that it cannot make sense of.
			_, _ = tcp.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(octets))), octets...))
		}
		tcp.Close()
		m := new(dns.Msg).SetQuestion("svc."+zone, dns.TypeA)
		if got := exchange(t, p, m); got.Rcode != dns.RcodeSuccess {
			t.Fatalf("after noise: %s, want NOERROR", dns.RcodeToString[got.Rcode])
		}
		replies += udp.close()
	}
	if replies == 0 {
		t.Error("no reply over UDP: this test shows nothing of their length")
	}
	outages.Measured(t, "F17", "%d packets, no panic", 2*rounds*each)
	outages.Measured(t, "F19", "%d packets, %d replies over UDP, none too long, no panic", 2*rounds*each, replies)
}

// A noiseConn sends packets over UDP, and checks the length of each reply.
type noiseConn struct {
	net.Conn
	t    *testing.T
	done chan int // gets the number of replies

	mu     sync.Mutex
	limits map[uint16]int // the most octets of a reply, by the id of the query
}

func dialNoise(t *testing.T, p *controlplane.Port) *noiseConn {
	t.Helper()
	conn, err := net.Dial("udp", p.String())
	if err != nil {
		t.Fatal(err)
	}
	c := &noiseConn{Conn: conn, t: t, done: make(chan int, 1), limits: map[uint16]int{}}
	go c.read()
	return c
}

// send sends one packet.
func (c *noiseConn) send(octets []byte) {
	if len(octets) >= 2 {
		id := binary.BigEndian.Uint16(octets)
		c.mu.Lock()
		c.limits[id] = max(c.limits[id], datagramLimit(octets))
		c.mu.Unlock()
	}
	_, _ = c.Write(octets)
}

// datagramLimit returns how long the reply to a packet may be (docs/spec/dns.md 5.5).
func datagramLimit(octets []byte) int {
	m := new(dns.Msg)
	if m.Unpack(octets) != nil || m.IsEdns0() == nil {
		return dns.MinMsgSize
	}
	return min(max(int(m.IsEdns0().UDPSize()), dns.MinMsgSize), 1232)
}

func (c *noiseConn) read() {
	replies, buffer := 0, make([]byte, dns.MaxMsgSize)
	for {
		n, err := c.Read(buffer)
		if err != nil {
			c.done <- replies
			return
		}
		replies++
		c.mu.Lock()
		limit := c.limits[binary.BigEndian.Uint16(buffer[:max(n, 2)])]
		c.mu.Unlock()
		if n > limit {
			c.t.Errorf("a reply of %d octets, want %d at most: %x", n, limit, buffer[:n])
		}
	}
}

// close ends the connection and returns the number of replies.
func (c *noiseConn) close() int {
	c.Close()
	return <-c.done
}

// noise returns a query, a part of one, a query with some octets changed, or random octets.
func noise(r *rand.Rand) []byte {
	names := []string{
		"web.shop.svc.", "_http._tcp.db.shop.svc.", "a.b.db.shop.svc.", "dns-version.", "", "ns.dns.", "_tcp.svc.shop.svc.",
		"east.web.a.svc.", strings.Repeat("_http._tcp.", 18),
	}
	m := new(dns.Msg).SetQuestion(names[r.IntN(len(names))]+zone, uint16(r.IntN(260)))
	if r.IntN(2) == 0 {
		m.SetEdns0(uint16(r.IntN(65536)), r.IntN(2) == 0)
		m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_PADDING{Padding: make([]byte, r.IntN(1000))},
			&dns.EDNS0_NSID{Code: dns.EDNS0NSID})
	}
	b, err := m.Pack()
	if err != nil {
		panic("e2e: a query cannot be packed: " + err.Error())
	}
	switch r.IntN(4) {
	case 0:
		return b[:r.IntN(len(b)+1)]
	case 1:
		for i := range b {
			b[i] = byte(r.Uint32())
		}
	case 2:
		for range 1 + r.IntN(5) {
			b[r.IntN(len(b))] = byte(r.Uint32())
		}
	}
	return b
}
