// Package wiring decides how the DNS server of a cluster comes to send the queries for a zone to the DNS server of the
// clusterset (docs/spec/dns-wiring.md). It is pure: objects in, resolvers out, each with the edit that would wire it
// and the edit that undoes that. Package admin reads the objects and writes the edits.
//
//	Objects ── Find ──► Resolver{Kind, State, Evidence, Apply, Undo, Paste}
//	                        │
//	                        │ by Kind
//	                        ├─ coredns          a marked block at the top of the Corefile
//	                        ├─ coredns-custom   a key of the ConfigMap that the Corefile imports
//	                        ├─ kube-dns         stubDomains of ConfigMap kube-dns
//	                        ├─ node-local-dns   the same, or the block in its base Corefile
//	                        ├─ openshift        a server of dns.operator/default
//	                        ├─ helm             values to print
//	                        └─ unknown          a block to print
//
// An edit holds the object before and after, so its writer can make sure that the object did not change meanwhile.
package wiring

import (
	"cmp"
	"net/netip"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// DefaultZone is the zone of KEP-1645.
const DefaultZone = "clusterset.local"

// Desired is the desired state of the resolvers of a cluster.
type Desired struct {
	// Zone without the dot at its end, in lower case.
	Zone string
	// Addresses of the DNS server of the clusterset; empty if unknown: then there is no text to write.
	Addresses []netip.Addr
	// InProcess means that the image of the cluster's DNS server has the plugin clusterset, which then serves the zone
	// itself.
	InProcess bool
}

// Objects are what a cluster has. The lists hold the objects of the namespace of its DNS server.
type Objects struct {
	Services    []corev1.Service
	Deployments []appsv1.Deployment
	DaemonSets  []appsv1.DaemonSet
	ConfigMaps  []*unstructured.Unstructured
	// OpenShift is dns.operator.openshift.io/default; nil if it does not exist.
	OpenShift *unstructured.Unstructured
}

// Kind is the way in which a resolver is wired.
type Kind string

// The kinds.
const (
	CoreDNS   Kind = "coredns"
	Custom    Kind = "coredns-custom"
	KubeDNS   Kind = "kube-dns"
	NodeLocal Kind = "node-local-dns"
	OpenShift Kind = "openshift"
	Helm      Kind = "helm"
	Unknown   Kind = "unknown"
)

// State is the known state of a resolver and the zone.
type State string

// The states.
const (
	Wired    State = "wired"    // the zone goes where it should, managed by clusterset or not
	Missing  State = "missing"  // Apply wires it
	Outdated State = "outdated" // we have wired it, but otherwise than is wanted now: Apply updates it
	Taken    State = "taken"    // something that is not ours serves or forwards the zone: left alone
	Manual   State = "manual"   // it cannot be edited, or an edit would not last: Paste is what to put where
)

// Route is where a resolver sends queries for the zone, by its configuration.
type Route string

// The routes.
const (
	RouteWanted    Route = "wanted"    // to addresses that are wanted, or to the plugin clusterset in the same process
	RouteElsewhere Route = "elsewhere" // to other addresses, which we have written
	RouteOther     Route = "other"     // to a server that clusterset does not manage
	RouteNone      Route = "none"      // where names that it does not know go
	RouteUnknown   Route = "unknown"   // the configuration was not found, not read or not understood
)

// A Resolver is a DNS server that Pods of the cluster ask.
type Resolver struct {
	Kind Kind `json:"kind"`
	// Workload is "deployment/coredns"; empty if it is not known.
	Workload string `json:"workload,omitempty"`
	State    State  `json:"state"`
	// Route is where queries for the zone go.
	Route Route `json:"route"`
	// InProcess means that it serves the zone itself, by the plugin clusterset.
	InProcess bool `json:"inProcess,omitempty"`
	// Reason is why the state is Taken or Manual, in one clause.
	Reason string `json:"reason,omitempty"`
	// Evidence lists what led to kind and state, one clause each.
	Evidence []string `json:"evidence"`
	// Diverted lists parts of the Corefile that send deeper names elsewhere, one clause each.
	Diverted []string `json:"diverted,omitempty"`
	// Warnings list what may undo or hinder the edit.
	Warnings []string `json:"warnings,omitempty"`
	// Paste is what an administrator has to put in place; not empty exactly if the state is Manual.
	Paste string `json:"paste,omitempty"`
	// Edited means that what we had written was changed by hand since: neither Apply nor Undo touches it.
	Edited bool `json:"edited,omitempty"`
	// Restart means that the workload reads an edit only when its Pods are started anew.
	Restart bool `json:"restart,omitempty"`
	// Addresses are the cluster IPs at which Pods reach it; empty for node-local-dns.
	Addresses []string `json:"addresses,omitempty"`
	// Bound is the result of [Bound] for its Corefile.
	Bound bool `json:"-"`

	// Apply wires it, nil if there is nothing to do or nothing that can be done; Undo removes what we have written, nil if
	// there is nothing. Resolvers that read one ConfigMap have equal edits.
	Apply *Edit `json:"-"`
	Undo  *Edit `json:"-"`
}

// Name is what to call a resolver in a message.
func (r *Resolver) Name() string {
	return cmp.Or(r.Workload, "the DNS server of the cluster")
}

func (r *Resolver) setManual(route Route, reason, paste string) {
	r.State, r.Route, r.Reason, r.Paste = Manual, route, reason, paste
}

// An Edit is one object before and after.
type Edit struct {
	Before *unstructured.Unstructured // nil: the edit creates it
	After  *unstructured.Unstructured // nil: the edit deletes it
	// Field is what changes, Old and New its text; empty if the field is absent.
	Field, Old, New string
}

// Object returns the object that the edit writes or deletes.
func (e *Edit) Object() *unstructured.Unstructured {
	return cmp.Or(e.After, e.Before)
}
