//go:build traffic && linux

package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/clusterset-dns/clusterset/admin/verify"
	"github.com/clusterset-dns/clusterset/admin/verify/plan"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/test/harness/nodeenv"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A kubelet runs the Pods of "clusterset verify" as processes in the node, with the program and arguments that they
// have, and serves their logs to the API server.
type kubelet struct {
	*testing.T
	*member
	client corev1client.CoreV1Interface
	bin    string
	pods   sync.WaitGroup

	mu   sync.Mutex
	took int                      // Pods that it has taken
	logs map[string]*bytes.Buffer // by "<namespace>/<pod>"
}

// startKubelet runs until stop is called.
func startKubelet(t *testing.T, m *member, bin string) (stop func()) {
	t.Helper()
	client, err := corev1client.NewForConfig(m.Config())
	must(t, err)
	k := &kubelet{T: t, member: m, client: client, bin: bin, logs: map[string]*bytes.Buffer{}}
	logs := httptest.NewUnstartedServer(http.HandlerFunc(k.serveLog))
	logs.TLS, err = m.KubeletTLS()
	must(t, err)
	logs.StartTLS()
	_, port, err := net.SplitHostPort(logs.Listener.Addr().String())
	must(t, err)
	_, err = m.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}).Patch(t.Context(),
		nodeName, "application/strategic-merge-patch+json", fmt.Appendf(nil,
			`{"status":{"addresses":[{"type":"Hostname","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%s}}}}`, port),
		metav1.PatchOptions{}, "status")
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	k.pods.Go(func() { k.run(ctx) })
	return func() {
		cancel()
		k.pods.Wait()
		logs.Close()
	}
}

func (k *kubelet) serveLog(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Path, "/containerLogs/")
	k.mu.Lock()
	defer k.mu.Unlock()
	log := k.logs[strings.TrimSuffix(name, "/verify")]
	if !ok || log == nil {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(log.Bytes())
}

