package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress reports the progress of a run to the user. It may be used from several goroutines.
type progress struct {
	mu    sync.Mutex
	w     io.Writer
	began time.Time
}

func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.w, "[%3.0f s] %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

// every prints the line at each interval until the returned function is called, and once more then.
func (p *progress) every(interval time.Duration, line func() string) func() {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.say("%s", line())
			case <-stop:
				p.say("%s", line())
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}
