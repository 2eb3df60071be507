package wiring

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// kubeletConfig is the ConfigMap in kube-system from which kubeadm configures the kubelets of all Nodes. A Node may
// have a configuration of its own.
const kubeletConfig = "kubelet-config"

// A Kubelet is what kubelets write into the resolv.conf of Pods.
type Kubelet struct {
	Addresses []string // "clusterDNS" of ConfigMap kubelet-config; empty if there is none, or it is not understood
	Unknown   []string // those of them that are neither of a Service with port 53 nor of a node cache
}

// Kubelet finds which DNS servers the kubelets have Pods ask.
func (o Objects) Kubelet() (k Kubelet) {
	cm := o.configMap(kubeletConfig)
	if cm == nil || cm.GetNamespace() != "kube-system" {
		return Kubelet{}
	}
	text, _, _ := unstructured.NestedString(cm.Object, "data", "kubelet")
	var config struct {
		ClusterDNS []string `json:"clusterDNS"`
	}
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		return Kubelet{}
	}
	k.Addresses = config.ClusterDNS
	served := o.servedAddresses()
	for _, a := range k.Addresses {
		if !slices.Contains(served, a) {
			k.Unknown = append(k.Unknown, a)
		}
	}
	return k
}

// servedAddresses returns the addresses of all DNS servers: those of Services with port 53, and those at which node
// caches listen.
func (o Objects) servedAddresses() (all []string) {
	for i := range o.Services {
		s := &o.Services[i].Spec
		if slices.ContainsFunc(s.Ports, func(p corev1.ServicePort) bool { return p.Port == 53 }) {
			all = append(all, cmp.Or(strings.Join(s.ClusterIPs, ","), s.ClusterIP))
		}
	}
	for i := range o.DaemonSets {
		d := workload{"daemonset", &o.DaemonSets[i].ObjectMeta, &o.DaemonSets[i].Spec.Template}
		if c := d.nodeCache(); c != nil {
			listens, _ := argument(c, "localip")
			all = append(all, listens)
		}
	}
	return strings.Split(strings.Join(all, ","), ",")
}
