package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/test/harness/logtest"
)

func TestClassify(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	tooLarge := apierrors.NewTimeoutError("too large", 1)
	tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	tests := []struct {
		name string
		err  error
		want Class
	}{
		{"no error", nil, OK},
		{"connection refused", errors.New("dial tcp 10.0.0.1:443: connect: connection refused"), Unreachable},
		{"time-out", context.DeadlineExceeded, Unreachable},
		{"500", apierrors.NewInternalError(errors.New("etcd")), Unreachable},
		{"503", apierrors.NewServiceUnavailable("starting"), Unreachable},
		{"429", apierrors.NewTooManyRequests("later", 1), Unreachable},
		{"504 of another cause", apierrors.NewTimeoutError("slow", 1), Unreachable},
		{"400", apierrors.NewBadRequest("x"), Rejected},
		{"422", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), Rejected},
		{"before the first check", errUnchecked, Unreachable},
		{"401", apierrors.NewUnauthorized("token"), Unauthorized},
		{"403", apierrors.NewForbidden(pods, "", errors.New("no")), Forbidden},
		{"404", apierrors.NewNotFound(pods, ""), Absent},
		{"405", apierrors.NewMethodNotSupported(pods, "watch"), Absent},
		{"no version", errAbsent, Absent},
		{"rollback", errRolledBack, RolledBack},
		{"another cluster", ErrReplaced, Replaced},
		{"410 expired", apierrors.NewResourceExpired("old"), Expired},
		{"410 gone", &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusGone,
			Reason: metav1.StatusReasonGone}}, Expired},
		{"version too large", tooLarge, Expired},
		{"no streamed lists", errNoStream, Expired},
		{"another version", errMoved, Expired},
	}
	seen := map[Class]bool{}
	for _, tt := range tests {
		if got := Classify(tt.err); got != tt.want {
			t.Errorf("%s: Classify(%v) = %q, want %q", tt.name, tt.err, got, tt.want)
		}
		if tt.err == nil {
			continue
		}
		if got := Classify(fmt.Errorf("list Pod: %w", tt.err)); got != tt.want {
			t.Errorf("%s, wrapped: %q, want %q", tt.name, got, tt.want)
		}
		seen[tt.want] = true
	}
	for c := OK + 1; c < classes; c++ {
		if !seen[c] || c.String() == "" {
			t.Errorf("class %q: want a name and a row of the table", c)
		}
	}
}

// transitions is the table in the comment of [WatchState], with every cell filled in.
var transitions = [states][events]WatchState{
	//         listing  listed    streamed  opened    ended    expired  failed
	Pending:  {Listing, Pending, Pending, Watching, Pending, Pending, Failing},
	Listing:  {Listing, Opening, Watching, Watching, Pending, Pending, Failing},
	Opening:  {Listing, Opening, Opening, Watching, Opening, Pending, Failing},
	Watching: {Listing, Watching, Watching, Watching, Opening, Pending, Failing},
	Failing:  {Listing, Failing, Failing, Watching, Failing, Pending, Failing},
}

func TestNext(t *testing.T) {
	for s := range states {
		for e := range events {
			if got, want := s.next(e), transitions[s][e]; got != want {
				t.Errorf("%s.next(%d) = %s, want %s", s, e, got, want)
			}
		}
	}
}

func TestHealthAfter(t *testing.T) {
	refused := errors.New("connection refused")
	steps := []struct {
		name    string
		event   event
		err     error
		state   WatchState
		class   Class
		listed  bool
		healthy bool
	}{
		{"no answer", failed, refused, Failing, Unreachable, false, false},
		{"and again", failed, errAbsent, Failing, Absent, false, false},
		{"a list begins", listing, nil, Listing, Absent, false, false},
		{"and breaks", ended, nil, Pending, Absent, false, false},
		{"another one", listing, nil, Listing, Absent, false, false},
		{"is complete", listed, nil, Opening, Absent, true, false},
		{"the watch is open", opened, nil, Watching, OK, true, true},
		{"the API server ends it", ended, nil, Opening, OK, true, true},
		{"the next one is open", opened, nil, Watching, OK, true, true},
		{"a rollback", failed, errRolledBack, Failing, RolledBack, true, false},
		{"has to be listed", expired, nil, Pending, RolledBack, true, false},
		{"streams", listing, nil, Listing, RolledBack, true, false},
		{"is complete", streamed, nil, Watching, OK, true, true},
	}
	var h Health
	for _, s := range steps {
		h = h.after(s.event, s.err)
		if h.State != s.state || h.Class != s.class || h.Listed != s.listed || h.Healthy() != s.healthy {
			t.Errorf("%s: %+v, healthy %t, want %+v", s.name, h, h.Healthy(), s)
		}
		if (h.Err == nil) != (h.Class == OK) {
			t.Errorf("%s: error %v of class %q", s.name, h.Err, h.Class)
		}
	}
}

