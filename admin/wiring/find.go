package wiring

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Find returns the resolvers that Pods of the cluster ask, the cluster's DNS server first.
func Find(o Objects, w Wish) []Resolver {
	if o.OpenShift != nil {
		return []Resolver{findOpenShift(o.OpenShift, w)}
	}
	all := []Resolver{o.clusterDNS(w)}
	for i := range o.DaemonSets {
		d := workload{"daemonset", &o.DaemonSets[i].ObjectMeta, &o.DaemonSets[i].Spec.Template}
		if c := d.nodeCache(); c != nil {
			all = append(all, o.nodeLocal(d, c, w))
		}
	}
	return all
}

// clusterDNS finds the DNS server behind the Service that the kubelet names to Pods.
func (o Objects) clusterDNS(w Wish) Resolver {
	r := Resolver{Kind: Unknown}
	service := o.dnsService()
	if service == nil {
		r.manual("there is no Service of a DNS server in its namespace", w.block([]listener{{port: "53"}}, options{}))
		return r
	}
	r.Addresses = service.Spec.ClusterIPs
	r.Evidence = append(r.Evidence, fmt.Sprintf("Service %s has the address %s", service.Name, strings.Join(r.Addresses, ", ")))
	work := o.behind(service)
	if work == nil {
		r.manual("there is no Deployment or DaemonSet with the Pods of Service "+service.Name, w.block([]listener{{port: "53"}}, options{}))
		return r
	}
	r.Workload = work.String()
	for _, a := range w.addresses() {
		if slices.Contains(r.Addresses, a) {
			r.State, r.Reason = Taken, fmt.Sprintf("%s is the address of the DNS server itself: want that of the DNS server of the clusterset", a)
			return r
		}
	}
	for i := range work.pod.Spec.Containers {
		c := &work.pod.Spec.Containers[i]
		if dir, ok := argument(c, "config-dir"); ok {
			r.Kind = KubeDNS
			r.Evidence = append(r.Evidence, fmt.Sprintf("%s has the container %s of kube-dns", work, c.Name))
			r.stubDomains(o.inDirectory(*work, c, dir, "stubDomains"), w)
			return r
		}
		if f, ok := o.corefileOf(*work, c, corefilePaths(c)); ok {
			r.Kind = CoreDNS
			f.options = known(c.Image)
			r.coreDNS(f, w)
			return r
		}
	}
	r.manual(fmt.Sprintf("no container of %s has a Corefile from a ConfigMap, or is that of kube-dns", work), w.block([]listener{{port: "53"}}, options{}))
	return r
}

// dnsService returns the Service of the cluster's DNS server, by the name and label that Kubernetes gives it, then by those of others.
func (o Objects) dnsService() *corev1.Service {
	for _, is := range []func(*corev1.Service) bool{
		func(s *corev1.Service) bool { return s.Name == "kube-dns" },
		func(s *corev1.Service) bool { return s.Labels["k8s-app"] == "kube-dns" },
		func(s *corev1.Service) bool { return s.Labels["kubernetes.io/name"] == "CoreDNS" },
		func(s *corev1.Service) bool { return strings.HasSuffix(s.Name, "coredns") },
	} {
		for i := range o.Services {
			if s := &o.Services[i]; is(s) && slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == 53 }) {
				return s
			}
		}
	}
	return nil
}

// inDirectory returns a key of the ConfigMap that a container mounts as a directory; by default that of kube-dns.
func (o Objects) inDirectory(w workload, c *corev1.Container, dir, key string) place {
	name := "kube-dns"
	if s, ok := w.file(c, path.Join(dir, key)); ok {
		name = s.configMap
	}
	return place{configMap: o.configMap(name), namespace: w.meta.Namespace, name: name, key: key}
}

// A file is a Corefile, and what is known about who reads it.
type file struct {
	place
	work      workload
	container *corev1.Container
	path      string
	subPath   bool
	options   options
	objects   Objects
}

// corefileOf returns the Corefile of a container, at the first of the paths that is in a ConfigMap.
func (o Objects) corefileOf(w workload, c *corev1.Container, paths []string) (file, bool) {
	for _, p := range paths {
		s, ok := w.file(c, p)
		if !ok {
			continue
		}
		at := place{configMap: o.configMap(s.configMap), namespace: w.meta.Namespace, name: s.configMap, key: s.key}
		if at.exists() {
			return file{place: at, work: w, container: c, path: p, subPath: s.subPath, objects: o}, true
		}
	}
	return file{}, false
}

