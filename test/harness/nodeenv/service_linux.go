package nodeenv

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A Service is what a cluster offers.
type Service struct {
	Name     string
	Headless bool
	Ports    map[string]int32 // by name; Pods listen 8,000 above
	Pods     int
}

// PodPort is where the Pods listen for a port of their Service, which shows that kube-proxy translates.
func PodPort(port int32) int32 { return 8000 + port }

// Offer creates the Service and its Pods, which are ready at once, and returns their addresses.
func (c *Cluster) Offer(ctx context.Context, s Service) (pods []netip.Addr, err error) {
	if err := c.Apply(ctx, s.Object()); err != nil {
		return nil, err
	}
	for _, port := range s.Ports {
		if err := c.serve(int(PodPort(port))); err != nil {
			return nil, err
		}
	}
	for i := range s.Pods {
		c.pods++
		var addresses []netip.Addr
		for _, p := range c.Node.Pods {
			addresses = append(addresses, Nth(p, c.pods))
		}
		if err := c.Apply(ctx, s.Pod(i, addresses)); err != nil {
			return nil, err
		}
		pods = append(pods, addresses...)
	}
	return pods, nil
}

// serve makes the Pods listen, if they do not yet.
func (c *Cluster) serve(port int) error {
	if c.served[port] {
		return nil
	}
	c.served[port] = true
	return c.Node.Serve(port)
}

// Nth returns an address in the network.
func Nth(p netip.Prefix, n int) netip.Addr {
	b := p.Addr().AsSlice()
	b[len(b)-1] = byte(n)
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Object returns the Service, with addresses of both families.
func (s Service) Object() *corev1.Service {
	dual := corev1.IPFamilyPolicyRequireDualStack
	object := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: Namespace},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": s.Name}, IPFamilyPolicy: &dual},
	}
	if s.Headless {
		object.Spec.ClusterIP = corev1.ClusterIPNone
	}
	for _, name := range slices.Sorted(maps.Keys(s.Ports)) {
		port := s.Ports[name]
		object.Spec.Ports = append(object.Spec.Ports, corev1.ServicePort{
			Name: name, Protocol: corev1.ProtocolTCP, Port: port, TargetPort: intstr.FromInt32(PodPort(port)),
		})
	}
	return object
}

// Pod returns one as of a StatefulSet of the Service's name, ready, with the status that a kubelet gives it.
func (s Service) Pod(i int, addresses []netip.Addr) *corev1.Pod {
	name := fmt.Sprintf("%s-%d", s.Name, i)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: map[string]string{"app": s.Name}},
		Spec: corev1.PodSpec{
			NodeName: NodeName, Hostname: name, Subdomain: s.Name,
			Containers: []corev1.Container{{Name: "main", Image: "none.invalid/none"}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: addresses[0].String(),
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, a := range addresses {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	return pod
}
