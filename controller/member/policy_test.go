package member

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/export"
)

// docs/spec/controller.md 1, docs/spec/controller.md 9: import_namespaces replaces the default deny, except for kube-*
// and our own.
func TestNamespacePolicy(t *testing.T) {
	named := func(p *Policy) { p.Namespaces = choice("default", "kube-system", "own", "shop") }
	labelled := func(p *Policy) { p.Namespaces = wellknown.NamespaceChoice{Selector: "team=a"} }
	team := map[string]string{"team": "a"}
	for _, tt := range []struct {
		name, namespace string
		labels          map[string]string
		sources         bool // the namespace lists its source clusters
		set             func(*Policy)
		want            export.NamespacePolicy
	}{
		{name: "any", namespace: "shop", want: export.Allowed},
		{name: "default", namespace: "default", want: export.NotAllowed},
		{name: "kube-system", namespace: "kube-system", want: export.NotAllowed},
		{name: "kube-anything", namespace: "kube-x", want: export.NotAllowed},
		{name: "openshift-anything", namespace: "openshift-dns", want: export.NotAllowed},
		{name: "labelled: openshift-dns even so", namespace: "openshift-dns", labels: team, set: labelled,
			want: export.NotAllowed},
		{name: "openshift-anything with sources", namespace: "openshift-dns", sources: true, want: export.Allowed},
		{name: "named: kube-system with sources", namespace: "kube-system", sources: true, set: named, want: export.Allowed},
		{name: "named: another with sources", namespace: "kube-x", sources: true, set: named, want: export.NotAllowed},
		{name: "our own with sources", namespace: "own", sources: true, want: export.NotAllowed},
		{name: "openshift is a name like others", namespace: "openshift", want: export.Allowed},
		{name: "kubernetes is a name like others", namespace: "kubernetes", want: export.Allowed},
		{name: "our own", namespace: "own", want: export.NotAllowed},
		{name: "named", namespace: "shop", set: named, want: export.Allowed},
		{name: "named: default", namespace: "default", set: named, want: export.Allowed},
		{name: "named: another", namespace: "bank", set: named, want: export.NotAllowed},
		{name: "named: kube-system even so", namespace: "kube-system", set: named, want: export.NotAllowed},
		{name: "named: our own even so", namespace: "own", set: named, want: export.NotAllowed},
		{name: "labelled", namespace: "bank", labels: team, set: labelled, want: export.Allowed},
		{name: "labelled: default", namespace: "default", labels: team, set: labelled, want: export.Allowed},
		{name: "labelled: another", namespace: "shop", set: labelled, want: export.NotAllowed},
		{name: "labelled: kube-system even so", namespace: "kube-system", labels: team, set: labelled,
			want: export.NotAllowed},
	} {
		p := Policy{Controller: "own"}
		if tt.set != nil {
			tt.set(&p)
		}
		sources := ""
		if tt.sources {
			sources = "west"
		}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tt.namespace, Labels: tt.labels,
			Annotations: map[string]string{apibroker.AnnotationAllowedSources: sources}}}
		if got := p.Of(ns); got != tt.want {
			t.Errorf("%s: policy of %s = %d, want %d", tt.name, tt.namespace, got, tt.want)
		}
	}
	p := Policy{}
	now := metav1.Now()
	for name, ns := range map[string]*corev1.Namespace{
		"absent":     nil,
		"being gone": {ObjectMeta: metav1.ObjectMeta{Name: "shop", DeletionTimestamp: &now}},
		"going": {
			ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
		},
		"denied too": {ObjectMeta: metav1.ObjectMeta{Name: "default", DeletionTimestamp: &now}},
	} {
		if got := p.Of(ns); got != export.Terminating {
			t.Errorf("%s: policy = %d, want Terminating", name, got)
		}
	}
}

// choice selects namespaces by name.
func choice(names ...string) wellknown.NamespaceChoice {
	return wellknown.NamespaceChoice{Names: names}
}

// docs/spec/controller.md 5.9: which missing namespaces are created.
func TestCreates(t *testing.T) {
	ofMember := apibroker.NamespaceName("hub", "west")
	for _, tt := range []struct {
		name string
		p    Policy
		want []string
	}{
		{name: "off"},
		{name: "off, with names", p: Policy{Namespaces: choice("shop")}},
		{name: "all", p: Policy{Create: true}, want: []string{"shop", "bank", "kubernetes"}},
		{name: "names", p: Policy{Create: true, Namespaces: choice("shop", "default", "kube-x", "own",
			"clusterset-verify-a", ofMember)}, want: []string{"shop"}},
		{name: "selector", p: Policy{Create: true, Namespaces: wellknown.NamespaceChoice{Selector: "team"}}},
	} {
		tt.p.Controller = "own"
		var got []string
		for _, name := range []string{"shop", "bank", "kubernetes", "default", "kube-x", "openshift-x", "own",
			"clusterset-system", "clusterset-verify-a", ofMember, "a.b", "Shop", ""} {
			if tt.p.Creates(name) {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: creates %q, want %q", tt.name, got, tt.want)
		}
	}
}

// docs/spec/controller.md 1: a cluster that is its own broker exports nothing from broker namespaces.
func TestNoPartOfBroker(t *testing.T) {
	p := Policy{}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "clusterset-0",
		Labels: map[string]string{apibroker.LabelClusterID: "east"}}}
	p.Namespaces = choice(ns.Name)
	if got := p.Of(ns); got != export.NotAllowed {
		t.Errorf("policy of a broker namespace = %v, want %v", got, export.NotAllowed)
	}
}

// docs/spec/controller.md 9: an export from a namespace that import_namespaces does not select here is no mistake.
func TestLeftOut(t *testing.T) {
	named := Policy{Controller: "own", Namespaces: choice("shop")}
	labelled := Policy{Controller: "own", Namespaces: wellknown.NamespaceChoice{Selector: "team"}}
	for _, tt := range []struct {
		name, namespace string
		policy          Policy
		want            bool
	}{
		{name: "named", namespace: "bank", policy: named, want: true},
		{name: "labelled", namespace: "bank", policy: labelled, want: true},
		{name: "nothing chosen", namespace: "default", policy: Policy{Controller: "own"}},
		{name: "kube-system", namespace: "kube-system", policy: named},
		{name: "our own", namespace: "own", policy: labelled},
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tt.namespace}}
		if got := tt.policy.LeftOut(ns); got != tt.want {
			t.Errorf("%s: %s is left out: %t, want %t", tt.name, tt.namespace, got, tt.want)
		}
	}
}
