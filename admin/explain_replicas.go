package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/admin/explain"
)

var podProxy = schema.GroupVersionResource{Version: "v1", Resource: "pods/proxy"}

// replicaPause is the time after which replicas that differ are read again: a change reaches each of them at another
// moment.
const replicaPause = 500 * time.Millisecond

// readReplicas reads the state of the Pods behind the Service of the DNS server. Absent means that there is no such
// Service.
func readReplicas(ctx context.Context, c *cluster, o ExplainOptions) explain.Read[explain.Replicas] {
	if o.DNSNamespace == "" {
		return explain.Read[explain.Replicas]{}
	}
	unread := func(state explain.State, why string) explain.Read[explain.Replicas] {
		return explain.Read[explain.Replicas]{State: state, Why: why}
	}
	service := readOne[corev1.Service](ctx, c, services, o.DNSService.Namespace, o.DNSService.Name)
	if service.State != explain.Present {
		return unread(service.State, service.Why)
	}
	if len(service.Value.Spec.Selector) == 0 {
		return unread(explain.Absent, "")
	}
	running, _ := readList[corev1.Pod](ctx, c, pods, o.DNSService.Namespace,
		metav1.ListOptions{LabelSelector: labels.SelectorFromSet(service.Value.Spec.Selector).String()})
	if running.State != explain.Present {
		return unread(running.State, running.Why)
	}
	first := readHashes(ctx, c, running.Value)
	if first.State != explain.Present || !first.Value.Differ() {
		return first
	}
	select {
	case <-ctx.Done():
		return first
	case <-time.After(replicaPause):
	}
	second := readHashes(ctx, c, running.Value)
	second.Value.Changed = !slices.EqualFunc(first.Value.All, second.Value.All,
		func(a, b explain.Replica) bool { return maps.Equal(a.Hashes, b.Hashes) })
	return second
}

// readHashes asks all running Pods at once, through the API server.
func readHashes(ctx context.Context, c *cluster, pods []corev1.Pod) explain.Read[explain.Replicas] {
	found := explain.Read[explain.Replicas]{State: explain.Present}
	reads := make([]explain.Read[explain.Replica], len(pods))
	var all []func()
	for i := range pods {
		if pods[i].Status.Phase == corev1.PodRunning && pods[i].DeletionTimestamp == nil {
			all = append(all, func() { reads[i] = readHash(ctx, c, &pods[i]) })
		}
	}
	parallel(all...)()
	for _, one := range reads {
		switch one.State {
		case explain.NotAsked:
		case explain.Present:
			found.Value.All = append(found.Value.All, one.Value)
		default:
			return explain.Read[explain.Replicas]{State: one.State, Why: one.Why}
		}
	}
	return found
}

func readHash(ctx context.Context, c *cluster, pod *corev1.Pod) explain.Read[explain.Replica] {
	port := metricsPort(pod)
	if port == "" {
		return explain.Read[explain.Replica]{}
	}
	text, err := c.core.Pods(pod.Namespace).ProxyGet("http", pod.Name, port, "/metrics", nil).DoRaw(ctx)
	if err != nil {
		read := unread[explain.Replica](c, err, "get", podProxy, pod.Namespace)
		if read.State == explain.Absent || read.State == explain.NotInstalled {
			read = explain.Read[explain.Replica]{} // the Pod is gone, or has no metrics
		}
		return read
	}
	return explain.Read[explain.Replica]{State: explain.Present,
		Value: explain.Replica{Name: pod.Name, Hashes: explain.ParseHashes(string(text))}}
}

// metricsPort returns the port that is named after the metrics, "" if no port is.
func metricsPort(pod *corev1.Pod) string {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if strings.HasSuffix(p.Name, "metrics") {
				return fmt.Sprint(p.ContainerPort)
			}
		}
	}
	return ""
}
