package controller

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// docs/spec/controller.md 9.4: the property changes of one member cause a bounded rate of work, and delay no other member.
func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		throttle := newThrottle(t.Context(), func() { calls.Add(1) })
		for range 10_000 { // ten minutes
			throttle.call("mallory")
			time.Sleep(60 * time.Millisecond)
		}
		if most := propertyBurst + int64(10*time.Minute/propertyPeriod); calls.Load() > most || calls.Load() < most-1 {
			t.Errorf("%d times in ten minutes, want %d", calls.Load(), most)
		}
		before := calls.Load()
		throttle.call("west")
		if calls.Load() != before+1 {
			t.Error("a member waits for another one")
		}
		before = calls.Load()
		throttle.call("mallory")
		time.Sleep(propertyPeriod)
		synctest.Wait()
		if calls.Load() != before+1 {
			t.Errorf("%d times after the last call, want one", calls.Load()-before)
		}
	})
}

// docs/spec/controller.md 8.6: exports of a member in a namespace end at once in ten seconds, and then in ten of each minute. Others do not wait for them.
func TestUnexports(t *testing.T) {
	var u unexports
	start := time.Now()
	for _, tt := range []struct {
		after time.Duration // the start
		want  int           // of a hundred that end within half a second
	}{{0, 100}, {time.Second, 100}, {8 * time.Second, 100}, {9 * time.Second, 100}} {
		if got := endedAtOnce(&u, start.Add(tt.after), 100); got != tt.want {
			t.Errorf("after %s: %d of a hundred ended at once, want %d", tt.after, got, tt.want)
		}
	}
	var at []int
	for second := 10; second < 130; second++ {
		if endedAtOnce(&u, start.Add(time.Duration(second)*time.Second), 1) > 0 {
			at = append(at, second)
		}
	}
	if len(at) < 20 || len(at) > 28 {
		t.Errorf("later at once in seconds %v, want ten of each minute, and what is left of the first ten", at)
	}
	now := start.Add(130 * time.Second)
	for !u.atOnce("mallory", "shop", now) || u.atOnce("mallory", "shop", now.Add(time.Second)) {
		now = now.Add(time.Second)
	}
	now = now.Add(time.Second)
	if u.atOnce("mallory", "shop", now) || !u.atOnce("mallory", "other", now) || !u.atOnce("west", "shop", now) {
		t.Error("another member or namespace waits, or none does")
	}
	for i := range 2 * maxFlows {
		u.atOnce("mallory", fmt.Sprint(i), now.Add(time.Duration(i)*time.Minute))
	}
	if len(u.of) > maxFlows {
		t.Errorf("%d are remembered, want at most %d", len(u.of), maxFlows)
	}
}

func endedAtOnce(u *unexports, now time.Time, n int) (ended int) {
	for i := range n {
		if u.atOnce("mallory", "shop", now.Add(time.Duration(i)*5*time.Millisecond)) {
			ended++
		}
	}
	return ended
}
