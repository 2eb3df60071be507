package write

import (
	"cmp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/controller/desired"
)

var db = types.NamespacedName{Namespace: "shop", Name: "db"}

func TestLag(t *testing.T) {
	start := time.Now()
	slice := func(changed string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{}
		if changed != "" {
			s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: changed}
		}
		return s
	}
	at := func(seconds int) string {
		return start.Add(time.Duration(seconds) * time.Second).Format(time.RFC3339Nano)
	}
	for _, tt := range []struct {
		name     string
		was, now string
		written  time.Duration // since the start; 0 is ten seconds
		want     time.Duration
		known    bool
	}{
		{name: "a change", was: at(1), now: at(7), want: 3 * time.Second, known: true},
		{name: "the first that is dated", now: at(7), want: 3 * time.Second, known: true},
		{name: "in the future of this clock", was: at(1), now: at(12), known: true},
		{name: "no other change", was: at(7), now: at(7)},
		{name: "from before the start", was: at(-9), now: at(-1)},
		{name: "just not too old", was: at(1), now: at(7), written: 7*time.Second + maxLag, want: maxLag, known: true},
		{name: "older than any lag that counts", was: at(1), now: at(7), written: 8*time.Second + maxLag},
		{name: "dated no longer", was: at(1)},
		{name: "not a time", was: at(1), now: "now"},
	} {
		got, known := lag(slice(tt.was), slice(tt.now), start, start.Add(cmp.Or(tt.written, 10*time.Second)))
		if got.Round(time.Millisecond) != tt.want || known != tt.known {
			t.Errorf("%s: lag = %s, %t, want %s, %t", tt.name, got, known, tt.want, tt.known)
		}
	}
}

// The existing objects are known after any order of writes.
func TestObjects(t *testing.T) {
	slice := func(name, version string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
	}
	os := newObjects(desired.Objects{Slices: []*discoveryv1.EndpointSlice{slice("a", "1"), slice("b", "1"),
		slice("c", "1")}})
	check := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, e := range os.Slices {
			got = append(got, e.Name+e.ResourceVersion)
			if existing := os.existing(e); existing != e {
				t.Errorf("%s: existing(%s) = %v, want the slice", what, e.Name, existing)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) || len(os.at) != len(want) {
			t.Errorf("%s: %q, %d names; want %q", what, got, len(os.at), want)
		}
	}
	os.remove(slice("a", "1"))
	check("first removed", "b1", "c1")
	os.remove(slice("a", "1"))
	check("removed again", "b1", "c1")
	os.set(slice("b", "2"))
	os.set(slice("d", "1"))
	check("changed and created", "b2", "c1", "d1")
	os.remove(slice("d", "1"))
	os.remove(slice("c", "1"))
	os.remove(slice("b", "2"))
	check("all removed")
	os.set(slice("a", "3"))
	check("created again", "a3")
}

func TestResponses(t *testing.T) {
	rs := newResponses()
	rs.set(db, "ServiceImport", response{"a", "b"})
	if r, ok := rs.get(db, "ServiceImport"); !ok || r != (response{"a", "b"}) {
		t.Errorf("response = %v, %t, want what was set", r, ok)
	}
	rs.remove(db)
	if _, ok := rs.get(db, "ServiceImport"); ok {
		t.Error("a response is remembered of a service that is gone")
	}
}
