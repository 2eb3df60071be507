// Package networks finds out which networks the Pods and Services of a cluster have, and which Pods have addresses
// outside of what the cluster declared (docs/spec/install.md 3). It is pure but for the function by which it reads
// objects: package admin/read has that.
//
//	sources of Pods, in the order of trust      Calico, Cilium, OpenShift, OVN-Kubernetes, kubeadm, flags, Nodes
//	sources of Services                         ServiceCIDRs, OpenShift, kubeadm, flags
//	        │
//	        │ of each IP family, the first source that names a network of it
//	        ▼
//	Found{Pods, Services, Unread}
package networks

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/logging"
)

// A Network is one that an object names.
type Network struct {
	Prefix  netip.Prefix
	Source  string // "IPPool default-ipv4-ippool"
	PerNode bool   // part of the network of all Pods: each new Node adds one
}

// Found are the networks of a cluster, sorted, IPv4 first.
type Found struct {
	Pods, Services []Network
	Unread         []string // what could not be read or is no network, and why: one phrase each
}

// Find asks for the objects of all sources. read returns no objects and no error for what does not exist.
func Find(read func(Query) ([]*unstructured.Unstructured, error)) Found {
	f := finder{read: read, objects: make(map[Query][]*unstructured.Unstructured)}
	f.found.Pods = f.firstOfEachFamily(podSources)
	f.found.Services = f.firstOfEachFamily(serviceSources)
	return f.found
}

// A finder is one call of [Find].
type finder struct {
	read    func(Query) ([]*unstructured.Unstructured, error)
	objects map[Query][]*unstructured.Unstructured // of several sources: read once
	found   Found
}

// firstOfEachFamily returns the networks of the first source that names one; of IPv4 and of IPv6 that may be two
// sources.
func (f *finder) firstOfEachFamily(sources []source) []Network {
	var v4, v6 []Network
	for _, s := range sources {
		all := f.networksOf(s)
		is4 := func(n Network) bool { return n.Prefix.Addr().Is4() }
		if of4 := slices.DeleteFunc(slices.Clone(all), func(n Network) bool { return !is4(n) }); len(v4) == 0 {
			v4 = of4
		}
		if of6 := slices.DeleteFunc(slices.Clone(all), is4); len(v6) == 0 {
			v6 = of6
		}
	}
	return append(v4, v6...)
}

// networksOf returns the networks that a source names; those of Nodes aggregated.
func (f *finder) networksOf(s source) []Network {
	var all []Network
	var ofNodes []netip.Prefix
	for _, o := range f.objectsOf(s.query) {
		from := o.GetKind() + " " + o.GetName()
		texts, err := s.cidrs(o)
		if err != nil {
			f.leaveOut(from, err)
		}
		for _, text := range texts {
			p, err := parsePrefix(text)
			switch {
			case err != nil:
				f.leaveOut(from, err)
			case s.perNode != "":
				ofNodes = append(ofNodes, p)
			default:
				all = append(all, Network{Prefix: p, Source: from})
			}
		}
	}
	for _, p := range Aggregate(ofNodes) {
		all = append(all, Network{Prefix: p, Source: s.perNode, PerNode: true})
	}
	slices.SortStableFunc(all, func(a, b Network) int { return a.Prefix.Compare(b.Prefix) })
	return all
}

func (f *finder) objectsOf(q Query) []*unstructured.Unstructured {
	objects, done := f.objects[q]
	if done {
		return objects
	}
	objects, err := f.read(q)
	if err != nil {
		f.leaveOut(q.String(), err)
	}
	f.objects[q] = objects
	return objects
}

// leaveOut notes a value that is left out, once: several sources may read it.
func (f *finder) leaveOut(what string, err error) {
	if text := fmt.Sprintf("%s: %s", what, logging.Line(err)); !slices.Contains(f.found.Unread, text) {
		f.found.Unread = append(f.found.Unread, text)
	}
}

// parsePrefix accepts bits of a host, as Kubernetes does.
func parsePrefix(text string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		text = p.Masked().String()
	}
	return broker.ParsePrefix(text)
}

// Prefixes returns the prefixes of networks.
func Prefixes(all []Network) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, n := range all {
		prefixes = append(prefixes, n.Prefix)
	}
	return prefixes
}
