package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A chain starts real DNS servers with the configurations that the commands have written. Parts that are impossible on
// one machine without root are replaced: port 53, cluster IPs, files of the Pod and the API server inside of the
// cluster.
type chain struct {
	bin, kubeconfig string
	manifests       string // folder of the objects that the DNS server of the clusterset answers from
	authority       string // host and port of that
}

const exported = `
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: db, namespace: shop}
spec: {type: ClusterSetIP, ips: [10.42.0.5], ports: [{port: 5432}]}
`

func startChain(t *testing.T, east *controlplane.ControlPlane) *chain {
	t.Helper()
	bin, err := server.Program(t.Context(), "coredns")
	must(t, err)
	c := &chain{bin: bin, kubeconfig: east.Kubeconfig(), manifests: t.TempDir()}
	must(t, replaceFile(filepath.Join(c.manifests, "db.yaml"), exported))
	c.authority, _ = c.start(t, func(port string) string {
		return "clusterset.local:" + port + " {\n bind 127.0.0.1\n clusterset {\n  manifests " + c.manifests + "\n }\n}\n"
	})
	until.OK(t, "the DNS server of the clusterset answers", func(ctx context.Context) error {
		return server.Serves(ctx, c.authority, "clusterset.local.")
	})
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// replaceFile replaces a file in one step: CoreDNS may read it at any time.
func replaceFile(name, text string) error {
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// start starts a CoreDNS, which ends with the test, and returns its address and the path of its Corefile.
func (c *chain) start(t *testing.T, corefile func(port string) string) (address, file string) {
	t.Helper()
	return c.startIn(t, t.TempDir(), corefile)
}

// startIn is start with the folder of the Corefile, to which its imports are relative.
func (c *chain) startIn(t *testing.T, dir string, corefile func(port string) string) (address, file string) {
	t.Helper()
	port, err := controlplane.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, "Corefile")
	must(t, replaceFile(file, corefile(strconv.Itoa(port.Number))))
	s, err := server.Start(subprocess.Command{Bin: c.bin, Args: []string{"-conf", file}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if err := port.Close(); err != nil {
			t.Error(err)
		}
	})
	return port.String(), file
}

// here returns a Corefile of the cluster for this machine: on a port, with the files of the Pod in a folder.
func (c *chain) here(text, port, dir string) string {
	api := "\n        kubeconfig " + c.kubeconfig + "\n"
	return strings.NewReplacer(
		":53 {", ":"+port+" {", ":1053 {", ":"+port+" {",
		"10.97.0.53", c.authority,
		"kubernetes cluster.local in-addr.arpa ip6.arpa {\n", "kubernetes cluster.local in-addr.arpa ip6.arpa {"+api,
		"kubernetes cluster.local in-addr.arpa ip6.arpa\n", "kubernetes cluster.local in-addr.arpa ip6.arpa {"+api+"    }\n",
		"    clusterset\n", "    clusterset {\n        manifests "+c.manifests+"\n    }\n",
		"/etc/resolv.conf", "127.0.0.1:1",
		"/etc/coredns/", dir+"/",
		"    reload\n", "    reload 2s 1s\n",
	).Replace(text)
}

// clusterDNS starts the DNS server of the cluster, with what its Pods would mount.
func (t dnsTest) clusterDNS() string {
	t.Helper()
	dir := t.TempDir()
	must(t.T, os.Mkdir(filepath.Join(dir, "custom"), 0o700))
	must(t.T, replaceFile(filepath.Join(dir, "NodeHosts"), "192.0.2.1 node\n"))
	address, _ := t.chain.startIn(t.T, dir, func(port string) string {
		for key, text := range t.configMap("coredns-custom") {
			must(t.T, replaceFile(filepath.Join(dir, "custom", key), t.chain.here(text, port, dir)))
		}
		return t.chain.here(t.configMap("coredns")["Corefile"], port, dir)
	})
	return address
}

// nodeCache starts NodeLocal DNSCache in front of the cluster's DNS server, with the Corefile that its program makes
// from its base Corefile and the stub domains.
func (t dnsTest) nodeCache(upstream string) string {
	t.Helper()
	address, _ := t.chain.start(t.T, func(port string) string {
		text := strings.NewReplacer("__PILLAR__LOCAL__DNS__", "127.0.0.1", "__PILLAR__DNS__SERVER__", "",
			"__PILLAR__CLUSTER__DNS__", upstream, "__PILLAR__UPSTREAM__SERVERS__",
			"/etc/resolv.conf").Replace(t.configMap("node-local-dns")["Corefile"])
		stubs := map[string][]string{}
		if value := t.configMap("kube-dns")["stubDomains"]; value != "" {
			if err := json.Unmarshal([]byte(value), &stubs); err != nil {
				t.Fatal(err)
			}
		}
		for zone, to := range stubs {
			text += fmt.Sprintf("\n%s:53 {\n    errors\n    cache 30\n    bind 127.0.0.1\n    forward . %s\n}\n", zone,
				strings.Join(to, " "))
		}
		return t.chain.here(text, port, "")
	})
	return address
}

// resolves asks through the whole chain, from the resolver that Pods ask first to the DNS server of the clusterset.
func (t dnsTest) resolves() {
	resolver := ""
	if t.configMap("coredns") != nil {
		resolver = t.clusterDNS()
		t.answers(resolver, "kubernetes.default.svc.cluster.local.", "10.97.0.1")
		t.answers(resolver, "db.shop.svc.clusterset.local.", "10.42.0.5")
	}
	if t.configMap("node-local-dns") != nil {
		if resolver == "" {
			resolver = "127.0.0.1:1" // kube-dns, which is not CoreDNS
		} else {
			defer t.answers(resolver, "kubernetes.default.svc.cluster.local.", "10.97.0.1")
		}
		resolver = t.nodeCache(resolver)
		t.answers(resolver, "db.shop.svc.clusterset.local.", "10.42.0.5")
	}
	until.OK(t.T, "status shows the answer", func(context.Context) error {
		code, out, errOut := command(t.T, append([]string{"dns", "status", "--ask=" + resolver, t.member}, t.flags...)...)
		if code != exitOK || !strings.Contains(out, " answers NOERROR 1.0.0") {
			return fmt.Errorf("exit code %d, %s%s", code, out, errOut)
		}
		return nil
	})
}

func (t dnsTest) answers(resolver, name, address string) {
	t.Helper()
	until.OK(t, name+" resolves", func(ctx context.Context) error {
		reply, err := server.Ask(ctx, resolver, name, dns.TypeA)
		if err == nil && (reply.Rcode != dns.RcodeSuccess || len(reply.Answer) != 1 ||
			!strings.HasSuffix(reply.Answer[0].String(), "\t"+address)) {
			err = fmt.Errorf("answer %s, want %s", reply, address)
		}
		return err
	})
}

// reloads: apply waits until the running DNS server has read what was written, and answers. The test does what the
// kubelet does: it brings the ConfigMap into the Pod.
func (t dnsTest) reloads() {
	t.apply(t.manifest("kubeadm"))
	var port string
	mounted := func() string { return t.chain.here(t.configMap("coredns")["Corefile"], port, "") }
	resolver, file := t.chain.start(t.T, func(p string) string {
		port = p
		return mounted()
	})
	t.answers(resolver, "kubernetes.default.svc.cluster.local.", "10.97.0.1")
	ctx, cancel := context.WithCancel(t.Context())
	kubelet := make(chan error)
	go func() { kubelet <- keepMounted(ctx, file, mounted) }()

	want(t.T, exitOK, []string{"configmap/coredns -n kube-system updated", "forwards clusterset.local. It answers."},
		"dns", "apply", "--ask="+resolver, "--timeout=3m", t.member)
	t.answers(resolver, "db.shop.svc.clusterset.local.", "10.42.0.5")
	t.run(exitOK, nil, "undo")
	until.OK(t.T, "the DNS server has read the original again", func(ctx context.Context) error {
		reply, err := server.Ask(ctx, resolver, "db.shop.svc.clusterset.local.", dns.TypeA)
		if err == nil && reply.Rcode != dns.RcodeServerFailure {
			err = fmt.Errorf("answer %s, want the failure of the resolver of the node", reply)
		}
		return err
	})
	cancel()
	if err := <-kubelet; err != nil {
		t.Error(err)
	}
	must(t.T, t.east.DeleteYAML(t.Context(), t.manifest("kubeadm")))
}

// keepMounted writes the file whenever its content changes, until ctx ends.
func keepMounted(ctx context.Context, file string, content func() string) error {
	last := content()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		// A request that was cut short leaves nothing of the Corefile.
		if text := content(); text != last && text != "" {
			if err := replaceFile(file, text); err != nil {
				return err
			}
			last = text
		}
	}
}