// coreDNS wires a CoreDNS (docs/spec/dns-wiring.md 3).
func (r *Resolver) coreDNS(f file, w Wish) {
	r.Evidence = append(r.Evidence, fmt.Sprintf("%s reads its Corefile from %s", f.work, f.place))
	standard := w.block([]listener{{port: "53"}}, f.options)
	m, err := cut(f.text())
	if err != nil {
		r.manual(fmt.Sprintf("%s is not understood: %v", f.place, err), standard)
		return
	}
	c, err := parseCorefile(m.before + m.after)
	if err != nil {
		r.manual(fmt.Sprintf("%s is not understood: %v", f.place, err), standard)
		return
	}
	r.Restart = f.subPath || !c.has("reload")
	at := c.listeners()
	custom := r.imported(f, &c)
	taken := c.serving(w)
	if custom != nil && !m.found {
		r.Kind, f.place = Custom, *custom
		if m, err = cut(f.text()); taken.what == "" && (err != nil || m.before+m.after != "") {
			r.manual(fmt.Sprintf("%s has a text that is not ours", f.place), standard)
			return
		}
	}
	if len(at) == 0 && taken.what == "" {
		r.manual(fmt.Sprintf("%s has no server block for the root zone, and none with kubernetes", f.place), standard)
		return
	}
	if m.found {
		r.ours(f.place, m, w, w.block(at, f.options))
		if taken.what != "" {
			r.Warnings = append(r.Warnings, taken.what+", beside our block")
		}
		return
	}
	if taken.what != "" {
		r.takenBy(taken)
		return
	}
	if why := f.obstacle(); why != "" {
		r.cannotEdit(why, f, c, w)
		return
	}
	r.State = Missing
	if by := f.updater(); by != "" {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s also writes %s: its next update may revert the edit, unless its configuration has the block, too", by, f.place))
	}
	if w.writable() {
		r.Apply = f.set(mark(w.block(at, f.options)) + f.text())
	}
}

// cannotEdit says what to do instead of an edit.
func (r *Resolver) cannotEdit(why string, f file, c corefile, w Wish) {
	if chart := f.configMap.GetLabels()["helm.sh/chart"]; manager(f.configMap) == "Helm" && strings.Contains(chart, "coredns") {
		r.Kind = Helm
		r.Evidence = append(r.Evidence, "it is of the Helm chart "+chart)
		r.manual(fmt.Sprintf("%s: upgrade its release %s with these values", why, cmp.Or(f.configMap.GetAnnotations()["meta.helm.sh/release-name"],
			f.configMap.GetLabels()["app.kubernetes.io/instance"])), c.values(w, f.options))
		return
	}
	r.manual(why, w.block(c.listeners(), f.options))
}

// ours compares our block with the one that is wanted.
func (r *Resolver) ours(p place, m marked, w Wish, want string) {
	r.Evidence = append(r.Evidence, p.String()+" has our block")
	if r.Edited = !m.intact; r.Edited {
		inside, err := parseCorefile(m.content)
		r.takenBy(serving{"our block in " + p.String() + " was changed by hand", err == nil && inside.serving(w).wanted})
		return
	}
	if r.Undo = p.set(m.before + m.after); r.Kind == Custom {
		r.Undo = p.remove()
	}
	if r.State = Wired; m.content == want {
		return
	}
	if r.State = Outdated; w.writable() {
		r.Apply = p.set(m.before + mark(want) + m.after)
	}
}