// run takes new Pods, and ends the namespaces that are deleted.
func (k *kubelet) run(ctx context.Context) {
	of := metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=clusterset-verify"}
	for ctx.Err() == nil {
		all, err := k.client.Namespaces().List(ctx, of)
		for i := 0; err == nil && i < len(all.Items); i++ {
			if n := &all.Items[i]; n.DeletionTimestamp != nil {
				n.Spec.Finalizers = nil
				_, err = k.client.Namespaces().Finalize(ctx, n, metav1.UpdateOptions{})
				continue
			}
			err = errors.Join(k.take(ctx, all.Items[i].Name), k.balance(ctx, all.Items[i].Name))
		}
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			k.Error(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (k *kubelet) take(ctx context.Context, namespace string) error {
	all, err := k.client.Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range all.Items {
		p := &all.Items[i]
		if p.Spec.NodeName != "" {
			continue
		}
		err := k.client.Pods(namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: namespace},
			Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		k.pods.Go(func() {
			if err := k.start(ctx, p); err != nil && ctx.Err() == nil {
				k.Errorf("Pod %s/%s: %v", p.Namespace, p.Name, err)
			}
		})
	}
	return nil
}

// balance gives the addresses of the member's load balancers to Services that need some.
func (k *kubelet) balance(ctx context.Context, namespace string) error {
	all, err := k.client.Services(namespace).List(ctx, metav1.ListOptions{})
	for i := 0; err == nil && i < len(all.Items); i++ {
		if s := &all.Items[i]; s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 {
			s.Status.LoadBalancer.Ingress = ingress(balancers[k.ID]...)
			_, err = k.client.Services(namespace).UpdateStatus(ctx, s, metav1.UpdateOptions{})
		}
	}
	return err
}

// start runs a Pod. It is ready when it prints that it listens, and has succeeded when it ends.
func (k *kubelet) start(ctx context.Context, p *corev1.Pod) error {
	k.mu.Lock()
	k.took++
	var addresses []string
	for _, prefix := range k.Node.Pods {
		addresses = append(addresses, nodeenv.Nth(prefix, 200+k.took).String())
	}
	k.mu.Unlock()
	for _, a := range addresses { // an IPv6 address that is local by its route alone cannot be listened at
		ip, err := subprocess.Start(k.Node.Command(subprocess.Command{Bin: "ip",
			Args: []string{"address", "add", a, "dev", "lo", "nodad"}}))
		if err == nil {
			err = ip.Wait(ctx)
		}
		if err != nil {
			return err
		}
	}
	c := p.Spec.Containers[0]
	args := append(append([]string{}, c.Command[1:]...), c.Args...)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$(POD_IPS)", strings.Join(addresses, ","))
	}
	process, err := subprocess.Start(k.Node.Command(subprocess.Command{Bin: k.bin, Args: args}))
	if err != nil {
		return err
	}
	defer process.Stop(until.Patience)
	for !strings.HasPrefix(process.Out.String(), "listening at ") {
		select {
		case <-ctx.Done():
			return nil
		case <-process.Done():
			k.mu.Lock()
			k.logs[p.Namespace+"/"+p.Name] = bytes.NewBufferString(process.Out.String())
			k.mu.Unlock()
			phase := corev1.PodSucceeded
			if process.Err() != nil {
				phase = corev1.PodFailed
			}
			return k.report(ctx, p, addresses, phase)
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err := k.report(ctx, p, addresses, corev1.PodRunning); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (k *kubelet) report(ctx context.Context, p *corev1.Pod, addresses []string, phase corev1.PodPhase) error {
	now, err := k.client.Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	ready := corev1.ConditionFalse
	if phase == corev1.PodRunning {
		ready = corev1.ConditionTrue
	}
	now.Status = corev1.PodStatus{
		Phase: phase, PodIP: addresses[0], Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
	}
	for _, a := range addresses {
		now.Status.PodIPs = append(now.Status.PodIPs, corev1.PodIP{IP: a})
	}
	_, err = k.client.Pods(p.Namespace).UpdateStatus(ctx, now, metav1.UpdateOptions{})
	return err
}

// verifier returns a function that runs clusterset verify, with Pods that are its program.
func (c *clusterset) verifier(t *testing.T) (run func(timeout time.Duration) plan.Report) {
	t.Helper()
	bin, err := server.Program(t.Context(), "clusterset")
	must(t, err)
	var clusters []verify.Member
	for _, m := range c.members() {
		t.Cleanup(startKubelet(t, m, bin))
		clusters = append(clusters, verify.Member{Name: m.ID, Config: m.Config(), DNSServer: dnsServer})
	}
	return func(timeout time.Duration) plan.Report {
		o := verify.Defaults()
		o.Image, o.Timeout, o.Progress = "none.invalid/none", timeout, func(what string) { t.Log(what) }
		report, err := verify.Run(t.Context(), clusters, o)
		must(t, err)
		if len(report.Left) > 0 {
			t.Errorf("left %q", report.Left)
		}
		return report
	}
}

// verified: clusterset verify finds that everything works, in both families, and where packets are lost.
func (c *clusterset) verified(t *testing.T) {
	run := c.verifier(t)
	everythingWorks(t, run(until.Patience))
	for step, code := range map[plan.Step]reason.Code{plan.TCP: reason.NetworkTCP, plan.UDP: reason.NetworkUDP} {
		c.lost(t, step, code, run)
	}
}

func everythingWorks(t *testing.T, report plan.Report) {
	t.Helper()
	if report.Verdict.Code != reason.Verified {
		t.Errorf("verdict %+v", report.Verdict)
	}
	connected := map[string]int{}
	for _, check := range report.Checks {
		if check.Mark != plan.OK {
			t.Errorf("%+v: want it to work", check)
		}
		if check.Step == plan.TCP || check.Step == plan.UDP {
			connected[fmt.Sprint(check.Kind, " ", check.Family, " ", check.Step)]++
		}
	}
	if len(connected) != 8 {
		t.Errorf("connected by %v, want each of two kinds in both families by TCP and UDP", connected)
	}
}

// lost: packets of one protocol that do not arrive at the Pods of east are a fault of the network, from east to west
// alone.
func (c *clusterset) lost(t *testing.T, step plan.Step, code reason.Code,
	run func(timeout time.Duration) plan.Report) {
	c.east.nft(t, fmt.Sprintf(
		"add table inet lost; add chain inet lost in { type filter hook input priority 0; }; add rule inet lost in %s dport 8080 drop",
		strings.ToLower(string(step))))
	defer c.east.nft(t, "delete table inet lost")
	// With little time, since each check that fails takes all of it; on a slow machine a later run has more.
	timeout := 5 * time.Second
	until.OK(t, fmt.Sprintf("what is lost is %s from east", step), func(context.Context) error {
		report := run(timeout)
		timeout *= 2
		v := report.Verdict
		if v.Code != code || v.Layer != plan.LayerNetwork || v.From != c.east.ID || v.To != c.west.ID {
			return fmt.Errorf("verdict %+v, want %s from %s to %s", v, code, c.east.ID, c.west.ID)
		}
		failed := 0
		for _, check := range report.Checks {
			if isLost := check.Step == step && check.From == c.east.ID; isLost != (check.Mark == plan.Failed) {
				return fmt.Errorf("%+v: want no other check to fail than %s from %s", check, step, c.east.ID)
			} else if isLost {
				failed++
			}
		}
		if failed != 4 {
			return fmt.Errorf("%d checks failed, want each of two kinds in both families", failed)
		}
		return nil
	})
}

// nft changes the packet filter of the node.
func (m *member) nft(t *testing.T, commands string) {
	t.Helper()
	p, err := subprocess.Start(m.Node.Command(subprocess.Command{Bin: "nft", Args: []string{commands}}))
	must(t, err)
	must(t, p.Wait(t.Context()))
}
