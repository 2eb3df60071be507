package wiring

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Find returns the resolvers that Pods of the cluster ask, the cluster's DNS server first.
func Find(o Objects, w Desired) []Resolver {
	if o.OpenShift != nil {
		return []Resolver{findOpenShift(o.OpenShift, w)}
	}
	all := []Resolver{o.clusterDNS(w)}
	for i := range o.DaemonSets {
		d := workload{"daemonset", &o.DaemonSets[i].ObjectMeta, &o.DaemonSets[i].Spec.Template}
		c := d.nodeCache()
		if c == nil {
			continue
		}
		r := o.nodeLocal(d, c, w)
		if r.Route == RouteNone && r.Undo == nil && o.forwardsAll(d, c) {
			all[0].Evidence = append(all[0].Evidence, r.Workload+" forwards everything to it")
			continue
		}
		all = append(all, r)
	}
	return all
}

// clusterDNS finds the DNS server behind the Service that the kubelet names to Pods.
func (o Objects) clusterDNS(w Desired) Resolver {
	r := Resolver{Kind: Unknown}
	service := o.DNSService()
	if service == nil {
		r.setManual(RouteUnknown, "there is no Service of a DNS server in its namespace", w.standardBlock(options{}))
		return r
	}
	r.Addresses = service.Spec.ClusterIPs
	r.Evidence = append(r.Evidence, fmt.Sprintf("Service %s has the address %s", service.Name,
		strings.Join(r.Addresses, ", ")))
	work := o.workloadBehind(service)
	if work == nil {
		r.setManual(RouteUnknown, "there is no Deployment or DaemonSet with the Pods of Service "+service.Name,
			w.standardBlock(options{}))
		return r
	}
	r.Workload = work.String()
	for _, a := range w.addresses() {
		if slices.Contains(r.Addresses, a) {
			r.State, r.Route, r.Reason = Taken, RouteUnknown, fmt.Sprintf(
				"%s is the address of the DNS server itself: want that of the DNS server of the clusterset", a)
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
			f.options = optionsOf(c.Image)
			r.coreDNS(f, w)
			return r
		}
	}
	r.setManual(RouteUnknown, fmt.Sprintf("no container of %s has a Corefile from a ConfigMap, or is that of kube-dns", work),
		w.standardBlock(options{}))
	return r
}

// DNSService returns the Service of the cluster's DNS server, by the name and label that Kubernetes gives it, then by
// those of others.
func (o Objects) DNSService() *corev1.Service {
	for _, is := range []func(*corev1.Service) bool{
		func(s *corev1.Service) bool { return s.Name == "kube-dns" },
		func(s *corev1.Service) bool { return s.Labels["k8s-app"] == "kube-dns" },
		func(s *corev1.Service) bool { return s.Labels["kubernetes.io/name"] == "CoreDNS" },
		func(s *corev1.Service) bool { return s.Name == "dns-default" && s.Namespace == OpenShiftNamespace },
		func(s *corev1.Service) bool { return strings.HasSuffix(s.Name, "coredns") },
	} {
		for i := range o.Services {
			if s := &o.Services[i]; is(s) && slices.ContainsFunc(s.Spec.Ports,
				func(p corev1.ServicePort) bool { return p.Port == 53 }) {
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

// nodeCache returns the container of NodeLocal DNSCache, nil if it does not exist.
func (w workload) nodeCache() *corev1.Container {
	for i := range w.pod.Spec.Containers {
		if _, ok := argument(&w.pod.Spec.Containers[i], "localip"); ok {
			return &w.pod.Spec.Containers[i]
		}
	}
	return nil
}

// nodeLocal wires NodeLocal DNSCache, which sends names outside of the cluster's domain to the resolver of the node
// (docs/spec/dns-wiring.md 4).
func (o Objects) nodeLocal(d workload, c *corev1.Container, w Desired) Resolver {
	r := Resolver{Kind: NodeLocal, Workload: d.String()}
	r.Evidence = append(r.Evidence, fmt.Sprintf("%s has the container %s of NodeLocal DNSCache", d, c.Name))
	if w.InProcess {
		// The cluster's DNS server answers. Its Service may have the address at which the node cache itself listens.
		name, _ := argument(c, "upstreamsvc")
		w = Desired{Zone: w.Zone, Addresses: o.addressesOf(cmp.Or(name, "kube-dns"))}
		r.Evidence = append(r.Evidence, "it asks the cluster's DNS server through Service "+cmp.Or(name, "kube-dns"))
	}
	dir, _ := argument(c, "kubednscm")
	if s, ok := d.file(c, path.Join(cmp.Or(dir, "/etc/kube-dns"), "stubDomains")); ok {
		r.stubDomains(place{configMap: o.configMap(s.configMap), namespace: d.meta.Namespace, name: s.configMap,
			key: "stubDomains"}, w)
		return r
	}
	f, ok := o.baseCorefile(d, c)
	if !ok {
		r.setManual(RouteUnknown, "it mounts neither ConfigMap kube-dns nor a base Corefile from a ConfigMap",
			w.standardBlock(options{}))
		return r
	}
	r.coreDNS(f, w)
	// The node cache reads its base Corefile again by itself. An edit that CoreDNS needs a restart for does not need one
	// here.
	r.Kind, r.Restart = NodeLocal, false
	return r
}

// baseCorefile returns the file from which a node cache makes its Corefile.
func (o Objects) baseCorefile(d workload, c *corev1.Container) (file, bool) {
	base, _ := argument(c, "basecorefile")
	return o.corefileOf(d, c, []string{cmp.Or(base, "/etc/coredns/Corefile.base")})
}

// forwardsAll reports whether a node cache sends all names to the cluster's DNS server, as kops sets it up.
func (o Objects) forwardsAll(d workload, c *corev1.Container) bool {
	f, ok := o.baseCorefile(d, c)
	service := o.DNSService()
	if !ok || service == nil {
		return false
	}
	upstream, _ := argument(c, "upstreamsvc")
	w := Desired{Addresses: append(o.addressesOf(service.Name), o.addressesOf(upstream)...)}
	base, err := parseCorefile(strings.ReplaceAll(f.text(), "__PILLAR__CLUSTER__DNS__", service.Spec.ClusterIP))
	forwards := false
	for _, b := range base.blocks {
		if !b.serves(".") {
			continue
		}
		d := b.find("forward")
		if d == nil || len(d.words) < 2 || d.words[1] != "." || !sameAddresses(d.words[2:], w) {
			return false
		}
		forwards = true
	}
	return err == nil && forwards
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

// Reachable returns those of the addresses that are of a family of the Service of the cluster's DNS server; all of them
// if no address is, or if there is no such Service.
func (o Objects) Reachable(addresses []netip.Addr) []netip.Addr {
	service := o.DNSService()
	if service == nil {
		return addresses
	}
	var same []netip.Addr
	for _, a := range addresses {
		if slices.ContainsFunc(service.Spec.ClusterIPs, func(ip string) bool {
			return strings.Contains(ip, ":") == a.Is6()
		}) {
			same = append(same, a)
		}
	}
	if len(same) == 0 {
		return addresses
	}
	return same
}
