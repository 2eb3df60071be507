package networks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Outside counts the Pods, or the Nodes, with an address outside of all networks. The fields are in the JSON of
// clusterset status.
type Outside struct {
	Count    int       `json:"count"`
	Examples []Example `json:"examples"` // the first of each IP family
}

// An Example is an address outside of all networks.
type Example struct {
	Address netip.Addr `json:"address"`
	Object  string     `json:"object"` // "Pod shop/db-0"
}

// Phrase says: "3 running Pods have addresses in none of these networks, such as 10.9.0.7 of Pod shop/db-0".
func (o Outside) Phrase(outside string) string {
	var such []string
	for _, e := range o.Examples {
		such = append(such, e.Address.String()+" of "+e.Object)
	}
	pods := "Pods have addresses"
	if o.Count == 1 {
		pods = "Pod has an address"
	}
	return fmt.Sprintf("%d running %s in none of the %s, such as %s", o.Count, pods, outside, strings.Join(such, " and "))
}

// JoinWith returns the command that declares also the networks of the examples, which the user has to know.
func (o Outside) JoinWith(declared []string) string {
	var flags, addresses []string
	for _, cidr := range declared {
		flags = append(flags, "--pod-cidr="+cidr)
	}
	for _, e := range o.Examples {
		flags = append(flags, "--pod-cidr=NETWORK")
		addresses = append(addresses, e.Address.String())
	}
	return fmt.Sprintf("\"clusterset join %s\", with a NETWORK that contains %s", strings.Join(flags, " "),
		strings.Join(addresses, ", and one that contains "))
}

// AddPod counts a running Pod. A Pod in the network of its host has the address of a Node and does not count.
func (o *Outside) AddPod(pod *unstructured.Unstructured, networks []netip.Prefix) {
	onHost, _, _ := unstructured.NestedBool(pod.Object, "spec", "hostNetwork")
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	if onHost || phase != "Running" {
		return
	}
	entries, _, _ := unstructured.NestedSlice(pod.Object, "status", "podIPs")
	counted := false
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		text, _, _ := unstructured.NestedString(entry, "ip")
		addr, err := netip.ParseAddr(text)
		if err != nil || ContainAddress(networks, addr) {
			continue
		}
		if !counted {
			o.Count++
			counted = true
		}
		if !slices.ContainsFunc(o.Examples, func(e Example) bool { return e.Address.Is4() == addr.Is4() }) {
			o.Examples = append(o.Examples, Example{addr, "Pod " + pod.GetNamespace() + "/" + pod.GetName()})
		}
	}
}

// ContainAddress reports whether an address is in one of the networks.
func ContainAddress(networks []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(addr) })
}
