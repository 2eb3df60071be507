package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

const system = "clusterset-system"

// A node does for the Pods of an empty cluster what kubelet and kube-proxy do, with processes of this machine: it
// starts what the Deployments say with the files that they mount, and sends what goes to a cluster IP to the process
// behind it.
type node struct {
	*testing.T
	*controlplane.ControlPlane
	bin, dir string
	stop     context.CancelFunc
	// startController starts what a Pod of Deployment clusterset-controller runs, and stopController ends it.
	startController, stopController func()
	pods                            sync.WaitGroup
	serves                          string // address of the DNS server of the clusterset
	resolver                        string // address of the DNS server of the cluster
}

// startNode starts an empty cluster: one Node, and a DNS server as kubeadm installs it.
func startNode(t *testing.T, bin string, n int) *node {
	t.Helper()
	services := fmt.Sprintf("10.9%d.0.", n)
	c := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{}, ServiceCIDR: services + "0/24"})
	d := &node{T: t, ControlPlane: c, bin: bin, dir: t.TempDir()}
	manifest, err := os.ReadFile("../../admin/wiring/testdata/kubeadm.yaml")
	must(t, err)
	must(t, c.ApplyYAML(t.Context(), bytes.ReplaceAll(manifest, []byte("10.96.0."), []byte(services))))
	must(t, c.ApplyYAML(t.Context(), fmt.Appendf(
		nil,
		"apiVersion: v1\nkind: Node\nmetadata: {name: a}\nspec: {podCIDR: 10.2%[1]d.0.0/24, podCIDRs: [10.2%[1]d.0.0/24]}\n", n)))
	port := reserve(t)
	d.serves, d.resolver = port, reserve(t)
	ctx, stop := context.WithCancel(t.Context())
	d.stop = stop
	t.Cleanup(func() { stop(); d.pods.Wait() })
	d.pods.Go(func() { d.clusterDNS(ctx) })
	d.pods.Go(func() { d.dnsServer(ctx) })
	d.startController = func() {
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		d.pods.Go(func() { defer close(ended); d.controller(ctx) })
		d.stopController = func() { cancel(); <-ended }
	}
	d.startController()
	d.EndNamespacesT(t)
	for _, name := range []string{"clusterset-controller", "clusterset-dns"} {
		d.pods.Go(func() { d.rollOut(ctx, name) })
	}
	return d
}

func reserve(t *testing.T) string {
	t.Helper()
	port, err := controlplane.ReservePort()
	must(t, err)
	t.Cleanup(func() { must(t, port.Close()) })
	return port.String()
}

// held is the tag of an image that the cluster cannot pull.
const held = "held"

