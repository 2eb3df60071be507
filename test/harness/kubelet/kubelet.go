// Package kubelet stands in for the kubelet of a Node: it forwards ports of Pods, as API servers ask it to.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// NodeName is the name of the Node.
const NodeName = "node"

// A Kubelet has Pods, each of which is a server on this machine. Its methods may be called from any goroutine.
type Kubelet struct {
	client kubernetes.Interface
	server *http.Server

	mu    sync.Mutex
	pods  map[string]string // addresses by "<namespace>/<name>"
	asked int
}

// Start makes the Node and serves the API server until Stop.
func Start(ctx context.Context, c *controlplane.ControlPlane) (*Kubelet, error) {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return nil, err
	}
	tlsConfig, err := c.KubeletTLS()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &Kubelet{client: client, pods: map[string]string{}}
	k.server = &http.Server{Handler: http.HandlerFunc(k.forward), TLSConfig: tlsConfig, ReadHeaderTimeout: time.Minute}
	port := int32(l.Addr().(*net.TCPAddr).Port)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName}, Status: corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "127.0.0.1"}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
	}}
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	go func() { _ = k.server.ServeTLS(l, "", "") }() // a failure shows as a failed request of the API server
	return k, nil
}

// Stop ends all connections.
func (k *Kubelet) Stop() error { return k.server.Close() }

// Asked returns the number of ports that were forwarded.
func (k *Kubelet) Asked() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked
}

// Run makes a ready Pod with labels; each of its ports is the server at the address. Another call changes the address.
func (k *Kubelet) Run(ctx context.Context, namespace, name string, labels map[string]string, address string) error {
	k.mu.Lock()
	_, exists := k.pods[namespace+"/"+name]
	k.pods[namespace+"/"+name] = address
	k.mu.Unlock()
	if exists {
		return nil
	}
	pods := k.client.CoreV1().Pods(namespace)
	pod, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PodSpec{NodeName: NodeName, Containers: []corev1.Container{{Name: "dns", Image: "none",
			Ports: []corev1.ContainerPort{{Name: "dns", ContainerPort: 53}, {Name: "dns-tcp", ContainerPort: 53}},
			SecurityContext: &corev1.SecurityContext{ // the standard "restricted", which some namespaces enforce
				AllowPrivilegeEscalation: new(false), RunAsNonRoot: new(true),
				Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// forward serves /portForward/<namespace>/<pod>.
func (k *Kubelet) forward(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	address, ok := k.pods[strings.TrimPrefix(r.URL.Path, "/portForward/")]
	k.asked++
	k.mu.Unlock()
	if !ok {
		http.Error(w, r.URL.Path+": no such Pod runs here", http.StatusNotFound)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return // it has answered
	}
	opened := make(chan httpstream.Stream, 2)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		select {
		case opened <- s:
			return nil
		default:
			return errors.New("want one port only")
		}
	})
	if conn == nil {
		return // it has answered
	}
	defer conn.Close()
	streams := map[string]httpstream.Stream{}
	for len(streams) < 2 {
		select {
		case s := <-opened:
			streams[s.Headers().Get(corev1.StreamType)] = s
		case <-conn.CloseChan():
			return
		}
	}
	connect(address, streams[corev1.StreamTypeData], streams[corev1.StreamTypeError])
	<-conn.CloseChan() // by the client, when it has read all
}

// connect copies between a stream and a server until one of them ends.
func connect(address string, data, problem httpstream.Stream) {
	defer problem.Close()
	to, err := net.Dial("tcp", address)
	if err != nil {
		_, _ = fmt.Fprintf(problem, "error forwarding port: %v", err)
		_ = data.Close()
		return
	}
	go func() {
		_, _ = io.Copy(to, data)
		_ = to.Close()
	}()
	_, _ = io.Copy(data, to)
	_ = data.Close()
	_ = to.Close()
}
