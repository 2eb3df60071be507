package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/clusterset-dns/clusterset/test/harness/netns"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

// A kubelet stands in for the scheduler and the kubelet of a cluster with one node. Each Pod goes through
//
//	created -> bound to the node -> Running and ready, with addresses -> deleted
//
// and has no process: one listener in the node answers at port 42 for all of them. What the API server asks of a
// kubelet, only "exec" of [kubelet.exec], runs in the node.
type kubelet struct {
	client kubernetes.Interface
	member *testclusterset.Member
	node   *netns.Node
	server *http.Server

	running sync.WaitGroup
	end     context.CancelFunc

	mu      sync.Mutex // guards what follows
	pods    map[string]*corev1.Pod
	given   int // addresses, of each family
	problem error
}

// nodeName is the one node of each cluster.
const nodeName = "node"

// port is where the Pods of the suite answer.
const port = 42

func newKubelet(client kubernetes.Interface, m *testclusterset.Member, node *netns.Node) *kubelet {
	return &kubelet{client: client, member: m, node: node, pods: map[string]*corev1.Pod{}}
}

// start runs Pods, and serves the API server at l, until stop is called.
func (k *kubelet) start(ctx context.Context, l net.Listener) error {
	// ctx bounds the start only.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	k.end = cancel
	k.running.Go(func() {
		if err := k.server.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
			k.fail(err)
		}
	})
	k.running.Go(func() { k.run(ctx) })
	return k.node.Listen(fmt.Sprintf(":%d", port), k.greet)
}

func (k *kubelet) stop() error {
	if k.end == nil {
		return nil
	}
	k.end()
	err := k.server.Close()
	k.running.Wait()
	return err
}

func (k *kubelet) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.problem = errors.Join(k.problem, fmt.Errorf("kubelet of %s: %w", k.member.ID, err))
}

func (k *kubelet) failed() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.problem
}

// greet answers as a Pod of the suite: with its first address, whichever was asked.
func (k *kubelet) greet(conn net.Conn) {
	local := conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().String()
	k.mu.Lock()
	var first string
	for _, p := range k.pods {
		for _, a := range p.Status.PodIPs {
			if a.IP == local {
				first = p.Status.PodIP
			}
		}
	}
	k.mu.Unlock()
	if first == "" {
		return // No Pod: the client sees that the connection ends.
	}
	// What is not read when a connection is closed makes the client lose the answer.
	if _, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
		_, _ = fmt.Fprintf(conn, "pod ip %s\n", first) // The client sees if it is missing.
	}
}

// run moves all Pods on until ctx ends. It looks again and again, which also repeats what has failed.
func (k *kubelet) run(ctx context.Context) {
	for ctx.Err() == nil {
		all, err := k.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		for i := 0; err == nil && i < len(all.Items); i++ {
			err = k.move(ctx, &all.Items[i])
		}
		if err == nil {
			k.forget(all.Items)
		} else if ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			k.fail(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// move takes a Pod one step further.
func (k *kubelet) move(ctx context.Context, p *corev1.Pod) error {
	pods := k.client.CoreV1().Pods(p.Namespace)
	switch {
	case p.DeletionTimestamp != nil:
		return pods.Delete(ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(p.UID)),
		})
	case p.Spec.NodeName == "":
		return pods.Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName},
		}, metav1.CreateOptions{})
	case p.Status.Phase == corev1.PodRunning:
		k.mu.Lock()
		defer k.mu.Unlock()
		k.pods[p.Namespace+"/"+p.Name] = p
		return nil
	}
	if err := k.writeResolvConf(p.Namespace); err != nil {
		return err
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.PodIPs = k.addresses()
	p.Status.PodIP = p.Status.PodIPs[0].IP
	now := metav1.Now()
	p.Status.StartTime = &now
	p.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: now},
		{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
	}
	_, err := pods.UpdateStatus(ctx, p, metav1.UpdateOptions{})
	return err
}

// addresses are new ones of both families.
func (k *kubelet) addresses() []corev1.PodIP {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.given++
	return []corev1.PodIP{
		{IP: k.member.PodIP(k.given, corev1.IPv4Protocol)}, {IP: k.member.PodIP(k.given, corev1.IPv6Protocol)},
	}
}

// forget drops the Pods that are gone.
func (k *kubelet) forget(left []corev1.Pod) {
	uids := map[string]bool{}
	for i := range left {
		uids[string(left[i].UID)] = true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, p := range k.pods {
		if !uids[string(p.UID)] {
			delete(k.pods, key)
		}
	}
}

// dnsServer is the address of the cluster's DNS server in each node.
const dnsServer = "127.0.0.1"

// resolvConf is the file with the DNS configuration of the Pods of a namespace.
func (k *kubelet) resolvConf(namespace string) string {
	return filepath.Join(filepath.Dir(k.member.Kubeconfig()), "resolv."+namespace+".conf")
}

// writeResolvConf writes the DNS configuration that a kubelet gives to Pods of a namespace.
func (k *kubelet) writeResolvConf(namespace string) error {
	text := fmt.Sprintf("search %s.svc.cluster.local svc.cluster.local cluster.local\nnameserver %s\noptions ndots:5\n",
		namespace, dnsServer)
	return os.WriteFile(k.resolvConf(namespace), []byte(text), 0o600)
}
