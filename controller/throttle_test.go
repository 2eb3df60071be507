package controller

import (
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