// rollOut sets the status of a Deployment with its new Pods, as kube-controller-manager does, unless their image cannot
// be pulled. A join itself sees whether the programs serve.
func (d *node) rollOut(ctx context.Context, name string) {
	deployments := d.Dynamic().Resource(schema.GroupVersionResource{Group: "apps", Version: "v1",
		Resource: "deployments"}).Namespace(system)
	for o := d.get(ctx, "apps", "deployments", system, name); o != nil; o = d.get(ctx, "apps", "deployments", system,
		name) {
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		replicas, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
		observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
		if image, _ := containers[0].(map[string]any)["image"].(string); observed != o.GetGeneration() &&
			!strings.HasSuffix(image, held) {
			o.Object["status"] = map[string]any{
				"observedGeneration": o.GetGeneration(), "replicas": replicas, "updatedReplicas": replicas,
				"availableReplicas": replicas, "readyReplicas": replicas,
			}
			_, _ = deployments.UpdateStatus(ctx, o, metav1.UpdateOptions{}) // The next round tries again.
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// get returns an object when it exists, nil if the test ends first.
func (d *node) get(ctx context.Context, group, resource, namespace, name string) *unstructured.Unstructured {
	for ctx.Err() == nil {
		o, err := d.Dynamic().Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}).
			Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return o
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// field returns a text in an object that may be nil.
func field(o *unstructured.Unstructured, path ...string) string {
	if o == nil {
		return ""
	}
	text, _, _ := unstructured.NestedString(o.Object, path...)
	return text
}

// coreDNS runs a CoreDNS with what content returns, and brings changes of that into its file, until ctx ends.
func (d *node) coreDNS(ctx context.Context, name string, content func() string) {
	file := filepath.Join(d.dir, name)
	if err := replaceFile(file, content()); err != nil {
		d.Error(err)
		return
	}
	s, err := server.Start(subprocess.Command{Bin: d.bin, Args: []string{"-conf", file}})
	if err != nil {
		d.Error(err)
		return
	}
	if err := keepMounted(ctx, file, content); err != nil {
		d.Error(err)
	}
	if err := s.Stop(); err != nil {
		d.Error(err)
	}
}

// here makes a Corefile of a Pod fit for this machine.
func here(text, address, kubeconfig string) string {
	_, port, _ := strings.Cut(address, ":")
	text = regexp.MustCompile(`(?m)^(\S*:)(53|1053) \{$`).ReplaceAllString(text, "${1}"+port+" {\n    bind 127.0.0.1")
	return strings.NewReplacer(
		"    health {", "    health 127.0.0.1:0 {", "    ready\n", "    ready 127.0.0.1:0\n", "prometheus :9153",
		"prometheus 127.0.0.1:0",
		"kubernetes cluster.local in-addr.arpa ip6.arpa {\n",
		"kubernetes cluster.local in-addr.arpa ip6.arpa {\n        kubeconfig "+kubeconfig+"\n",
		"    clusterset {\n", "    clusterset {\n        kubeconfig "+kubeconfig+"\n",
		"/etc/resolv.conf", "127.0.0.1:1", "    reload\n", "    reload 2s 1s\n",
	).Replace(text)
}

// clusterDNS is the DNS server of the cluster. It reaches the one of the clusterset by its cluster IP.
func (d *node) clusterDNS(ctx context.Context) {
	d.coreDNS(ctx, "cluster", func() string {
		text := field(d.get(ctx, "", "configmaps", "kube-system", "coredns"), "data", "Corefile")
		if strings.Contains(text, "clusterset.local") {
			ip := field(d.get(ctx, "", "services", system, "clusterset-dns"), "spec", "clusterIP")
			text = strings.ReplaceAll(text, "forward . "+ip, "forward . "+d.serves)
		}
		return here(text, d.resolver, d.Kubeconfig())
	})
}

// dnsServer is a Pod of Deployment clusterset-dns. When it is ready, its Service has an endpoint.
func (d *node) dnsServer(ctx context.Context) {
	if d.get(ctx, "apps", "deployments", system, "clusterset-dns") == nil {
		return
	}
	kubeconfig, err := d.ServiceAccountKubeconfig(ctx, system, "clusterset-dns")
	if err != nil {
		d.Error(err)
		return
	}
	d.pods.Go(func() {
		for server.Serves(ctx, d.serves, "clusterset.local.") != nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
		_, slice, _ := strings.Cut(clustersetDNS, "---\napiVersion: discovery")
		if err := d.ApplyYAML(ctx, []byte("apiVersion: discovery"+slice)); err != nil && ctx.Err() == nil {
			d.Error(err)
		}
	})
	d.coreDNS(ctx, "clusterset", func() string {
		return here(field(d.get(ctx, "", "configmaps", system, "clusterset-dns"), "data", "Corefile"), d.serves, kubeconfig)
	})
}

// controller is a Pod of Deployment clusterset-controller, with the Secret that it mounts.
func (d *node) controller(ctx context.Context) {
	deployment := d.get(ctx, "apps", "deployments", system, "clusterset-controller")
	secret := d.get(ctx, "", "secrets", system, "clusterset-broker")
	if deployment == nil || secret == nil {
		return
	}
	for _, key := range []string{"kubeconfig", "token"} {
		content, err := base64.StdEncoding.DecodeString(field(secret, "data", key))
		if err == nil {
			err = replaceFile(filepath.Join(d.dir, key), string(content))
		}
		if err != nil {
			d.Error(err)
			return
		}
	}
	kubeconfig, err := d.ServiceAccountKubeconfig(ctx, system, "clusterset-controller")
	if err != nil {
		d.Error(err)
		return
	}
	containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	args, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	args = slices.DeleteFunc(args, func(arg string) bool { return strings.Contains(arg, "-address=") })
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "/etc/clusterset/broker", d.dir)
	}
	args = append(append([]string{"clusterset"}, args...), "--metrics-address=", "--health-address=",
		"--kubeconfig="+kubeconfig)
	if *within == 0 {
		args = append(args, "--lease=1s 1m") // the default makes each join wait longer
	}
	var log bytes.Buffer
	if code := run(ctx, args, genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &log, ErrOut: &log}); code != exitOK &&
		ctx.Err() == nil {
		d.Errorf("the controller ended with %d\n%s", code, &log)
	}
}

