package explain

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterdns "github.com/clusterset-dns/clusterset/admin/dns"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/kubelet"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// Corefiles of the cluster's DNS server have port 53 and the address of the clusterset's Service. In the process,
// each has a port of its own and forwards to the clusterset's server at loopback.
const (
	serviceIP = "10.11.0.53"
	root      = `
.:53 {
    errors
    template ANY ANY . {
        rcode NXDOMAIN
        authority ". 60 IN SOA a.root-servers.net. nstld.verisign-grs.com. 1 2 3 4 5"
    }
}
`
	zone = "clusterset.local:53 {\n    errors\n    forward . " + serviceIP + "\n}\n"
)

func block(lines string) string {
	return "clusterset.local:53 {\n    errors\n    " + lines + "\n}\n" + root
}

// A corefile is that of the cluster's DNS server, which all its Pods have.
type corefile struct {
	name string
	code reason.Code
	text string
}

var corefiles = []corefile{
	{"a byte order mark", reason.Resolves, "\ufeff" + zone + root}, // the first, as that of all begins with it
	{"a block of the zone", reason.Resolves, zone + root},
	{"upper case", reason.Resolves, strings.ToUpper("clusterset.local") + zone[len("clusterset.local"):] + root},
	{"a trailing dot", reason.Resolves, "clusterset.local." + zone[len("clusterset.local"):] + root},
	{"two zones of a block", reason.Resolves, "example.com:53 " + zone + root},
	{"two zones with a comma", reason.Resolves, "example.com:53,\n" + zone + root},
	{"the brace on the next line", reason.Resolves, strings.Replace(zone, " {", "\n{", 1) + root},
	{"comments", reason.Resolves, "# clusterset.local:53 { }\n" + zone + "# }\n" + root},
	{"a snippet", reason.Resolves, "(up) {\n    forward . " + serviceIP + "\n}\n" + block("import up")},
	{"an address of a variable", reason.Resolves, block("forward . {$CLUSTERSET_DNS}")},
	{"a zone of a variable", reason.Resolves,
		"{$CLUSTERSET_ZONE}:53 {\n    forward . " + serviceIP + "\n}\n" + root},
	{"a zone above", reason.Resolves, "local:53 {\n    forward . " + serviceIP + "\n}\n" + root},
	{"a forward of the zone in the root block", reason.Resolves,
		".:53 {\n    forward clusterset.local " + serviceIP + "\n}\n"},
	{"a forward of all", reason.Resolves, ".:53 {\n    forward . " + serviceIP + "\n}\n"},
	{"a cache", reason.Resolves, block("cache 5\n    forward . " + serviceIP)},
	{"the zone behind the root block", reason.Resolves, root + zone},
	{"a rewrite of another name", reason.Resolves,
		block("rewrite name exact a.example b.example\n    forward . " + serviceIP)},
	{"Windows line ends", reason.Resolves, strings.ReplaceAll(zone+root, "\n", "\r\n")},
	{"a quoted address", reason.Resolves, block("forward . \"" + serviceIP + "\"")},

	{"no block", reason.DNSNotWired, root},
	{"a misspelt zone", reason.DNSNotWired, "clusterset.locale:53 {\n    forward . " + serviceIP + "\n}\n" + root},
	{"the zone of a Service name", reason.DNSNotWired,
		"svc.clusterset:53 {\n    forward . " + serviceIP + "\n}\n" + root},
	{"another port", reason.DNSNotWired, strings.Replace(zone, ":53", ":1053", 1) + root},
	{"a view for other clients", reason.DNSNotWired,
		block("view pods {\n        expr incidr(client_ip(), '192.0.2.0/24')\n    }\n    forward . " + serviceIP)},
	{"a block in a comment", reason.DNSNotWired, "# " + strings.ReplaceAll(zone, "\n", "\n# ") + root},
	{"errors only", reason.DNSFailure, block("")},
	{"a deeper zone of nothing", reason.DNSFailure, "svc.clusterset.local:53 {\n    errors\n}\n" + zone + root},
	{"acl block", reason.DNSRefused, block("acl {\n        block\n    }\n    forward . " + serviceIP)},
	{"acl filter", reason.DNSLacksName, block("acl {\n        filter\n    }\n    forward . " + serviceIP)},
	{"acl drop", reason.DNSUnreachable, block("acl {\n        drop\n    }\n    forward . " + serviceIP)},
	{"a forward loop", reason.DNSRefused, block("forward . 127.0.0.1:53 {\n        max_concurrent 20\n    }")},
	{"a forward to a closed port", reason.DNSFailure, block("forward . 127.0.0.1:1 {\n        max_fails 0\n    }")},
	{"a forward by TLS", reason.DNSUnreachable,
		block("forward . tls://" + serviceIP + " {\n        max_fails 0\n    }")},
	{"a forward to the resolver of the Node", reason.DNSNotWired, block("forward . NXDOMAIN")},
	{"a forward to a server without the zone", reason.DNSRefused, block("forward . REFUSED")},
	{"a forward that leaves out the names", reason.DNSNotWired,
		".:53 {\n    forward . " + serviceIP + " {\n        except svc.clusterset.local\n    }\n}\n"},
	{"a rewrite of the name", reason.DNSLacksName,
		block("rewrite name exact db.other.svc.clusterset.local none.other.svc.clusterset.local\n" +
			"    forward . " + serviceIP)},
	{"a rewrite to another service", reason.DNSOtherAnswer,
		block("rewrite name exact db.other.svc.clusterset.local vip.other.svc.clusterset.local answer auto\n" +
			"    forward . " + serviceIP)},
	{"a template of addresses", reason.DNSOtherAnswer,
		block("template IN A clusterset.local {\n" +
			"        answer \"{{ .Name }} 60 IN A 192.0.2.1\"\n        fallthrough\n    }\n" +
			"    forward . " + serviceIP)},
	{"hosts", reason.DNSOtherAnswer,
		block("hosts {\n        192.0.2.1 db.other.svc.clusterset.local\n        fallthrough\n    }\n    forward . " +
			serviceIP)},
	{"an old NXDOMAIN of a cache", reason.DNSLacksName,
		block("cache 3600 {\n        denial 9984 3600 3600\n    }\n    forward . AGED")},
}

