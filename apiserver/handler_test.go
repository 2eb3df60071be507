package apiserver

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/clusterset-dns/clusterset/api/logging"
)

// An informerStub has the handler that was added to it.
type informerStub struct {
	cache.SharedIndexInformer
	handler cache.ResourceEventHandler
}

func (s *informerStub) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	s.handler = h
	return nil, nil
}

// A handler gets each event, also a deletion that the watch missed, and outlives a panic.
func TestHandle(t *testing.T) {
	service := func(version string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: version}}
	}
	var got []string
	var panics int
	versionOf := func(s *corev1.Service) string {
		if s == nil {
			return "-"
		}
		return s.ResourceVersion
	}
	s := &informerStub{}
	barrier := &logging.Barrier{Panicked: func() { panics++ }}
	_, err := Handle(barrier, s, func(before, after *corev1.Service, initial bool) {
		got = append(got, fmt.Sprintf("%s %s %t", versionOf(before), versionOf(after), initial))
		if versionOf(after) == "2" {
			panic("at 2")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	s.handler.OnAdd(service("1"), true)
	s.handler.OnUpdate(service("1"), service("2"))
	s.handler.OnDelete(service("2"))
	s.handler.OnAdd(service("3"), false)
	s.handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "web", Obj: service("3")})
	s.handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "unknown"})
	want := []string{"- 1 true", "1 2 false", "2 - false", "- 3 false", "3 - false"}
	if !slices.Equal(got, want) || panics != 1 {
		t.Errorf("events %q and %d panics, want %q and one", got, panics, want)
	}
}