const sold = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {ports: [{port: 5432}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{port: 5432}]
endpoints: [{addresses: [10.21.0.7], conditions: {ready: true}}]
`

// within is for a machine that does nothing else ("make test-install").
var within = flag.Duration("within", 0, "fail TestInstall if its commands and the DNS server of the cluster need more `time`, with the default lease; 0: no limit")

// mostCommands is how many commands lead from two clusters and an API server to a name that resolves, at most.
const mostCommands = 5

// A walk counts the commands of a user, and the time that they take.
type walk struct {
	*testing.T
	commands int
	took     time.Duration
}

func (w *walk) want(texts []string, args ...string) string {
	w.Helper()
	w.commands++
	begin := time.Now()
	defer func() { w.took += time.Since(begin) }()
	return want(w.T, exitOK, texts, args...)
}

// end checks what was counted.
func (w *walk) end() {
	w.Helper()
	w.Logf("from two empty clusters to a name that resolves: %d commands, %s", w.commands, w.took.Round(time.Second/10))
	if w.commands > mostCommands {
		w.Errorf("%d commands, want at most %d", w.commands, mostCommands)
	}
	if *within > 0 && w.took > *within {
		w.Errorf("the commands took %s, want at most %s", w.took, *within)
	}
}

// TestInstall goes from two empty clusters and an API server to a name that Pods resolve.
func TestInstall(t *testing.T) {
	tier.All(t)
	bin, err := server.Program(t.Context(), "coredns")
	must(t, err)
	hub := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{}})
	east, west := startNode(t, bin, 1), startNode(t, bin, 2)
	before := map[*controlplane.ControlPlane]map[string]bool{}
	for _, c := range []*controlplane.ControlPlane{hub, east.ControlPlane, west.ControlPlane} {
		before[c] = mustInventory(t, c)
	}
	broker := "--broker-kubeconfig=" + hub.Kubeconfig()
	user := &walk{T: t}
	user.want(nil, "broker", "init", broker)
	installers(t, hub, east)
	join := func(d *node, id string, more ...string) []string {
		return append([]string{"join", broker, "--kubeconfig=" + d.Kubeconfig(), "--cluster-id=" + id,
			"--ask=" + d.resolver}, more...)
	}

	cannotInstall(t, join(east, "east"))
	const image = "--image=registry.example.org/clusterset:1"
	installed := []string{"member: deployment.apps/clusterset-controller -n clusterset-system created",
		"configmap/coredns -n kube-system updated",
		"forwards clusterset.local. It answers."}
	out := user.want(append(installed, "east is a member"), asInstaller(t, hub, east, join(east, "east", image))...)
	showsNoToken(t, east, out)
	user.want(append(installed, "west is a member"), join(west, "west", image)...)

	must(t, east.ApplyYAML(t.Context(), []byte(sold)))
	must(t, west.ApplyYAML(t.Context(), []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")))
	user.want(nil, "export", "db", "-n", "shop", "--timeout=3m", "--kubeconfig="+east.Kubeconfig())
	begin := time.Now()
	until.OK(t, "the name resolves in west, through the DNS server of the cluster", func(ctx context.Context) error {
		reply, err := server.Ask(ctx, west.resolver, "db.shop.svc.clusterset.local.", dns.TypeA)
		if err == nil && (reply.Rcode != dns.RcodeSuccess || len(reply.Answer) != 1) {
			err = fmt.Errorf("answer %s, want one address", reply)
		}
		return err
	})
	user.took += time.Since(begin)
	user.end()
	if *within > 0 {
		east.stop()
		west.stop()
		return // what follows is tested without a limit
	}
	verifies(t, east, west, join(east, "east"))
	remembers(t, east, join(east, "east"))
	joinsAgain(t, east, join(east, "east", "--ask=127.0.0.1:1")) // only a slow answer would be a problem
	leaveNothing(t, hub, []*node{east, west}, before)
}

// installers grants the user "installer" what deploy/join has. Another user gets an error that names it.
func installers(t *testing.T, hub *controlplane.ControlPlane, d *node) {
	t.Helper()
	for role, c := range map[string]*controlplane.ControlPlane{"broker": hub, "member": d.ControlPlane} {
		manifest, err := os.ReadFile("../../deploy/join/" + role + ".yaml")
		must(t, err)
		must(t, c.ApplyYAML(t.Context(), manifest))
		must(t, c.ApplyYAML(t.Context(), []byte(strings.ReplaceAll(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: installer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: clusterset-join-ROLE}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: installer}]
`, "ROLE", role))))
	}
	stranger, err := d.UserKubeconfig("stranger")
	must(t, err)
	want(t, exitError, []string{`cannot get resource "namespaces"`, `in the namespace "kube-system"; deploy/join/member.yaml and deploy/join/broker.yaml grant`},
		"join", "--broker-kubeconfig="+hub.Kubeconfig(), "--kubeconfig="+stranger, "--cluster-id=east", "--image=a")
	_, _, said := command(t, asInstaller(t, hub, d, []string{"join", "--cluster-id=east", "--image=a",
		"--dry-run=client"})...)
	if found := "network of Pods: 10.21.0.0/24 (spec.podCIDRs of Nodes)\n"; !strings.Contains(said, found) ||
		strings.Contains(said, "looked for without") || strings.Contains(said, "declared networks is not known") {
		t.Errorf("join said\n%s\nwant %swith the rights for all sources and for Pods", said, found)
	}
}

