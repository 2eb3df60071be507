package wiring

import (
	"fmt"
	"reflect"
	"testing"
)

// kubelets is the ConfigMap of kubeadm with a "clusterDNS".
const kubelets = `
apiVersion: v1
kind: ConfigMap
metadata: {name: kubelet-config, namespace: kube-system}
data:
  kubelet: |
    apiVersion: kubelet.config.k8s.io/v1beta1
    kind: KubeletConfiguration
    clusterDNS: [%s]
`

func TestKubelet(t *testing.T) {
	for _, tt := range []struct {
		name, manifest, clusterDNS string
		want                       Kubelet
	}{
		{"the Service", "kubeadm.yaml", "10.96.0.10", Kubelet{Addresses: []string{"10.96.0.10"}}},
		{"the node cache", "nodelocal.yaml", "169.254.20.10", Kubelet{Addresses: []string{"169.254.20.10"}}},
		{"no node cache", "kubeadm.yaml", "169.254.20.10", Kubelet{Addresses: []string{"169.254.20.10"},
			Unknown: []string{"169.254.20.10"}}},
		{"one of two", "kubeadm.yaml", "10.96.0.10, 10.0.0.10",
			Kubelet{Addresses: []string{"10.96.0.10", "10.0.0.10"}, Unknown: []string{"10.0.0.10"}}},
		{"not understood", "kubeadm.yaml", "[", Kubelet{}},
	} {
		o := load(t, tt.manifest)
		o.ConfigMaps = append(o.ConfigMaps, parse(t, fmt.Sprintf(kubelets, tt.clusterDNS)).ConfigMaps...)
		if got := o.Kubelet(); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: Kubelet() = %+v, want %+v", tt.name, got, tt.want)
		}
	}
	if got := load(t, "kubeadm.yaml").Kubelet(); !reflect.DeepEqual(got, Kubelet{}) {
		t.Errorf("without the ConfigMap Kubelet() = %+v, want nothing", got)
	}
}
