package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A load sends queries from several goroutines until it is stopped. It notes each answer that is not permitted, and
// each datagram without an answer. A busy machine may answer late: a datagram counts as lost only after
// [until.Patience].
type load struct {
	t       *testing.T
	stopped chan struct{}
	askers  sync.WaitGroup
	answers atomic.Int64
	lost    atomic.Int64

	mu    sync.Mutex
	wrong []string
}

// permitted holds the right answers to each question, in the format of say.
type permitted map[question][]string

// startLoad asks the server at addr.
func startLoad(t *testing.T, addr string, p permitted) *load {
	t.Helper()
	l := &load{t: t, stopped: make(chan struct{})}
	for q, answers := range p {
		for range 2 {
			l.askers.Go(func() { l.run(addr, q, answers) })
		}
	}
	t.Cleanup(l.end)
	return l
}

func (l *load) run(addr string, q question, answers []string) {
	for {
		select {
		case <-l.stopped:
			return
		// Slow enough to leave time for the rest.
		case <-time.After(2 * time.Millisecond):
		}
		m, err := askWithin(until.Patience, addr, q)
		switch {
		case err != nil && isTimeout(err):
			l.lost.Add(1)
			l.note("%s: no answer for %s", q, until.Patience)
		case err != nil:
			l.note("%s: %v", q, err)
		case !slices.Contains(answers, say(m)):
			l.note("%s: got %s, want one of %q", q, say(m), answers)
		default:
			l.answers.Add(1)
		}
	}
}

func (l *load) note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf("%s "+format, append([]any{time.Now().Format(time.StampMilli)}, args...)...))
}

// more waits for n further right answers.
func (l *load) more(n int64) {
	l.t.Helper()
	want := l.answers.Load() + n
	until.OK(l.t, "answers", func(context.Context) error {
		if got := l.answers.Load(); got < want {
			return fmt.Errorf("%d, want %d", got, want)
		}
		return nil
	})
}

// enough is the number of answers without which a load proves nothing.
const enough = 100

// stop ends the load when there were enough answers. It fails the test if an answer was wrong or did not come.
func (l *load) stop() {
	l.t.Helper()
	until.OK(l.t, "enough answers", func(context.Context) error {
		if got := l.answers.Load(); got < enough {
			return fmt.Errorf("%d answers, want %d", got, enough)
		}
		return nil
	})
	l.end()
	for i, wrong := range l.wrong {
		if i == 10 {
			l.t.Errorf("... %d wrong answers", len(l.wrong))
			break
		}
		l.t.Error(wrong)
	}
	l.t.Logf("%d answers, %d datagrams lost", l.answers.Load(), l.lost.Load())
}

func (l *load) end() {
	select {
	case <-l.stopped:
	default:
		close(l.stopped)
	}
	l.askers.Wait()
}