// asInstaller returns the command with the kubeconfigs of that user.
func asInstaller(t *testing.T, hub *controlplane.ControlPlane, d *node, args []string) []string {
	t.Helper()
	onHub, err := hub.UserKubeconfig("installer")
	must(t, err)
	onMember, err := d.UserKubeconfig("installer")
	must(t, err)
	return append(slices.Clone(args), "--broker-kubeconfig="+onHub, "--kubeconfig="+onMember)
}

// cannotInstall: faults in the flags are found before the first write.
func cannotInstall(t *testing.T, join []string) {
	t.Helper()
	for _, tt := range []struct{ flag, want string }{
		{"--wait", "error: join: no image: want --image"},
		{"--image=a b", `error: join: image "a b": want REPOSITORY:TAG`},
		{"--components=dns,x", `error: --components: component "x": want controller, dns, all-in-one or wiring, or only none`},
		{"--components=dns,all-in-one", "error: --components: component all-in-one: want it without controller and dns"},
	} {
		if out := want(t, exitError, []string{tt.want}, append(slices.Clone(join), tt.flag)...); out != "" {
			t.Errorf("join %s printed\n%s\nwant nothing", tt.flag, out)
		}
	}
	want(t, exitError, []string{"error: join: no cluster id: want --cluster-id; ", "; no image: want --image", "docker push "},
		append(slices.Clone(join), "--cluster-id=")...)
	out := want(t, exitOK, []string{"deployment.apps/clusterset-dns -n clusterset-system created (server dry run)",
		"+        image: example.org/a:1",
		"warning: what is to be written for the cluster's DNS server is not known yet"},
		append(slices.Clone(join), "--diff", "--image=example.org/a:1")...)
	if strings.Contains(out, "unchanged") {
		t.Errorf("join --diff in an empty cluster printed\n%s\nwant nothing unchanged", out)
	}
}

// showsNoToken: the output has no credential.
func showsNoToken(t *testing.T, d *node, out string) {
	t.Helper()
	token, err := base64.StdEncoding.DecodeString(field(d.get(t.Context(), "", "secrets", system, "clusterset-broker"),
		"data", "token"))
	if err != nil || len(token) == 0 || strings.Contains(out, string(token)) {
		t.Errorf("token of %s octets (%v) in\n%s\nwant one that is not printed", strconv.Itoa(len(token)), err, out)
	}
}

// heldPod is a Pod of Deployment clusterset-dns with an image that cannot be pulled.
const heldPod = `
apiVersion: v1
kind: Pod
metadata: {name: held, namespace: clusterset-system, labels: {app.kubernetes.io/name: clusterset-dns}}
spec:
  nodeName: a
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: coredns
    image: registry.example.org/clusterset:held
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
status:
  phase: Pending
  containerStatuses:
  - {name: coredns, image: a, imageID: "", ready: false, restartCount: 0, state: {waiting: {reason: ImagePullBackOff, message: Back-off pulling image}}}
`

