package ask

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/logging"
)

var portForward = schema.GroupVersionResource{Version: "v1", Resource: "pods/portforward"}

// atOnce is the number of connections through the API server. A DaemonSet has as many Pods as there are Nodes.
const atOnce = 20

// timeForAll is enough for a few Pods that hang, and for many that are far away.
func timeForAll(q Question, pods int) time.Duration {
	return q.timeout() * time.Duration(5+pods/(4*atOnce))
}

// Service asks all ready Pods behind a Service of a DNS server over TCP. Each result has the role. A Service without a
// ready Pod is one server that does not reply. Pods that could not be listed are one server that was not asked, and so
// are all Pods for which no time was left. A Service without a selector has no Pods, and gives no server.
func Service(ctx context.Context, c *read.Cluster, q Question, service *corev1.Service,
	role cause.Role) []cause.Server {
	if len(service.Spec.Selector) == 0 {
		return nil
	}
	name := "service/" + service.Name
	found, _ := read.Many[corev1.Pod](ctx, c, read.Pods, service.Namespace,
		metav1.ListOptions{LabelSelector: labels.SelectorFromSet(service.Spec.Selector).String()})
	if found.State != cause.Present {
		return []cause.Server{{Name: name, Role: role, Unread: found.Why}}
	}
	ready := slices.DeleteFunc(found.Value, func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil || !read.PodReady(&p)
	})
	if len(ready) == 0 {
		failure := fmt.Sprintf("Service %s/%s has no ready Pod", service.Namespace, service.Name)
		return []cause.Server{{Name: name, Role: role, Without: true, TCP: cause.Reply{Asked: true, Failure: failure}}}
	}
	ctx, cancel := context.WithTimeout(ctx, timeForAll(q, len(ready)))
	defer cancel()
	servers := make([]cause.Server, len(ready))
	var all errgroup.Group
	all.SetLimit(atOnce)
	for i := range ready {
		all.Go(func() error {
			servers[i] = askPod(ctx, c, q, &ready[i], podPort(service, &ready[i]))
			servers[i].Role = role
			return nil
		})
	}
	_ = all.Wait()
	servers = slices.DeleteFunc(servers, func(s cause.Server) bool { return s.Name == "" })
	if late := len(ready) - len(servers); late > 0 {
		servers = append(servers, cause.Server{Name: name, Role: role,
			Unread: fmt.Sprintf("no time was left to ask %d of %d Pods", late, len(ready))})
	}
	return servers
}

// podPort returns the port of a Pod that takes DNS over TCP.
func podPort(service *corev1.Service, pod *corev1.Pod) int {
	const standard = 53
	target, overTCP := intstr.FromInt32(standard), false
	for _, p := range service.Spec.Ports {
		if p.Port == standard && (p.Protocol == corev1.ProtocolTCP || !overTCP) {
			target, overTCP = p.TargetPort, p.Protocol == corev1.ProtocolTCP
		}
	}
	if target.Type == intstr.Int {
		if target.IntValue() == 0 {
			return standard
		}
		return target.IntValue()
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == target.StrVal {
				return int(p.ContainerPort)
			}
		}
	}
	return standard
}

// askPod returns a server without a name if ctx has ended before.
func askPod(ctx context.Context, c *read.Cluster, q Question, pod *corev1.Pod, port int) cause.Server {
	if ctx.Err() != nil {
		return cause.Server{}
	}
	s := cause.Server{Name: "pod/" + pod.Name}
	dialing, cancelDial := context.WithTimeout(ctx, q.timeout())
	defer cancelDial()
	conn, err := dial(dialing, c, pod, port)
	switch {
	case err != nil && dialing.Err() != nil:
		s.Unread = "the API server did not forward its port in time"
		return s
	case err != nil:
		s.Unread = cmp.Or(read.Unread[any](c, err, "create", portForward, pod.Namespace).Why,
			"the API server does not find the Pod, or does not forward its ports (404)")
		return s
	}
	answer, err := exchange(conn, q.message())
	if err != nil {
		failure := logging.Line(conn.reason(dialing, err))
		switch {
		case dialing.Err() != nil:
			failure = "no answer in time"
		case pod.Spec.HostNetwork && strings.Contains(failure, "refused"):
			s.Unread = "it refuses connections from the loopback address of its Node"
			return s
		}
		s.TCP = cause.Reply{Asked: true, Failure: fmt.Sprintf("tcp Pod %s/%s port %d: %s", pod.Namespace, pod.Name, port,
			failure)}
		return s
	}
	s.TCP = reply(answer)
	return s
}

func exchange(conn *stream, m *dns.Msg) (*dns.Msg, error) {
	c := dns.Conn{Conn: conn}
	if err := c.WriteMsg(m); err != nil {
		return nil, err
	}
	return c.ReadMsg()
}
