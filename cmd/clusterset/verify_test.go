package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterset-dns/clusterset/admin/verify/plan"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// leaves fails if a run has left a namespace.
func (d *node) leaves(t *testing.T, want ...string) {
	t.Helper()
	all, err := d.Dynamic().Resource(namespaces).List(t.Context(),
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=clusterset-verify"})
	must(t, err)
	var got []string
	for _, n := range all.Items {
		got = append(got, n.GetName())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("namespaces of runs: %q, want %q", got, want)
	}
}

// merged returns a kubeconfig with the contexts east and west, of a user in each.
func merged(t *testing.T, east, west string) string {
	t.Helper()
	all := clientcmdapi.NewConfig()
	for name, file := range map[string]string{"east": east, "west": west} {
		c, err := clientcmd.LoadFromFile(file)
		must(t, err)
		of := c.Contexts[c.CurrentContext]
		all.Clusters[name], all.AuthInfos[name] = c.Clusters[of.Cluster], c.AuthInfos[of.AuthInfo]
		all.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*all, file))
	return file
}

const verifierBinding = `
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: verifier}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: clusterset-verify}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: verifier}]
`

// verifies checks two members with the rights that deploy/verify grants. Their controllers and DNS servers run. There
// is no kubelet. join is the command that joins east.
func verifies(t *testing.T, east, west *node, join []string) {
	manifest, err := os.ReadFile("../../deploy/verify/verify.yaml")
	must(t, err)
	var users []string
	for _, d := range []*node{east, west} {
		must(t, d.ApplyYAML(t.Context(), append(manifest, verifierBinding...)))
		user, err := d.UserKubeconfig("verifier")
		must(t, err)
		users = append(users, user)
	}
	verifier := merged(t, users[0], users[1])
	with := func(more ...string) []string {
		return append([]string{"verify", "--kubeconfig=" + verifier, "--context=east", "--contexts=west", "--timeout=3m"},
			more...)
	}
	stranger, err := east.UserKubeconfig("stranger")
	must(t, err)
	want(t, exitError,
		[]string{"error: verify: east: the right to get clusterproperties.about.k8s.io is missing; deploy/verify/verify.yaml"},
		"verify", "--kubeconfig="+merged(t, stranger, users[1]), "--context=east", "--contexts=west")
	want(t, exitError, []string{"error: verify: 1 members: want 2 or more (--contexts)"}, "verify",
		"--kubeconfig="+verifier, "--context=east")
	want(t, exitError, []string{`error: --contexts: context "wset" does not exist: want one of east, west`}, "verify",
		"--kubeconfig="+verifier, "--context=east", "--contexts=wset")
	want(t, exitError, []string{"error: --dns-server=north=10.0.0.1: want CONTEXT=ADDRESS[:PORT]"},
		with("--dns-server=north=10.0.0.1")...)

	// The rest of a killed run goes with the next one; parts of another run stay.
	east.leftover(t, "clusterset-verify-old", time.Now().Add(-time.Minute))
	west.leftover(t, "clusterset-verify-young", time.Now().Add(time.Hour))
	noPods := with("--no-pods", "--dns-server=east="+east.resolver, "--dns-server=west="+west.resolver)
	want(t, exitOK, []string{
		"removing namespace clusterset-verify-old, which an earlier run has left",
		"namespace clusterset-verify-young belongs to a run that may go on",
		"east   west   ClusterSetIP export", "verified: 16 checks of 2 pairs of members worked.",
	}, noPods...)
	east.leaves(t)
	west.leaves(t, "clusterset-verify-young")
	want(t, exitOK, nil, with("--cleanup")...)
	west.leaves(t)

	want(t, exitUnread, []string{"not-verified: ", "): no DNS server to ask in west (--dns-server)."},
		with("--no-pods", "--dns-server=east="+east.resolver)...)

	// With little time, so that nothing is waited for in vain; on a slow machine a later run has more.
	timeout := 3 * time.Second
	short := func(more ...string) []string {
		args := append([]string{"verify", "--kubeconfig=" + verifier, "--context=east", "--contexts=west",
			"--timeout=" + timeout.String()}, more...)
		timeout *= 2
		return args
	}
	until.OK(t, "no Pod runs, and the rest is checked", func(context.Context) error {
		_, out, errOut := command(t, short("-o=json")...)
		var report plan.Report
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			return fmt.Errorf("%w in\n%s%s", err, out, errOut)
		}
		if v := report.Verdict; v.Code != reason.PodsNotRunning || v.Layer != plan.LayerPods ||
			!strings.Contains(v.Sentence, "on no Node") ||
			!strings.Contains(out, "web-1 is exported") {
			return fmt.Errorf("%s%s, want %s, and the exports", out, errOut, reason.PodsNotRunning)
		}
		return nil
	})
	timeout = 3 * time.Second
	until.OK(t, "a name server that does not answer in west is a problem of DNS from east to west",
		func(context.Context) error {
			_, out, errOut := command(t, short("--no-pods", "--dns-server=west=127.0.0.1:1", "-o=junit")...)
			var suite junitSuite
			if err := xml.Unmarshal([]byte(out), &suite); err != nil {
				return fmt.Errorf("%w in\n%s%s", err, out, errOut)
			}
			var failed []string
			for _, c := range suite.Cases {
				if c.Failure != nil && strings.HasSuffix(c.Name, " dns") {
					failed = append(failed, c.Class+" "+c.Failure.Type)
				}
			}
			if got := strings.Join(failed, ", "); got != "east to west dns-unreachable" {
				return fmt.Errorf("failures of DNS %q in\n%s%s", got, out, errOut)
			}
			return nil
		})
	want(t, exitOK, nil, with("--cleanup")...)
	timeout = 3 * time.Second
	balances(t, east, join, short, noPods)
	timeout = 3 * time.Second
	findsStoppedController(t, west, short)
	interrupted(t, east, west, with())
	east.leaves(t)
	west.leaves(t)
}

