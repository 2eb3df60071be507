// Package logtest holds the loggers of tests.
package logtest

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/clusterset-dns/clusterset/api/logging"
)

// To returns a logger that writes to the log of t, with prefix before each line. The test must not end before its
// users.
func To(t testing.TB, prefix string) logging.Logger { return logger{t, prefix} }

type logger struct {
	t      testing.TB
	prefix string
}

func (l logger) Infof(format string, args ...any) { l.t.Logf(l.prefix+"info: "+format, args...) }

func (l logger) Warningf(format string, args ...any) { l.t.Logf(l.prefix+"warning: "+format, args...) }

func (l logger) Errorf(format string, args ...any) { l.t.Logf(l.prefix+"error: "+format, args...) }

// A Recorder is a logger that keeps its lines, each as "<level>: <text>" with the level info, warning or error. The
// zero value is ready. Its methods may be called by several goroutines.
type Recorder struct {
	mu    sync.Mutex
	lines []string
}

func (r *Recorder) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// Infof implements [logging.Logger].
func (r *Recorder) Infof(format string, args ...any) { r.add("info: "+format, args...) }

// Warningf implements [logging.Logger].
func (r *Recorder) Warningf(format string, args ...any) { r.add("warning: "+format, args...) }

// Errorf implements [logging.Logger].
func (r *Recorder) Errorf(format string, args ...any) { r.add("error: "+format, args...) }

// Count returns how many lines contain part.
func (r *Recorder) Count(part string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.lines {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// String returns all lines, one below the other.
func (r *Recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}
