package wiring

import (
	"cmp"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/version"
)

// A workload is a Deployment or a DaemonSet.
type workload struct {
	kind string // in lower case
	meta *metav1.ObjectMeta
	pod  *corev1.PodTemplateSpec
}

func (w workload) String() string { return w.kind + "/" + w.meta.Name }

func (o Objects) workloads() []workload {
	var all []workload
	for i := range o.Deployments {
		all = append(all, workload{"deployment", &o.Deployments[i].ObjectMeta, &o.Deployments[i].Spec.Template})
	}
	for i := range o.DaemonSets {
		all = append(all, workload{"daemonset", &o.DaemonSets[i].ObjectMeta, &o.DaemonSets[i].Spec.Template})
	}
	return all
}

// workloadBehind returns the workload with the Pods that a Service selects, or nil.
func (o Objects) workloadBehind(s *corev1.Service) *workload {
	if len(s.Spec.Selector) == 0 {
		return nil
	}
	for _, w := range o.workloads() {
		if labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(w.pod.Labels)) {
			return &w
		}
	}
	return nil
}

func (o Objects) configMap(name string) *unstructured.Unstructured {
	for _, c := range o.ConfigMaps {
		if c.GetName() == name {
			return c
		}
	}
	return nil
}

// A source is where a file of a container comes from.
type source struct {
	configMap, key string
	// subPath means that the file is mounted by itself: the kubelet never updates it.
	subPath bool
}

// file returns the ConfigMap and the key that a container sees as a file. A name with a wildcard gives a key with a
// wildcard.
func (w workload) file(c *corev1.Container, name string) (source, bool) {
	for _, m := range c.VolumeMounts {
		rest, below := strings.CutPrefix(name, strings.TrimSuffix(m.MountPath, "/")+"/")
		s := source{key: rest}
		switch {
		case m.MountPath == name && m.SubPath != "":
			s.key, s.subPath = m.SubPath, true
		case !below || m.SubPath != "":
			continue
		}
		for i := range w.pod.Spec.Volumes {
			if v := &w.pod.Spec.Volumes[i]; v.Name == m.Name && s.findConfigMap(v) {
				return s, true
			}
		}
	}
	return source{}, false
}

// findConfigMap finds the ConfigMap of a volume in which the file is, and reports whether there is one.
func (s *source) findConfigMap(v *corev1.Volume) bool {
	take := func(name string, items []corev1.KeyToPath) bool {
		s.configMap = name
		if len(items) == 0 {
			return !strings.Contains(s.key, "/")
		}
		for _, i := range items {
			if i.Path == s.key {
				s.key = i.Key
				return true
			}
		}
		return false
	}
	if v.ConfigMap != nil {
		return take(v.ConfigMap.Name, v.ConfigMap.Items)
	}
	if v.Projected != nil {
		for _, p := range v.Projected.Sources {
			if p.ConfigMap != nil && take(p.ConfigMap.Name, p.ConfigMap.Items) {
				return true
			}
		}
	}
	return false
}

// argument returns the value of a flag of a container, in each way in which Go programs take flags.
func argument(c *corev1.Container, name string) (string, bool) {
	words := append(append([]string{}, c.Command...), c.Args...)
	for i, word := range words {
		flag, value, joined := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(word, "-"), "-"), "=")
		if flag != name || !strings.HasPrefix(word, "-") {
			continue
		}
		if !joined && i+1 < len(words) {
			value = words[i+1]
		}
		return value, true
	}
	return "", false
}

// corefilePaths returns where CoreDNS may look for its Corefile: where it is told to, or in its working directory.
func corefilePaths(c *corev1.Container) []string {
	dir := cmp.Or(c.WorkingDir, "/")
	if name, ok := argument(c, "conf"); ok {
		return []string{path.Join("/", name), path.Join(dir, name)}
	}
	return []string{path.Join(dir, "Corefile"), "/etc/coredns/Corefile"}
}

// optionsOf returns the options that the CoreDNS of an image knows, by its tag, "v1.11.4-eksbuild.2" for example. An
// unknown option in its Corefile would stop it at its next start, so an image without a version gets no options.
func optionsOf(image string) options {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	v, err := version.ParseGeneric(tag)
	if err != nil || len(v.Components()) < 3 {
		return options{}
	}
	return options{
		servfail:      v.AtLeast(version.MustParseGeneric("1.9.4")),
		maxConcurrent: v.AtLeast(version.MustParseGeneric("1.7.0")),
	}
}