// balances: the Service of a member that exports load balancers is one, which has to get an address. A join ends that.
func balances(t *testing.T, east *node, join []string, short func(more ...string) []string, noPods []string) {
	t.Helper()
	again := func(flags ...string) string {
		out := want(t, exitOK, nil, append(append(slices.Clone(join), "-o=json"), flags...)...)
		east.stopController()
		east.startController()
		return out
	}
	if out := again("--endpoints=load_balancer", "--load-balancer-cidr=192.0.2.0/24"); !strings.Contains(out, "loadBalancerCIDRs") {
		t.Errorf("join declared no network of load balancers:\n%s", out)
	}
	until.OK(t, "a load balancer without an address is the problem", func(context.Context) error {
		_, out, errOut := command(t, short("--no-pods", "-o=json")...)
		if !strings.Contains(out, "The load balancer of the Service has no address yet") {
			return fmt.Errorf("%s%s", out, errOut)
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	var addresses sync.WaitGroup
	addresses.Go(func() { east.giveAddress(ctx) })
	want(t, exitOK, []string{"east exports load balancers: ", "verified: 13 checks of 2 pairs of members worked."}, noPods...)
	cancel()
	addresses.Wait()
	if out := again("--endpoints=pod_ip", "--load-balancer-cidr=none"); strings.Contains(out, "loadBalancerCIDRs") {
		t.Errorf("join still declares a network of load balancers:\n%s", out)
	}
}

// giveAddress gives Services of type LoadBalancer an address until ctx ends, as the controller of a cloud does.
func (d *node) giveAddress(ctx context.Context) {
	client, err := corev1client.NewForConfig(d.Config())
	if err != nil {
		d.Error(err)
		return
	}
	for ctx.Err() == nil {
		all, err := client.Services("").List(ctx, metav1.ListOptions{})
		for i := 0; err == nil && i < len(all.Items); i++ {
			if s := &all.Items[i]; s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 {
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
				_, _ = client.Services(s.Namespace).UpdateStatus(ctx, s, metav1.UpdateOptions{}) // The next round tries again.
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// findsStoppedController: where no controller runs, the verdict names the controller, whatever fails after that.
func findsStoppedController(t *testing.T, west *node, short func(more ...string) []string) {
	t.Helper()
	west.stopController()
	until.OK(t, "without a controller in west, the controller is at fault", func(context.Context) error {
		_, out, errOut := command(t, short("--no-pods", "-o=json")...)
		var report plan.Report
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			return fmt.Errorf("%w in\n%s%s", err, out, errOut)
		}
		if v := report.Verdict; v.Layer != plan.LayerController || v.From != "west" {
			return fmt.Errorf("verdict %+v in\n%s%s, want the controller of west", v, out, errOut)
		}
		return nil
	})
	west.startController()
}

// leftover creates what a run that was killed has left.
func (d *node) leftover(t *testing.T, name string, until time.Time) {
	t.Helper()
	must(t, d.ApplyYAML(t.Context(), fmt.Appendf(nil, `
apiVersion: v1
kind: Namespace
metadata:
  name: %s
  labels: {app.kubernetes.io/managed-by: clusterset-verify}
  annotations: {clusterset-dns.io/verify-until: "%s"}
`, name, until.UTC().Format(time.RFC3339))))
}

// asProgram is the variable of the environment with which the test binary is the program clusterset.
const asProgram = "CLUSTERSET_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(controlplane.Main(m))
}

// interrupted sends SIGINT to the program, as Ctrl-C does, while it waits for Pods.
func interrupted(t *testing.T, east, west *node, args []string) {
	self, err := os.Executable()
	must(t, err)
	p, err := subprocess.Start(subprocess.Command{Bin: self, Args: args, Env: append(os.Environ(), asProgram+"=1")})
	must(t, err)
	defer p.Stop(until.Patience)
	for _, d := range []*node{east, west} {
		until.OK(t, "the Pod of a run", func(ctx context.Context) error {
			client, err := corev1client.NewForConfig(d.Config())
			must(t, err)
			var all *corev1.PodList
			if all, err = client.Pods("").List(ctx, metav1.ListOptions{LabelSelector: "app=clusterset-verify"}); err != nil {
				return err
			}
			for _, p := range all.Items {
				n, err := client.Namespaces().Get(ctx, p.Namespace, metav1.GetOptions{})
				if err == nil && n.DeletionTimestamp == nil {
					return nil
				}
			}
			return errors.New("it does not exist yet")
		})
	}
	must(t, p.Signal(os.Interrupt))
	select {
	case <-p.Done():
	case <-time.After(until.Patience):
		t.Fatalf("the program does not end after SIGINT\n%s", p.Out.String())
	}
	if code := p.State().ExitCode(); code != exitError || !strings.Contains(p.Out.String(), "error: interrupted: ") {
		t.Errorf("interrupted: exit code %d, want %d\n%s", code, exitError, p.Out.String())
	}
}
