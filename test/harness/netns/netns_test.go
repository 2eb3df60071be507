//go:build traffic && linux

package netns

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
)

// helperEnv makes the test binary a process that only makes a network.
const helperEnv = "CLUSTERSET_NETNS_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		os.Exit(helper())
	}
	goleak.VerifyTestMain(m)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func TestEveryPodIsReachedFromEveryNode(t *testing.T) {
	before := host(t)
	network := NewT(t)
	east, err := network.Join(t.Context(), "east", prefix("10.1.0.0/16"), prefix("fd00:1::/64"))
	must(t, err)
	must(t, east.Serve(8080))
	west, err := network.Join(t.Context(), "west", prefix("10.2.0.0/16"), prefix("fd00:2::/64"))
	must(t, err)
	must(t, west.Serve(8080))
	must(t, west.Serve(9090))
	for address, cluster := range map[string]string{
		"10.1.0.7:8080": "east", "10.2.255.254:8080": "west", "10.2.0.1:9090": "west",
		"[fd00:1::1:7]:8080": "east", "[fd00:2::ffff]:9090": "west",
	} {
		for _, from := range []*Node{east, west} {
			want := Reply{Cluster: cluster, Pod: netip.MustParseAddrPort(address)}
			if got, err := from.Connect(t.Context(), want.Pod); err != nil || got != want {
				t.Errorf("from %s: Connect(%s) = %+v, %v, want %+v", from.Cluster, address, got, err, want)
			}
		}
	}
	if _, err := west.Connect(t.Context(), netip.MustParseAddrPort("10.1.0.7:9090")); err == nil {
		t.Error("a port without server in east was answered")
	}
	pod := netip.MustParseAddr("10.1.0.7")
	for _, silent := range []bool{true, false} {
		east.Silence(silent, pod)
		if _, err := west.Connect(t.Context(), netip.AddrPortFrom(pod, 8080)); (err != nil) != silent {
			t.Errorf("Connect to a pod that was made silent (%t): %v", silent, err)
		}
	}
	if after := host(t); after != before {
		t.Errorf("on the host: %s\nbefore: %s", after, before)
	}
}

// host is what of networks can be seen outside of the namespaces.
func host(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, command := range []string{
		"ip -o link", "ip -o address", "ip route", "ip -6 route", "ip netns list", "nft list ruleset",
	} {
		words := strings.Fields(command)
		out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		all.Write(out)
	}
	return all.String()
}

func TestRelay(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			// It answers when it has read everything, so that each way has to end by itself.
			text, _ := io.ReadAll(conn)
			_, _ = fmt.Fprintf(conn, "got %s", text)
			conn.Close()
		}
	}()
	node, err := NewT(t).Join(t.Context(), "east", prefix("10.1.0.0/16"))
	must(t, err)
	address := l.Addr().String()
	if conn, err := node.Dial(t.Context(), "tcp", address); err == nil {
		conn.Close()
		t.Fatal("loopback of the host is reached without a relay")
	}
	must(t, node.Relay(address))
	conn, err := node.Dial(t.Context(), "tcp", address)
	must(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("hello"))
	must(t, err)
	must(t, conn.(*net.TCPConn).CloseWrite())
	if text, err := io.ReadAll(conn); err != nil || string(text) != "got hello" {
		t.Errorf("through the relay: %q, %v, want %q", text, err, "got hello")
	}
}

func TestCommandRunsInTheNode(t *testing.T) {
	node, err := NewT(t).Join(t.Context(), "east", prefix("10.1.0.0/16"))
	must(t, err)
	c, err := subprocess.Start(node.Command(subprocess.Command{Bin: "ip",
		Args: []string{"-o", "address", "show", "dev", "eth0"}}))
	must(t, err)
	must(t, c.Wait(t.Context()))
	for _, a := range node.Addresses {
		if out := c.Out.String(); !strings.Contains(out, a.String()+"/") {
			t.Errorf("ip address in the node:\n%swant %s", out, a)
		}
	}
}

func TestNamesAreNotDialled(t *testing.T) {
	node, err := NewT(t).Join(t.Context(), "east")
	must(t, err)
	if conn, err := node.Dial(t.Context(), "tcp", "localhost:1"); err == nil ||
		!strings.Contains(err.Error(), "localhost") {
		t.Errorf("Dial of a name = %v, %v, want an error that shows it", conn, err)
	}
}

func TestJoinFails(t *testing.T) {
	network := NewT(t)
	_, err := network.Join(t.Context(), "east", prefix("10.1.0.0/16"))
	must(t, err)
	_, err = network.Join(t.Context(), "west", prefix("10.1.2.0/24"))
	if err == nil || !strings.Contains(err.Error(), "east") {
		t.Errorf("Join with the pods of another node = %v, want an error that names it", err)
	}
	_, err = network.Join(t.Context(), "west", prefix("10.2.0.1/16"))
	if err == nil || !strings.Contains(err.Error(), "route add local 10.2.0.1/16") {
		t.Errorf("Join with bits of a host = %v, want the command that fails", err)
	}
	west, err := network.Join(t.Context(), "west", prefix("10.2.0.0/16"))
	must(t, err)
	must(t, west.Serve(8080))
}

func TestProxyThatEnds(t *testing.T) {
	node, err := NewT(t).Join(t.Context(), "east", prefix("10.1.0.0/16"))
	must(t, err)
	err = node.StartProxy(t.Context(), Proxy{Bin: "false"}, "/no/kubeconfig", "node")
	if err == nil || !strings.Contains(err.Error(), "kube-proxy: ended: exit status 1") {
		t.Errorf("StartProxy of a program that fails = %v, want how it ended", err)
	}
}

func helper() int {
	if _, err := New(context.Background()); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func TestWithoutRights(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"=1")
	if out, err := cmd.Output(); err == nil || !strings.Contains(string(out), "want to be root") {
		t.Errorf("New without rights: %q, %v, want that it asks for root", out, err)
	}
}
