package broker_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// docs/spec/controller.md 9: the allow-list of a namespace.
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
			ns.Annotations = map[string]string{broker.AnnotationAllowedSources: *tt.list}
		}
		if got := broker.SourceAllowed(ns, "east.r1"); got != tt.allow {
			t.Errorf("%s: allowed = %t, want %t", tt.name, got, tt.allow)
		}
	}
}
