package apiserver

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
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

// verifyOnce verifies the state of the watches once, and returns the number of resources that are still unknown.
func verifyOnce(t *testing.T, s *Set) int {
	t.Helper()
	c := s.checker()
	c.interrupted()
	return c.verifyOnce(t.Context(), maps.Clone(c.pending))
}

func TestCheck(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	t.Run("odd time", func(t *testing.T) { testOddTime(t, cp) })
	t.Run("an event that overtakes the response", func(t *testing.T) { testOvertaken(t, cp) })
	t.Run("a rollback concerns every watch", func(t *testing.T) { testRollBackAll(t, cp) })
	t.Run("a list from before a rollback", func(t *testing.T) { testLateList(t, cp) })
	t.Run("no kube-system", func(t *testing.T) { testNoSystem(t, cp) })
	t.Run("what a check asks for", func(t *testing.T) { testRequests(t, cp) })
	t.Run("events after an interruption", func(t *testing.T) { testInterrupted(t, cp) })
	t.Run("a server that just started", func(t *testing.T) { testStarting(t, cp) })
	t.Run("a slow answer", func(t *testing.T) { testDrop(t, cp) })
	t.Run("a watch that is stalled", func(t *testing.T) { testStalled(t, cp) })
	t.Run("a kind that is quiet", func(t *testing.T) { testQuiet(t, cp) })
}

// testOddTime: a time that JSON cannot say, in the metadata of any object, does not keep the server check from reading
// versions.
func testOddTime(t *testing.T, cp *controlplane.ControlPlane) {
	set, _ := newHooked(t, cp, SetConfig{})
	c, labels := set.cfg.Client, map[string]string{"tier": "gold"}
	a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "odd", Name: "a", Labels: labels}}
	for _, obj := range []Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "odd"}}, a} {
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	a.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "odd", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:tier":{}}}}`), Time: new(metav1.Unix(300_000_000_000, 0)),
	}}
	if err := c.Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if year := a.ManagedFields[0].Time.Year(); year < 10_000 {
		t.Fatalf("the API server changed the year to %d", year)
	}
	if v, err := c.newest(t.Context(), ResourceOf(a).path(corev1.SchemeGroupVersion, "odd")); err != nil || v == 0 {
		t.Errorf("newest version = %d, %v, want one", v, err)
	}
}

// testOvertaken lets a watch see a write that comes after the API server has answered the check, and before the
// response arrives: that is not a rollback.
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
	if left := verifyOnce(t, s); left > 0 {
		t.Fatal("the history is in doubt")
	}
	if rollbacks != 0 || w.rolledBack {
		t.Errorf("%d rollbacks, rolledBack %t, want none", rollbacks, w.rolledBack)
	}
}

// testRollBackAll has one watch that is ahead of the server, and one that is not: the lost history may have had its
// objects, too.
func testRollBackAll(t *testing.T, cp *controlplane.ControlPlane) {
	rollbacks := 0
	s, _ := newHooked(t, cp, SetConfig{RolledBack: func() { rollbacks++ }})
	s.check.pass("uid", 0)
	s.watches[0].note(nil, "9000000000", false)
	s.watches[1].note(nil, "1", false)
	for _, w := range s.watches {
		w.health.handleEvent(listing, nil)
		w.health.handleEvent(streamed, nil)
	}
	verifyOnce(t, s)
	for _, w := range s.watches {
		if h := w.health.current(); !w.rolledBack || h.Class != RolledBack {
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
	if !s.checker().checkServer(t.Context()) {
		t.Fatal("the server check failed")
	}
	restored := func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/services") {
			h.response.Store(nil)
			rollBack(s.watches, errRolledBack)
		}
	}
	h.response.Store(&restored)
	if list, err := w.list(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); Classify(err) != Expired {
		t.Errorf("list = %v, %v, want one that has to be made anew", list, err)
	}
	if list, err := w.list(t.Context(), metav1.ListOptions{}); err != nil || list == nil {
		t.Errorf("the list after it = %v, %v", list, err)
	}
	late := metav1.ListOptions{Continue: "page"}
	w.rolledBack = true
	if err := w.mayContinue(late); Classify(err) != Expired || !w.rolledBack {
		t.Errorf("the next page of a list from before a rollback: %v, rolledBack %t", err, w.rolledBack)
	}
}

