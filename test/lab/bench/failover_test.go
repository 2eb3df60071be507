package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

func TestFailoverReport(t *testing.T) {
	moves := &failoverPart{
		Proxy: "kube-proxy of Kubernetes v1.36.3",
		Moves: []moveResult{
			newMoveResult("own cluster", "its default", []time.Duration{900 * time.Millisecond, 1100 * time.Millisecond}),
			newMoveResult("other cluster", "its default", []time.Duration{90 * time.Millisecond}),
		},
		Drains: []drainedResult{{"own cluster", "its default", 3, 1000, 0}, {"other cluster", "its default", 3, 1000, 1}},
	}
	together := &togetherPart{Services: 5000, Floor: 0.002, Changes: []togetherResult{
		{What: "hidden", Shown: 12, Slices: 5000, Most: 1},
		{What: "moved", Written: 5, Shown: 12, Landed: 31, Slices: 5000, Most: 2, Others: map[string]float64{"local ServiceImport patch": 5000}},
		{What: "lost", Shown: 3, Landed: 4, Slices: 10000, Most: 1, Allowed: "broker EndpointSlice apply",
			Others: map[string]float64{"broker EndpointSlice apply": 5000}},
		{What: "noisy", Slices: 10000, Most: 1, Allowed: "broker EndpointSlice apply",
			Others: map[string]float64{"broker EndpointSlice apply": 5000, "local Event create": 2}},
	}}
	var missed []string
	all := append(moves.goals(), together.goals()...)
	for _, g := range all {
		if g.Missed {
			missed = append(missed, g.What)
		}
	}
	want := "p99 from the loss in the own cluster to the next cluster, kube-proxy with its default, ms; " +
		"failed connections while the other cluster is drained, kube-proxy with its default; " +
		"moved: until it is in effect, s; moved: writes of one slice; noisy: other writes than broker EndpointSlice apply"
	if got := strings.Join(missed, "; "); got != want || len(all) != 14 {
		t.Errorf("of %d goals missed %q, want of 14 %q", len(all), got, want)
	}
	text := squeeze(moves.markdown() + together.markdown())
	for _, want := range []string{
		"A client alone takes 2.00 ms for a write.",
		"| own cluster | its default | 2 | 900 | 1100 | 1100 | ≤ 1000 **missed** |",
		"| other cluster | its default | 3 | 1000 | 1 | ≤ 0 **missed** |",
		"| hidden | 0.0 | 12.0 | – | ≤ 30 | 1.20 | 5000 | 1 | ≤ 1 | none | – |",
		"| moved | 5.0 | 12.0 | 31.0 | ≤ 30 **missed** | 1.55 | 5000 | 2 | ≤ 1 **missed** | 5000 local ServiceImport patch | – |",
		"| lost | 0.0 | 3.0 | 4.0 | ≤ 30 | 0.13 | 10000 | 1 | ≤ 1 | 5000 broker EndpointSlice apply | only broker EndpointSlice apply |",
		", 2 local Event create | only broker EndpointSlice apply **missed** |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("report lacks %q:\n%s", want, text)
		}
	}
}

// The slices that are shown are counted as the watch goes on.
func TestSliceWatch(t *testing.T) {
	w := newSliceWatch()
	slice := func(name, cluster string, hidden bool) *metav1.PartialObjectMetadata {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{mcsv1beta1.LabelSourceCluster: cluster}}}
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
