package main

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// The slices that are shown are counted as the watch goes on.
func TestSliceWatch(t *testing.T) {
	w := newSliceWatch()
	slice := func(name, cluster string, hidden bool) *metav1.PartialObjectMetadata {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{mcsv1beta1.LabelSourceCluster: cluster}}}
		if hidden {
			o.Labels[corev1.IsHeadlessService] = ""
		}
		return o
	}
	for i, step := range []struct {
		event  apiwatch.EventType
		object *metav1.PartialObjectMetadata
		want   [2]int
	}{
		{apiwatch.Added, slice("a", "east", false), [2]int{1, 0}},
		{apiwatch.Added, slice("b", "west", true), [2]int{1, 0}},
		{apiwatch.Modified, slice("b", "west", false), [2]int{1, 1}},
		{apiwatch.Modified, slice("b", "west", false), [2]int{1, 1}},
		{apiwatch.Modified, slice("a", "east", true), [2]int{0, 1}},
		{apiwatch.Deleted, slice("a", "east", true), [2]int{0, 1}},
		{apiwatch.Deleted, slice("b", "west", false), [2]int{0, 0}},
	} {
		w.take(apiwatch.Event{Type: step.event, Object: step.object})
		if got, _, err := w.visible("east", "west"); err != nil || got != step.want {
			t.Errorf("event %d: shown are %v of east and west, %v; want %v", i, got, err, step.want)
		}
	}
	if slices, most := w.written(); slices != 2 || most != 4 {
		t.Errorf("%d slices were written, one of them %d times, want 2 and 4", slices, most)
	}
}

// A stall lasts only if nothing changes for two minutes.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stall[int]
		for i := range 5 {
			if s.lasts(i) {
				t.Errorf("state %d: the stall lasts in spite of progress", i)
			}
			time.Sleep(crossPatience - time.Second)
		}
		time.Sleep(2 * time.Second)
		if !s.lasts(4) {
			t.Error("the stall does not last, want it to after two minutes")
		}
	})
}
