package lifecycle

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

const slowCorefile = `
clusterset.local.:{port} {
	bind 127.0.0.1
	timeouts {
		read 15s
		idle 15s
	}
	clusterset {
		kubeconfig {kubeconfig}
		namespaces slow
		startup_timeout 90s
		ttl {ttl}
	}
}`

// TestSlowClients has clients over TCP that send or read slowly, or not at all. None of them affects another client,
// what each of them costs is bounded, and nothing is left once they are gone.
func TestSlowClients(t *testing.T) {
	tier.All(t)
	ns := namespace(t, "slow")
	apply(t, vip(ns, "web", "10.96.8.1"), headless(ns, "large"))
	apply(t, longNames(ns, "large"))
	s := start(t, slowCorefile, "{ttl}", "5")
	const web = question("web.slow.svc.clusterset.local A")
	until.OK(t, "an answer that fills a message", func(context.Context) error {
		m, err := s.ask(largeName + " SRV tcp")
		if err == nil && m.Len() < 60_000 {
			err = fmt.Errorf("%d octets", m.Len())
		}
		return err
	})
	serves := func() {
		t.Helper()
		s.await(web, "NOERROR 10.96.8.1")
		s.await(web+" tcp", "NOERROR 10.96.8.1")
	}

	t.Run("half-close", func(t *testing.T) {
		queries := tcpQueries("web.slow.svc.clusterset.local.", dns.TypeA, 1)
		c := dial(t, s.addr)
		c.send(queries)
		must(t, c.CloseWrite())
		c.awaitAnswers(1)
		c.awaitEnd()
	})
	t.Run("pipelining", func(t *testing.T) {
		queries := tcpQueries("web.slow.svc.clusterset.local.", dns.TypeA, 1000)
		c := dial(t, s.addr)
		c.send(queries)
		c.awaitAnswers(1000)
	})
	t.Run("idle or slow to send", func(t *testing.T) {
		idle, half := dial(t, s.addr), dial(t, s.addr)
		half.send([]byte{0xff, 0xff, 0})
		serves()
		idle.awaitEnd()
		half.awaitEnd()
	})
	t.Run("do not read", func(t *testing.T) { testUnreadAnswers(t, s, serves) })
}

// largeName has an SRV answer that fills a message over TCP.
const largeName = "_http._tcp.large.slow.svc.clusterset.local."

// longNames is a slice of hosts whose names are long: their SRV records fill a message with little work.
func longNames(ns, service string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4,
  metadata: {name: %s-long, namespace: %s, labels: {multicluster.kubernetes.io/service-name: %s,
    multicluster.kubernetes.io/source-cluster: %s.%s}},
  ports: [{name: http, port: 80, protocol: TCP}], endpoints: [`, service, ns, service, strings.Repeat("c", 31), strings.Repeat("d", 31))
	for i := range 500 {
		fmt.Fprintf(&b, "{addresses: [10.30.%d.%d], hostname: %s-%03d}, ", i/250, i%250+1, strings.Repeat("h", 59), i)
	}
	return b.String() + "]}\n"
}

// testUnreadAnswers has clients that read no answer. CoreDNS has no timeout for what it writes (docs/outages.md): each
// of them holds one answer in memory, and what the kernel buffers for it, until it is gone.
func testUnreadAnswers(t *testing.T, s *server, serves func()) {
	const clients, most = 8, 512 << 10
	connections, memory := len(alive("dns.(*Server).serveTCPConn(")), used().heap
	// 32 MB of answers, more than a kernel buffers
	all, queries := make([]tcpClient, clients), tcpQueries(largeName, dns.TypeSRV, 500)
	for i := range all {
		all[i] = dial(t, s.addr)
		must(t, all[i].SetReadBuffer(64<<10))
		all[i].send(queries)
	}
	until.OK(t, "writes that wait", func(context.Context) error {
		if n := waitingWrites(); n < clients {
			return fmt.Errorf("%d, want %d", n, clients)
		}
		return nil
	})
	serves()
	var each float64
	until.OK(t, "little heap for each client that does not read", func(context.Context) error {
		if each = float64(used().heap-memory) / clients; each > most {
			return fmt.Errorf("%.0f octets, want at most %d", each, most)
		}
		return nil
	})
	outages.Measured(t, "F20", "%.0f KiB for each client that does not read its answers of 64 KiB", each/1024)

	// A reload waits for them for 5 s.
	inst, err := s.inst.Restart(s.corefile(strings.Replace(slowCorefile, "{ttl}", "7", 1)))
	must(t, err)
	s.inst = inst
	until.OK(t, "the new TTL", func(context.Context) error {
		m, err := s.ask("web.slow.svc.clusterset.local A")
		if err == nil && (len(m.Answer) != 1 || m.Answer[0].Header().Ttl != 7) {
			err = errors.New(m.String())
		}
		return err
	})
	serves()
	for _, c := range all {
		c.Close()
	}
	until.OK(t, "the end of connections", func(context.Context) error {
		if n := len(alive("dns.(*Server).serveTCPConn(")); n > connections {
			return fmt.Errorf("%d connections, want %d as before", n, connections)
		}
		return nil
	})
	s.serving()
}

// waitingWrites returns how many connections wait until the client takes an answer.
func waitingWrites() (n int) {
	for _, stack := range alive("dns.(*response).Write(") {
		if strings.Contains(stack, "waitWrite") {
			n++
		}
	}
	return n
}

// A tcpClient is a client whose sending and reading the test decides on.
type tcpClient struct {
	*net.TCPConn
	t *testing.T
}

// dial connects to a server until the test ends.
func dial(t *testing.T, addr string) tcpClient {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		t.Fatalf("%T, want a TCP connection", conn)
	}
	must(t, tcp.SetDeadline(time.Now().Add(until.Patience)))
	return tcpClient{TCPConn: tcp, t: t}
}

func (c tcpClient) send(b []byte) {
	c.t.Helper()
	_, err := c.Write(b)
	must(c.t, err)
}

// awaitAnswers reads n answers.
func (c tcpClient) awaitAnswers(n int) {
	c.t.Helper()
	conn := dns.Conn{Conn: c.TCPConn}
	for i := range n {
		m, err := conn.ReadMsg()
		if err != nil {
			c.t.Fatalf("answer %d of %d: %v", i+1, n, err)
		}
		if int(m.Id) != i+1 || len(m.Answer) != 1 {
			c.t.Errorf("answer %d: id %d, %d records, want its id and one record", i+1, m.Id, len(m.Answer))
		}
	}
}

// awaitEnd waits until the server closes the connection.
func (c tcpClient) awaitEnd() {
	c.t.Helper()
	if _, err := io.Copy(io.Discard, c.TCPConn); errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("the connection is still open: %v", err)
	}
}

// tcpQueries returns n queries, with the ids 1 to n.
func tcpQueries(name string, qtype uint16, n int) (all []byte) {
	for i := range n {
		m := new(dns.Msg)
		m.SetQuestion(name, qtype)
		m.Id = uint16(i + 1)
		b, err := m.Pack()
		if err != nil {
			panic(err) // a name of this test
		}
		all = append(binary.BigEndian.AppendUint16(all, uint16(len(b))), b...)
	}
	return all
}