// testNoSystem follows a server without kube-system by versions alone, unless it had one: then it is being restored.
func testNoSystem(t *testing.T, cp *controlplane.ControlPlane) {
	absent := func(r *http.Request) {
		r.URL.Path = strings.ReplaceAll(r.URL.Path, "/kube-system", "/no-such-namespace")
	}
	s, h := newHooked(t, cp, SetConfig{})
	c := s.checker()
	h.request.Store(&absent)
	for range 2 { // also when nothing was interrupted since the last check
		if !c.checkServer(t.Context()) {
			err := s.check.failure()
			t.Errorf("the check fails without kube-system: %v", err)
		}
	}
	h.request.Store(nil)
	if !c.checkServer(t.Context()) || s.UID() == "" {
		t.Errorf("the check fails, or the UID %q is not taken", s.UID())
	}
	h.request.Store(&absent)
	if c.checkServer(t.Context()) {
		t.Error("the check passes although kube-system has gone")
	}
}

// testRequests counts the requests of a check.
func testRequests(t *testing.T, cp *controlplane.ControlPlane) {
	for _, tt := range []struct {
		name  string
		event bool
		doubt bool
		age   time.Duration // of the last check that asked
		want  int32
	}{
		{"nothing came", false, false, 0, 1},
		{"an event came", true, false, 0, 0},
		{"an event came, and an error", true, true, 0, 2},
		{"only events come", true, false, 2 * askInterval, 1},
	} {
		s, h := newHooked(t, cp, SetConfig{})
		c := s.checker()
		if !c.checkServer(t.Context()) { // makes the connection
			t.Fatal("the server check failed")
		}
		c.group.Wait()
		if tt.event {
			s.watches[0].note(nil, "1", false)
		}
		s.check.doubt.Store(tt.doubt)
		c.asked = c.asked.Add(-tt.age)
		var requests atomic.Int32
		count := func(*http.Request) { requests.Add(1) }
		h.request.Store(&count)
		passed := c.checkServer(t.Context())
		if c.group.Wait(); !passed || s.check.doubt.Load() {
			t.Errorf("%s: the server check failed, or left a doubt", tt.name)
		}
		if got := requests.Load(); got != tt.want {
			t.Errorf("%s: %d requests, want %d", tt.name, got, tt.want)
		}
	}
}

// testInterrupted: a watch saw an event that the server lost. A newer event, after the interruption, must not hide
// that.
func testInterrupted(t *testing.T, cp *controlplane.ControlPlane) {
	s, _ := newHooked(t, cp, SetConfig{})
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "interrupted"}}
	if err := s.cfg.Client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	w, lost := s.watches[1], ns.DeepCopy()
	lost.UID = "lost"
	w.note(nil, ns.ResourceVersion, false)
	w.mark(nil, watch.Added, lost)
	c := s.checker()
	c.interrupted()
	w.landmark = nil // the watch goes on
	w.mark(nil, watch.Added, ns)
	c.interrupted()
	if c.verifyOnce(t.Context(), maps.Clone(c.pending)); !w.rolledBack {
		t.Error("a newer event hides the rollback")
	}
}

// testStarting: a server that has just started answers 403 some times, and may be another one. A right that was revoked
// ends nothing.
func testStarting(t *testing.T, cp *controlplane.ControlPlane) {
	s, h := newHooked(t, cp, SetConfig{})
	c := s.checker()
	if !c.checkServer(t.Context()) {
		t.Fatal("the server check failed")
	}
	denied := func(r *http.Request) { r.Header.Set("Impersonate-User", "nobody") }
	h.request.Store(&denied)
	for i := range startingAnswers + 1 {
		c.asked = time.Time{}
		if passed := c.checkServer(t.Context()); passed != (i == startingAnswers) {
			t.Errorf("answer 403 number %d: passed %t", i+1, passed)
		}
	}
}

