package member

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/about"
	aboutv1beta1 "github.com/clusterset-dns/clusterset/api/about/v1beta1"
)

// A ClusterProperty that is gone counts until the watch was healthy for a while since the last deletion, and it is
// known not to exist.
func TestKeptProperties(t *testing.T) {
	start := time.Now()
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	changes := 0
	k := newKeptProperties(func() { changes++ })
	for _, name := range []string{"tier", "zone", about.ClusterIDName} {
		k.put(&aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	exists := map[string]bool{}
	for _, step := range []struct {
		what     string
		at       float64
		end      string // is deleted, else the loss is reviewed
		healthy  bool
		existing string
		want     string
		changes  int
	}{
		{what: "the cluster id ends at once", end: about.ClusterIDName, want: "tier zone"},
		{what: "one is deleted", at: 1, end: "tier", want: "tier zone"},
		{what: "too early", at: 3.9, healthy: true, want: "tier zone"},
		{what: "another one is deleted", at: 3.9, end: "zone", want: "tier zone"},
		{what: "too early after that", at: 6.8, healthy: true, want: "tier zone"},
		{what: "the watch fails", at: 7, want: "tier zone"},
		{what: "too early after the failure", at: 9.9, healthy: true, want: "tier zone"},
		{what: "one still exists, but does not decode", at: 10, healthy: true, existing: "tier", want: "tier", changes: 1},
		{what: "nothing new", at: 11, healthy: true, existing: "tier", want: "tier", changes: 1},
		{what: "it does not exist any more", at: 12, healthy: true, changes: 2},
	} {
		if step.end != "" {
			k.end(step.end, at(step.at))
		} else {
			clear(exists)
			exists[step.existing] = true
			k.release(at(step.at), step.healthy, func(name string) bool { return exists[name] })
		}
		var got []string
		for name := range k.orFormer(func() []*aboutv1beta1.ClusterProperty { return nil }) {
			got = append(got, name)
		}
		slices.Sort(got)
		if text := strings.Join(got, " "); text != step.want || changes != step.changes {
			t.Errorf("%s: %q after %d changes, want %q after %d", step.what, text, changes, step.want, step.changes)
		}
	}
}
