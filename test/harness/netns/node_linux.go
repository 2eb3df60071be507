package netns

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
)

// A Node is a node of a cluster, and mostly its only one. Its methods may be called from several goroutines.
type Node struct {
	Cluster   string
	Addresses []netip.Addr   // an IPv4 and an IPv6 address
	Pods      []netip.Prefix // where the addresses of its pods lie

	ns      *namespace
	running sync.WaitGroup

	mu     sync.Mutex             // guards what follows
	open   map[io.Closer]struct{} // listeners and connections
	closed bool
	silent map[netip.Addr]bool // pods that accept nothing
	proxy  *subprocess.Process
}

// routes are the commands with which another node learns of this one's pods.
func (n *Node) routes() (commands []string) {
	for _, p := range n.Pods {
		for _, a := range n.Addresses {
			if a.Is4() == p.Addr().Is4() {
				commands = append(commands, fmt.Sprintf("route add %s via %s", p, a))
			}
		}
	}
	return commands
}

// Command returns c as it has to be started to run in the node.
func (n *Node) Command(c subprocess.Command) subprocess.Command { return n.ns.command(c) }

// Dial connects like net.Dialer from the node. The address has to be an IP and a port.
func (n *Node) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, err // A look-up would leave the namespace.
	}
	var conn net.Conn
	err := n.ns.do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Resolver returns a resolver in the node that asks the DNS server at address, and no other.
func (n *Node) Resolver(address string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return n.Dial(ctx, network, address)
	}}
}

// A Reply names who accepted a connection: the cluster, and the address at which its pod did so, which is behind all
// translation.
type Reply struct {
	Cluster string         `json:"cluster"`
	Pod     netip.AddrPort `json:"pod"`
}

const (
	patience     = 5 * time.Second // that a pod may take to reply
	stopPatience = 2 * time.Minute // that kube-proxy may take to end, on a machine that is busy with other tests
)

// Connect connects from the node by TCP and returns the reply of the pod that accepts. It waits for at most five
// seconds.
func (n *Node) Connect(ctx context.Context, address netip.AddrPort) (Reply, error) {
	c, err := n.Open(ctx, address)
	if err != nil {
		return Reply{}, err
	}
	return c.Reply, c.Close()
}

// A Connection is one to a pod, which is an echo. Its methods may be called from one goroutine at a time.
type Connection struct {
	Reply Reply // what the pod said when it accepted

	conn net.Conn
	from *bufio.Reader
}

// Open is [Node.Connect], and leaves the connection open. The caller closes it.
func (n *Node) Open(ctx context.Context, address netip.AddrPort) (*Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := n.Dial(ctx, "tcp", address.String())
	if err != nil {
		return nil, err
	}
	c := &Connection{conn: conn, from: bufio.NewReader(conn)}
	line, err := c.read()
	if err == nil {
		err = json.Unmarshal(line, &c.Reply)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("reply of %s: %w", address, err)
	}
	return c, nil
}

// read returns the next line.
func (c *Connection) read() ([]byte, error) {
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	return c.from.ReadBytes('\n')
}

// Echo sends a line and waits until it comes back.
func (c *Connection) Echo(text string) error {
	if _, err := fmt.Fprintln(c.conn, text); err != nil {
		return err
	}
	line, err := c.read()
	if err == nil && string(line) != text+"\n" {
		err = fmt.Errorf("got %q back, want %q", line, text)
	}
	return err
}

// Close ends the connection.
func (c *Connection) Close() error { return c.conn.Close() }

// Serve makes every pod of the node accept TCP connections at the port, with a [Reply], and echo what is sent until the
// client closes the connection.
func (n *Node) Serve(port int) error {
	return n.Listen(fmt.Sprintf(":%d", port), func(conn net.Conn) {
		local := conn.LocalAddr().(*net.TCPAddr).AddrPort()
		pod := netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
		if n.isSilent(pod.Addr()) {
			_ = conn.(*net.TCPConn).SetLinger(0) // The client sees a reset.
			return
		}
		// else the client reports a missing reply
		if json.NewEncoder(conn).Encode(Reply{Cluster: n.Cluster, Pod: pod}) == nil {
			_, _ = io.Copy(conn, conn) // The client reports a missing echo.
		}
	})
}

// Silence makes the pods with these addresses reset each connection from now on, or accept connections again.
func (n *Node) Silence(silent bool, pods ...netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range pods {
		n.silent[p] = silent
	}
}

func (n *Node) isSilent(pod netip.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.silent[pod]
}

// Relay makes what listens at the address on the host, by TCP, reachable at the same address in the node. The address
// is one of loopback.
func (n *Node) Relay(address string) error {
	return n.relay(address, func() (net.Conn, error) { return net.Dial("tcp", address) })
}

// Forward makes what another node reaches at the address, by TCP, reachable at the same address in this one, which need
// have no route to the other.
func (n *Node) Forward(ctx context.Context, address netip.AddrPort, to *Node) error {
	// "nodad": usable at once.
	if err := n.ns.ip(ctx, fmt.Sprintf("address replace %s dev lo nodad", address.Addr())); err != nil {
		return err
	}
	return n.relay(address.String(), func() (net.Conn, error) { return to.Dial(ctx, "tcp", address.String()) })
}

func (n *Node) relay(address string, dial func() (net.Conn, error)) error {
	return n.Listen(address, func(conn net.Conn) {
		behind, err := dial()
		if err != nil {
			return // The client sees that the connection ends.
		}
		defer n.forget(behind)
		if !n.remember(behind) {
			return
		}
		join(conn, behind)
	})
}

// join copies both ways until both ends have nothing more to say, or one of the connections breaks.
func join(a, b net.Conn) {
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			from, to := way[0], way[1]
			if _, err := io.Copy(to, from); err != nil {
				from.Close()
				to.Close()
				return
			}
			_ = to.(*net.TCPConn).CloseWrite() // If it fails the other way fails too.
		})
	}
	both.Wait()
}

// Listen accepts TCP connections at the address until the network is closed. It calls accepted in a goroutine for each
// connection, which is closed when accepted returns.
func (n *Node) Listen(address string, accepted func(net.Conn)) error {
	var l net.Listener
	err := n.ns.do(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Cluster, err)
	}
	if !n.remember(l) {
		return fmt.Errorf("node %s: %w", n.Cluster, net.ErrClosed)
	}
	n.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if !n.remember(conn) {
				return
			}
			n.running.Go(func() {
				defer n.forget(conn)
				accepted(conn)
			})
		}
	})
	return nil
}

// remember notes what close has to close. It is false, and c closed, if that is over.
func (n *Node) remember(c io.Closer) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		c.Close()
		return false
	}
	n.open[c] = struct{}{}
	return true
}

func (n *Node) forget(c io.Closer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.open, c)
	c.Close()
}

// close ends what was started in the node, and the node.
func (n *Node) close() error {
	err := n.stopProxy()
	n.mu.Lock()
	n.closed = true
	for c := range n.open {
		c.Close()
	}
	n.mu.Unlock()
	n.running.Wait()
	return errors.Join(err, n.ns.close())
}

// stopProxy ends kube-proxy, if it was started, and fails if it had ended before.
func (n *Node) stopProxy() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proxy == nil {
		return nil
	}
	select {
	case <-n.proxy.Done():
		return fmt.Errorf("node %s: kube-proxy had ended: %s\n%s", n.Cluster, n.proxy.State(), n.proxy.Out.String())
	default:
	}
	if !n.proxy.Stop(stopPatience) {
		return fmt.Errorf("node %s: kube-proxy still ran %s after SIGTERM", n.Cluster, stopPatience)
	}
	return nil
}
