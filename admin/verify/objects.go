package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/verify/plan"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// annotationUntil on a namespace of [Run] is the time, in RFC 3339, until which its run may go on.
const annotationUntil = "clusterset-dns.io/verify-until"

const (
	podPort = 8080
	podApp  = "clusterset-verify"
)

var createOptions = metav1.CreateOptions{FieldManager: wellknown.ManagerVerify}

// createObjects creates the namespaces and Pods.
func (v *verifier) createObjects(ctx context.Context) error {
	until := time.Now().Add(v.maxDuration()).UTC().Format(time.RFC3339)
	return v.forEachMember(func(m *verifiedMember) error {
		namespace, err := m.Core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: v.namespace, Annotations: map[string]string{annotationUntil: until},
			Labels: map[string]string{broker.LabelManagedBy: wellknown.ManagerVerify,
				"pod-security.kubernetes.io/enforce": "restricted"},
		}}, createOptions)
		if err != nil {
			return err
		}
		m.created = namespace.UID
		if !v.options.Pods {
			return nil
		}
		return v.createPod(ctx, m, m.server(v.namespace))
	})
}

func (m *verifiedMember) service(kind plan.ServiceKind) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: m.serviceName(kind)},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": podApp}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack),
			Ports: []corev1.ServicePort{
				{Name: "tcp", Port: podPort, TargetPort: intstr.FromInt32(podPort), Protocol: corev1.ProtocolTCP},
				{Name: "udp", Port: podPort, TargetPort: intstr.FromInt32(podPort), Protocol: corev1.ProtocolUDP},
			},
		},
	}
	switch {
	case kind == plan.Headless:
		s.Spec.ClusterIP = corev1.ClusterIPNone
	case m.balanced:
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
	}
	return s
}

// replyText is the reply of the Pod of a member.
func (m *verifiedMember) replyText(namespace string) string { return namespace + " " + m.clusterID }

// server is the Pod behind both Services of a member.
func (m *verifiedMember) server(namespace string) *corev1.Pod {
	p := m.pod("serve", "serve", "--address=$(POD_IPS)", fmt.Sprintf("--port=%d", podPort),
		"--say="+m.replyText(namespace))
	p.Labels = map[string]string{"app": podApp}
	p.Spec.Hostname, p.Spec.Subdomain = m.host(), m.serviceName(plan.Headless)
	p.Spec.Containers[0].Env = []corev1.EnvVar{{
		Name: "POD_IPS", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIPs"}},
	}}
	p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(
			podPort)}},
	}
	return p
}

// pod runs "clusterset verify-pod" with these arguments, within the restricted Pod Security Standard.
func (m *verifiedMember) pod(name string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "verify", Image: m.image, Command: []string{"/clusterset", "verify-pod"}, Args: args,
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
				}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}

// createPod tries again while the ServiceAccount of a new namespace does not exist yet.
func (v *verifier) createPod(ctx context.Context, m *verifiedMember, p *corev1.Pod) error {
	var fatal error
	err := v.await(ctx, func(ctx context.Context) error {
		_, err := m.Core.Pods(v.namespace).Create(ctx, p, createOptions)
		if err != nil && !strings.Contains(err.Error(), "error looking up service account") {
			fatal, err = err, nil
		}
		return err
	})
	return errors.Join(fatal, err)
}

// awaitPods waits until the Pod of each member is ready. It notes why it is not: checks without Pods follow anyway.
func (v *verifier) awaitPods(ctx context.Context) error {
	if !v.options.Pods {
		return nil
	}
	v.progress("waiting for a Pod in each member")
	err := v.forEachMember(func(m *verifiedMember) error {
		err := v.await(ctx, func(ctx context.Context) error {
			return m.checkPod(ctx, v.namespace, "serve", read.PodReady)
		})
		if err != nil {
			m.podFault = m.Name + ": " + err.Error()
		}
		return ctx.Err()
	})
	v.forEachPath(func(from, to *verifiedMember, kind plan.ServiceKind) {
		if kind == plan.ClusterSetIP { // once for a pair
			v.addChecks(podCheck(from.Name, to.Name, cmp.Or(from.podFault, to.podFault)))
		}
	})
	return err
}

// checkPod returns why a Pod is not in a state.
func (m *verifiedMember) checkPod(ctx context.Context, namespace, name string, is func(*corev1.Pod) bool) error {
	switch p := read.One[corev1.Pod](ctx, m.Cluster, read.Pods, namespace, name); {
	case p.Value == nil:
		return errors.New("Pod " + name + ": " + cmp.Or(p.Why, "it does not exist"))
	case !is(p.Value):
		return errors.New(read.PodState(p.Value))
	}
	return nil
}

func podCheck(from, to, fault string) plan.Check {
	result := plan.Outcome{Evidence: "a Pod runs in both"}
	if fault != "" {
		result = plan.Outcome{Code: reason.PodsNotRunning, Evidence: fault}
	}
	return plan.Way{From: from, To: to}.Check(plan.Pods, result)
}
