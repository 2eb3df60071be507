package logging_test

import (
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/test/harness/logtest"
)

// A panic costs one piece of work. It is counted each time, and logged with its stack once.
func TestBarrier(t *testing.T) {
	log, panics, worked := &logtest.Recorder{}, 0, 0
	b := &logging.Barrier{Log: log, Panicked: func() { panics++ }}
	name := func() string { return "shop/db" }
	for range 3 {
		if b.Do("Service", name, func() { breakDown() }) {
			t.Error("work that panicked is said to have returned")
		}
		if !b.Do("Service", name, func() { worked++ }) {
			t.Error("work that returned is said to have panicked")
		}
	}
	if panics != 3 || worked != 3 {
		t.Errorf("%d panics and %d times of work, want 3 and 3", panics, worked)
	}
	if n := log.Count("Service shop/db: panic: out of order\ngoroutine"); n != 1 {
		t.Errorf("logged %d times, want once: %s", n, log)
	}
	if !strings.Contains(log.String(), "breakDown") {
		t.Errorf("log = %s, want the stack of the panic", log)
	}
	new(logging.Barrier).Do("Service", name, func() { panic("no one to tell") })
}

func breakDown() { panic("out of order") }