// remembers: a join without --components installs what the one before did, and waits for Pods of its own.
func remembers(t *testing.T, d *node, args []string) {
	t.Helper()
	for _, tt := range []struct{ flag, want string }{
		{"--components=none", ""}, {"", ""}, {"--components=controller,dns,wiring", "controller dns wiring"},
		{"", "controller dns wiring"},
	} {
		var done struct{ Result join.Result }
		out := want(t, exitOK, nil, append(slices.Clone(args), "--ask=127.0.0.1:1", "--wait=false", "-o=json",
			cmp.Or(tt.flag, "--wait=false"))...)
		must(t, json.Unmarshal([]byte(out), &done))
		if got := strings.Trim(fmt.Sprint(done.Result.Components), "[]"); got != tt.want {
			t.Errorf("join %s installed %q, want %q", tt.flag, got, tt.want)
		}
	}
	// DNS servers and controllers of before run, and are well: that is not enough.
	must(t, d.ApplyYAML(t.Context(), []byte(heldPod)))
	want(t, exitError,
		[]string{"error: join: wait until Deployment clusterset-system/clusterset-dns runs new Pods only: not after 1s; " +
			"Pod held is Pending, ImagePullBackOff: Back-off pulling image; " +
			"is the image registry.example.org/clusterset:" + held + " right? see: kubectl get pods -n clusterset-system; " +
			"what the steps above name is written and stays: run the same command again to do the rest\n"},
		append(slices.Clone(args), "--image=registry.example.org/clusterset:"+held, "--timeout=1s")...)
	must(t, d.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(system).
		Delete(t.Context(), "held", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	want(t, exitOK, []string{"NAMESPACE --context clusterset-test\n  clusterset status --context clusterset-test\n"},
		append(slices.Clone(args), "--image=registry.example.org/clusterset:1", "--context=clusterset-test")...)
}

// joinsAgain: without flags a join keeps the values of the one before, and leaves alone what others have installed.
func joinsAgain(t *testing.T, d *node, join []string) {
	t.Helper()
	out := want(t, exitOK, []string{"deployment.apps/clusterset-controller -n clusterset-system unchanged"},
		append(slices.Clone(join), "--wait=false")...)
	if strings.Contains(out, " updated") || strings.Contains(out, " created") {
		t.Errorf("a second join printed\n%s\nwant nothing changed", out)
	}
	out = want(t, exitOK, []string{"deployment.apps/clusterset-controller -n clusterset-system updated (server dry run)",
		"-        - --vip=derived", "+        - --vip=none"}, append(slices.Clone(join), "--diff", "--vip=none")...)
	showsNoToken(t, d, out)
	const theirs = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: clusterset-dns, namespace: clusterset-system, labels: {app.kubernetes.io/managed-by: Helm}}\n"
	o, err := controlplane.ParseYAML([]byte(theirs))
	must(t, err)
	_, err = d.Dynamic().Resource(schema.GroupVersionResource{Group: "apps", Version: "v1",
		Resource: "deployments"}).Namespace(system).
		Apply(t.Context(), "clusterset-dns", o[0].(*unstructured.Unstructured),
			metav1.ApplyOptions{FieldManager: "helm", Force: true})
	must(t, err)
	want(t, exitOK,
		[]string{"deployment.apps/clusterset-dns -n clusterset-system unchanged (installed by Helm, not by join)"},
		append(slices.Clone(join), "--wait=false", "--image=example.org/b:2", "--components=dns,wiring")...)
}

// leaveNothing: after leave and uninstall in all clusters and on the broker, each has the objects that it had before,
// and those of the test.
func leaveNothing(t *testing.T, hub *controlplane.ControlPlane, members []*node,
	before map[*controlplane.ControlPlane]map[string]bool) {
	t.Helper()
	broker := "--broker-kubeconfig=" + hub.Kubeconfig()
	hub.EndNamespacesT(t)
	for _, d := range members {
		want(t, exitOK, []string{"This cluster is no longer a member."}, "leave", broker, "--kubeconfig="+d.Kubeconfig())
	}
	for _, d := range members {
		d.stop() // its Pods end with the namespace of the controller
		d.pods.Wait()
		want(t, exitOK, []string{"Nothing of clusterset is left."}, "uninstall", "--delete-exports",
			"--kubeconfig="+d.Kubeconfig())
		nothingLeft(t, d.ControlPlane, before[d.ControlPlane], "shop", "installer", "clusterset-join-member", "verifier",
			"clusterset-verify")
	}
	want(t, exitOK, []string{"Nothing of clusterset is left."}, "broker", "uninstall", broker)
	nothingLeft(t, hub, before[hub], "installer", "clusterset-join-broker")
}
