package explain

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

	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/admin/read"
)

var podProxy = schema.GroupVersionResource{Version: "v1", Resource: "pods/proxy"}

// replicaPause is the time after which replicas that differ are read again: a change reaches each of them at another
// moment.
const replicaPause = 500 * time.Millisecond

// readReplicas reads the state of the Pods behind the Service of the DNS server. Absent means that there is no such
// Service.
func readReplicas(ctx context.Context, c *read.Cluster, o Options) cause.Read[cause.Replicas] {
	if o.DNSNamespace == "" {
		return cause.Read[cause.Replicas]{}
	}
	unread := func(state cause.ReadState, why string) cause.Read[cause.Replicas] {
		return cause.Read[cause.Replicas]{State: state, Why: why}
	}
	service := read.One[corev1.Service](ctx, c, read.Services, o.DNSService.Namespace, o.DNSService.Name)
	if service.State != cause.Present {
		return unread(service.State, service.Why)
	}
	if len(service.Value.Spec.Selector) == 0 {
		return unread(cause.Absent, "")
	}
	running, _ := read.Many[corev1.Pod](ctx, c, read.Pods, o.DNSService.Namespace,
		metav1.ListOptions{LabelSelector: labels.SelectorFromSet(service.Value.Spec.Selector).String()})
	if running.State != cause.Present {
		return unread(running.State, running.Why)
	}
	first := readHashes(ctx, c, running.Value)
	if first.State != cause.Present || !first.Value.Differ() {
		return first
	}
	select {
	case <-ctx.Done():
		return first
	case <-time.After(replicaPause):
	}
	second := readHashes(ctx, c, running.Value)
	second.Value.Changed = !slices.EqualFunc(first.Value.All, second.Value.All,
		func(a, b cause.Replica) bool { return maps.Equal(a.Hashes, b.Hashes) })
	return second
}

// readHashes asks all running Pods at once, through the API server.
func readHashes(ctx context.Context, c *read.Cluster, pods []corev1.Pod) cause.Read[cause.Replicas] {
	found := cause.Read[cause.Replicas]{State: cause.Present}
	reads := make([]cause.Read[cause.Replica], len(pods))
	var all []func()
	for i := range pods {
		if pods[i].Status.Phase == corev1.PodRunning && pods[i].DeletionTimestamp == nil {
			all = append(all, func() { reads[i] = readHash(ctx, c, &pods[i]) })
		}
	}
	read.Parallel(all...)()
	for _, one := range reads {
		switch one.State {
		case cause.NotAsked:
		case cause.Present:
			found.Value.All = append(found.Value.All, one.Value)
		default:
			return cause.Read[cause.Replicas]{State: one.State, Why: one.Why}
		}
	}
	return found
}

func readHash(ctx context.Context, c *read.Cluster, pod *corev1.Pod) cause.Read[cause.Replica] {
	port := metricsPort(pod)
	if port == "" {
		return cause.Read[cause.Replica]{}
	}
	text, err := c.Core.Pods(pod.Namespace).ProxyGet("http", pod.Name, port, "/metrics", nil).DoRaw(ctx)
	if err != nil {
		read := read.Unread[cause.Replica](c, err, "get", podProxy, pod.Namespace)
		if read.State == cause.Absent || read.State == cause.NotInstalled {
			read = cause.Read[cause.Replica]{} // the Pod is gone, or has no metrics
		}
		return read
	}
	return cause.Read[cause.Replica]{State: cause.Present,
		Value: cause.Replica{Name: pod.Name, Hashes: cause.ParseHashes(string(text))}}
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