// A server check is not made for each watch that ends, however many do.
func TestChecksHaveAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var checks atomic.Int32
		s := newTransportSet(t, func(r *http.Request) (*http.Response, error) {
			checks.Add(1)
			return okResponse(r), nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		for range 1000 {
			s.check.request()
			time.Sleep(time.Millisecond)
		}
		if n := checks.Load(); n < 2 || n > 5 {
			t.Errorf("%d checks in a second in which a watch ended each millisecond, want 2 to 5", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// newTransportSet returns a set without watches whose requests end in answer.
func newTransportSet(t *testing.T, answer roundTrip) *Set {
	t.Helper()
	client, err := NewClient(&rest.Config{Host: "https://server.invalid", QPS: -1, Transport: answer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return NewSet(SetConfig{Client: client, Name: "test"})
}

// okResponse is the answer of a server to a check.
func okResponse(r *http.Request) *http.Response {
	return &http.Response{
		StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(`{"metadata": {"uid": "u"}}`)),
	}
}

func TestPause(t *testing.T) {
	const step = 5 * time.Second
	for class := OK; class < classes; class++ {
		if got := class.pause(step, oftenFor); got != step {
			t.Errorf("%s for %s: a pause of %s, want %s", class, oftenFor, got, step)
		}
		want := step
		if class == Absent || class == Forbidden || class == Rejected {
			want = time.Minute
		}
		if got := class.pause(step, time.Hour); got != want {
			t.Errorf("%s for an hour: a pause of %s, want %s", class, got, want)
		}
	}
}

// An API server that stays out of reach for another reason, and a watch that is denied for another reason, are logged
// once more.
func TestFurtherReasonsAreLogged(t *testing.T) {
	var answer atomic.Value
	s := newTransportSet(t, func(*http.Request) (*http.Response, error) { return nil, answer.Load().(error) })
	log := &logtest.Recorder{}
	s.cfg.Log = log
	s.Add(&corev1.Namespace{}, WatchOptions{})
	c := s.checker()
	denied := func(why string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", errors.New(why))
	}
	synctest.Test(t, func(t *testing.T) {
		for _, why := range []string{"connection refused", "certificate signed by unknown authority"} {
			for range 3 {
				answer.Store(errors.New(why))
				c.checkServer(t.Context())
				s.watches[0].health.handleEvent(failed, denied(why))
			}
			time.Sleep(time.Minute)
		}
	})
	for _, want := range []string{
		"out of reach: ", "connection refused", "unknown authority", "rights are missing; ",
	} {
		if n := log.Count(want); n != 2 {
			t.Errorf("%d lines with %q, want 2: %s", n, want, log)
		}
	}
}

// docs/spec/dns.md 6.4: an attempt that the server answered is followed by another pause than one that nothing
// answered.
func TestBackoff(t *testing.T) {
	refused, busy := errors.New("connection refused"), apierrors.NewTooManyRequests("later", 1)
	b := NewBackoff()
	for i, step := range []struct {
		err    error
		pauses []time.Duration
	}{
		{busy, []time.Duration{250, 500, 1000, 2000, 4000, 5000, 5000, 5000, 5000, 5000, 5000, 5000}},
		{refused, []time.Duration{250, 500, 650, 650, 650, 650, 650, 650, 650, 650, 650, 650}},
		{apierrors.NewUnauthorized("token"), []time.Duration{250, 500}},
		{nil, []time.Duration{1000, 2000}},
		{context.DeadlineExceeded, []time.Duration{250}},
	} {
		for j, want := range step.pauses {
			want *= time.Millisecond
			if got := b.After(step.err); got < want || got > want*3/2 {
				t.Errorf("step %d, pause %d after %v: %s, want %s and at most half of it on top", i, j, step.err, got, want)
			}
		}
	}
}

// docs/spec/dns.md 6.5: a check waits for a server that is slow, and takes the answer of one that is busy as one.
func TestChecksOfASlowServer(t *testing.T) {
	run := func(t *testing.T, answer roundTrip) (*Set, func()) {
		s := newTransportSet(t, answer)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		return s, func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s, stop := run(t, func(r *http.Request) (*http.Response, error) {
			select {
			case <-time.After(16 * time.Second):
				return okResponse(r), nil
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		})
		time.Sleep(time.Minute)
		for range 100 {
			if err := s.check.failure(); err != nil {
				t.Errorf("a server that answers after 16 s: %v", err)
			}
			time.Sleep(time.Second)
		}
		stop()
	})
	synctest.Test(t, func(t *testing.T) {
		s, stop := run(t, func(r *http.Request) (*http.Response, error) {
			answer := okResponse(r)
			answer.StatusCode = http.StatusTooManyRequests
			answer.Header.Set("Retry-After", "30")
			return answer, nil
		})
		time.Sleep(time.Second)
		if err := s.check.failure(); !apierrors.IsTooManyRequests(err) {
			t.Errorf("a server that asks for patience: %v, want its answer", err)
		}
		stop()
	})
}

// docs/spec/dns.md 6.4: however long the API server was away, a check reaches it within a second of its return.
func TestChecksOfASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var serves atomic.Bool
		var dials atomic.Int32
		s := newTransportSet(t, func(r *http.Request) (*http.Response, error) {
			if dials.Add(1); !serves.Load() {
				return nil, errors.New("connection refused")
			}
			return okResponse(r), nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(3 * time.Minute)
		if n := dials.Load(); n < 180 || n > 300 {
			t.Errorf("%d attempts in 3 minutes without an answer, want 1 to 1.6 a second", n)
		}
		serves.Store(true)
		time.Sleep(time.Second)
		if err := s.check.failure(); err != nil {
			t.Errorf("the check fails one second after the server is back: %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
