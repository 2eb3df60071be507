package apiserver

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// A hook changes the requests of a client, or acts before a response is returned.
type hook struct {
	next     http.RoundTripper
	request  atomic.Pointer[func(*http.Request)]
	response atomic.Pointer[func(*http.Request)]
}

func (h *hook) RoundTrip(r *http.Request) (*http.Response, error) {
	if f := h.request.Load(); f != nil {
		r = r.Clone(r.Context())
		(*f)(r)
	}
	response, err := h.next.RoundTrip(r)
	if f := h.response.Load(); f != nil {
		(*f)(r)
	}
	return response, err
}

// newHooked returns a set with watches of Services and Namespaces that does not run, and the hook of its client.
func newHooked(t *testing.T, cp *controlplane.ControlPlane, o SetConfig) (*Set, *hook) {
	t.Helper()
	h := &hook{}
	cfg := rest.CopyConfig(cp.Config())
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { h.next = next; return h })
	client, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	o.Client, o.Name = client, "test"
	s := NewSet(o)
	s.Add(&corev1.Service{}, WatchOptions{})
	s.Add(&corev1.Namespace{}, WatchOptions{})
	return s, h
}

func TestCheck(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	t.Run("an event that overtakes the response", func(t *testing.T) { testOvertaken(t, cp) })
	t.Run("a rollback concerns every watch", func(t *testing.T) { testRollBackAll(t, cp) })
	t.Run("a list from before a rollback", func(t *testing.T) { testLateList(t, cp) })
	t.Run("no kube-system", func(t *testing.T) { testNoSystem(t, cp) })
	t.Run("when versions are compared", func(t *testing.T) { testCompareInterval(t, cp) })
}

// testOvertaken lets a watch see a write that comes after the API server has answered the check, and before the response
// arrives: that is not a rollback.
func testOvertaken(t *testing.T, cp *controlplane.ControlPlane) {
	rollbacks := 0
	s, h := newHooked(t, cp, SetConfig{RolledBack: func() { rollbacks++ }})
	w := s.watches[1]
	w.note(nil, "1", false)
	overtake := func(*http.Request) {
		h.response.Store(nil)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "overtaking-"}}
		ns.Name = "overtaking"
		if err := s.cfg.Client.Create(t.Context(), ns); err != nil {
			t.Error(err)
		}
		w.note(nil, ns.ResourceVersion, false)
	}
	h.response.Store(&overtake)
	if err := s.compare(t.Context()); err != nil || s.compared.IsZero() {
		t.Fatalf("compare = %v, complete at %v, want nil and a time", err, s.compared)
	}
	if rollbacks != 0 || w.rolledBack {
		t.Errorf("%d rollbacks, rolledBack %t, want none", rollbacks, w.rolledBack)
	}
}

// testRollBackAll has one watch that is ahead of the server, and one that is not: the lost history may have had its objects,
// too.
func testRollBackAll(t *testing.T, cp *controlplane.ControlPlane) {
	rollbacks := 0
	s, _ := newHooked(t, cp, SetConfig{RolledBack: func() { rollbacks++ }})
	s.check.pass("uid", 0)
	s.watches[0].note(nil, "9000000000", false)
	s.watches[1].note(nil, "1", false)
	for _, w := range s.watches {
		w.happened(listing, nil)
		w.happened(streamed, nil)
	}
	if err := s.compare(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, w := range s.watches {
		if h := w.current(); !w.rolledBack || h.Class != RolledBack {
			t.Errorf("%s: rolledBack %t, class %q", w.id, w.rolledBack, h.Class)
		}
	}
	if rollbacks != 1 {
		t.Errorf("%d rollbacks, want 1", rollbacks)
	}
	// The server answers: a link to it is not lost for that.
	if err := s.Err(); err != nil {
		t.Errorf("Err = %v after a rollback, want nil", err)
	}
}

// testLateList finds a rollback while a list is under way.
func testLateList(t *testing.T, cp *controlplane.ControlPlane) {
	s, h := newHooked(t, cp, SetConfig{})
	w := s.watches[0]
	if !s.checkServer(t.Context()) {
		t.Fatal("the server check failed")
	}
	rollBack := func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/services") {
			h.response.Store(nil)
			s.rollBack(s.watches, func(*listWatch) error { return errRolledBack })
		}
	}
	h.response.Store(&rollBack)
	if list, err := w.list(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); Classify(err) != Expired {
		t.Errorf("list = %v, %v, want one that has to be made anew", list, err)
	}
	if list, err := w.list(t.Context(), metav1.ListOptions{}); err != nil || list == nil {
		t.Errorf("the list after it = %v, %v", list, err)
	}
	late := metav1.ListOptions{Continue: "page"}
	w.rolledBack = true
	if err := w.mayContinue(&late); Classify(err) != Expired || !w.rolledBack {
		t.Errorf("the next page of a list from before a rollback: %v, rolledBack %t", err, w.rolledBack)
	}
}

// testNoSystem follows a server without kube-system by versions alone, unless it had one: then it is being restored.
func testNoSystem(t *testing.T, cp *controlplane.ControlPlane) {
	absent := func(r *http.Request) {
		r.URL.Path = strings.ReplaceAll(r.URL.Path, "/kube-system", "/no-such-namespace")
	}
	s, h := newHooked(t, cp, SetConfig{})
	h.request.Store(&absent)
	if !s.checkServer(t.Context()) {
		_, err := s.check.failure()
		t.Errorf("the check fails without kube-system: %v", err)
	}
	h.request.Store(nil)
	if !s.checkServer(t.Context()) || s.UID() == "" {
		t.Errorf("the check fails, or the UID %q is not taken", s.UID())
	}
	h.request.Store(&absent)
	if s.checkServer(t.Context()) {
		t.Error("the check passes although kube-system has gone")
	}
}

// testCompareInterval counts comparisons over the same connections.
func testCompareInterval(t *testing.T, cp *controlplane.ControlPlane) {
	for _, tt := range []struct {
		name     string
		interval time.Duration
		want     int32
	}{
		{name: "long ago", interval: time.Nanosecond, want: 2},
		{name: "just now", interval: time.Hour, want: 1},
	} {
		s, h := newHooked(t, cp, SetConfig{CompareInterval: tt.interval})
		if !s.checkServer(t.Context()) { // makes the connection
			t.Fatal("the server check failed")
		}
		s.watches[0].note(nil, "1", false)
		s.compared = time.Time{}
		var lists atomic.Int32
		count := func(r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/services") {
				lists.Add(1)
			}
		}
		h.request.Store(&count)
		for range 2 {
			if !s.checkServer(t.Context()) {
				t.Fatal("the server check failed")
			}
		}
		if got := lists.Load(); got != tt.want {
			t.Errorf("%s: compared %d times in two checks, want %d", tt.name, got, tt.want)
		}
	}
}
