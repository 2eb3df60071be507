package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/export"
)

// Sections 1 and 9: import_namespaces replaces the default deny, except for kube-* and our own.
func TestNamespacePolicy(t *testing.T) {
	named := func(c *Config) { c.Namespaces = []string{"default", "kube-system", "own", "shop"} }
	labelled := func(c *Config) { c.NamespaceLabels = labels.SelectorFromSet(labels.Set{"team": "a"}) }
	team := map[string]string{"team": "a"}
	for _, tt := range []struct {
		name, namespace string
		labels          map[string]string
		set             func(*Config)
		want            export.NamespacePolicy
	}{
		{name: "any", namespace: "shop", want: export.Allowed},
		{name: "default", namespace: "default", want: export.NotAllowed},
		{name: "kube-system", namespace: "kube-system", want: export.NotAllowed},
		{name: "kube-anything", namespace: "kube-x", want: export.NotAllowed},
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
		{name: "labelled: kube-system even so", namespace: "kube-system", labels: team, set: labelled, want: export.NotAllowed},
	} {
		c := Defaults()
		c.Namespace = "own"
		if tt.set != nil {
			tt.set(&c)
		}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tt.namespace, Labels: tt.labels}}
		if got := c.namespacePolicy(ns); got != tt.want {
			t.Errorf("%s: policy of %s = %d, want %d", tt.name, tt.namespace, got, tt.want)
		}
	}
	c := Defaults()
	now := metav1.Now()
	for name, ns := range map[string]*corev1.Namespace{
		"absent":     nil,
		"being gone": {ObjectMeta: metav1.ObjectMeta{Name: "shop", DeletionTimestamp: &now}},
		"going": {
			ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
		},
		"denied too": {ObjectMeta: metav1.ObjectMeta{Name: "default", DeletionTimestamp: &now}},
	} {
		if got := c.namespacePolicy(ns); got != export.Terminating {
			t.Errorf("%s: policy = %d, want Terminating", name, got)
		}
	}
}

// Section 1: what members keep in a cluster that is its own broker is nobody's service.
func TestNoPartOfBroker(t *testing.T) {
	c := Defaults()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "clusterset-0", Labels: map[string]string{apibroker.LabelClusterID: "east"}}}
	c.Namespaces = []string{ns.Name}
	if got := c.namespacePolicy(ns); got != export.NotAllowed {
		t.Errorf("policy of a broker namespace = %v, want %v", got, export.NotAllowed)
	}
}

// Section 9: whoever exports from a namespace that import_namespaces does not choose here does nothing wrong.
func TestLeftOut(t *testing.T) {
	named := Config{Namespace: "own", Namespaces: []string{"shop"}}
	labelled := Config{Namespace: "own", NamespaceLabels: labels.Everything()}
	for _, tt := range []struct {
		name, namespace string
		config          Config
		want            bool
	}{
		{name: "named", namespace: "bank", config: named, want: true},
		{name: "labelled", namespace: "bank", config: labelled, want: true},
		{name: "nothing chosen", namespace: "default", config: Config{Namespace: "own"}},
		{name: "kube-system", namespace: "kube-system", config: named},
		{name: "our own", namespace: "own", config: labelled},
	} {
		if got := tt.config.leftOut(tt.namespace); got != tt.want {
			t.Errorf("%s: %s is left out: %t, want %t", tt.name, tt.namespace, got, tt.want)
		}
	}
}

// Section 9: the allow-list of a namespace.
func TestSourceAllowed(t *testing.T) {
	for _, tt := range []struct {
		name  string
		list  *string
		allow bool
	}{
		{name: "no list", allow: true},
		{name: "alone", list: new("east.r1"), allow: true},
		{name: "among others", list: new("west, east.r1 ,north"), allow: true},
		{name: "not listed", list: new("west,north")},
		{name: "part of another", list: new("east.r10,the-east.r1")},
		{name: "an empty list", list: new("")},
	} {
		ns := &corev1.Namespace{}
		if tt.list != nil {
			ns.Annotations = map[string]string{apibroker.AnnotationAllowedSources: *tt.list}
		}
		if got := sourceAllowed(ns, "east.r1"); got != tt.allow {
			t.Errorf("%s: allowed = %t, want %t", tt.name, got, tt.allow)
		}
	}
}