// onlyTheName are those of them that answer for dns-version as they should, for which dns status asks.
var onlyTheName = []string{
	"a forward that leaves out the names",
	"a rewrite of the name",
	"a rewrite to another service",
	"a template of addresses",
	"hosts",
	"an old NXDOMAIN of a cache",
	"all Pods answer with another record",
}

// TestWay seeds faults of the way between client and plugin: explain and dns status ask the Pods of both DNS servers.
func TestWay(t *testing.T) {
	tier.All(t)
	c, err := testclusterset.Start(t.Context(), testclusterset.Options{IDs: []string{"north"}, Bare: true})
	if err != nil {
		t.Fatal(err)
	}
	w := &env{T: t, broker: c.Broker, north: c.Members[0], slowest: &slowest{}}
	t.Cleanup(func() { w.must(c.Stop()) })
	w.foreign()
	good := testclusterset.StartDNS(t, w.north)
	good.Answers(t, "db.other", dns.TypeA, "NOERROR 10.9.0.1")
	node := w.pods(good.Address)
	addresses := w.resolvers(good.Address)
	notRead := ""
	for i, f := range corefiles {
		if f.name == "no block" {
			notRead = addresses[i]
		}
		t.Run(f.name, func(t *testing.T) {
			w := *w
			w.T = t
			w.configure(f.text)
			w.run(node, addresses[i], addresses[i], addresses[i])
			w.asks(f.code)
		})
	}
	w.configure(zone + root)
	w.replicas(node, good.Address, notRead)
	t.Run("bind of an address", func(t *testing.T) {
		w := *w
		w.T = t
		w.configure(strings.Replace(zone, "errors", "bind 192.0.2.1", 1) + root)
		w.run(node, "127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1")
		w.verdict(w.north.Config(), "db.other", dns.TypeA, reason.NotReadable)
	})
	w.configure(zone + root)
	w.run(node, good.Address, good.Address, good.Address)
	for _, f := range []struct {
		code               reason.Code
		namespace, service string
	}{
		{reason.DNSNoEndpoint, "clusterset-system", "clusterset-dns"},
		{reason.DNSUnreachable, metav1.NamespaceSystem, "kube-dns"},
	} {
		t.Run("no Pod of "+f.service, func(t *testing.T) {
			w := *w
			w.T = t
			w.patch(w.north.ControlPlane, "services", f.namespace, f.service,
				func(o object) { o.set(map[string]any{"app": "none"}, "spec", "selector") })
			w.asks(f.code)
		})
	}
	w.named(good.Address)
}

// replicas lets the Pods of the cluster's DNS server be different servers. notRead is one without the zone.
func (w *env) replicas(node *kubelet.Kubelet, good, notRead string) {
	const refusing = "127.0.0.1:1"
	all := func(a string) [3]string { return [3]string{a, a, a} }
	for _, f := range []struct {
		name string
		code reason.Code
		pods [3]string
	}{
		{"one Pod of an old Deployment", reason.DNSReplicasDiffer, [3]string{good, good, notRead}},
		{"one Pod hangs", reason.DNSReplicasDiffer, [3]string{good, w.hanging(false), good}},
		{"one Pod refuses connections", reason.DNSReplicasDiffer, [3]string{refusing, good, good}},
		{"the Corefile was not reloaded", reason.DNSNotWired, all(notRead)},
		{"each Pod closes connections", reason.DNSUnreachable, all(w.hanging(true))},
		{"all Pods answer with another record", reason.DNSOtherAnswer, all(w.answering("udp tcp", dns.RcodeSuccess))},
		{"all Pods are not ready", reason.DNSNotReady, all(w.answering("udp tcp", dns.RcodeServerFailure,
			dns.ExtendedErrorCodeNotReady))},
	} {
		w.Run(f.name, func(t *testing.T) {
			w := *w
			w.T = t
			w.run(node, f.pods[:]...)
			w.asks(f.code)
		})
	}
}