// testDrop ends connections after a check without an answer, but not if a watch brought something meanwhile.
func testDrop(t *testing.T, cp *controlplane.ControlPlane) {
	for _, event := range []bool{false, true} {
		s, _ := newHooked(t, cp, SetConfig{})
		c := s.checker()
		if !c.checkServer(t.Context()) {
			t.Fatal("the server check failed")
		}
		if event {
			s.watches[0].note(nil, "1", false)
		}
		before := s.cfg.Client.Dials()
		c.fail(t.Context(), context.DeadlineExceeded)
		// A check may still begin on a connection that is ending.
		until.True(t, "a server check passes", func() bool { return c.checkServer(t.Context()) })
		if dialled := s.cfg.Client.Dials() > before; dialled == event {
			t.Errorf("event %t: the next check made a connection: %t", event, dialled)
		}
	}
}

// testStalled has a watch that brought nothing for longer than bookmarks are apart: it is opened anew where it was. A
// check counts for neither watch until the new one brings something.
func testStalled(t *testing.T, cp *controlplane.ControlPlane) {
	s, h := newHooked(t, cp, SetConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	w := s.watches[1]
	open := func() (p *watchProxy) {
		until.True(t, "an open watch", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			p = w.proxy
			return p != nil && w.health.current().State == Watching
		})
		return p
	}
	stalled := open()
	before, _, _ := w.seenSoFar()
	create := func(name string) {
		if err := s.cfg.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	create("stalled") // a reflector lists after a watch that brought nothing within a second
	until.True(t, "the event", func() bool {
		seen, _, _ := w.seenSoFar()
		return seen > before
	})
	contact := w.health.current().LastContact
	stalled.heard.at.Store(-int64(quietTime))
	if p := w.markChecked(); p != stalled || w.health.current().LastContact != contact {
		t.Errorf("a check counts for a stalled watch: contact %s after the last", w.health.current().LastContact.Sub(contact))
	}
	var progress atomic.Int32
	asks := func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/namespaces") && r.URL.Query().Get("limit") == "1" {
			progress.Add(1)
		}
	}
	h.request.Store(&asks)
	for range 2 { // the second time, it was asked before
		stalled.heard.at.Store(-int64(progressTime))
		w.askProgress(ctx)
		until.True(t, "a request for progress", func() bool { return progress.Load() == 1 })
	}
	var lists atomic.Int32
	count := func(r *http.Request) {
		if r.URL.Query().Get("watch") != "true" && strings.HasSuffix(r.URL.Path, "/namespaces") ||
			r.URL.Query().Has("sendInitialEvents") {
			lists.Add(1)
		}
	}
	h.request.Store(&count)
	until.True(t, "another watch", func() bool {
		stalled.heard.at.Store(-int64(quietTime)) // a bookmark comes within a second after a streamed list
		s.check.request()
		return open() != stalled
	})
	if n := lists.Load(); n != 0 {
		t.Errorf("%d lists for a watch that was stalled, want none", n)
	}
	contact = w.health.current().LastContact
	if p := w.markChecked(); p != nil || w.health.current().LastContact != contact {
		t.Errorf("a check counts for a watch after a stalled one")
	}
	create("stalled-no-longer")
	until.True(t, "contact", func() bool { return w.health.current().LastContact.After(contact) })
	contact = w.health.current().LastContact
	if w.markChecked(); !w.health.current().LastContact.After(contact) {
		t.Errorf("a check does not count for a watch that brought something")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// testQuiet: a quiet kind gets a bookmark in time, although etcd does not report progress.
func testQuiet(t *testing.T, cp *controlplane.ControlPlane) {
	tier.Nightly(t) // it takes a minute
	s, _ := newHooked(t, cp, SetConfig{Interval: time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	w := s.watches[1]
	open := func() *watchProxy {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.proxy
	}
	until.True(t, "a watch that is quiet", func() bool { p := open(); return p != nil && p.heard.Age() > 5*time.Second })
	quiet := open()
	other := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "quiet"}}
	if err := s.cfg.Client.Create(ctx, other); err != nil { // which etcd counts, too
		t.Fatal(err)
	}
	before := quiet.heard.Last()
	until.True(t, "a bookmark or another watch", func() bool { return open() != quiet || quiet.heard.Last().After(before) })
	if open() != quiet {
		t.Error("a quiet watch was opened anew: want a bookmark before")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