// imported reads what the Corefile imports outside of its blocks into c. It returns the place of a block of ours, if the ConfigMap that a
// pattern names is made for such.
func (r *Resolver) imported(f file, c *corefile) *place {
	var custom *place
	for _, pattern := range c.imports {
		at := pattern
		if !path.IsAbs(at) {
			at = path.Join(path.Dir(f.path), at)
		}
		s, ok := f.work.file(f.container, at)
		if !ok {
			r.Warnings = append(r.Warnings, fmt.Sprintf("its Corefile imports %s, which is not in a ConfigMap and was not read", pattern))
			continue
		}
		p := place{configMap: f.objects.configMap(s.configMap), namespace: f.namespace, name: s.configMap}
		if strings.Count(s.key, "*") == 1 && custom == nil {
			own := p
			own.key = strings.Replace(s.key, "*", "clusterset", 1)
			custom = &own
			r.Evidence = append(r.Evidence, fmt.Sprintf("its Corefile imports %s from ConfigMap %s", pattern, s.configMap))
		}
		if p.configMap == nil {
			continue
		}
		data, _, _ := unstructured.NestedStringMap(p.configMap.Object, "data")
		for _, key := range slices.Sorted(maps.Keys(data)) {
			if match, err := path.Match(s.key, key); err != nil || !match {
				continue
			}
			var more corefile
			m, err := cut(data[key])
			if err == nil {
				more, err = parseCorefile(m.before + m.after)
			}
			if err != nil {
				r.Warnings = append(r.Warnings, fmt.Sprintf("ConfigMap %s, key %s is not understood: %v", s.configMap, key, err))
				continue
			}
			c.blocks = append(c.blocks, more.blocks...)
		}
	}
	return custom
}

// nodeCache returns the container of NodeLocal DNSCache, nil if there is none.
func (w workload) nodeCache() *corev1.Container {
	for i := range w.pod.Spec.Containers {
		if _, ok := argument(&w.pod.Spec.Containers[i], "localip"); ok {
			return &w.pod.Spec.Containers[i]
		}
	}
	return nil
}

// nodeLocal wires NodeLocal DNSCache, which sends what is not of the cluster's domain to the resolver of the node
// (docs/spec/dns-wiring.md 4).
func (o Objects) nodeLocal(d workload, c *corev1.Container, w Wish) Resolver {
	r := Resolver{Kind: NodeLocal, Workload: d.String()}
	r.Evidence = append(r.Evidence, fmt.Sprintf("%s has the container %s of NodeLocal DNSCache", d, c.Name))
	if w.InProcess {
		// The cluster's DNS server answers. Its Service may have the address at which the node cache itself listens.
		name, _ := argument(c, "upstreamsvc")
		w = Wish{Zone: w.Zone, Addresses: o.addressesOf(cmp.Or(name, "kube-dns"))}
		r.Evidence = append(r.Evidence, "it asks the cluster's DNS server through Service "+cmp.Or(name, "kube-dns"))
	}
	dir, _ := argument(c, "kubednscm")
	if s, ok := d.file(c, path.Join(cmp.Or(dir, "/etc/kube-dns"), "stubDomains")); ok {
		r.stubDomains(place{configMap: o.configMap(s.configMap), namespace: d.meta.Namespace, name: s.configMap, key: "stubDomains"}, w)
		return r
	}
	base, _ := argument(c, "basecorefile")
	f, ok := o.corefileOf(d, c, []string{cmp.Or(base, "/etc/coredns/Corefile.base")})
	if !ok {
		r.manual("it mounts neither ConfigMap kube-dns nor a base Corefile from a ConfigMap", w.block([]listener{{port: "53"}}, options{}))
		return r
	}
	r.coreDNS(f, w)
	// The node cache reads its base Corefile again by itself. An edit that CoreDNS needs a restart for does not need one here.
	r.Kind, r.Restart = NodeLocal, false
	return r
}

// addressesOf returns the cluster IPs of a Service.
func (o Objects) addressesOf(name string) []netip.Addr {
	var all []netip.Addr
	for i := range o.Services {
		for _, ip := range o.Services[i].Spec.ClusterIPs {
			if a, err := netip.ParseAddr(ip); err == nil && o.Services[i].Name == name {
				all = append(all, a)
			}
		}
	}
	return all
}

// Reachable returns those of the addresses that are of a family of the Service of the cluster's DNS server; all of them if none is, or if
// there is no such Service.
func (o Objects) Reachable(addresses []netip.Addr) []netip.Addr {
	service := o.dnsService()
	if service == nil {
		return addresses
	}
	var same []netip.Addr
	for _, a := range addresses {
		if slices.ContainsFunc(service.Spec.ClusterIPs, func(ip string) bool { return strings.Contains(ip, ":") == a.Is6() }) {
			same = append(same, a)
		}
	}
	if len(same) == 0 {
		return addresses
	}
	return same
}