// named asks servers that are given as --dns-server: forwarders to a good one, which change its replies.
func (w *env) named(good string) {
	record := func(text string) []dns.RR {
		rr, err := dns.NewRR(text)
		w.must(err)
		return []dns.RR{rr}
	}
	for name, f := range map[string]struct {
		code     reason.Code
		networks string // "": both
		change   func(*dns.Msg)
	}{
		"a forwarder": {reason.Resolves, "", func(*dns.Msg) {}},
		"UDP only":    {reason.DNSWithoutTCP, "udp", func(*dns.Msg) {}},
		"TCP only":    {reason.DNSWithoutUDP, "tcp", func(*dns.Msg) {}},
		"NXDOMAIN without SOA": {reason.DNSNotWired, "", func(m *dns.Msg) {
			m.Answer, m.Rcode = nil, dns.RcodeNameError
		}},
		"upper-case records": {reason.Resolves, "", func(m *dns.Msg) {
			m.Answer[0].Header().Name = strings.ToUpper(m.Answer[0].Header().Name)
		}},
		"truncated over UDP": {reason.Resolves, "", func(m *dns.Msg) {
			m.Truncated, m.Answer = true, nil
		}},
		"without OPT": {reason.Resolves, "", func(m *dns.Msg) { m.Extra = nil }},
		"an alias without an address": {reason.DNSLacksName, "", func(m *dns.Msg) {
			m.Answer = record(m.Question[0].Name + " 5 IN CNAME other.example.")
		}},
		"NOERROR without records": {reason.DNSLacksName, "", func(m *dns.Msg) { m.Answer = nil }},
		"NOERROR of a zone above": {reason.DNSNotWired, "", func(m *dns.Msg) {
			m.Answer, m.Ns = nil, record("local. 5 IN SOA a. b. 1 2 3 4 5")
		}},
		"another ID": {reason.DNSUnreachable, "", func(m *dns.Msg) { m.Id++ }},
		"not implemented": {reason.DNSFailure, "", func(m *dns.Msg) {
			m.Answer, m.Rcode = nil, dns.RcodeNotImplemented
		}},
		"records with SERVFAIL": {reason.DNSFailure, "", func(m *dns.Msg) { m.Rcode = dns.RcodeServerFailure }},
	} {
		w.Run("named/"+name, func(t *testing.T) {
			w := *w
			w.T = t
			address := w.serving(cmp.Or(f.networks, "udp tcp"), func(out dns.ResponseWriter, q *dns.Msg) {
				if m, err := dns.ExchangeContext(w.Context(), q, good); err == nil {
					changed := m.Copy()
					if f.change(changed); changed.Truncated && out.LocalAddr().Network() == "tcp" {
						changed = m
					}
					_ = out.WriteMsg(changed)
				}
			})
			w.verdict(w.north.Config(), "db.other", dns.TypeA, f.code, address)
		})
	}
}

// pods makes Services and Pods of both DNS servers; those of the clusterset's are the server at the address.
func (w *env) pods(good string) *kubelet.Kubelet {
	w.Helper()
	manifest, err := os.ReadFile("../../../admin/wiring/testdata/kubeadm.yaml")
	w.must(err)
	w.must(w.north.ApplyYAML(w.Context(), []byte(strings.ReplaceAll(string(manifest), "10.96.0.10", "10.11.0.10"))))
	w.must(w.north.ApplyYAML(w.Context(), fmt.Appendf(nil, `
apiVersion: v1
kind: Service
metadata: {name: clusterset-dns, namespace: clusterset-system}
spec:
  clusterIP: %s
  selector: {app: clusterset-dns}
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: clusterset-dns, namespace: clusterset-system, labels: {kubernetes.io/service-name: clusterset-dns}}
addressType: IPv4
endpoints: [{addresses: [10.3.0.53]}]
`, serviceIP)))
	node, err := kubelet.Start(w.Context(), w.north.ControlPlane)
	w.must(err)
	w.Cleanup(func() { w.must(node.Stop()) })
	labels := map[string]string{"app": "clusterset-dns"}
	w.must(node.Run(w.Context(), "clusterset-system", "clusterset-dns-1", labels, good))
	return node
}

func (w *env) run(node *kubelet.Kubelet, addresses ...string) {
	w.Helper()
	for i, a := range addresses {
		w.must(node.Run(w.Context(), metav1.NamespaceSystem, fmt.Sprintf("coredns-%d", i),
			map[string]string{"k8s-app": "kube-dns"}, a))
	}
}

// configure writes the Corefile that the DNS server of the cluster seems to have.
func (w *env) configure(text string) {
	w.Helper()
	_, err := at(w.north.ControlPlane, "configmaps", metav1.NamespaceSystem).Patch(w.Context(), "coredns",
		types.MergePatchType, fmt.Appendf(nil, `{"data":{"Corefile":%q}}`, text), metav1.PatchOptions{})
	w.must(err)
}

// asks fails the test unless explain has the code, and dns status a problem if that is not resolves.
func (w *env) asks(want reason.Code) {
	w.Helper()
	w.verdict(w.north.Config(), "db.other", dns.TypeA, want)
	s, err := clusterdns.Status(w.Context(), w.north.Config(), clusterdns.Defaults())
	w.must(err)
	well := want == reason.Resolves || slices.ContainsFunc(onlyTheName, func(name string) bool {
		return w.Name() == "TestWay/"+strings.ReplaceAll(name, " ", "_")
	})
	if (len(s.Problems) == 0) != well || len(s.Unread) > 0 {
		w.Errorf("dns status: problems %q, warnings %q, unread %q; explain: %s", s.Problems, s.Warnings, s.Unread, want)
	}
}

// resolvers runs all Corefiles in one process, and returns their addresses.
func (w *env) resolvers(good string) (addresses []string) {
	w.Helper()
	aged := agedServer{good: good}
	upstream := strings.NewReplacer(serviceIP, good,
		"NXDOMAIN\n}", w.answering("udp tcp", dns.RcodeNameError)+"\n}",
		"REFUSED", w.answering("udp tcp", dns.RcodeRefused), "AGED", w.serving("udp tcp", aged.handle))
	var all strings.Builder
	for _, f := range corefiles {
		port, err := controlplane.ReservePort()
		w.must(err)
		w.Cleanup(func() { w.must(port.Close()) })
		other, err := controlplane.ReservePort()
		w.must(err)
		w.Cleanup(func() { w.must(other.Close()) })
		text := strings.NewReplacer(":53", fmt.Sprintf(":%d", port.Number), ":1053", fmt.Sprintf(":%d", other.Number)).
			Replace(upstream.Replace(f.text))
		all.WriteString(text + "\n")
		addresses = append(addresses, port.String())
	}
	bin, err := server.Program(w.Context(), "coredns")
	w.must(err)
	file := filepath.Join(w.TempDir(), "Corefile")
	w.must(os.WriteFile(file, []byte(all.String()), 0o600))
	process, err := server.Start(subprocess.Command{Bin: bin, Args: []string{"-conf", file},
		Env: append(os.Environ(), "CLUSTERSET_DNS="+good, "CLUSTERSET_ZONE=clusterset.local")})
	w.must(err)
	w.Cleanup(func() { w.must(process.Stop()) })
	w.must(process.Await(w.Context(), func(ctx context.Context) error {
		reply, err := server.Ask(ctx, addresses[0], "db.other.svc.clusterset.local.", dns.TypeA)
		if err == nil && len(reply.Answer) == 0 {
			err = fmt.Errorf("no answer: %s", dns.RcodeToString[reply.Rcode])
		}
		return err
	}))
	until.OK(w, "an old NXDOMAIN in the cache", func(ctx context.Context) error {
		_, err := server.Ask(ctx, addresses[len(addresses)-1], "db.other.svc.clusterset.local.", dns.TypeA)
		return err
	})
	return addresses
}

// An agedServer denies db until it was asked once.
type agedServer struct {
	good  string
	asked bool
}

func (a *agedServer) handle(out dns.ResponseWriter, q *dns.Msg) {
	m, err := dns.Exchange(q, a.good)
	if err != nil {
		return
	}
	if strings.HasPrefix(strings.ToLower(q.Question[0].Name), "db.") && !a.asked {
		a.asked = true
		soa, _ := dns.NewRR("clusterset.local. 3600 IN SOA a. b. 1 2 3 4 3600")
		m.Answer, m.Ns, m.Rcode = nil, []dns.RR{soa}, dns.RcodeNameError
	}
	_ = out.WriteMsg(m)
}

// hanging returns the address of a server that reads and does not answer, or closes each connection.
func (w *env) hanging(closes bool) string {
	w.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	w.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if closes {
				_ = conn.Close()
				continue
			}
			go func() { _, _ = io.Copy(io.Discard, conn) }()
		}
	}()
	return l.Addr().String()
}
